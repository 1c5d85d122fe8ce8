//! Links that break, fall silent or lose answers, and servers that stop.

use crate::common::{MS, T, create, limit, path, until};
use tokio::time::{Instant, sleep, timeout};
use zlock_core::{CoordinationBackend, ErrorKind, Existence, RetryPolicy, SessionState, Target, WatchEvent};
use zlock_mem::{MemOptions, MemServer, Operation};
use zlock_testkit::mem::watch;

#[tokio::test(start_paused = true)]
async fn a_suspended_client_keeps_its_session_and_its_nodes() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect();
        let created = create(&a).await;
        a.link().suspend();
        until(&a, 1, SessionState::Suspended).await;
        sleep(T / 3).await;
        a.link().heal();
        let session = until(&a, 1, SessionState::Connected).await;
        assert_eq!(Some(session.id), created.node.session);
        assert!(session.deadline.unwrap() >= Instant::now() + T / 2, "answered again, the deadline moved on");
        assert_eq!(server.names(&path()).len(), 1);
        assert!(!created.deletion.is_deleted());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn suspended_for_too_long_it_is_lost_and_comes_back_as_a_new_epoch() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect();
        create(&a).await;
        let mut listener = a.session_events().listen();
        a.link().suspend();
        let mut told = Vec::new();
        for _ in 0..3 {
            told.push(listener.next().await.unwrap());
        }
        let lost_at = Instant::now();
        while !server.names(&path()).is_empty() {
            sleep(MS).await;
        }
        assert!(lost_at.elapsed() >= T / 5, "the server waited on: {:?}", lost_at.elapsed());
        a.link().heal();
        told.push(listener.next().await.unwrap());
        let told: Vec<_> = told.into_iter().map(|s| (s.epoch, s.state)).collect();
        use SessionState::{Connected, Lost, Suspended};
        assert_eq!(told, [(1, Connected), (1, Suspended), (1, Lost), (2, Connected)]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn operations_wait_for_the_link_within_their_budget() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect_with(MemOptions::default().with_operation_timeout(2000 * MS));
        a.link().suspend();
        let began = Instant::now();
        let error = a.children(&path(), None).await.unwrap_err();
        assert_eq!((error.kind(), began.elapsed()), (ErrorKind::Unavailable, 2000 * MS), "{error}");
        let path = path();
        let (queue, ()) = tokio::join!(a.children(&path, None), async {
            sleep(1000 * MS).await;
            a.link().heal();
        });
        assert!(queue.unwrap().is_empty());
        // Waiting for the link is not a retry.
        let b = server.connect_with(MemOptions::default().with_retry(RetryPolicy::never()));
        b.link().suspend();
        until(&b, 1, SessionState::Suspended).await;
        let (queue, ()) = tokio::join!(b.children(&path, None), async {
            sleep(1000 * MS).await;
            b.link().heal();
        });
        assert!(queue.unwrap().is_empty());
    })
    .await;
}

