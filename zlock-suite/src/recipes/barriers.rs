//! Barriers and latches, on every store that has values.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use zlock_core::{ErrorKind, LockPath, Result, SessionState};
use zlock_recipes::{Barrier, DoubleBarrier, Entered};

use crate::case::{LONG, MOMENT};
use crate::{Call, Case, Process, Side, sweep};

/// Returns the path of a barrier. Its members leave no node, and what is stored of its rounds is removed after the case.
fn path(case: &Case<'_>) -> LockPath {
    let path = case.value("barrier");
    case.uses([path.join("members").unwrap()]);
    path
}

fn barrier(case: &Case<'_>, process: &Process, n: u32) -> Barrier {
    process.client.barrier(path(case), n).unwrap()
}

fn double(case: &Case<'_>, process: &Process, n: u32) -> DoubleBarrier {
    process.client.double_barrier(path(case), n).unwrap()
}

/// Waits at the barrier in a task.
fn waits(barrier: &Barrier) -> JoinHandle<Result<u64>> {
    let barrier = barrier.clone();
    tokio::spawn(async move { barrier.wait().await })
}

async fn until_members(case: &Case<'_>, count: usize) {
    case.until_queued(&path(case).join("members").unwrap(), count).await;
}

async fn round(waiting: JoinHandle<Result<u64>>) -> u64 {
    timeout(LONG, waiting).await.expect("the round opens").unwrap().unwrap()
}

/// Nobody passes before the last member has arrived.
pub async fn members_pass_together(case: &Case<'_>) {
    let processes: [Process; 3] = case.processes().await;
    let barriers = processes.each_ref().map(|process| barrier(case, process, 3));
    for number in 1..=5 {
        let mut early = [waits(&barriers[0]), waits(&barriers[1])];
        sleep(MOMENT).await;
        for waiting in &mut early {
            assert!(!waiting.is_finished(), "passed before the last one");
        }
        assert_eq!(barriers[2].wait().await.unwrap(), number);
        for waiting in early {
            assert_eq!(round(waiting).await, number);
        }
    }
}

/// Of `n` + 1 members, one waits, for the next round.
pub async fn of_one_too_many_one_waits(case: &Case<'_>) {
    let processes: [Process; 2] = case.processes().await;
    let barriers = processes.each_ref().map(|process| barrier(case, process, 3));
    let mut members = JoinSet::new();
    for n in 0..4 {
        let barrier = barriers[n % 2].clone();
        members.spawn(async move { barrier.wait().await });
    }
    for _ in 0..3 {
        let passed = timeout(LONG, members.join_next()).await.expect("three pass").unwrap();
        assert_eq!(passed.unwrap().unwrap(), 1);
    }
    assert!(timeout(MOMENT, members.join_next()).await.is_err(), "a fourth one passed");
    let two = (waits(&barriers[0]), waits(&barriers[1]));
    assert_eq!((round(two.0).await, round(two.1).await), (2, 2));
    assert_eq!(members.join_next().await.unwrap().unwrap().unwrap(), 2);
}

/// More members than one round has arrive at the same moment, and all of them pass.
pub async fn several_rounds_of_a_crowd_open(case: &Case<'_>) {
    let processes: [Process; 4] = case.processes().await;
    let rounds = join_all((0..24).map(|n| {
        let barrier = barrier(case, &processes[n % 4], 3);
        async move { timeout(LONG, barrier.wait()).await.expect("the round opens").unwrap() }
    }));
    let mut rounds = rounds.await;
    rounds.sort_unstable();
    assert_eq!(rounds, (1..=8).flat_map(|round| [round; 3]).collect::<Vec<_>>());
}

/// A member that was not there in time is not counted, and leaves no node.
pub async fn timed_out_member_is_not_counted(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (one, two) = (barrier(case, &a, 2), barrier(case, &b, 2));
    let error = one.wait_timeout(MOMENT).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    let mut waiting = waits(&two);
    assert!(timeout(2 * MOMENT, &mut waiting).await.is_err(), "passed with one that had timed out");
    assert_eq!(one.wait().await.unwrap(), 1);
    assert_eq!(round(waiting).await, 1);
}

