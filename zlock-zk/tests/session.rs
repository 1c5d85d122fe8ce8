//! Sessions: kept over outages, lost before the server ends them, begun anew, ended on demand.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{
    SESSION, backend, connected, create, linked, linked_with, mkdir, names, observer, options, path, token,
    until,
};
use tokio::time::{Instant, sleep, timeout};
use zlock_core::{CoordinationBackend, ErrorKind, Existence, Label, SessionState, Target, WatchEvent};
use zlock_testkit::{
    Cut, Ensemble, FaultProxy, Flow, Lose, Process, ZooKeeper, have_zookeeper, limit, limit_to, zk_op,
    zookeeper_or_skip, zookeeper_request,
};
use zlock_zk::{ZkBackend, ZkOptions};

/// When our view says that the session is over, and when another client sees the node gone.
async fn lost_and_vanished(l: &common::Linked, path: &zlock_core::LockPath) -> (Instant, Instant) {
    let mut events = l.backend.session_events();
    let lost = async {
        let session = events.over(1).await;
        assert_eq!((session.epoch, session.state), (1, SessionState::Lost));
        Instant::now()
    };
    let vanished = async {
        until("the node is gone", async || names(&l.observer, path).await.is_empty()).await;
        Instant::now()
    };
    tokio::join!(lost, vanished)
}

/// The silent server: packets are swallowed, and no reset tells.
#[tokio::test]
async fn the_deadline_comes_before_the_server_ends_the_session() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        for flow in [Flow::Swallow, Flow::Hold] {
            let l = linked(server).await;
            let path = path("deadline");
            let made = create(&l.backend, &path, Label::Lock).await;
            // Some heartbeats later, so that the deadline has moved.
            sleep(SESSION / 2).await;
            let began = Instant::now();
            l.proxy.both(flow);
            let (lost, vanished) = lost_and_vanished(&l, &path).await;
            println!("{flow:?}: lost after {:?}, gone after {:?}", lost - began, vanished - began);
            assert!(lost < vanished);
            assert!(lost - began > SESSION / 2, "not without need");
            assert!(!made.gone.is_gone(), "that is said of living sessions only");
        }
    })
    .await;
}

/// Only answers that never came back keep the session at the server alive for longer; ours ends all the same.
#[tokio::test]
async fn unanswered_requests_do_not_move_the_deadline() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let l = linked(server).await;
        let path = path("unanswered");
        create(&l.backend, &path, Label::Lock).await;
        l.proxy.to_client(Flow::Swallow);
        let (lost, vanished) = lost_and_vanished(&l, &path).await;
        assert!(lost < vanished);
    })
    .await;
}

/// DESIGN section 4: a follower answers, and dies before it tells the leader.
#[tokio::test]
async fn the_deadline_holds_when_the_follower_dies_right_after_an_answer() {
    limit_to(Duration::from_secs(120), async {
        if !have_zookeeper() {
            return;
        }
        // The shortest session that these servers grant: two ticks.
        let tick = Duration::from_secs(1);
        let kind = ZooKeeper::builder().tick(tick).session_timeouts(2 * tick, 60 * tick);
        let ensemble = Ensemble::start_with(3, kind).await;
        let [follower, other] = ensemble.followers().await[..] else { panic!("two followers") };
        let observer = observer(&ensemble.members()[other].connect_string()).await;
        for server_tick in [None, Some(tick)] {
            let mut options = ZkOptions::new([ensemble.members()[follower].connect_string()])
                .with_session_timeout(2 * tick);
            if let Some(tick) = server_tick {
                options = options.with_server_tick(tick);
            }
            let backend = ZkBackend::connect(options).await.unwrap();
            let path = path("follower");
            create(&backend, &path, Label::Lock).await;
            let mut events = backend.session_events();
            // A heartbeat was answered when the deadline moves.
            let before = events.current().deadline;
            while events.current().deadline == before {
                sleep(Duration::from_millis(1)).await;
            }
            ensemble.members()[follower].stop();
            let lost = async {
                events.over(1).await;
                Instant::now()
            };
            let vanished = async {
                until("the node is gone", async || names(&observer, &path).await.is_empty()).await;
                Instant::now()
            };
            let (lost, vanished) = tokio::join!(lost, vanished);
            println!("tick {server_tick:?}: the node was there for {:?} after the deadline", vanished - lost);
            assert!(lost < vanished);
            ensemble.members()[follower].restart().await;
        }
    })
    .await;
}

