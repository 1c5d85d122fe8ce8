//! Sessions: heartbeats, the deadline, close, drop, and clients without a runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{MS, T, create, limit, path, until};
use tokio::time::{Instant, advance, sleep};
use zlock_core::{
    Close, CloseReason, CoordinationBackend, ErrorKind, LockPath, SessionState, Target, Values,
};
use zlock_mem::{Fate, Fault, MemLink, MemOptions, MemServer, Operation};
use zlock_testkit::mem::watch;

#[tokio::test(start_paused = true)]
async fn heartbeats_keep_a_session_for_hours() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect();
        let created = create(&a).await;
        server.reset_requests();
        for _ in 0..3600 {
            sleep(1000 * MS).await;
            assert!(a.session_events().is_live(1));
        }
        let counts: Vec<_> = server.request_counts().into_iter().collect();
        let [(Operation::Heartbeat, beats)] = counts[..] else { panic!("{counts:?}") };
        assert!((1075..=1080).contains(&beats), "{beats}");
        assert!(!created.deletion.is_deleted());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_session_has_a_deadline_only_while_it_owns_a_node() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect();
        let deadline = || a.session_events().current().deadline;
        for _ in 0..3 {
            sleep(3 * T).await;
            assert_eq!((deadline(), a.session_events().epoch()), (None, 1));
            let created = create(&a).await;
            assert_eq!(deadline(), Some(Instant::now() + T * 3 / 4));
            sleep(3 * T).await;
            assert!(deadline() > Some(Instant::now()), "heartbeats move it on");
            a.delete(&path(), &Target::Node(created.node), None).await.unwrap();
        }
    })
    .await;
}

