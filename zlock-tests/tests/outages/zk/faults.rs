//! A request or its answer is lost, in each of the three ways in which a link breaks.

use std::time::Duration;

use tokio::time::timeout;
use zlock_core::{CoordinationBackend, ErrorKind, Label, Needs, RetryPolicy, SessionState, Target};
use zlock_suite::timed;
use zlock_testkit::zk::{create, linked, linked_with, mkdir, names, path, suspended, token};
use zlock_testkit::{Cut, Lose, limit, zk_op, zookeeper_or_skip, zookeeper_request};

const CREATE: &[i32] = &[zk_op::CREATE2];
const LIST: &[i32] = &[zk_op::GET_CHILDREN];
const DELETE: &[i32] = &[zk_op::DELETE];
const MULTI: &[i32] = &[zk_op::MULTI];

each_fault! {
    create_is_one_node_and_ours: lost_create;
    listing_of_a_create_is_repeated: lost_list;
    delete_deletes: lost_delete;
    relabel_renames_once: lost_relabel;
    container_is_made: lost_mkdir;
}

async fn lost_create(lose: Lose, cut: Cut) {
    let Some(server) = zookeeper_or_skip().await else { return };
    let l = linked(server).await;
    let (path, token) = (path("create"), token());
    mkdir(&l.observer, &path).await;
    let staged = l.proxy.lose_next(lose, zookeeper_request(CREATE), cut);
    let made = l
        .backend
        .create_ephemeral_sequential(&path, Label::Lock, &token, b"mine", Needs::Queue)
        .await
        .unwrap();
    staged.happened().await;
    assert_eq!(names(&l.observer, &path).await, [made.node.name.to_string()]);
    assert_eq!((&made.node.id, made.epoch), (&token, 1));
    // The first node under its parent, so it was not created twice.
    assert_eq!(made.node.sequence.get(), 0);
    assert_eq!(*made.queue.listed().unwrap(), *std::slice::from_ref(&made.node));
    let stat = l.observer.check_stat(&format!("{path}/{}", made.node.name)).await.unwrap().unwrap();
    assert_eq!(made.node.fencing_token.unwrap().number(), stat.czxid.cast_unsigned());
    assert_eq!(made.node.session.unwrap().get(), stat.ephemeral_owner.cast_unsigned());
    let session = l.backend.session_events().current();
    assert_eq!((session.epoch, session.state), (1, SessionState::Connected));
}

async fn lost_list(lose: Lose, cut: Cut) {
    let Some(server) = zookeeper_or_skip().await else { return };
    let l = linked(server).await;
    let path = path("list");
    mkdir(&l.observer, &path).await;
    let staged = l.proxy.lose_next(lose, zookeeper_request(LIST), cut);
    let made = create(&l.backend, &path, Label::Lock).await;
    staged.happened().await;
    assert_eq!(*made.queue.listed().unwrap(), *std::slice::from_ref(&made.node));
    assert_eq!(names(&l.observer, &path).await, [made.node.name.to_string()]);
    assert!(!made.deletion.is_deleted());
}

async fn lost_delete(lose: Lose, cut: Cut) {
    let Some(server) = zookeeper_or_skip().await else { return };
    let l = linked(server).await;
    let path = path("delete");
    let keep = create(&l.backend, &path, Label::Lock).await;
    let made = create(&l.backend, &path, Label::Lock).await;
    let staged = l.proxy.lose_next(lose, zookeeper_request(DELETE), cut);
    l.backend.delete(&path, &Target::Node(made.node), None).await.unwrap();
    staged.happened().await;
    assert_eq!(names(&l.observer, &path).await, [keep.node.name.to_string()]);
    assert!(!made.deletion.is_deleted(), "we did it ourselves");
}

async fn lost_relabel(lose: Lose, cut: Cut) {
    let Some(server) = zookeeper_or_skip().await else { return };
    let l = linked(server).await;
    let path = path("relabel");
    let made = create(&l.backend, &path, Label::Write).await;
    let staged = l.proxy.lose_next(lose, zookeeper_request(MULTI), cut);
    let now = l.backend.relabel(&path, &made.node, Label::Read).await.unwrap();
    staged.happened().await;
    assert_eq!(
        (now.label, now.sequence, now.fencing_token),
        (Label::Read, made.node.sequence, made.node.fencing_token)
    );
    assert_eq!(names(&l.observer, &path).await, [now.name.to_string()]);
    // The target has the node's original name.
    l.backend.delete(&path, &Target::Node(made.node), None).await.unwrap();
    assert!(names(&l.observer, &path).await.is_empty());
    assert!(!made.deletion.is_deleted());
}

async fn lost_mkdir(lose: Lose, cut: Cut) {
    let Some(server) = zookeeper_or_skip().await else { return };
    let l = linked(server).await;
    let path = path("mkdir");
    let staged = l.proxy.lose_next(lose, zookeeper_request(&[zk_op::CREATE_CONTAINER]), cut);
    let made = create(&l.backend, &path, Label::Lock).await;
    staged.happened().await;
    assert_eq!(names(&l.observer, &path).await, [made.node.name.to_string()]);
}

