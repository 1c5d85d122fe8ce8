//! Links that fall silent, servers that stop or freeze, and processes that are paused or killed: which client holds the lock on
//! a real ZooKeeper, and when each client knows it.
//!
//! Times are printed. Only their order is asserted, and bounds that even a busy machine keeps.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use zlock::{Client, ErrorKind, Guard, InterProcessMutex, Phase, Release, Session, SessionState};
use zlock_testkit::zk::{Observer, connect, mutex, release};
use zlock_testkit::{
    Cut, FaultProxy, Flow, Process, ZooKeeper, first_look_after_a_pause, have_zookeeper, limit, limit_if,
    limit_to_if, ready, report, zookeeper_or_skip,
};

/// The session timeout of sessions that should end soon. A tick of the servers is 0.5 s.
const SHORT: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(10);

type Waiting = JoinHandle<zlock::Result<Guard>>;

/// Starts an acquisition and returns once it is in the queue.
async fn wait_behind(mutex: &InterProcessMutex, observer: &Observer, before: usize) -> Waiting {
    let waiter = mutex.clone();
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    observer.wait_for_children(mutex.path().as_str(), before + 1).await;
    waiting
}

/// Waits until the only waiter of this server watches its predecessor and has received the server's confirmation.
async fn wait_for_watch(server: &ZooKeeper, waiter: &InterProcessMutex) {
    while server.mntr().await["watch_count"] < 1.0 {
        sleep(Duration::from_millis(5)).await;
    }
    // Answers arrive in the order of the requests.
    waiter.participants().await.unwrap();
}

async fn granted(waiting: Waiting) -> Guard {
    waiting.await.unwrap().unwrap()
}

/// Waits until no background work is left, and expects that no node is left at the server.
async fn expect_nothing_left(client: &Client, observer: &Observer, path: &str) {
    while client.pending_cleanups() > 0 {
        sleep(Duration::from_millis(10)).await;
    }
    observer.wait_for_children(path, 0).await;
}

/// Returns the epoch and the state of the session.
fn standing(client: &Client) -> (u64, SessionState) {
    let Session { epoch, state, .. } = client.session_events().current();
    (epoch, state)
}

/// A holds the lock through a proxy that swallows all data, and B waits with a direct connection.
async fn silence(server: &ZooKeeper, what: &str, silence: impl Fn(&FaultProxy)) {
    const SESSION: Duration = Duration::from_secs(4);
    let path = format!("/silence/{what}");
    let proxy = FaultProxy::start_zookeeper(server.addr()).await;
    let holder = mutex(proxy.connect_string(), SESSION, &path).await;
    let waiter = mutex(server.connect_string(), SESSION, &path).await;
    let observer = Observer::connect(server.connect_string()).await;
    let held = holder.acquire().await.unwrap();
    let waiting = wait_behind(&waiter, &observer, 1).await;

    silence(&proxy);
    let began = Instant::now();
    let lost = async {
        let reason = held.lost().await.kind();
        assert_eq!(reason, ErrorKind::SessionLost);
        began.elapsed()
    };
    let next = async {
        let next = granted(waiting).await;
        (next, held.is_held(), began.elapsed())
    };
    let (lost, (next, still_held, taken)) = tokio::join!(lost, next);
    report(format!(
        "silent {what}, session {SESSION:?}: lost after {lost:.3?}, next holder after {taken:.3?}"
    ));
    assert!(!still_held, "two held at the same time");
    assert!(lost < taken);
    assert!(next.is_held() && next.fencing_token() > held.fencing_token());
    assert_eq!(held.release().await.unwrap(), Release::AlreadyLost);
    release(next).await;
}

#[tokio::test]
async fn a_holder_behind_a_silent_link_knows_before_another_can_hold() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        tokio::join!(
            silence(server, "both ways", |proxy| proxy.both(Flow::Swallow)),
            silence(server, "to the server", |proxy| proxy.to_server(Flow::Swallow)),
            silence(server, "to the client", |proxy| proxy.to_client(Flow::Swallow)),
        );
    })
    .await;
}