/// A round has opened by a listing that shows the member that gives up just then. Either it is counted and returns the round,
/// or it is not and the round stays shut.
pub async fn time_out_during_the_opening_has_one_of_two_results(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (one, two) = (barrier(case, &a, 2), barrier(case, &b, 2));
    let mut opened = 0;
    for n in 0..case.many(40, 12) {
        let mut waiting = waits(&two);
        until_members(case, 1).await;
        // Between not at all and long enough.
        let patience = Duration::from_micros(if case.paused { n as u64 } else { 1500 * n as u64 });
        match one.wait_timeout(patience).await {
            Ok(number) => {
                opened += 1;
                assert_eq!((number, round(waiting).await), (opened, opened));
            }
            Err(error) => {
                assert!(error.is_timeout(), "{error}");
                assert!(timeout(MOMENT, &mut waiting).await.is_err(), "passed alone");
                opened += 1;
                assert_eq!((one.wait().await.unwrap(), round(waiting).await), (opened, opened));
            }
        }
        until_members(case, 0).await;
    }
}

/// A member that withdraws while another one opens a round by an older listing is not counted.
pub async fn an_older_listing_does_not_count_a_member_that_withdrew(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (one, two) = (barrier(case, &a, 2), barrier(case, &b, 2));
    let patient = tokio::spawn(async move { one.wait_timeout(4 * MOMENT).await });
    until_members(case, 1).await;
    // Its create is answered, with a listing of both, while the other one gives up.
    let listed = b.faults.hold(Call::Create, Side::After);
    let mut waiting = waits(&two);
    listed.reached().await;
    let error = patient.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    listed.open();
    assert!(timeout(2 * MOMENT, &mut waiting).await.is_err(), "passed with one that had withdrawn");
    assert_eq!(barrier(case, &a, 2).wait().await.unwrap(), 1);
    assert_eq!(round(waiting).await, 1);
}

/// A member runs out of time while the answer to its create is on the way. Nobody passes with it, unless it passes as well.
pub async fn member_that_times_out_while_it_arrives_passes_with_the_others(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (one, two) = (barrier(case, &a, 2), barrier(case, &b, 2));
    let answer = a.faults.hold(Call::Create, Side::After);
    let removal = a.faults.hold(Call::Delete, Side::Before);
    let gone = tokio::spawn(async move { one.wait_timeout(MOMENT).await });
    answer.reached().await;
    sleep(2 * MOMENT).await;
    let mut waiting = waits(&two);
    let passed = timeout(2 * MOMENT, &mut waiting).await.is_ok();
    answer.open();
    let gone = timeout(LONG, gone).await.expect("it ends").unwrap();
    removal.open();
    // On a slow machine, the round may have opened a little later.
    let passed = passed || timeout(2 * MOMENT, &mut waiting).await.is_ok();
    assert_eq!(gone.is_ok(), passed, "{gone:?}");
    waiting.abort();
}

/// A member that was about to open its round finds that another one has. Its time ends before it has looked again, and it passes.
pub async fn member_whose_time_ends_when_it_was_counted_passes(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let (one, two, three) = (barrier(case, &a, 2), barrier(case, &b, 2), barrier(case, &c, 2));
    let first = waits(&one);
    until_members(case, 1).await;
    let created = b.faults.hold(Call::Create, Side::After);
    let late = tokio::spawn(async move { two.wait_timeout(4 * MOMENT).await });
    created.reached().await;
    // It is the third, and opens the round for the others.
    let third = waits(&three);
    assert_eq!(round(first).await, 1);
    let listing = b.faults.hold(Call::Children, Side::Before);
    created.open();
    assert_eq!(timeout(LONG, late).await.expect("it ends").unwrap().unwrap(), 1);
    listing.open();
    third.abort();
}

/// A member withdraws that does not know the latest version of the rounds. Another one knows it, and has listed the first one before
/// that withdrew.
pub async fn member_with_an_old_version_withdraws_from_the_latest(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let (one, two, three) = (barrier(case, &a, 2), barrier(case, &b, 2), barrier(case, &c, 2));
    // Its listing shows a member that withdraws, so its opening is refused, and it lists again.
    let gone = tokio::spawn(async move { one.wait_timeout(MOMENT).await });
    until_members(case, 1).await;
    let created = b.faults.hold(Call::Create, Side::After);
    let late = tokio::spawn(async move { two.wait_timeout(10 * MOMENT).await });
    created.reached().await;
    assert_eq!(gone.await.unwrap().unwrap_err().kind(), ErrorKind::Busy);
    let listing = b.faults.hold(Call::Children, Side::Before);
    created.open();
    timeout(LONG, listing.reached()).await.expect("it lists again");
    // The rounds are written without its knowledge.
    let rounds = a.client.shared_value(path(case).join("rounds").unwrap()).unwrap();
    rounds.update(|now| now.map(<[u8]>::to_vec)).await.unwrap();
    until_members(case, 1).await;
    let listed = c.faults.hold(Call::Create, Side::After);
    let mut waiting = waits(&three);
    listed.reached().await;
    let error = timeout(LONG, late).await.expect("its time ends").unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    listed.open();
    assert!(timeout(MOMENT, &mut waiting).await.is_err(), "passed with one that had withdrawn");
    waiting.abort();
}

