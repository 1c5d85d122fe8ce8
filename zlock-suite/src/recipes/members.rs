//! Members of groups: what those who join and those who look can rely on.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use zlock_core::{ErrorKind, MAX_DATA, SessionState};
use zlock_recipes::{Freshness, Members, MembersView, MembersWatch, Release};

use crate::case::{LONG, MOMENT};
use crate::{Call, Case, Process, Side, sweep};

fn members(case: &Case<'_>, process: &Process) -> Members {
    process.client.members(case.path("group")).unwrap()
}

fn ids(view: &MembersView) -> Vec<&str> {
    view.members.iter().map(|member| member.id.as_str()).collect()
}

/// Waits until a fresh view fits, and returns it.
async fn shows(
    case: &Case<'_>,
    watch: &mut MembersWatch,
    fits: impl Fn(&MembersView) -> bool,
) -> MembersView {
    let mut last = None;
    let shown = async {
        loop {
            let view = watch.changed().await.unwrap();
            if view.freshness == Freshness::Fresh && fits(&view) {
                return view;
            }
            last = Some(view);
        }
    };
    let limit = 4 * case.store.session_timeout() + LONG;
    match timeout(limit, shown).await {
        Ok(view) => view,
        Err(_) => panic!("not shown: {last:?}"),
    }
}

fn has(id: &str, payload: &[u8]) -> impl Fn(&MembersView) -> bool {
    move |view| view.get(id).is_some_and(|member| member.payload == payload)
}

/// The store refuses to remove a member. Its client's session ends nevertheless with the last handle, and the member with it.
pub async fn refused_leave_does_not_keep_the_session(case: &Case<'_>) {
    let b = case.process().await;
    let mut watch = members(case, &b).watch();
    let (client, faults) = case.unkept().await;
    let group = client.members(case.path("group")).unwrap();
    faults.fail(Call::Leave, Side::Before, usize::MAX, ErrorKind::NotAuthorized);
    drop(group.join("w1", "a").await.unwrap());
    shows(case, &mut watch, has("w1", b"a")).await;
    drop((group, client));
    shows(case, &mut watch, |view| view.members.is_empty()).await;
}

/// Members see each other with their payloads, and who leaves is gone. Somebody who only looks is not among them.
pub async fn members_see_each_other_and_an_observer_is_none(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let [one, two, looks] = [&a, &b, &c].map(|process| members(case, process));
    let mut watch = looks.watch();
    let view = timeout(LONG, watch.changed()).await.expect("at once").unwrap();
    assert_eq!((view.members.len(), view.freshness), (0, Freshness::Fresh));
    let first = one.join("w1", "a").await.unwrap();
    assert!(first.is_registered() && first.id() == "w1");
    assert_eq!(a.client.pending_cleanups(), 0, "a membership is nothing to remove");
    shows(case, &mut watch, has("w1", b"a")).await;
    let second = two.join("w2", "b").await.unwrap();
    let view = shows(case, &mut watch, has("w2", b"b")).await;
    assert_eq!(ids(&view), ["w1", "w2"]);
    assert_eq!(looks.list().await.unwrap(), view.members);
    assert_eq!(first.leave().await.unwrap(), Release::Released);
    shows(case, &mut watch, |view| ids(view) == ["w2"]).await;
    drop(second);
    shows(case, &mut watch, |view| ids(view).is_empty()).await;
}

/// Two processes have one ID: the second learns that, and nothing changes for the first.
pub async fn second_with_the_same_id_learns_that(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (one, two) = (members(case, &a), members(case, &b));
    let first = one.join("w7", "a").await.unwrap();
    for process in [&two, &one] {
        let error = process.join("w7", "b").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Taken, "{error}");
        assert!(error.to_string().contains("/w7"), "{error}");
    }
    assert_eq!(two.list().await.unwrap()[0].payload, b"a");
    assert!(first.is_registered());
    first.leave().await.unwrap();
    two.join("w7", "b").await.unwrap().leave().await.unwrap();
}

