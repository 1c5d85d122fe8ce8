//! A request or its answer is lost or late.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use zlock_core::{CoordinationBackend, ErrorKind, Label, LockPath, Needs, Node, RetryPolicy, Target};
use zlock_etcd::EtcdBackend;
use zlock_suite::timed;
use zlock_testkit::etcd::{
    self, connected, create, give_up, linked, linked_with, names, observer, options, path, revoke, suspended,
    token,
};
use zlock_testkit::{Cut, FaultProxy, Flow, Lose, etcd_or_skip, limit, until};

/// Accepts bytes that contain this text.
fn about(text: impl ToString) -> impl Fn(&[u8]) -> bool + Send + 'static {
    let text = text.to_string();
    move |bytes| bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

fn key(path: &LockPath, node: &Node) -> String {
    format!("{path}/{}", node.name)
}

each_fault! {
    create_is_one_node_and_ours: lost_create;
    delete_deletes: lost_delete;
    relabel_relabels: lost_relabel;
}

async fn lost_create(lose: Lose, cut: Cut) {
    let Some(server) = etcd_or_skip().await else { return };
    let l = linked(server).await;
    let (path, token) = (path("create"), token());
    let staged = l.proxy.lose_next(lose, about(&token), cut);
    let made = l
        .backend
        .create_ephemeral_sequential(&path, Label::Lock, &token, b"mine", Needs::Queue)
        .await
        .unwrap();
    staged.happened().await;
    assert_eq!(names(&l.observer, &path).await, [made.node.name.to_string()]);
    assert_eq!((&made.node.id, made.epoch), (&token, 1));
    assert_eq!(*made.queue.listed().unwrap(), *std::slice::from_ref(&made.node));
    connected(&l.backend, 1).await;
    // No earlier attempt shows up after the node is deleted either.
    l.backend.delete(&path, &Target::Node(made.node), None).await.unwrap();
    sleep(Duration::from_millis(50)).await;
    assert!(names(&l.observer, &path).await.is_empty());
}

async fn lost_delete(lose: Lose, cut: Cut) {
    let Some(server) = etcd_or_skip().await else { return };
    let l = linked(server).await;
    let path = path("delete");
    let keep = create(&l.backend, &path, Label::Lock).await;
    let made = create(&l.backend, &path, Label::Lock).await;
    let staged = l.proxy.lose_next(lose, about(key(&path, &made.node)), cut);
    l.backend.delete(&path, &Target::Node(made.node), None).await.unwrap();
    staged.happened().await;
    assert_eq!(names(&l.observer, &path).await, [keep.node.name.to_string()]);
    assert!(!made.deletion.is_deleted(), "we did it ourselves");
}

async fn lost_relabel(lose: Lose, cut: Cut) {
    let Some(server) = etcd_or_skip().await else { return };
    let l = linked(server).await;
    let path = path("relabel");
    let made = create(&l.backend, &path, Label::Write).await;
    let staged = l.proxy.lose_next(lose, about(key(&path, &made.node)), cut);
    let now = l.backend.relabel(&path, &made.node, Label::Read).await.unwrap();
    staged.happened().await;
    assert_eq!(now.label, Label::Read);
    let queue = l.backend.children(&path, None).await.unwrap();
    assert_eq!(*queue, *std::slice::from_ref(&now), "the same place, session and fencing token");
    assert_eq!(l.backend.data(&path, &now).await.unwrap().unwrap().data, b"data");
    assert!(!made.deletion.is_deleted());
}

/// Creates are in flight to one server while they are voided through another.
#[tokio::test]
async fn a_create_that_comes_late_does_nothing() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let [slow, fast] = [FaultProxy::start(server.addr()).await, FaultProxy::start(server.addr()).await];
        let hosts = format!("{},{}", slow.connect_string(), fast.connect_string());
        let backend = EtcdBackend::connect(options(&hosts)).await.unwrap();
        let (path, observer) = (path("late"), observer(&server.connect_string()).await);
        slow.to_server(Flow::Hold);
        let before = slow.bytes_to_server();
        let tokens: Vec<_> = (0..100).map(|_| token()).collect();
        let creates = tokens.iter().map(|token| {
            let create = backend.create_ephemeral_sequential(&path, Label::Lock, token, b"", Needs::Queue);
            timeout(Duration::from_millis(200), create)
        });
        for given_up in join_all(creates).await {
            assert!(given_up.is_err());
        }
        let deletes = tokens.iter().map(async |token| {
            backend.delete(&path, &Target::Id(token.clone()), None).await.unwrap();
        });
        join_all(deletes).await;
        assert_eq!(slow.bytes_to_server(), before, "none has arrived yet");
        slow.to_server(Flow::Pass);
        until("they arrive", async || slow.bytes_to_server() > before).await;
        for _ in 0..50 {
            assert!(names(&observer, &path).await.is_empty());
            sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(backend.session_events().current().epoch, 1);
    })
    .await;
}

/// The same without giving up: a later attempt succeeds, its node is deleted, and then the first attempt arrives.
#[tokio::test]
async fn a_try_that_comes_late_does_nothing() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        for _ in 0..5 {
            let [slow, fast] =
                [FaultProxy::start(server.addr()).await, FaultProxy::start(server.addr()).await];
            let hosts = format!("{},{}", slow.connect_string(), fast.connect_string());
            let backend = EtcdBackend::connect(options(&hosts)).await.unwrap();
            let (path, observer) = (path("late"), observer(&server.connect_string()).await);
            slow.to_server(Flow::Hold);
            let before = slow.bytes_to_server();
            let made = create(&backend, &path, Label::Lock).await;
            backend.delete(&path, &Target::Node(made.node), None).await.unwrap();
            assert_eq!(slow.bytes_to_server(), before, "it has not arrived yet");
            slow.to_server(Flow::Pass);
            until("it arrives", async || slow.bytes_to_server() > before).await;
            for _ in 0..20 {
                assert!(names(&observer, &path).await.is_empty());
                sleep(Duration::from_millis(5)).await;
            }
        }
    })
    .await;
}