/// T2: the create was sent and then dropped. Its request may still be in flight.
#[tokio::test]
async fn a_dropped_create_is_found_by_its_token() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        for cut in [None, Some(Cut::Fin), Some(Cut::Reset), Some(Cut::Mute)] {
            let l = linked(server).await;
            let (path, token) = (path("dropped"), token());
            mkdir(&l.observer, &path).await;
            let staged = cut.map(|cut| l.proxy.lose_next(Lose::Answer, zookeeper_request(CREATE), cut));
            let create = l.backend.create_ephemeral_sequential(&path, Label::Lock, &token, b"", Needs::Queue);
            // Long enough to send the request, and far too short for an answer or a second attempt.
            assert!(timeout(Duration::ZERO, create).await.is_err());
            if let Some(staged) = staged {
                staged.happened().await;
            }
            l.backend.delete(&path, &Target::Id(token), None).await.unwrap();
            assert!(names(&l.observer, &path).await.is_empty(), "{cut:?}");
        }
    })
    .await;
}

/// While the link is down, requests are queued in the client library. They are sent in order when it is up again.
#[tokio::test]
async fn a_create_that_was_queued_without_a_link_does_not_come_after_its_delete() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let l = linked(server).await;
        let (path, token) = (path("queued"), token());
        mkdir(&l.observer, &path).await;
        l.proxy.refuse().await;
        l.proxy.cut(Cut::Fin);
        suspended(&l.backend).await;
        let create = l.backend.create_ephemeral_sequential(&path, Label::Lock, &token, b"", Needs::Queue);
        assert!(timeout(Duration::from_millis(20), create).await.is_err());
        let delete = async { l.backend.delete(&path, &Target::Id(token), None).await.unwrap() };
        tokio::join!(delete, l.proxy.heal());
        assert!(names(&l.observer, &path).await.is_empty());
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(names(&l.observer, &path).await.is_empty());
    })
    .await;
}

/// T1: the request is applied, its answer is lost, all attempts are used up, and the session survives.
#[tokio::test]
async fn a_create_that_gives_up_says_that_it_may_have_happened() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let l = linked_with(server, |options| options.with_retry(RetryPolicy::never())).await;
        let (path, token) = (path("never"), token());
        mkdir(&l.observer, &path).await;
        let staged = l.proxy.lose_next(Lose::Answer, zookeeper_request(CREATE), Cut::Reset);
        let create = l.backend.create_ephemeral_sequential(&path, Label::Lock, &token, b"", Needs::Queue);
        let error = create.await.unwrap_err();
        staged.happened().await;
        assert_eq!((error.kind(), error.is_ambiguous()), (ErrorKind::Unavailable, true), "{error}");
        l.backend.delete(&path, &Target::Id(token), None).await.unwrap();
        assert!(names(&l.observer, &path).await.is_empty());
    })
    .await;
}

/// T43, T9: an operation has one time budget, however many requests it takes.
#[tokio::test]
async fn an_operation_ends_with_its_time() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        // A busy server makes the node in this time, and the session outlasts it.
        let (time, session) = (Duration::from_secs(5), Duration::from_secs(40));
        let l = linked_with(server, |options| {
            let options = options.with_operation_timeout(time).with_session_timeout(session);
            options.with_retry(RetryPolicy::forever(Duration::from_millis(1)))
        })
        .await;
        let path = path("time");
        let made = create(&l.backend, &path, Label::Write).await;
        let target = Target::Node(made.node.clone());
        for is_cut in [false, true] {
            if is_cut {
                l.proxy.heal().await;
                l.proxy.refuse().await;
                l.proxy.cut(Cut::Reset);
                suspended(&l.backend).await;
            } else {
                l.proxy.freeze().await;
            }
            let token = token();
            let all = async {
                tokio::join!(
                    l.backend.create_ephemeral_sequential(&path, Label::Lock, &token, b"", Needs::Queue),
                    l.backend.children(&path, None),
                    l.backend.exists_with_watch(&path, &made.node),
                    l.backend.relabel(&path, &made.node, Label::Read),
                    l.backend.delete(&path, &target, None),
                )
            };
            let ((create, list, watch, relabel, delete), took) = timed(all).await;
            assert!(took >= time && took < time * 3 / 2, "cut: {is_cut}, {took:?}");
            // The relabel reads first, so nothing was written yet.
            let writes = [create.unwrap_err(), delete.unwrap_err()];
            let reads = [list.unwrap_err(), watch.unwrap_err(), relabel.unwrap_err()];
            for error in &writes {
                assert_eq!(
                    error.is_ambiguous(),
                    !is_cut,
                    "sent only while there seems to be a connection: {error}"
                );
            }
            for error in writes.iter().chain(&reads) {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                assert!(!is_cut || error.to_string().contains("no connection"), "{error}");
            }
        }
    })
    .await;
}