/// The link of the last member breaks before it opens the round. The other one gives up meanwhile, and is not counted.
pub async fn member_that_left_during_an_outage_is_not_counted(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (gone, listed) = (waits(&barrier(case, &a, 2)), b.faults.hold(Call::Create, Side::After));
    until_members(case, 1).await;
    let mut waiting = waits(&barrier(case, &b, 2));
    listed.reached().await;
    case.links().cut(&b.connection).await;
    case.until_session(&b, 1, SessionState::Suspended).await;
    listed.open();
    gone.abort();
    until_members(case, 1).await;
    case.links().heal(&b.connection).await;
    assert!(timeout(2 * MOMENT, &mut waiting).await.is_err(), "passed alone");
    assert_eq!(barrier(case, &a, 2).wait().await.unwrap(), 1);
    assert_eq!(round(waiting).await, 1);
}

/// A member that withdrew is not counted while its node is still there.
pub async fn withdrawn_member_is_not_counted_while_its_node_is_there(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (one, two) = (barrier(case, &a, 2), barrier(case, &b, 2));
    let removal = a.faults.hold(Call::Delete, Side::Before);
    let error = one.wait_timeout(20 * MOMENT).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    removal.reached().await;
    let mut waiting = waits(&two);
    assert!(timeout(2 * MOMENT, &mut waiting).await.is_err(), "passed with one that had withdrawn");
    removal.open();
    until_members(case, 1).await;
    assert_eq!(one.wait().await.unwrap(), 1);
    assert_eq!(round(waiting).await, 1);
}

/// After a conflict, a listing from before it counts nobody, not even members whose withdrawal was forgotten with their nodes.
pub async fn an_older_listing_counts_nobody_after_a_conflict(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let patient = [0, 1].map(|_| {
        let one = barrier(case, &a, 3);
        tokio::spawn(async move { one.wait_timeout(20 * MOMENT).await })
    });
    until_members(case, 2).await;
    // Its create is answered, with a listing of all three, while the other two give up.
    let listed = b.faults.hold(Call::Create, Side::After);
    let mut waiting = waits(&barrier(case, &b, 3));
    listed.reached().await;
    for patient in patient {
        let error = patient.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    }
    until_members(case, 1).await;
    // The next one to withdraw writes the rounds without those whose nodes are gone.
    let error = barrier(case, &c, 3).wait_timeout(20 * MOMENT).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    until_members(case, 1).await;
    listed.open();
    assert!(timeout(2 * MOMENT, &mut waiting).await.is_err(), "passed with two that had withdrawn");
    let others = [&a, &c].map(|process| waits(&barrier(case, process, 3)));
    for waiting in others {
        assert_eq!(round(waiting).await, 1);
    }
    assert_eq!(round(waiting).await, 1);
}

/// A round counts a member that is cut off, and whose time is over before it learns that. It returns the round.
pub async fn member_that_was_counted_unnoticed_returns_its_round(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (one, two) = (barrier(case, &a, 2), barrier(case, &b, 2));
    let arrived = a.faults.hold(Call::Create, Side::After);
    let patient = tokio::spawn(async move { one.wait_timeout(5 * MOMENT).await });
    arrived.reached().await;
    arrived.open();
    case.links().freeze(&a.connection).await;
    assert_eq!(two.wait().await.unwrap(), 1);
    sleep(6 * MOMENT).await;
    case.links().heal(&a.connection).await;
    assert_eq!(round(patient).await, 1);
}

