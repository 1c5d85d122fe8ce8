//! Slots, on every store that has values.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use zlock_core::{ErrorKind, LockPath, SessionState};
use zlock_recipes::{Slot, Slots};

use crate::case::{LONG, MOMENT};
use crate::{Call, Case, Process, Side, sweep};

fn path(case: &Case<'_>) -> LockPath {
    let path = case.value("slots");
    case.uses([path.join("holders").unwrap()]);
    path
}

fn slots(case: &Case<'_>, process: &Process, n: u32) -> Slots {
    process.client.slots(path(case), n).unwrap()
}

async fn acquired(slots: &Slots) -> Slot {
    timeout(LONG, slots.acquire()).await.expect("a number is free").unwrap()
}

fn numbers<'a>(held: impl IntoIterator<Item = &'a Slot>) -> BTreeSet<u32> {
    held.into_iter().map(Slot::number).collect()
}

/// Many clients take all numbers at the same time, and no two have the same.
pub async fn numbers_are_unique(case: &Case<'_>) {
    let processes: [Process; 4] = case.processes().await;
    for _ in 0..3 {
        let held = join_all((0..12).map(|n| {
            let slots = slots(case, &processes[n % 4], 12);
            async move { acquired(&slots).await }
        }));
        let held = held.await;
        assert_eq!(numbers(&held), (0..12).collect());
        assert!(held.iter().all(|slot| slot.is_held()));
        for slot in held {
            slot.release().await.unwrap();
        }
    }
}

/// Clients that take numbers at the same time do not all list the queue for each number that one of them gets. The one whose write
/// succeeds gives the others theirs.
pub async fn crowd_does_not_list_for_each_other(case: &Case<'_>) {
    let processes: [Process; 4] = case.processes().await;
    let held = join_all((0..48).map(|n| {
        let slots = slots(case, &processes[n % 4], 48);
        async move { acquired(&slots).await }
    }));
    let held = held.await;
    assert_eq!(numbers(&held), (0..48).collect());
    let listings: usize = processes.iter().map(|process| process.faults.count(Call::Children)).sum();
    // A second time, after a write that was refused. The third table would have the number.
    assert!(listings <= 2 * 48, "{listings}");
    for slot in held {
        slot.release().await.unwrap();
    }
}

/// Without any time to wait, a number that is free is taken.
pub async fn no_time_is_one_attempt(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let slot = slots(case, &a, 1).acquire_timeout(Duration::ZERO).await.unwrap();
    assert_eq!(slot.number(), 0);
    let error = slots(case, &b, 1).acquire_timeout(Duration::ZERO).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
}

/// A client waits while all numbers are taken, and gets the one that becomes free.
pub async fn one_too_many_waits_for_a_number(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (one, two) = (slots(case, &a, 3), slots(case, &b, 3));
    let mut held = join_all((0..3).map(|_| acquired(&one))).await;
    held.sort_by_key(Slot::number);
    let error = two.acquire_timeout(MOMENT).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    let waiting = tokio::spawn(async move { acquired(&two).await });
    held.remove(1).release().await.unwrap();
    let slot = timeout(LONG, waiting).await.expect("a number is free").unwrap();
    assert_eq!(slot.number(), 1);
}

/// The number of a client that died is free once its session has ended, and not before. The client knows that it lost it.
pub async fn number_of_a_dead_client_becomes_free(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (one, two) = (slots(case, &a, 2), slots(case, &b, 2));
    let (dead, live) = (acquired(&one).await, acquired(&two).await);
    assert!(two.acquire_timeout(MOMENT).await.is_err());
    case.store.expire(&a.connection).await;
    let heir = acquired(&two).await;
    assert_eq!((heir.number(), numbers([&dead, &live])), (dead.number(), [0, 1].into()));
    case.until_session(&a, 2, SessionState::Connected).await;
    assert!(!dead.is_held());
    assert!(dead.check().unwrap_err().is_lock_lost());
    assert!(live.is_held() && heir.is_held());
}

/// An operator deletes the node of a client that is about to write its number, before or after it has listed the queue. It gets none.
pub async fn number_is_not_given_to_a_deleted_node(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let holders = path(case).join("holders").unwrap();
    for side in [Side::After, Side::Before] {
        let (one, listed) = (slots(case, &a, 1), a.faults.hold(Call::Children, side));
        let taking = tokio::spawn(async move { one.acquire().await });
        listed.reached().await;
        let name = case.store.names(&holders).await.remove(0);
        case.store.remove(&holders, &name).await;
        let other = acquired(&slots(case, &b, 1)).await;
        listed.open();
        let error = timeout(LONG, taking).await.expect("it ends").unwrap().unwrap_err();
        assert!(error.is_lock_lost(), "{error}");
        assert!(other.is_held());
        other.release().await.unwrap();
    }
}

/// A client that is dropped while it takes a number leaves no node, and the number is free.
pub async fn dropped_while_it_takes_a_number(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (one, two) = (slots(case, &a, 1), slots(case, &b, 1));
    for side in [Side::Before, Side::After] {
        let (listing, one) = (a.faults.hold(Call::Children, side), one.clone());
        let taking = tokio::spawn(async move { one.acquire().await });
        listing.reached().await;
        taking.abort();
        listing.open();
        let slot = acquired(&two).await;
        assert_eq!(slot.number(), 0);
        slot.release().await.unwrap();
    }
}

/// Numbers of slots that make no sense, clients that use another one, and values that are no table.
pub async fn bad_slots_are_refused(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    for n in [0, 10_001, u32::MAX] {
        let error = a.client.slots("/app/slots", n).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(&format!("{n} slots")), "{error}");
    }
    let slot = acquired(&slots(case, &a, 2)).await;
    let error = slots(case, &b, 3).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermitLimitMismatch, "{error}");
    let table = b.client.shared_value(path(case).join("numbers").unwrap()).unwrap();
    table.update(|_| Some(b"other".into())).await.unwrap();
    let error = slots(case, &b, 2).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    slot.release().await.unwrap();
}

/// A client that is dropped after any poll leaves no node.
pub async fn dropped_at_any_await_leaves_no_node(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    sweep("acquire a slot", async |cut| {
        let path = case.value(&cut.name());
        let holders = path.join("holders").unwrap();
        case.uses([holders.clone()]);
        let slots = a.client.slots(&path, 1).unwrap();
        let done =
            tokio::spawn(cut.run(async move { slots.acquire().await.unwrap() })).await.unwrap().is_some();
        case.until_free(&holders).await;
        let slot = acquired(&b.client.slots(&path, 1).unwrap()).await;
        assert_eq!(slot.number(), 0);
        slot.release().await.unwrap();
        done
    })
    .await;
}