/// FR-17: late messages cannot revive a lost session.
#[tokio::test(start_paused = true)]
async fn a_silent_link_is_noticed_by_silence_then_by_the_deadline() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect();
        let created = create(&a).await;
        let watch = watch(&a, &path(), &created.node).await;
        let began = Instant::now();
        a.link().cut();
        until(&a, 1, SessionState::Suspended).await;
        assert!(began.elapsed() <= T * 2 / 3 + 2 * MS, "{:?}", began.elapsed());
        until(&a, 1, SessionState::Lost).await;
        assert!(began.elapsed() <= T * 3 / 4 + 2 * MS, "{:?}", began.elapsed());
        assert_eq!(watch.await, WatchEvent::Changed, "the watch ends with the session");
        assert_eq!(
            server.names(&path()).len(),
            1,
            "the server still has the node when its client gave it up"
        );
        // The link is healed before the server has ended the session. The session must still end when the next epoch begins.
        a.link().heal();
        let session = until(&a, 2, SessionState::Connected).await;
        assert!(began.elapsed() < T);
        assert_eq!(server.sessions(), [session.id]);
        assert!(server.names(&path()).is_empty());
        assert_ne!(created.node.session, Some(session.id));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_was_given_up_does_not_arrive_late() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect_with(MemOptions::default().with_operation_timeout(1000 * MS));
        create(&a).await;
        a.link().cut();
        let error = crate::common::try_create(&a, zlock_core::Label::Lock).await.unwrap_err();
        assert!(error.is_ambiguous(), "{error}");
        until(&a, 1, SessionState::Suspended).await;
        a.link().heal();
        until(&a, 1, SessionState::Connected).await;
        a.children(&path(), None).await.unwrap();
        assert_eq!(server.names(&path()).len(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn over_a_short_silence_a_request_arrives_late() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect();
        let began = Instant::now();
        a.link().cut();
        let (created, ()) = tokio::join!(create(&a), async {
            sleep(1000 * MS).await;
            assert!(server.names(&path()).is_empty());
            a.link().heal();
        });
        assert_eq!(created.epoch, 1);
        assert_eq!(began.elapsed(), 1000 * MS);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_mute_link_carries_requests_but_no_answers() {
    limit(async {
        let server = MemServer::new();
        let (a, b) = (server.connect(), server.connect());
        let first = create(&b).await;
        a.link().mute();
        assert!(timeout(1000 * MS, create(&a)).await.is_err());
        assert_eq!(server.names(&path()).len(), 2);
        until(&a, 1, SessionState::Suspended).await;
        a.link().heal();
        until(&a, 1, SessionState::Connected).await;
        b.delete(&path(), &Target::Node(first.node), None).await.unwrap();

        a.link().mute();
        server.reset_requests();
        let path = path();
        let (queue, ()) = tokio::join!(a.children(&path, None), async {
            sleep(100 * MS).await;
            a.link().heal();
        });
        assert_eq!(queue.unwrap().len(), 1);
        assert_eq!(server.requests(Operation::List), 2, "the first answer was lost for good");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_outlives_the_connection_and_reports_what_was_missed() {
    limit(async {
        let server = MemServer::new();
        let (a, b) = (server.connect(), server.connect());
        let node = create(&a).await.node;
        for outage in ["reset", "suspend", "mute", "cut"] {
            let watched = create(&a).await.node;
            let Existence::Watching(mut watch) = b.exists_with_watch(&path(), &watched).await.unwrap() else {
                panic!("{outage}");
            };
            match outage {
                "reset" => b.link().reset(),
                "suspend" => b.link().suspend(),
                "mute" => b.link().mute(),
                _ => b.link().cut(),
            }
            a.delete(&path(), &Target::Node(watched), None).await.unwrap();
            if outage != "reset" {
                assert!(timeout(1000 * MS, &mut watch).await.is_err(), "{outage}: told over a broken link");
            }
            b.link().heal();
            assert_eq!(watch.await, WatchEvent::Deleted, "{outage}");
            until(&b, 1, SessionState::Connected).await;
        }
        assert_eq!(server.names(&path()), [node.name.as_str()]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_reset_costs_the_requests_on_their_way_and_nothing_more() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect();
        a.link().delay(50 * MS, 50 * MS);
        create(&a).await;
        let (created, ()) = tokio::join!(create(&a), async {
            sleep(75 * MS).await;
            assert_eq!(server.names(&path()).len(), 2, "it has taken effect, its answer is on the way");
            a.link().reset();
        });
        assert_eq!(created.epoch, 1);
        assert_eq!(server.names(&path()).len(), 2);
    })
    .await;
}

/// MX-02, for the backend's part.
#[tokio::test(start_paused = true)]
async fn mx02_a_stopped_server_ends_no_session() {
    limit(async {
        for stop in [T / 5, T * 10] {
            let server = MemServer::new();
            let (a, b) = (server.connect(), server.connect());
            let created = create(&a).await;
            let watch = watch(&b, &path(), &created.node).await;
            server.stop();
            until(&a, 1, SessionState::Suspended).await;
            sleep(stop).await;
            assert_eq!(server.names(&path()).len(), 1);
            server.start();
            assert_eq!(server.sessions().len(), 2, "each has its whole timeout to come back");
            let epoch = if stop < T { 1 } else { 2 };
            until(&a, epoch, SessionState::Connected).await;
            until(&b, epoch, SessionState::Connected).await;
            if stop < T {
                a.delete(&path(), &Target::Node(created.node), None).await.unwrap();
                assert_eq!(watch.await, WatchEvent::Deleted);
            } else {
                // The client has given up the session in the meantime, and closes it as soon as it is back.
                assert!(server.names(&path()).is_empty());
                watch.await;
            }
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_of_a_stopped_server_connects_when_it_starts() {
    limit(async {
        let server = MemServer::new();
        server.stop();
        let a = server.connect();
        assert_eq!(a.session_events().current().epoch, 0);
        let (created, ()) = tokio::join!(create(&a), async {
            sleep(1000 * MS).await;
            server.start();
        });
        assert_eq!(created.epoch, 1);
    })
    .await;
}

/// T9, for the backend's part.
#[tokio::test(start_paused = true)]
async fn t9_an_unreachable_server_costs_little() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect();
        a.link().suspend();
        let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        for _ in 0..100 {
            assert!(timeout(T, a.children(&path(), None)).await.is_err());
        }
        assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), before);
        a.link().heal();
        a.children(&path(), None).await.unwrap();
    })
    .await;
}