/// A member whose session ends before the opening is not counted.
pub async fn dead_member_is_not_counted(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (one, two) = (barrier(case, &a, 2), barrier(case, &b, 2));
    // A create that is not answered yet would be repeated in the next session.
    let arrived = a.faults.hold(Call::Create, Side::After);
    let dead = waits(&one);
    arrived.reached().await;
    arrived.open();
    case.store.expire(&a.connection).await;
    let error = timeout(LONG, dead).await.expect("it is woken").unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionLost, "{error}");
    let mut waiting = waits(&two);
    assert!(timeout(MOMENT, &mut waiting).await.is_err(), "passed with a dead one");
    case.until_session(&a, 2, SessionState::Connected).await;
    assert_eq!(one.wait().await.unwrap(), 1);
    assert_eq!(round(waiting).await, 1);
}

/// A member whose node an operator deletes is woken, and is not counted.
pub async fn deleted_member_is_not_counted(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (one, two) = (barrier(case, &a, 2), barrier(case, &b, 2));
    let (deleted, members) = (waits(&one), path(case).join("members").unwrap());
    until_members(case, 1).await;
    let name = case.store.names(&members).await.remove(0);
    case.store.remove(&members, &name).await;
    let error = timeout(LONG, deleted).await.expect("it is woken").unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NodeDeleted, "{error}");
    let mut waiting = waits(&two);
    assert!(timeout(MOMENT, &mut waiting).await.is_err(), "passed with a deleted one");
    assert_eq!(one.wait().await.unwrap(), 1);
    assert_eq!(round(waiting).await, 1);
}

/// All members die as soon as their round has opened. The next round waits for members of its own.
pub async fn members_that_die_after_the_opening_do_not_open_the_next_round(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let (one, two) = (double(case, &a, 2), double(case, &b, 2));
    let entered: [Result<Entered>; 2] = tokio::join!(one.enter(), two.enter()).into();
    let entered = entered.map(Result::unwrap);
    case.store.expire(&a.connection).await;
    let three = double(case, &c, 2);
    let alone = three.enter_timeout(MOMENT).await;
    assert_eq!(alone.unwrap_err().kind(), ErrorKind::Busy);
    case.store.expire(&b.connection).await;
    let alone = three.enter_timeout(MOMENT).await;
    assert_eq!(alone.unwrap_err().kind(), ErrorKind::Busy);
    case.until_session(&a, 2, SessionState::Connected).await;
    let (third, first) = tokio::join!(three.enter(), one.enter());
    assert_eq!((third.as_ref().unwrap().round(), first.as_ref().unwrap().round()), (2, 2));
    drop((entered, third, first));
}

/// A waiter that is dropped leaves no node, and is not counted.
pub async fn dropped_member_is_not_counted(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (one, two) = (barrier(case, &a, 2), barrier(case, &b, 2));
    for wait in [Duration::ZERO, Duration::from_millis(1), MOMENT] {
        let dropped = timeout(wait, one.wait()).await;
        assert!(dropped.is_err(), "{dropped:?}");
        case.until("its node is removed", async || a.client.pending_cleanups() == 0).await;
        until_members(case, 0).await;
    }
    let mut waiting = waits(&two);
    assert!(timeout(MOMENT, &mut waiting).await.is_err(), "passed with a dropped one");
    assert_eq!(one.wait().await.unwrap(), 1);
    assert_eq!(round(waiting).await, 1);
}

/// Many rounds leave nothing behind but the number of the last one.
pub async fn many_rounds_leave_nothing_behind(case: &Case<'_>) {
    let processes: [Process; 2] = case.processes().await;
    let (rounds, members) = (case.many(1000, 100), path(case).join("members").unwrap());
    join_all(processes.each_ref().map(async |process| {
        let barrier = barrier(case, process, 2);
        for number in 1..=rounds as u64 {
            assert_eq!(timeout(LONG, barrier.wait()).await.expect("the round opens").unwrap(), number);
        }
    }))
    .await;
    case.until("no member is left", async || case.store.names(&members).await.is_empty()).await;
    let stored = processes[0].client.shared_value(path(case).join("rounds").unwrap()).unwrap();
    let data = stored.get().await.unwrap().unwrap().data;
    assert!(data.len() < 500, "{}", String::from_utf8_lossy(&data));
}

/// Clients with another number of members are refused, and told both.
pub async fn another_number_of_members_is_refused(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let waiting = waits(&barrier(case, &a, 2));
    until_members(case, 1).await;
    let error = barrier(case, &b, 3).wait().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermitLimitMismatch, "{error}");
    let text = error.to_string();
    assert!(text.contains("3 members here") && text.contains("and 2 for"), "{text}");
    barrier(case, &b, 2).wait().await.unwrap();
    round(waiting).await;
}