#[tokio::test]
async fn a_frozen_server_costs_the_holder_its_lock_and_gives_it_to_nobody() {
    limit_if(have_zookeeper(), async {
        let server = ZooKeeper::start().await;
        let (holder, waiter) = (
            mutex(server.connect_string(), SHORT, "/frozen").await,
            connect(server.connect_string(), SHORT).await,
        );
        let waiter = waiter.mutex("/frozen").unwrap();
        let observer = Observer::connect(server.connect_string()).await;
        let held = holder.acquire().await.unwrap();
        let waiting = wait_behind(&waiter, &observer, 1).await;
        wait_for_watch(&server, &waiter).await;

        server.pause();
        let began = Instant::now();
        assert_eq!(held.lost().await.kind(), ErrorKind::SessionLost);
        report(format!("frozen server, session {SHORT:?}: lost after {:.3?}", began.elapsed()));
        // The waiter's place is as uncertain as the holder's lock.
        let gone = waiting.await.unwrap().unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::SessionLost);
        let meanwhile = waiter.acquire_timeout(3 * SHORT - began.elapsed()).await.unwrap_err();
        assert_eq!(meanwhile.kind(), ErrorKind::Timeout(Phase::Connecting));
        assert!(!held.is_held());

        server.resume();
        let next = waiter.acquire().await.unwrap();
        assert!(next.is_held() && !held.is_held());
        assert!(next.fencing_token() > held.fencing_token());
        release(next).await;
    })
    .await;
}