/// The server that we are connected to falls silent, and new connections to it get no answer: the session is kept
/// by another one, whichever is tried first.
#[tokio::test]
async fn a_silent_member_costs_nothing() {
    limit_to(Duration::from_secs(120), async {
        if !have_zookeeper() {
            return;
        }
        let ensemble = Ensemble::start(3).await;
        let mut proxies = Vec::new();
        for member in ensemble.members() {
            proxies.push(FaultProxy::start_zookeeper(member.addr()).await);
        }
        let hosts: Vec<_> = proxies.iter().map(FaultProxy::connect_string).collect();
        let backend = backend(&hosts.join(",")).await;
        let path = path("silent-member");
        let made = create(&backend, &path, Label::Lock).await;
        for round in 0..6 {
            // The one that heartbeats go to.
            let before: Vec<_> = proxies.iter().map(FaultProxy::bytes_to_client).collect();
            sleep(SESSION / 2).await;
            let used = (0..3).find(|&i| proxies[i].bytes_to_client() > before[i]).unwrap();
            let began = Instant::now();
            proxies[used].freeze().await;
            assert_eq!(backend.children(&path).await.unwrap().len(), 1);
            println!("round {round}: found another one after {:?}", began.elapsed());
            connected(&backend, 1).await;
            proxies[used].cut(Cut::Reset);
            proxies[used].heal().await;
        }
        assert!(!made.gone.is_gone());
    })
    .await;
}

/// MX-02, FR-14: shorter than the session.
#[tokio::test]
async fn a_server_that_is_away_for_two_seconds_costs_nothing() {
    limit_to(Duration::from_secs(120), async {
        if !have_zookeeper() {
            return;
        }
        let server = ZooKeeper::start().await;
        let options = ZkOptions::new([server.connect_string()]);
        let backend = ZkBackend::connect(options).await.unwrap();
        let path = path("restart");
        let made = create(&backend, &path, Label::Lock).await;
        let waiter = create(&backend, &path, Label::Lock).await;
        let Existence::Watching(watch) = backend.exists_with_watch(&path, &made.node).await.unwrap() else {
            panic!("it is there")
        };
        let mut listener = backend.session_events().listen();
        listener.next().await.unwrap();
        let told = tokio::spawn(async move {
            let mut told = Vec::new();
            while told.len() < 2 {
                let session = listener.next().await.unwrap();
                told.push((session.epoch, session.state));
            }
            told
        });
        server.stop();
        sleep(Duration::from_secs(2)).await;
        server.restart().await;
        assert_eq!(told.await.unwrap(), [(1, SessionState::Suspended), (1, SessionState::Connected)]);
        backend.delete(&path, &Target::Node(made.node)).await.unwrap();
        assert_eq!(watch.await, WatchEvent::Deleted);
        assert_eq!(backend.children(&path).await.unwrap().position(&waiter.node.token), Some(0));
        assert!(!waiter.gone.is_gone());
    })
    .await;
}

/// FR-14, T17, T26: longer than the session.
#[tokio::test]
async fn a_longer_outage_is_a_new_epoch() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let l = linked(server).await;
        let path = path("outage");
        let made = create(&l.backend, &path, Label::Lock).await;
        let Existence::Watching(watch) = l.backend.exists_with_watch(&path, &made.node).await.unwrap() else {
            panic!("it is there")
        };
        let mut listener = l.backend.session_events().listen();
        listener.next().await.unwrap();
        let told = tokio::spawn(async move {
            let mut told = Vec::new();
            while told.last() != Some(&(2, SessionState::Connected)) {
                let session = listener.next().await.unwrap();
                told.push((session.epoch, session.state));
            }
            told
        });
        l.proxy.refuse().await;
        l.proxy.cut(Cut::Fin);
        assert_eq!(watch.await, WatchEvent::Changed, "it fires with its session");
        assert_eq!(l.backend.session_events().current().state, SessionState::Lost);
        // An operation in between waits for the next session.
        let later = async {
            let made = create(&l.backend, &path, Label::Lock).await;
            assert_eq!(made.epoch, 2);
            made
        };
        let (later, ()) = tokio::join!(later, l.proxy.heal());
        assert_eq!(
            told.await.unwrap(),
            [(1, SessionState::Suspended), (1, SessionState::Lost), (2, SessionState::Connected)]
        );
        until("the first is gone", async || names(&l.observer, &path).await == [later.node.name.to_string()])
            .await;
        // About a node of a session that is over.
        assert_eq!(
            l.backend.relabel(&path, &made.node, Label::Read).await.unwrap_err().kind(),
            ErrorKind::SessionLost
        );
        l.backend.delete(&path, &Target::Node(made.node)).await.unwrap();
    })
    .await;
}