/// Numbers of members that make no sense, and values that are not a barrier's.
pub async fn bad_barriers_are_refused(case: &Case<'_>) {
    let a = case.process().await;
    for n in [0, 1001, u32::MAX] {
        let error = a.client.barrier("/app/barrier", n).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(&format!("for {n} members")), "{error}");
    }
    let rounds = a.client.shared_value(path(case).join("rounds").unwrap()).unwrap();
    rounds.compare_and_set(None, "other").await.unwrap();
    let error = barrier(case, &a, 1).wait().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}

/// Nobody has left before the last one has.
pub async fn members_leave_together(case: &Case<'_>) {
    let processes: [Process; 3] = case.processes().await;
    let entered = join_all(processes.each_ref().map(async |process| {
        let barrier = double(case, process, 3);
        timeout(LONG, barrier.enter()).await.expect("the round opens").unwrap()
    }));
    let mut entered = entered.await;
    let last = entered.remove(1);
    let mut leavers: Vec<_> = entered.into_iter().map(|entered| tokio::spawn(entered.leave())).collect();
    until_members(case, 1).await;
    sleep(MOMENT).await;
    for leaver in &mut leavers {
        assert!(!leaver.is_finished(), "left before the last one");
    }
    last.leave().await.unwrap();
    for leaver in leavers {
        timeout(LONG, leaver).await.expect("all have left").unwrap().unwrap();
    }
}

/// A member that dies inside counts as one that has left.
pub async fn dead_member_has_left(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (one, two) = (double(case, &a, 2), double(case, &b, 2));
    let (dead, entered) = tokio::join!(one.enter(), two.enter());
    let leaver = tokio::spawn(entered.unwrap().leave());
    until_members(case, 1).await;
    case.store.expire(&a.connection).await;
    timeout(LONG, leaver).await.expect("all have left").unwrap().unwrap();
    drop(dead);
}

/// A member that is slow to leave neither counts in the next round nor keeps it shut, and waits for those of its own.
pub async fn slow_leaver_does_not_shut_the_next_round(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let (one, two, three) = (double(case, &a, 2), double(case, &b, 2), double(case, &c, 2));
    let (slow, quick) = tokio::join!(one.enter(), two.enter());
    let (slow, quick) = (slow.unwrap(), quick.unwrap());
    let alone = three.enter_timeout(MOMENT).await;
    assert_eq!(alone.unwrap_err().kind(), ErrorKind::Busy, "the slow leaver was counted");
    let leaver = tokio::spawn(quick.leave());
    let (second, third) = tokio::join!(two.enter(), three.enter());
    let (second, third) = (second.unwrap(), third.unwrap());
    assert_eq!((slow.round(), second.round(), third.round()), (1, 2, 2));
    let (second, third) = tokio::join!(second.leave(), third.leave());
    second.and(third).unwrap();
    assert!(!leaver.is_finished(), "left before the slow one");
    slow.leave().await.unwrap();
    timeout(LONG, leaver).await.expect("all have left").unwrap().unwrap();
}

/// A leaver that does not wait any longer has left nevertheless.
pub async fn leaver_that_times_out_has_left(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (one, two) = (double(case, &a, 2), double(case, &b, 2));
    let (first, second) = tokio::join!(one.enter(), two.enter());
    let error = first.unwrap().leave_timeout(MOMENT).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    second.unwrap().leave().await.unwrap();
}

/// A waiter goes on when the latch is opened, and not before. It stays closed when the client that closed it is gone.
pub async fn latch_is_closed_until_it_is_opened(case: &Case<'_>) {
    let ([a, b, c], path) = (case.processes().await, case.value("latch"));
    let [one, two, three] = [&a, &b, &c].map(|process| process.client.latch(&path).unwrap());
    two.wait().await.unwrap();
    assert!(!one.open().await.unwrap(), "a missing latch is open");
    assert!(one.close().await.unwrap());
    assert!(!three.close().await.unwrap());
    assert!(!two.is_open().await.unwrap());
    let waiter = two.clone();
    let mut waiting = tokio::spawn(async move { waiter.wait().await });
    case.store.expire(&a.connection).await;
    assert!(timeout(MOMENT, &mut waiting).await.is_err(), "went on at a closed latch");
    let error = two.wait_timeout(MOMENT).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert!(three.open().await.unwrap());
    timeout(LONG, waiting).await.expect("it is open").unwrap().unwrap();
    assert!(two.is_open().await.unwrap());
}