/// A process is killed and starts again with its ID inside its old session. Nobody sees the member missing, neither when it takes
/// over nor when the old session ends.
pub async fn restart_inside_the_old_session_leaves_no_gap(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let old = members(case, &a).join("w7", "old").await.unwrap();
    let mut watch = members(case, &c).watch();
    let before = shows(case, &mut watch, has("w7", b"old")).await;
    // As good as killed: it neither leaves nor notices.
    case.links().freeze(&a.connection).await;
    // For longer than the pause between two listings, so that the observer looks at the first change.
    sleep(MOMENT).await;
    let group = members(case, &b);
    let gapless = async {
        loop {
            let view = watch.changed().await.unwrap();
            assert_eq!(ids(&view), ["w7"], "a gap: {view:?}");
            if has("w7", b"new")(&view) {
                return view;
            }
        }
    };
    let (new, view) = tokio::join!(group.take_over("w7", "new"), timeout(LONG, gapless));
    let (new, view) = (new.unwrap(), view.expect("the new payload is shown"));
    assert!(view.get("w7").unwrap().token > before.get("w7").unwrap().token);
    case.store.expire(&a.connection).await;
    sleep(MOMENT).await;
    assert!(new.is_registered());
    if let Ok(view) = timeout(MOMENT, watch.changed()).await {
        panic!("the end of the old session is seen: {view:?}");
    }
    // If it was not dead after all, it learns that.
    case.links().heal(&a.connection).await;
    let error = timeout(4 * case.store.session_timeout() + LONG, old.ended()).await.expect("it ends");
    assert_eq!(error.kind(), ErrorKind::Taken, "{error}");
    assert!(!old.is_registered());
    drop(old);
    assert_eq!(members(case, &c).list().await.unwrap()[0].payload, b"new");
    new.leave().await.unwrap();
}

/// The session of a member ends. It is registered again in the next one, and leaves nothing behind.
pub async fn registered_again_in_the_next_session(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let me = members(case, &a).join("w7", "a").await.unwrap();
    let mut watch = members(case, &b).watch();
    let first = shows(case, &mut watch, has("w7", b"a")).await.get("w7").unwrap().token;
    let lost = timeout(4 * case.store.session_timeout() + LONG, me.lost());
    let (lost, ()) = tokio::join!(lost, case.store.expire(&a.connection));
    let error = lost.expect("it is lost");
    assert_eq!(error.kind(), ErrorKind::SessionLost, "{error}");
    shows(case, &mut watch, |view| view.get("w7").is_some_and(|member| member.token > first)).await;
    case.until("it is registered", async || me.is_registered()).await;
    me.leave().await.unwrap();
}

/// The link is cut for longer than a session. The others see that the member is gone, and that it is back.
pub async fn cut_off_member_comes_back(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let me = members(case, &a).join("w7", "a").await.unwrap();
    let mut watch = members(case, &b).watch();
    shows(case, &mut watch, has("w7", b"a")).await;
    case.links().cut(&a.connection).await;
    shows(case, &mut watch, |view| view.members.is_empty()).await;
    case.until("it knows that it is not registered", async || !me.is_registered()).await;
    case.links().heal(&a.connection).await;
    shows(case, &mut watch, has("w7", b"a")).await;
    case.until("it knows that it is registered", async || me.is_registered()).await;
    me.leave().await.unwrap();
}

/// A member is registered again in a session that ends before the answer comes. In the next one, it waits for the end of that session
/// as for that of any of its own.
pub async fn all_earlier_sessions_are_its_own(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let me = members(case, &a).join("w7", "a").await.unwrap();
    let (looks, joining) = (members(case, &b), a.faults.hold(Call::Join, Side::Before));
    let there = async || looks.list().await.unwrap().len();
    // It begins to join before there is a second session.
    case.links().cut(&a.connection).await;
    joining.reached().await;
    case.until("the first session has ended", async || there().await == 0).await;
    case.links().heal(&a.connection).await;
    case.until_session(&a, 2, SessionState::Connected).await;
    case.links().mute(&a.connection).await;
    joining.open();
    case.until("the second session is a member", async || there().await == 1).await;
    a.client.session_events().ended(2).await;
    case.links().heal(&a.connection).await;
    case.until("it is registered", async || me.is_registered()).await;
    me.leave().await.unwrap();
}