/// The nodes of a lost session go at once when the link is back, not when the server expires them.
#[tokio::test]
async fn a_lost_session_is_closed_at_the_server() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        // A margin of half the session, so that there is time between our end and the server's.
        let long = Duration::from_secs(8);
        let l =
            linked_with(server, |options| options.with_session_timeout(long).with_server_tick(long)).await;
        let path = path("closed-at-the-server");
        create(&l.backend, &path, Label::Lock).await;
        // A future that nobody polls has a request under way: it must not keep the old session alive.
        l.proxy.both(Flow::Hold);
        let mut unpolled = Box::pin(l.backend.children(&path));
        assert!(timeout(Duration::from_millis(20), &mut unpolled).await.is_err());
        let began = Instant::now();
        l.backend.session_events().over(1).await;
        assert!(began.elapsed() < long * 5 / 8, "{:?}", began.elapsed());
        l.proxy.heal().await;
        until("the node is gone", async || names(&l.observer, &path).await.is_empty()).await;
        assert!(began.elapsed() < long * 7 / 8, "gone only after {:?}", began.elapsed());
        connected(&l.backend, 2).await;
        assert!(unpolled.await.unwrap().is_empty());
    })
    .await;
}

/// FR-17: the server ended the session without our knowing; one loss, and then connected.
#[tokio::test]
async fn a_session_ended_by_the_server_is_one_loss() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let l = linked(server).await;
        let path = path("expired");
        create(&l.backend, &path, Label::Lock).await;
        for epoch in 1..4 {
            let mut listener = l.backend.session_events().listen();
            assert_eq!(listener.next().await.unwrap().epoch, epoch);
            l.proxy.freeze().await;
            sleep(SESSION + Duration::from_secs(1)).await;
            l.proxy.heal().await;
            let mut lost = 0;
            loop {
                let session = listener.next().await.unwrap();
                lost += usize::from(session.state == SessionState::Lost);
                if session.state == SessionState::Connected && session.epoch > epoch {
                    assert_eq!((session.epoch, lost), (epoch + 1, 1));
                    break;
                }
            }
        }
    })
    .await;
}

/// T29 and the documentation of `close`.
#[tokio::test]
async fn close_ends_everything_at_once() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let l = linked(server).await;
        let path = path("close");
        let made = create(&l.backend, &path, Label::Lock).await;
        let Existence::Watching(watch) = l.backend.exists_with_watch(&path, &made.node).await.unwrap() else {
            panic!("it is there")
        };
        let began = Instant::now();
        l.backend.close().await.unwrap();
        l.backend.close().await.unwrap();
        assert!(names(&l.observer, &path).await.is_empty());
        watch.await;
        for result in [
            l.backend.children(&path).await.err(),
            l.backend.delete(&path, &Target::Node(made.node.clone())).await.err(),
            l.backend.create_ephemeral_sequential(&path, Label::Lock, &token(), b"").await.err(),
        ] {
            assert_eq!(result.unwrap().kind(), ErrorKind::Closed);
        }
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
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
                events.over(1).await;
            } else {
                until("suspended", async || events.current().state == SessionState::Suspended).await;
            }
            let waiting = async { l.backend.children(&path).await.unwrap_err().kind() };
            let close = async {
                sleep(Duration::from_millis(50)).await;
                let began = Instant::now();
                l.backend.close().await.unwrap();
                began
            };
            let (kind, began) = tokio::join!(waiting, close);
            assert_eq!(kind, ErrorKind::Closed);
            assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
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
        let made = backend.create_ephemeral_sequential(&path, Label::Lock, &token(), b"").await.unwrap();
        let Existence::Watching(watch) = backend.exists_with_watch(&path, &made.node).await.unwrap() else {
            panic!("it is there")
        };
        let events = backend.session_events();
        let began = Instant::now();
        drop(backend);
        assert!(matches!(events.current().state, SessionState::Closed(_)));
        until("the node is gone", async || names(&observer, &path).await.is_empty()).await;
        watch.await;
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    })
    .await;
}