/// The client learns of the end of its session from its first request. That does not create a node in the session that is over.
#[tokio::test(start_paused = true)]
async fn the_first_create_after_a_rest_is_made_in_a_session_that_lives() {
    limit(async {
        for silent in [false, true] {
            let server = MemServer::new();
            let a = server.connect();
            sleep(3 * T).await;
            if silent {
                a.link().mute();
                sleep(2 * T).await;
                a.link().heal();
            } else {
                let id = a.session_events().current().id;
                assert!(server.expire(id));
            }
            let created = create(&a).await;
            assert_eq!(created.epoch, 2);
            assert_eq!(created.node.session, Some(a.session_events().current().id));
            assert_eq!(server.names(&path()), [created.node.name.as_str()]);
            assert!(a.session_events().current().deadline.is_some());
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_session_at_rest_that_hears_nothing_is_given_up() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect();
        sleep(3 * T).await;
        a.link().suspend();
        until(&a, 1, SessionState::Suspended).await;
        sleep(T / 2).await;
        assert!(a.session_events().is_live(1), "nothing is lost yet");
        until(&a, 1, SessionState::Lost).await;
        a.link().heal();
        until(&a, 2, SessionState::Connected).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_is_reported_within_a_heartbeat() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect();
        let (mut deleted, mut released) = (create(&a).await, create(&a).await);
        a.delete(&path(), &Target::Node(released.node), None).await.unwrap();
        server.remove(&path(), deleted.node.name.as_str());
        let began = Instant::now();
        deleted.deletion.deleted().await;
        assert!(began.elapsed() <= T / 3 + 2 * MS);
        tokio::select! {
            biased;
            () = released.deletion.deleted() => panic!("its own delete was reported"),
            () = sleep(T) => {}
        }
    })
    .await;
}

/// Harms the link after a while. Returns when the client considers its session lost, and when the server ends it.
async fn ends(after: Duration, delays: (u64, u64), harm: fn(&MemLink)) -> (Instant, Instant) {
    let server = MemServer::new();
    let a = server.connect();
    let created = create(&a).await;
    let ms = Duration::from_millis;
    a.link().delay(ms(delays.0), ms(delays.1));
    sleep(after).await;
    harm(&a.link());
    let mut events = a.session_events();
    let b = server.connect();
    let gone = watch(&b, &path(), &created.node).await;
    tokio::join!(
        async {
            events.ended(created.epoch).await;
            Instant::now()
        },
        async {
            gone.await;
            Instant::now()
        }
    )
}

/// Rule 2, for all moments between heartbeats, all ways to break a link, and slow links.
#[tokio::test(start_paused = true)]
async fn the_deadline_is_never_later_than_the_end() {
    limit(async {
        // On a mute link, the client's next epoch closes the session. Otherwise the server ends it by itself.
        let mut shortest = T;
        for delays in [(0, 0), (900, 900), (1800, 0), (0, 1800)] {
            for (mute, harm) in
                [(false, MemLink::cut as fn(&_)), (false, MemLink::suspend), (true, MemLink::mute)]
            {
                for after in (0..=7000).step_by(250) {
                    let (client, end) = ends(after * MS, delays, harm).await;
                    assert!(client < end, "delays {delays:?}, harmed after {after} ms");
                    if !mute {
                        shortest = shortest.min(end - client);
                    }
                }
            }
        }
        assert!(shortest >= T / 4 - 2 * MS, "the margin is not kept: {shortest:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_frozen_process_finds_its_session_lost_and_the_server_closes_it() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect();
        let created = create(&a).await;
        // No task runs meanwhile, so only the deadline shows the loss.
        advance(T * 4 / 5).await;
        assert!(!a.session_events().is_live(created.epoch));
        assert_eq!(server.sessions().len(), 1);
        let session = until(&a, 2, SessionState::Connected).await;
        assert_eq!(server.sessions(), [session.id], "the old session was closed, not left to expire");
        assert!(server.names(&path()).is_empty());
        assert!(!created.deletion.is_deleted(), "that is what the session is for");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_expired_client_learns_it_when_it_asks() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect();
        let old = create(&a).await;
        a.link().expire();
        assert!(server.names(&path()).is_empty(), "the server knows at once");
        let new = create(&a).await;
        assert_eq!((old.epoch, new.epoch), (1, 2));
        assert_eq!(server.link_of(new.node.session.unwrap()).unwrap().session(), new.node.session);
        assert!(server.link_of(old.node.session.unwrap()).is_none());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_a_connect_leaves_no_second_session() {
    limit(async {
        let server = MemServer::new();
        server.inject(Fault::lose_answer(Operation::Connect).times(3));
        let a = server.connect();
        let session = until(&a, 1, SessionState::Connected).await;
        assert_eq!(server.sessions(), [session.id]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_heartbeat_is_a_short_outage() {
    limit(async {
        for fault in [Fault::lose_answer, Fault::lose_request] {
            let server = MemServer::new();
            let a = server.connect();
            server.inject(fault(Operation::Heartbeat));
            let mut listener = a.session_events().listen();
            let mut states = Vec::new();
            for _ in 0..3 {
                states.push(listener.next().await.unwrap().state);
            }
            assert_eq!(states, [SessionState::Connected, SessionState::Suspended, SessionState::Connected]);
            sleep(2 * T).await;
            assert!(a.session_events().is_live(1));
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn options_are_kept() {
    limit(async {
        let server = MemServer::new();
        let options = MemOptions::default().with_session_timeout(3 * T).with_margin(T);
        let a = server.connect_with(options);
        assert_eq!(a.session_events().current().deadline.unwrap(), Instant::now() + 2 * T);
        a.link().suspend();
        until(&a, 1, SessionState::Lost).await;
        assert_eq!(server.sessions().len(), 1);
        sleep(T + MS).await;
        assert_eq!(server.sessions().len(), 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn parents_go_a_minute_after_they_became_empty() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect();
        let created = create(&a).await;
        sleep(20 * T).await;
        assert_eq!(server.paths().len(), 3);
        a.delete(&path(), &Target::Node(created.node), None).await.unwrap();
        sleep(5 * T).await;
        assert_eq!(server.paths(), ["/app", "/app/orders"]);
        sleep(T + MS).await;
        assert_eq!(server.paths(), [""; 0]);
        create(&a).await;
        server.reap_containers();
        assert_eq!(server.paths().len(), 3);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn closing_over_a_silent_link_does_not_wait_for_ever() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect();
        create(&a).await;
        a.link().cut();
        a.close().await.unwrap();
        drop(a);
        sleep(T).await;
        assert!(server.sessions().is_empty() && server.names(&path()).is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_client_leaves_no_task() {
    limit(async {
        let server = MemServer::new();
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        for _ in 0..20 {
            let a = server.connect();
            create(&a).await;
            drop(a);
        }
        sleep(MS).await;
        assert_eq!(tasks(), 1, "the server's clock");
        assert!(server.sessions().is_empty());
        drop(server);
        sleep(MS).await;
        assert_eq!(tasks(), 0);
    })
    .await;
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

#[test]
fn a_client_may_be_made_and_dropped_without_a_runtime() {
    let server = MemServer::new();
    let a = server.connect();
    assert_eq!(a.session_events().current().epoch, 0);
    let created = runtime().block_on(create(&a));
    assert_eq!(created.epoch, 1);
    drop(a);
    assert!(server.sessions().is_empty() && server.names(&path()).is_empty());
}

/// Like the clients of other stores.
#[test]
fn a_client_ends_with_its_runtime() {
    let server = MemServer::new();
    let a = runtime().block_on(async {
        let a = server.connect();
        create(&a).await;
        a
    });
    assert_eq!(a.session_events().current().state, SessionState::Closed(CloseReason::Requested));
    runtime().block_on(async {
        assert_eq!(a.children(&path(), None).await.unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(server.names(&path()).len(), 1, "nothing has asked the server to end the session");
    });
    drop(a);
    assert!(server.sessions().is_empty() && server.names(&path()).is_empty());
}

/// Runtimes on which a client is only used may end.
#[test]
fn a_client_goes_on_when_a_runtime_that_used_it_has_ended() {
    let server = MemServer::new();
    let home = runtime();
    let a = home.block_on(async { server.connect() });
    runtime().block_on(create(&a));
    home.block_on(async {
        sleep(5 * T).await;
        assert_eq!(create(&a).await.epoch, 1);
    });
    assert_eq!(server.names(&path()).len(), 2);
}

#[test]
fn a_look_at_the_session_connects_a_client_that_was_made_without_a_runtime() {
    let a = MemServer::new().connect();
    runtime().block_on(async {
        let connected = tokio::time::timeout(2 * T, until(&a, 1, SessionState::Connected)).await;
        assert_eq!(connected.unwrap().epoch, 1);
    });
}

#[test]
fn a_session_expires_although_its_runtime_has_ended() {
    let server = MemServer::new();
    let (a, node) = runtime().block_on(async {
        let a = server.connect_with(MemOptions::default().with_session_timeout(T / 10));
        let node = create(&a).await.node;
        (a, node)
    });
    runtime().block_on(async {
        let b = server.connect();
        let gone = watch(&b, &path(), &node).await;
        // The server gets no request until the next heartbeat of `b`.
        sleep(MS).await;
        let began = Instant::now();
        gone.await;
        assert!(began.elapsed() <= T / 5, "{:?}", began.elapsed());
    });
    drop(a);
}

#[test]
fn threads_with_runtimes_of_their_own_share_a_server() {
    let server = MemServer::new();
    let looked = Arc::new(AtomicUsize::new(0));
    let count = looked.clone();
    // A hook that calls the server while other threads do.
    server.on_request(move |server, _| {
        count.fetch_add(server.sessions().len().min(1), Ordering::Relaxed);
        Fate::Pass
    });
    std::thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                runtime.block_on(limit(async {
                    let a = server.connect();
                    for _ in 0..200 {
                        let created = create(&a).await;
                        let (queue, watch) = a.children_with_watch(&path()).await.unwrap();
                        assert!(queue.find(&created.node.id).is_some());
                        a.delete(&path(), &Target::Node(created.node), None).await.unwrap();
                        watch.await;
                    }
                }));
            });
        }
    });
    assert!(looked.load(Ordering::Relaxed) > 8 * 200 * 4);
    assert!(server.names(&path()).is_empty() && server.sessions().is_empty());
    assert_eq!(server.watches(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_watches_of_an_ended_session_are_gone_at_the_server() {
    limit(async {
        let server = MemServer::new();
        let (a, b) = (server.connect(), server.connect());
        let node = create(&b).await.node;
        let on_node = watch(&a, &path(), &node).await;
        let (_, on_queue) = a.children_with_watch(&path()).await.unwrap();
        assert_eq!(server.watches(), 2);
        a.link().expire();
        assert_eq!(server.watches(), 0);
        tokio::join!(on_node, on_queue);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_client_says_good_bye_over_a_slow_link() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect();
        create(&a).await;
        a.link().delay(100 * MS, 100 * MS);
        drop(a);
        sleep(50 * MS).await;
        assert_eq!(server.sessions().len(), 1);
        sleep(60 * MS).await;
        assert!(server.sessions().is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_first_deadline_counts_from_the_sending_of_the_connect() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect();
        a.link().delay(1000 * MS, 1000 * MS);
        a.link().expire();
        let session = until(&a, 2, SessionState::Connected).await;
        assert!(session.deadline.unwrap() <= Instant::now() + T * 3 / 4 - 2000 * MS);
    })
    .await;
}

#[tokio::test]
async fn a_store_can_be_found_by_its_name() {
    limit(async {
        let (a, b) = (MemServer::named("sessions-a"), MemServer::named("sessions-b"));
        let backend = MemServer::named("sessions-a").connect();
        create(&backend).await;
        assert_eq!((a.names(&path()).len(), b.names(&path()).len()), (1, 0));
        drop((a, b));
        assert_eq!(MemServer::named("sessions-a").names(&path()).len(), 1, "a backend keeps it");
        drop(backend);
        sleep(MS).await;
        assert!(MemServer::named("sessions-a").paths().is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_hook_with_a_link_does_not_keep_the_store() {
    limit(async {
        let server = MemServer::named("hooked");
        let backend = server.connect();
        let link = backend.link();
        server.on_request(move |_, _| {
            link.delay(MS, MS);
            Fate::Pass
        });
        create(&backend).await;
        drop((server, backend));
        sleep(MS).await;
        assert!(MemServer::named("hooked").paths().is_empty());
    })
    .await;
}

/// The request for the next session is on its way when the backend is closed.
#[tokio::test(start_paused = true)]
async fn a_close_ends_the_session_that_the_client_does_not_know_yet() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect();
        create(&a).await;
        a.link().delay(200 * MS, Duration::ZERO);
        a.link().expire();
        // The session cannot be resumed. That took one round trip.
        sleep(250 * MS).await;
        assert_eq!(a.close().await.unwrap(), Close::Ended);
        assert!(server.sessions().is_empty(), "{:?}", server.sessions());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_root_is_not_a_node() {
    limit(async {
        let server = MemServer::new();
        let a = server.connect();
        let hits = LockPath::new("/hits").unwrap();
        a.write_value(&hits, None, b"1", None).await.unwrap();
        assert_eq!(server.paths(), ["/hits"]);
    })
    .await;
}