/// An opening that is over before the waiter looks is not missed.
pub async fn short_opening_is_not_missed(case: &Case<'_>) {
    let ([a, b], path) = (case.processes().await, case.value("latch"));
    let (one, two) = (a.client.latch(&path).unwrap(), b.client.latch(&path).unwrap());
    one.close().await.unwrap();
    let waiter = tokio::spawn(async move { two.wait().await });
    sleep(MOMENT).await;
    case.links().freeze(&b.connection).await;
    one.open().await.unwrap();
    one.close().await.unwrap();
    case.links().heal(&b.connection).await;
    timeout(LONG, waiter).await.expect("it was open").unwrap().unwrap();
}

/// What another program leaves there is a closed latch, and its removal opens it, as with Curator's barrier.
pub async fn latch_of_another_program_is_closed_while_it_exists(case: &Case<'_>) {
    let (a, path) = (case.process().await, case.value("latch"));
    let latch = a.client.latch(&path).unwrap();
    case.store.put(case.root(), "latch").await;
    assert!(!latch.is_open().await.unwrap());
    let waiter = latch.clone();
    let mut waiting = tokio::spawn(async move { waiter.wait().await });
    assert!(timeout(MOMENT, &mut waiting).await.is_err(), "went on at a closed latch");
    case.store.remove(case.root(), "latch").await;
    timeout(LONG, waiting).await.expect("it is open").unwrap().unwrap();
}

/// What waits at a barrier or a latch ends when the client begins to shut down, as an acquisition does, although a lock is still held.
pub async fn waits_end_when_the_client_shuts_down(case: &Case<'_>) {
    let ([a, b], latch, inside) = (case.processes().await, case.value("latch"), case.value("inside"));
    case.uses([inside.join("members").unwrap()]);
    let [one, two] = [&a, &b].map(|process| process.client.double_barrier(&inside, 2).unwrap());
    let (entered, other) = tokio::join!(one.enter(), two.enter());
    let latch = a.client.latch(&latch).unwrap();
    latch.close().await.unwrap();
    let guard = a.client.mutex(case.path("lock")).unwrap().acquire().await.unwrap();
    let mut waiting = JoinSet::new();
    let (barrier, double) = (barrier(case, &a, 5), double(case, &a, 5));
    let (waits, enters, latched) = (barrier.clone(), double.clone(), latch.clone());
    waiting.spawn(async move { waits.wait().await.map(drop) });
    waiting.spawn(async move { enters.enter_timeout(LONG * 2).await.map(drop) });
    waiting.spawn(async move { latched.wait().await });
    waiting.spawn(entered.unwrap().leave());
    until_members(case, 2).await;
    case.until_queued(&inside.join("members").unwrap(), 1).await;
    assert!(timeout(MOMENT, waiting.join_next()).await.is_err(), "a wait has ended early");
    let shutdown = tokio::spawn(async move { a.client.shutdown(LONG * 2).await.unwrap() });
    while let Some(ended) = timeout(LONG, waiting.join_next()).await.expect("all waits end") {
        assert_eq!(ended.unwrap().unwrap_err().kind(), ErrorKind::ShuttingDown);
    }
    until_members(case, 0).await;
    for refused in [barrier.wait().await.map(drop), double.enter().await.map(drop), latch.wait().await] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ShuttingDown);
    }
    assert!(guard.is_held() && !shutdown.is_finished());
    timeout(LONG, other.unwrap().leave()).await.expect("the other one has left").unwrap();
    guard.release().await.unwrap();
    assert_eq!(shutdown.await.unwrap().still_held, 0);
}

/// A member that is dropped after any poll leaves no node, wherever it was: waiting, opening the round, or leaving.
pub async fn dropped_at_any_await_leaves_no_node(case: &Case<'_>) {
    let a = case.process().await;
    sweep("enter and leave a double barrier", async |cut| {
        let path = case.value(&cut.name());
        let members = path.join("members").unwrap();
        case.uses([members.clone()]);
        let barrier = a.client.double_barrier(&path, 1).unwrap();
        let done =
            tokio::spawn(cut.run(async move { barrier.enter().await.unwrap().leave().await.unwrap() }));
        let done = done.await.unwrap().is_some();
        case.until_free(&members).await;
        a.client.barrier(&path, 1).unwrap().wait().await.unwrap();
        done
    })
    .await;
}