/// An observer that is cut off says that its view is stale, and still shows the members. A member that was replaced meanwhile is
/// seen, even if nothing but its registration has changed.
pub async fn cut_off_observer_is_stale_and_sees_what_it_missed(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let group = members(case, &a);
    let me = group.join("w7", "same").await.unwrap();
    let other = group.join("w8", "stays").await.unwrap();
    let mut watch = members(case, &b).watch();
    let before = shows(case, &mut watch, |view| ids(view) == ["w7", "w8"]).await;
    case.links().cut(&b.connection).await;
    let stale = timeout(2 * case.store.session_timeout() + LONG, watch.changed()).await;
    let stale = stale.expect("it notices").unwrap();
    assert!(matches!(stale.freshness, Freshness::StaleSince(_)), "{stale:?}");
    assert_eq!(stale.members, before.members);
    me.leave().await.unwrap();
    let me = group.join("w7", "same").await.unwrap();
    case.links().heal(&b.connection).await;
    let token = |view: &MembersView, id| view.get(id).map(|member| member.token);
    // The first fresh view, and not only a later one.
    let view = shows(case, &mut watch, |_| true).await;
    assert_eq!(ids(&view), ["w7", "w8"]);
    assert!(token(&view, "w7") > token(&before, "w7"), "{view:?}");
    assert_eq!(token(&view, "w8"), token(&before, "w8"));
    drop((me, other));
}

/// The client is closed while a view waits that has just listed the group. The view ends.
pub async fn view_of_a_client_that_is_closed_ends(case: &Case<'_>) {
    let a = case.process().await;
    let mut watch = members(case, &a).watch();
    watch.changed().await.unwrap();
    let closes = async {
        sleep(Duration::from_millis(1)).await;
        a.client.close().await.unwrap();
    };
    let (view, ()) = tokio::join!(watch.changed(), closes);
    assert_eq!(view.unwrap_err().kind(), ErrorKind::Closed);
}

/// An operator deletes the node of a member. It is registered again, and the others see that.
pub async fn deleted_member_is_registered_again(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let me = members(case, &a).join("w7", "a").await.unwrap();
    let mut watch = members(case, &b).watch();
    let first = shows(case, &mut watch, has("w7", b"a")).await.get("w7").unwrap().token;
    case.store.remove(&case.path("group"), "w7").await;
    shows(case, &mut watch, |view| view.get("w7").is_some_and(|member| member.token > first)).await;
    case.until("it is registered", async || me.is_registered()).await;
    assert_eq!(a.session().epoch, 1);
    me.leave().await.unwrap();
}

/// A join that is dropped after any poll leaves no node, and the ID is free: at once for the client that has dropped it, and for
/// others once its background has removed what the request on the way may still have created.
pub async fn dropped_at_any_await_leaves_no_node(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    sweep("join a group", async |cut| {
        let path = case.path(&cut.name());
        let group = a.client.members(&path).unwrap();
        let joins_until_cut = async || {
            let joined = cut.run(async { drop(group.join("w7", "a").await.unwrap()) });
            joined.await.is_some()
        };
        joins_until_cut().await;
        let again = timeout(LONG, group.join("w7", "again")).await.expect("the ID is free");
        again.unwrap().leave().await.unwrap();
        let done = joins_until_cut().await;
        case.until("the background is idle", async || a.client.pending_cleanups() == 0).await;
        assert_eq!(case.queued(&path).await, 0);
        let other = b.client.members(&path).unwrap().join("w7", "b").await.unwrap();
        other.leave().await.unwrap();
        done
    })
    .await;
}

/// A join is dropped while its request or its answer is on the way, and a leave as well.
pub async fn dropped_while_a_request_is_on_the_way(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let group = members(case, &a);
    for side in [Side::Before, Side::After] {
        let (gate, joins) = (a.faults.hold(Call::Join, side), group.clone());
        let joining = tokio::spawn(async move { joins.join("w7", "a").await });
        gate.reached().await;
        joining.abort();
        gate.open();
        let _ = joining.await;
        case.until_free(group.path()).await;
        let me = group.join("w7", "a").await.unwrap();
        let gate = a.faults.hold(Call::Leave, side);
        let leaving = tokio::spawn(me.leave());
        gate.reached().await;
        leaving.abort();
        let _ = leaving.await;
        gate.open();
        case.until_free(group.path()).await;
        members(case, &b).join("w7", "b").await.unwrap().leave().await.unwrap();
    }
}