/// MX-02: an outage that is shorter than the session costs no client its lock or place.
#[tokio::test]
async fn a_server_that_is_away_for_two_seconds_costs_no_lock_and_no_place() {
    limit_if(have_zookeeper(), async {
        let server = ZooKeeper::start().await;
        let hosts = server.connect_string();
        // With a known server tick, the deadline is only half a second early. Even on a machine that is slow to restart the
        // server, the outage is then shorter than the session.
        let url = format!("zk://{hosts}?session_timeout=10s&server_tick=500ms");
        let connect = async || zlock::connect(&url).await.unwrap();
        let clients = [connect().await, connect().await, connect().await];
        let [first, second, third] = clients.each_ref().map(|c| c.mutex("/away").unwrap());
        let observer = Observer::connect(&hosts).await;
        let held = first.acquire().await.unwrap();
        let mut second = wait_behind(&second, &observer, 1).await;
        let third = wait_behind(&third, &observer, 2).await;

        server.stop();
        let back = async {
            sleep(Duration::from_secs(2)).await;
            server.restart().await;
        };
        let always_held = async {
            let mut suspended = false;
            loop {
                assert!(held.is_held(), "{:?}", standing(&clients[0]));
                assert!(clients.iter().all(|c| standing(c).0 == 1), "{:?}", clients.each_ref().map(standing));
                suspended |= standing(&clients[0]) == (1, SessionState::Suspended);
                if suspended && clients.iter().all(|c| standing(c) == (1, SessionState::Connected)) {
                    return;
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        let began = Instant::now();
        tokio::join!(back, always_held);
        report(format!("server stopped for 2 s, session 10 s: all back after {:.3?}", began.elapsed()));
        assert!(timeout(Duration::from_millis(200), &mut second).await.is_err(), "the first still holds");

        let tokens = [held.fencing_token()];
        release(held).await;
        let second = granted(second).await;
        assert!(!third.is_finished(), "order is kept");
        let tokens = [tokens[0], second.fencing_token()];
        release(second).await;
        let third = granted(third).await;
        assert!(tokens[0] < tokens[1] && tokens[1] < third.fencing_token());
        release(third).await;
        observer.wait_for_children("/away", 0).await;
    })
    .await;
}

/// A timeout of two seconds is kept without a server, for a client in the queue, a client that is about to join it, and a
/// client without a session.
#[tokio::test]
async fn two_seconds_are_two_seconds_without_a_server() {
    const TIME: Duration = Duration::from_secs(2);
    limit_to_if(Duration::from_secs(90), have_zookeeper(), async {
        let server = ZooKeeper::start().await;
        let proxy = FaultProxy::start_zookeeper(server.addr()).await;
        let observer = Observer::connect(server.connect_string()).await;
        let in_time = |what: &str, began: Instant, error: zlock::Error| {
            let taken = began.elapsed();
            report(format!("{what}: {taken:.3?}, {error}"));
            assert!(taken >= TIME && taken < 2 * TIME, "{what}: {taken:?}");
            error.kind()
        };
        let url = format!("zk://{}?connect_timeout=2s", proxy.addr());
        for (what, phase) in
            [("down", Phase::Connecting), ("frozen", Phase::Queueing), ("mute", Phase::Connecting)]
        {
            let holder = connect(proxy.addr(), 2 * LONG).await;
            let client = connect(proxy.addr(), 2 * LONG).await;
            let busy = format!("/{what}/busy");
            let held = holder.mutex(&busy).unwrap().acquire().await.unwrap();
            let waiter = client.mutex(&busy).unwrap();
            let free = format!("/{what}/free");
            let late = client.mutex(&free).unwrap();

            let stand_in_line = async {
                let began = Instant::now();
                let error = waiter.acquire_timeout(TIME).await.unwrap_err();
                let kind = in_time(&format!("in line, server {what}"), began, error);
                assert_eq!(kind, ErrorKind::Busy);
            };
            let break_it = async {
                wait_for_watch(&server, &waiter).await;
                match what {
                    "down" => server.stop(),
                    "frozen" => server.pause(),
                    _ => {
                        // Accepts connections, and never sends anything.
                        proxy.both(Flow::Swallow);
                        proxy.cut(Cut::Reset);
                    }
                }
                let acquire = async {
                    let began = Instant::now();
                    let error = late.acquire_timeout(TIME).await.unwrap_err();
                    let kind = in_time(&format!("acquire_timeout(2 s), server {what}"), began, error);
                    assert_eq!(kind, ErrorKind::Timeout(phase));
                };
                let connect = async {
                    let began = Instant::now();
                    let error = zlock::connect(&url).await.unwrap_err();
                    let kind = in_time(&format!("connect, server {what}"), began, error);
                    assert_eq!(kind, ErrorKind::Unavailable);
                };
                tokio::join!(acquire, connect);
            };
            tokio::join!(stand_in_line, break_it);

            match what {
                "down" => server.restart().await,
                "frozen" => server.resume(),
                _ => proxy.both(Flow::Pass),
            }
            // Requests that were in flight are undone, by the same session.
            expect_nothing_left(&client, &observer, &free).await;
            observer.wait_for_children(&busy, 1).await;
            assert!(held.is_held(), "{what}: the outage was shorter than the session");
            for client in [&holder, &client] {
                assert_eq!(standing(client).0, 1, "{what}");
                while standing(client) != (1, SessionState::Connected) {
                    sleep(Duration::from_millis(5)).await;
                }
            }
            release(held).await;
            release(late.acquire().await.unwrap()).await;
        }
    })
    .await;
}

/// In its own process: acquires the lock, and reports its view of the lock right after it was frozen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by other tests in a process of its own"]
async fn child_holds() {
    let variable = |name| std::env::var(name).unwrap();
    let mutex = mutex(variable("ZLOCK_CHILD_HOSTS"), SHORT, &variable("ZLOCK_CHILD_PATH")).await;
    let guard = mutex.acquire().await.unwrap();
    // Off the runtime, so that timers and network I/O have no chance to run first.
    let looks = tokio::task::spawn_blocking(move || {
        let held = first_look_after_a_pause(SHORT, || guard.is_held());
        let lost = ready(guard.lost()).map(|error| error.kind());
        println!("woke held={held} lost={lost:?}");
        guard
    });
    let guard = looks.await.unwrap();
    println!("release={:?}", guard.release().await.unwrap());
    release(mutex.acquire().await.unwrap()).await;
    println!("again");
}

fn child(server: &ZooKeeper, path: &str) -> Process {
    let hosts = server.connect_string();
    Process::spawn_test(
        concat!(module_path!(), "::child_holds"),
        &[("ZLOCK_CHILD_HOSTS", &hosts), ("ZLOCK_CHILD_PATH", path)],
    )
}

#[tokio::test]
async fn a_process_that_was_paused_knows_at_once_that_it_holds_no_longer() {
    const PATH: &str = "/paused";
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let waiter = mutex(server.connect_string(), LONG, PATH).await;
        let observer = Observer::connect(server.connect_string()).await;
        let mut child = child(server, PATH);
        child.line_after("held").await;
        let waiting = wait_behind(&waiter, &observer, 1).await;

        child.pause();
        let began = Instant::now();
        let next = granted(waiting).await;
        report(format!("holder paused, session {SHORT:?}: next holder after {:.3?}", began.elapsed()));
        sleep((3 * SHORT).saturating_sub(began.elapsed())).await;
        child.resume();
        assert_eq!(child.line_after("woke ").await, "held=false lost=Some(SessionLost)");
        assert_eq!(child.line_after("release=").await, "AlreadyLost");
        // The child's late release took nothing from the new holder. Now the child is in the queue.
        observer.wait_for_children(PATH, 2).await;
        assert!(next.is_held());
        release(next).await;
        child.line_after("again").await;
        assert_eq!(child.wait().await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_process_that_was_killed_leaves_nothing_for_longer_than_its_session() {
    const PATH: &str = "/killed";
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let waiter = mutex(server.connect_string(), LONG, PATH).await;
        let observer = Observer::connect(server.connect_string()).await;
        let mut child = child(server, PATH);
        child.line_after("held").await;
        let waiting = wait_behind(&waiter, &observer, 1).await;

        child.kill();
        let began = Instant::now();
        let next = granted(waiting).await;
        let taken = began.elapsed();
        report(format!("holder killed, session {SHORT:?}: next holder after {taken:.3?}"));
        assert!(taken > SHORT / 2 && taken < 3 * SHORT, "{taken:?}");
        assert_eq!(observer.children(PATH).await.len(), 1);
        release(next).await;
        assert!(observer.children(PATH).await.is_empty());
        assert_eq!(child.wait().await, 128 + 9);
    })
    .await;
}

/// The server is stopped until the session is over. An acquisition with a timeout reports that the server is the reason, and
/// the outcome of the last attempt to reach it.
#[tokio::test]
async fn a_timeout_says_that_there_is_no_server() {
    limit_if(have_zookeeper(), async {
        let server = ZooKeeper::start().await;
        let url = format!("zk://{}?session_timeout=2s&connect_timeout=1s", server.connect_string());
        let backend =
            zlock::zk::ZkBackend::connect(zlock::zk::ZkOptions::from_url(&url).unwrap()).await.unwrap();
        let client = Client::builder(backend).with_response_timeout(SHORT).unwrap().build();
        let lock = client.mutex("/stopped").unwrap();
        release(lock.acquire().await.unwrap()).await;
        server.stop();
        let mut events = client.session_events();
        while events.current().state == SessionState::Connected {
            events.changed().await;
        }
        let expect_cause = |error: zlock::Error, part: &str| {
            assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Connecting), "{error}");
            let cause = error.cause().unwrap_or_else(|| panic!("no cause: {error}"));
            assert!(cause.to_string().contains(part), "{cause}");
            assert!(error.to_string().ends_with(&format!(": {cause}")), "{error}");
        };
        expect_cause(lock.acquire_timeout(SHORT / 4).await.unwrap_err(), "no server available");
        while events.current().state != SessionState::Lost {
            events.changed().await;
        }
        // Long enough for an attempt to open a new session to fail.
        expect_cause(lock.acquire_timeout(2 * SHORT).await.unwrap_err(), "no session");
        for error in [
            lock.acquire_timeout(SHORT).await.unwrap_err(),
            lock.try_acquire().await.unwrap_err(),
            lock.acquire_timeout(Duration::ZERO).await.unwrap_err(),
        ] {
            let hosts = server.connect_string();
            assert!(error.to_string().contains(&format!("connect {hosts}: no server available")), "{error}");
            expect_cause(error, &format!("no session with {hosts}"));
        }
    })
    .await;
}