/// Without a server: a clear error, in the time that was given.
#[tokio::test]
async fn connecting_to_nobody_fails_in_time() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let wait = Duration::from_millis(700);
        let refused = zlock_testkit::Port::reserve();
        let mute = zlock_testkit::FaultProxy::start_zookeeper(server.addr()).await;
        mute.both(Flow::Swallow);
        for host in [refused.addr().to_string(), mute.connect_string()] {
            let began = Instant::now();
            let error = ZkBackend::connect(options(&host).with_connect_timeout(wait)).await.unwrap_err();
            let took = began.elapsed();
            assert!(took >= wait && took < 2 * wait, "{took:?}");
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.to_string().contains(&host), "{error}");
        }
    })
    .await;
}

/// Own nodes that somebody deletes while the session lives are found by the next heartbeat.
#[tokio::test]
async fn a_deleted_node_is_reported_within_a_heartbeat() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let l = linked(server).await;
        let path = path("gone");
        let made = create(&l.backend, &path, Label::Lock).await;
        let mut kept = create(&l.backend, &path, Label::Write).await;
        l.observer.delete(&format!("{path}/{}", made.node.name), None).await.unwrap();
        let began = Instant::now();
        let mut gone = made.gone.clone();
        gone.gone().await;
        assert!(began.elapsed() < SESSION / 4, "{:?}", began.elapsed());
        // A rename is no deletion, however often it happens.
        for label in [Label::Read, Label::Write].into_iter().cycle().take(100) {
            kept.node = l.backend.relabel(&path, &kept.node, label).await.unwrap();
        }
        sleep(SESSION / 2).await;
        assert!(!kept.gone.is_gone());
    })
    .await;
}

/// A paused process: its client library still says that it is connected, its clock knows better.
#[tokio::test]
async fn a_paused_process_wakes_up_without_its_session() {
    const NAME: &str = "a_paused_process_wakes_up_without_its_session";
    const SERVER: &str = "ZLOCK_TEST_ZK_PAUSED";
    const PATH: &str = "/paused/lock";
    let path = zlock_core::LockPath::new(PATH).unwrap();
    // The child.
    if let Ok(server) = std::env::var(SERVER) {
        let backend = backend(&server).await;
        let made = create(&backend, &path, Label::Lock).await;
        println!("\nheld");
        let events = backend.session_events();
        let mut last = Instant::now();
        loop {
            sleep(Duration::from_millis(1)).await;
            let (live, pause) = (events.is_live(made.epoch), last.elapsed());
            last = Instant::now();
            if pause > SESSION / 2 {
                println!("\nwoke {}", if live { "and believes in it" } else { "without it" });
            }
        }
    }
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let observer = observer(&server.connect_string()).await;
        let mut child = Process::spawn_test(NAME, &[(SERVER, &server.connect_string())]);
        child.line_after("held").await;
        sleep(SESSION / 2).await;
        child.pause();
        until("the node is gone", async || names(&observer, &path).await.is_empty()).await;
        child.resume();
        assert_eq!(child.line_after("woke").await.trim(), "without it");
        child.kill();
    })
    .await;
}

/// A server that we come to after an interruption may be behind the one that we left.
#[tokio::test]
async fn the_first_read_after_an_interruption_catches_up() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let l = linked(server).await;
        let path = path("sync");
        create(&l.backend, &path, Label::Lock).await;
        let synced =
            || l.proxy.lose_next(Lose::Answer, zookeeper_request(&[zk_op::SYNC]), Cut::Fin).happened();
        let none = timeout(Duration::from_millis(300), synced());
        let (none, queue) = tokio::join!(none, l.backend.children(&path));
        assert!(none.is_err(), "nothing was interrupted");
        assert_eq!(queue.unwrap().len(), 1);
        let synced = synced();
        l.proxy.cut(Cut::Reset);
        let mut events = l.backend.session_events();
        events.changed().await;
        connected(&l.backend, 1).await;
        assert_eq!(l.backend.children(&path).await.unwrap().len(), 1);
        synced.await;
    })
    .await;
}
