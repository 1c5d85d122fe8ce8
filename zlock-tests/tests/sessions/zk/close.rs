//! The end of a backend, and connects that fail.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use zlock_core::{Close, CoordinationBackend, ErrorKind, Label, Needs, SessionState, Target, WatchEvent};
use zlock_suite::timed;
use zlock_testkit::zk::{
    SESSION, backend, create, linked, mkdir, names, observer, options, path, token, watch,
};
use zlock_testkit::{Cut, Flow, have_zookeeper, limit, limit_if, until, zookeeper_or_skip};
use zlock_zk::ZkBackend;

/// T29 and the documentation of `close`.
#[tokio::test]
async fn close_ends_everything_at_once() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let l = linked(server).await;
        let path = path("close");
        let made = create(&l.backend, &path, Label::Lock).await;
        let watch = watch(&l.backend, &path, &made.node).await;
        let began = Instant::now();
        assert_eq!(l.backend.close().await.unwrap(), Close::Ended);
        assert_eq!(l.backend.close().await.unwrap(), Close::Ended);
        assert!(names(&l.observer, &path).await.is_empty());
        watch.await;
        for result in [
            l.backend.children(&path, None).await.err(),
            l.backend.delete(&path, &Target::Node(made.node.clone()), None).await.err(),
            l.backend
                .create_ephemeral_sequential(&path, Label::Lock, &token(), b"", Needs::Queue)
                .await
                .err(),
        ] {
            assert_eq!(result.unwrap().kind(), ErrorKind::Closed);
        }
        assert!(began.elapsed() < SESSION / 2, "{:?}", began.elapsed());
    })
    .await;
}

#[tokio::test]
async fn close_wakes_whoever_waits_without_a_server() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        for lost in [false, true] {
            let l = linked(server).await;
            let path = path("close-waiting");
            l.proxy.refuse().await;
            l.proxy.cut(Cut::Fin);
            let mut events = l.backend.session_events();
            if lost {
                events.ended(1).await;
            } else {
                until("suspended", async || events.current().state == SessionState::Suspended).await;
            }
            let waiting = async { l.backend.children(&path, None).await.unwrap_err().kind() };
            let close = async {
                sleep(Duration::from_millis(50)).await;
                let began = Instant::now();
                assert_eq!(l.backend.close().await.unwrap(), Close::Pending);
                began
            };
            let (kind, began) = tokio::join!(waiting, close);
            assert_eq!(kind, ErrorKind::Closed);
            assert!(began.elapsed() < SESSION / 2, "{:?}", began.elapsed());
        }
    })
    .await;
}

#[tokio::test]
async fn dropping_the_last_handle_ends_the_session() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let observer = observer(&server.connect_string()).await;
        let backend: Arc<dyn CoordinationBackend> = Arc::new(backend(&server.connect_string()).await);
        let path = path("drop");
        mkdir(&observer, &path).await;
        let made = backend
            .create_ephemeral_sequential(&path, Label::Lock, &token(), b"", Needs::Queue)
            .await
            .unwrap();
        let watch = watch(&*backend, &path, &made.node).await;
        let events = backend.session_events();
        let began = Instant::now();
        drop(backend);
        assert!(matches!(events.current().state, SessionState::Closed(_)));
        until("the node is gone", async || names(&observer, &path).await.is_empty()).await;
        watch.await;
        assert!(began.elapsed() < SESSION / 2, "{:?}", began.elapsed());
    })
    .await;
}

/// A frozen server confirms nothing, so the locks are not free yet.
#[tokio::test]
async fn close_says_whether_the_server_has_ended_the_session() {
    limit_if(have_zookeeper(), async {
        let server = zlock_testkit::ZooKeeper::start().await;
        let path = path("frozen");
        let first = backend(&server.connect_string()).await;
        create(&first, &path, Label::Lock).await;
        server.pause();
        assert_eq!(first.close().await.unwrap(), Close::Pending);
        server.resume();
        // A second call returns the same, although the server knows of the close by now.
        assert_eq!(first.close().await.unwrap(), Close::Pending);
        let second = backend(&server.connect_string()).await;
        create(&second, &path, Label::Lock).await;
        assert_eq!(second.close().await.unwrap(), Close::Ended);
        let observer = observer(&server.connect_string()).await;
        until("all are gone", async || names(&observer, &path).await.is_empty()).await;
    })
    .await;
}

/// The backend's runtime is not driven. When it is driven again, it still ends the session.
#[test]
fn close_does_not_wait_for_an_idle_runtime() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (home, other) = (runtime(), runtime());
    let Some(backend) = home.block_on(async {
        let server = zookeeper_or_skip().await?;
        let options = options(&server.connect_string()).with_session_timeout(Duration::from_secs(60));
        Some(ZkBackend::connect(options).await.unwrap())
    }) else {
        return;
    };
    assert_eq!(other.block_on(limit(backend.close())).unwrap(), Close::Pending);
    assert_eq!(home.block_on(limit(backend.close())).unwrap(), Close::Ended);
}

/// Without a server, connecting fails with a clear error within the connect timeout.
#[tokio::test]
async fn connecting_without_a_server_fails_in_time() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let wait = Duration::from_millis(700);
        let refused = zlock_testkit::Port::reserve();
        let mute = zlock_testkit::FaultProxy::start_zookeeper(server.addr()).await;
        mute.both(Flow::Swallow);
        for host in [refused.addr().to_string(), mute.connect_string()] {
            let connect = ZkBackend::connect(options(&host).with_connect_timeout(wait));
            let (connected, took) = timed(connect).await;
            let error = connected.unwrap_err();
            assert!(took >= wait && took < 2 * wait, "{took:?}");
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.to_string().contains(&host), "{error}");
        }
    })
    .await;
}

/// The backend ends with the runtime that it was connected on. Tasks that wait on another runtime get an error.
#[test]
fn the_runtime_ends_and_the_backend_with_it() {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let path = path("runtime");
    let Some((backend, watch, made)) = first.block_on(async {
        let server = zookeeper_or_skip().await?;
        let backend = backend(&server.connect_string()).await;
        let made = create(&backend, &path, Label::Lock).await;
        let watch = watch(&backend, &path, &made.node).await;
        Some((backend, watch, made))
    }) else {
        return;
    };
    first.shutdown_timeout(Duration::from_secs(5));
    second.block_on(limit(async {
        assert_eq!(watch.await, WatchEvent::Changed);
        for error in [
            backend.children(&path, None).await.err(),
            backend.delete(&path, &Target::Node(made.node), None).await.err(),
        ] {
            assert_eq!(error.unwrap().kind(), ErrorKind::Closed);
        }
        // The backend's task has ended, and did not ask the server to end the session.
        assert_eq!(backend.close().await.unwrap(), Close::Pending);
    }));
}