/// A member that is registered again fails at first. It goes on, and the leave of a member that is not registered ends that.
pub async fn failures_are_overcome_and_end_with_the_membership(case: &Case<'_>) {
    let a = case.process().await;
    let group = members(case, &a);
    let me = group.join("w7", "a").await.unwrap();
    a.faults.fail(Call::Join, Side::Before, 2, ErrorKind::Unavailable);
    a.faults.fail(Call::Join, Side::After, 1, ErrorKind::Unavailable);
    case.store.remove(group.path(), "w7").await;
    case.until("it is lost", async || !me.is_registered()).await;
    case.until("it is registered again", async || me.is_registered()).await;
    assert!(a.faults.count(Call::Join) >= 4);
    a.faults.fail(Call::Join, Side::Before, 1_000_000, ErrorKind::Unavailable);
    case.store.remove(group.path(), "w7").await;
    case.until("it is lost", async || !me.is_registered()).await;
    assert_eq!(timeout(LONG, me.leave()).await.expect("it leaves").unwrap(), Release::Released);
    a.faults.mend();
    case.until_free(group.path()).await;
}

/// A registration fails for good, although it has taken effect. No node is left.
pub async fn registration_of_unknown_outcome_leaves_no_node(case: &Case<'_>) {
    let a = case.process().await;
    let group = members(case, &a);
    let me = group.join("w7", "a").await.unwrap();
    let removal = a.faults.hold(Call::Leave, Side::Before);
    a.faults.fail(Call::Join, Side::After, 1, ErrorKind::Unexpected);
    case.store.remove(group.path(), "w7").await;
    let error = timeout(4 * case.store.session_timeout() + LONG, me.ended()).await.expect("it ends");
    assert_eq!(error.kind(), ErrorKind::Unexpected, "{error}");
    drop(me);
    // A join with the ID waits for the removal.
    let opens = async {
        removal.reached().await;
        sleep(MOMENT).await;
        removal.open();
    };
    let (again, ()) = tokio::join!(group.join("w7", "b"), opens);
    again.unwrap().leave().await.unwrap();
    case.until_free(group.path()).await;
}

/// Everybody who sees the same members agrees on the owner of each key, whatever order they joined in.
pub async fn owners_are_the_same_for_all(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (one, two) = (members(case, &a), members(case, &b));
    let mut joined = Vec::new();
    for id in ["w3", "w1", "w2"] {
        joined.push(one.join(id, id).await.unwrap());
    }
    let all = |view: &MembersView| view.members.len() == 3;
    let (first, second) = (one.watch(), two.watch());
    let views = [shows(case, &mut { first }, all).await, shows(case, &mut { second }, all).await];
    let owners = |view: &MembersView| -> Vec<_> {
        (0..100).map(|key: u32| view.owner_of(key.to_be_bytes()).unwrap().id.clone()).collect()
    };
    assert_eq!(owners(&views[0]), owners(&views[1]));
    assert_eq!(owners(&views[0]).iter().collect::<BTreeSet<_>>().len(), 3);
    for member in joined {
        member.leave().await.unwrap();
    }
}

/// IDs that are no segment of a path, payloads that are too long, and clients that are closed or shut down.
pub async fn bad_members_are_refused(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let group = members(case, &a);
    for id in ["", "a/b", "..", "lock-0000000001", "a\0b"] {
        let error = group.join(id, "").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidPath, "{id:?}: {error}");
    }
    let error = group.join("w7", vec![0; MAX_DATA + 1]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("1000001"), "{error}");
    assert_eq!(a.faults.count(Call::Join), 0);
    let me = group.join("w7", "a").await.unwrap();
    a.client.shutdown(Duration::ZERO).await.unwrap();
    let error = timeout(LONG, me.ended()).await.expect("it ends");
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    assert_eq!(group.join("w8", "a").await.unwrap_err().kind(), ErrorKind::ShuttingDown);
    assert_eq!(group.watch().changed().await.unwrap_err().kind(), ErrorKind::Closed);
    case.until_free(group.path()).await;
    let again = members(case, &b).join("w7", "b").await.unwrap();
    b.client.close().await.unwrap();
    assert_eq!(timeout(LONG, again.ended()).await.expect("it ends").kind(), ErrorKind::Closed);
    assert_eq!(again.leave().await.unwrap(), Release::AlreadyLost);
}