/// Giving up one create voids the others that are in flight, which are then repeated.
#[tokio::test]
async fn creates_survive_that_others_are_given_up() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let backend = std::sync::Arc::new(etcd::backend(&server.connect_string()).await);
        let path = path("crowd");
        let mut tasks = JoinSet::new();
        for n in 0..60 {
            let (backend, path) = (backend.clone(), path.clone());
            tasks.spawn(async move {
                if n % 3 == 0 {
                    give_up(&backend, &path).await;
                    None
                } else {
                    Some(create(&*backend, &path, Label::Lock).await.node.id)
                }
            });
        }
        let mut made = Vec::new();
        while let Some(token) = tasks.join_next().await {
            made.extend(token.unwrap());
        }
        let queue = backend.children(&path, None).await.unwrap();
        assert_eq!(queue.len(), 40);
        assert!(made.iter().all(|token| queue.find(token).is_some()));
    })
    .await;
}

#[tokio::test]
async fn a_lease_revoked_while_the_create_is_under_way() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let l = linked(server).await;
        let path = path("revoked");
        l.proxy.to_server(Flow::Hold);
        let meddle = async {
            sleep(Duration::from_millis(100)).await;
            revoke(&l.observer, &l.backend).await;
            l.proxy.to_server(Flow::Pass);
        };
        let (made, ()) = tokio::join!(create(&l.backend, &path, Label::Lock), meddle);
        assert_eq!(made.epoch, 2);
        assert_eq!(names(&l.observer, &path).await, [made.node.name.to_string()]);
        assert_eq!(Some(l.backend.session_events().current().id), made.node.session);
    })
    .await;
}

/// The raised fence is deleted with the lease. A create then waits for the next session.
#[tokio::test]
async fn a_lease_revoked_after_a_create_was_given_up() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let l = linked(server).await;
        let path = path("revoked");
        give_up(&l.backend, &path).await;
        revoke(&l.observer, &l.backend).await;
        let made = create(&l.backend, &path, Label::Lock).await;
        assert_eq!(made.epoch, 2);
    })
    .await;
}

/// T1: the request is applied, its answer is lost, all attempts are used up, and the session survives.
#[tokio::test]
async fn a_create_that_gives_up_says_that_it_may_have_happened() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let l = linked_with(server, |options| options.with_retry(RetryPolicy::never())).await;
        let (path, token) = (path("never"), token());
        l.proxy.to_client(Flow::Swallow);
        let create = l.backend.create_ephemeral_sequential(&path, Label::Lock, &token, b"", Needs::Queue);
        let error = create.await.unwrap_err();
        assert_eq!((error.kind(), error.is_ambiguous()), (ErrorKind::Unavailable, true), "{error}");
        assert_eq!(names(&l.observer, &path).await.len(), 1);
        l.proxy.heal().await;
        until("deleted", async || l.backend.delete(&path, &Target::Id(token.clone()), None).await.is_ok())
            .await;
        assert!(names(&l.observer, &path).await.is_empty());
    })
    .await;
}

/// T43, T9: an operation has one time budget, however many requests it takes.
#[tokio::test]
async fn an_operation_ends_with_its_time() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        // A busy server makes the node in this time, and the session outlasts it.
        let (time, ttl, delay) = (Duration::from_secs(5), Duration::from_secs(40), Duration::from_millis(1));
        let l = linked_with(server, |options| {
            options.with_operation_timeout(time).with_ttl(ttl).with_retry(RetryPolicy::forever(delay))
        })
        .await;
        let path = path("time");
        let made = create(&l.backend, &path, Label::Write).await;
        for is_cut in [false, true] {
            if is_cut {
                l.proxy.heal().await;
                connected(&l.backend, 1).await;
                l.proxy.refuse().await;
                l.proxy.cut(Cut::Reset);
                suspended(&l.backend).await;
            } else {
                l.proxy.freeze().await;
            }
            let (token, target) = (token(), Target::Node(made.node.clone()));
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
            // The operation does not wait for a retry delay that would exceed its time.
            assert!(took + delay >= time && took < time * 3 / 2, "cut: {is_cut}, {took:?}");
            let writes = [create.unwrap_err(), delete.unwrap_err(), relabel.unwrap_err()];
            let reads = [list.unwrap_err(), watch.unwrap_err()];
            for error in &writes {
                let why = "sent only while there seems to be a connection";
                assert_eq!(error.is_ambiguous(), !is_cut, "{why}: {error}");
            }
            for error in writes.iter().chain(&reads) {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                assert!(!is_cut || error.to_string().contains("no connection"), "{error}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_token_is_used_once() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let backend = etcd::backend(&server.connect_string()).await;
        let path = path("twice");
        let made = create(&backend, &path, Label::Lock).await;
        let again = backend.create_ephemeral_sequential(&path, Label::Lock, &made.node.id, b"", Needs::Queue);
        assert_eq!(again.await.unwrap_err().kind(), ErrorKind::Unexpected);
    })
    .await;
}

#[tokio::test]
async fn an_unreachable_server_is_named() {
    limit(async {
        // No server listens on this port.
        let port = zlock_testkit::Port::reserve();
        let options = options(&port.addr().to_string()).with_connect_timeout(Duration::from_millis(500));
        let (connected, took) = timed(EtcdBackend::connect(options)).await;
        let error = connected.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains(&port.addr().to_string()), "{error}");
        assert!(took < Duration::from_secs(1), "{took:?}");
    })
    .await;
}
