//! Locks and latches on an ensemble of three real ZooKeeper servers, some of which die.
//!
//! Times are printed; only their order is asserted.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use zlock::backend::{CoordinationBackend, Label, LockPath, Target};
use zlock::zk::{ZkBackend, ZkOptions};
use zlock::{Client, ErrorKind, Guard, Release, SessionState};
use zlock_testkit::zk::{LONG, Observer, connect, release, wait_behind};
use zlock_testkit::{Ensemble, ZooKeeper, have_zookeeper, limit_to_if, report};

/// A small machine is too slow for two ensembles at the same time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());
const LIMIT: Duration = Duration::from_secs(120);
const TICK: Duration = Duration::from_millis(500);
/// The shortest session timeout that these servers grant: two ticks.
const SHORTEST: Duration = Duration::from_secs(1);

/// The number of clients that lose their follower at the same time.
const HOLDERS: u32 = 16;

/// Waits for the next answered heartbeat.
async fn heartbeat(client: &Client) {
    let deadline = || client.session_events().current().deadline;
    let before = deadline();
    while deadline() == before {
        sleep(Duration::from_micros(500)).await;
    }
}

/// The worst moment: the follower answers the holder, and dies before it informs the leader. The leader then counts the session
/// timeout from an earlier moment.
#[tokio::test]
async fn a_holder_knows_in_time_that_its_follower_died_right_after_an_answer() {
    let _alone = ONE_AT_A_TIME.lock().await;
    limit_to_if(LIMIT, have_zookeeper(), async {
        let ensemble = Ensemble::start_with(3, ZooKeeper::builder().tick(TICK)).await;
        let [follower, other] = ensemble.followers().await[..] else { panic!("two followers") };
        let (follower, other) = (&ensemble.members()[follower], &ensemble.members()[other]);
        let observer = Observer::connect(other.connect_string()).await;
        let waiter = connect(other.connect_string(), Duration::from_secs(30)).await;
        let mut margins = Vec::new();
        // A frozen server looks as dead as a killed one, and is back sooner.
        for (round, kill) in [false, false, false, true].into_iter().enumerate() {
            let mut holders = Vec::new();
            for n in 0..HOLDERS {
                let path = format!("/follower/{round}/{n}");
                let holder = connect(follower.connect_string(), SHORTEST).await;
                let held = holder.mutex(&path).unwrap().acquire().await.unwrap();
                let waiter = waiter.mutex(&path).unwrap();
                let waiting = wait_behind(&waiter, &observer, 1).await;
                holders.push((holder, held, waiting));
                // So that their heartbeats and the ends of their sessions fall on different moments.
                sleep(SHORTEST / HOLDERS / 3).await;
            }
            heartbeat(&holders[0].0).await;
            if kill {
                follower.stop();
            } else {
                follower.pause();
            }
            let mut rounds = JoinSet::new();
            for (holder, held, waiting) in holders {
                rounds.spawn(margin(holder, held, waiting));
            }
            while let Some(margin) = rounds.join_next().await {
                margins.push(margin.unwrap());
            }
            if kill {
                follower.restart().await;
            } else {
                follower.resume();
            }
            // The follower serves again once it has caught up with the others.
            while follower.mode().await.is_none() {
                sleep(Duration::from_millis(20)).await;
            }
        }
        margins.sort();
        report(format!(
            "follower dead, session {SHORTEST:?}, tick {TICK:?}, {} locks: the next one holds {:.3?} to {:.3?} after \
             the deadline, {:.3?} in the middle",
            margins.len(),
            margins[0],
            margins[margins.len() - 1],
            margins[margins.len() / 2],
        ));
    })
    .await;
}

/// Returns the time from the holder's deadline to the waiter's grant.
async fn margin(holder: Client, held: Guard, waiting: JoinHandle<Guard>) -> Duration {
    let lost = async {
        held.lost().await;
        Instant::now()
    };
    let granted = async {
        let guard = waiting.await.unwrap();
        (guard, held.is_held(), Instant::now())
    };
    let (lost, (guard, still_held, granted)) = tokio::join!(lost, granted);
    let deadline = holder.session_events().current().deadline.unwrap();
    assert!(!still_held, "two held at the same time");
    assert!(deadline < granted && lost < granted);
    assert_eq!(held.release().await.unwrap(), Release::AlreadyLost);
    release(guard).await;
    granted - deadline
}

/// An election that is shorter than the session costs no client its lock or place.
#[tokio::test]
async fn an_election_costs_no_lock_and_no_place() {
    let _alone = ONE_AT_A_TIME.lock().await;
    limit_to_if(LIMIT, have_zookeeper(), async {
        let ensemble = Ensemble::start_with(3, ZooKeeper::builder().tick(TICK)).await;
        let leader = &ensemble.members()[ensemble.leader().await];
        // One client for each of the three servers, including the leader.
        let mut clients = Vec::new();
        for member in ensemble.members() {
            let mut hosts = vec![member.connect_string()];
            hosts.extend(ensemble.members().iter().map(ZooKeeper::connect_string));
            let url = format!("zk://{}?session_timeout=20s&server_tick=500ms", hosts.join(","));
            clients.push(zlock::connect(&url).await.unwrap());
        }
        let mutex = |n: usize| clients[n].mutex("/election").unwrap();
        let observer = Observer::connect(ensemble.connect_string()).await;
        let held = mutex(0).acquire().await.unwrap();
        let second = wait_behind(&mutex(1), &observer, 1).await;
        let third = wait_behind(&mutex(2), &observer, 2).await;

        leader.stop();
        let began = Instant::now();
        let mut suspended = [false; 3];
        loop {
            let sessions = [0, 1, 2].map(|n: usize| clients[n].session_events().current());
            assert!(held.is_held(), "{sessions:?}");
            assert!(sessions.iter().all(|session| session.epoch == 1), "{sessions:?}");
            for (was, session) in suspended.iter_mut().zip(&sessions) {
                *was |= session.state == SessionState::Suspended;
            }
            // Followers disconnect their clients during an election.
            if suspended == [true; 3] && sessions.iter().all(|s| s.state == SessionState::Connected) {
                break;
            }
            sleep(Duration::from_millis(5)).await;
        }
        report(format!("leader killed, session 20 s: all back after {:.3?}", began.elapsed()));
        assert!(!second.is_finished() && !third.is_finished(), "the first still holds");
        let first_token = held.fencing_token();
        release(held).await;
        let second = second.await.unwrap();
        assert!(!third.is_finished(), "order is kept");
        // A node from before the election, and one from after it.
        let fourth = wait_behind(&mutex(0), &observer, 2).await;
        let second_token = second.fencing_token();
        release(second).await;
        let third = third.await.unwrap();
        let third_token = third.fencing_token();
        release(third).await;
        let fourth = fourth.await.unwrap();
        let tokens = [first_token, second_token, third_token, fourth.fencing_token()];
        assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
        release(fourth).await;
    })
    .await;
}

/// A follower answers by itself, even while its leader is frozen. When the leader resumes, it ends the sessions that have timed
/// out, before its followers report that they were alive.
#[tokio::test]
async fn a_holder_knows_in_time_that_the_leader_stood_still() {
    let _alone = ONE_AT_A_TIME.lock().await;
    limit_to_if(LIMIT, have_zookeeper(), async {
        // A follower that hears nothing from its leader for 5 s starts an election.
        const FROZEN: Duration = Duration::from_secs(3);
        const SESSION: Duration = Duration::from_secs(2);
        let ensemble = Ensemble::start_with(3, ZooKeeper::builder().tick(TICK)).await;
        let leader = &ensemble.members()[ensemble.leader().await];
        let [follower, other] = ensemble.followers().await[..] else { panic!("two followers") };
        let (follower, other) = (&ensemble.members()[follower], &ensemble.members()[other]);
        let observer = Observer::connect(other.connect_string()).await;
        let waiter = connect(other.connect_string(), Duration::from_secs(30)).await;
        let mut holders = Vec::new();
        for n in 0..HOLDERS {
            let path = format!("/leader/{n}");
            let holder = connect(follower.connect_string(), SESSION).await;
            let held = holder.mutex(&path).unwrap().acquire().await.unwrap();
            let waiting = wait_behind(&waiter.mutex(&path).unwrap(), &observer, 1).await;
            holders.push((holder, held, waiting));
            sleep(SESSION / HOLDERS).await;
        }
        leader.pause();
        sleep(FROZEN).await;
        leader.resume();
        for (_, held, waiting) in holders {
            let next = waiting.await.unwrap();
            assert!(!held.is_held(), "two held at the same time");
            assert!(next.fencing_token() > held.fencing_token());
            assert_eq!(held.release().await.unwrap(), Release::AlreadyLost);
            release(next).await;
        }
    })
    .await;
}

/// A follower that is cut off from its leader continues to answer its clients from an old state. The leader ends their
/// sessions.
#[tokio::test]
async fn a_holder_knows_in_time_that_its_follower_is_cut_off() {
    let _alone = ONE_AT_A_TIME.lock().await;
    limit_to_if(LIMIT, have_zookeeper(), async {
        const SESSION: Duration = Duration::from_secs(2);
        // A follower that hears nothing from its leader for 30 s starts an election.
        let kind = ZooKeeper::builder().tick(TICK).config("syncLimit=60");
        let ensemble = Ensemble::start_linked(3, kind).await;
        let [cut_off, other] = ensemble.followers().await[..] else { panic!("two followers") };
        let (follower, other) = (&ensemble.members()[cut_off], &ensemble.members()[other]);
        let (stale, observer) = tokio::join!(
            Observer::connect(follower.connect_string()),
            Observer::connect(other.connect_string())
        );
        let waiter = connect(other.connect_string(), Duration::from_secs(30)).await;
        let path = |n: u32| format!("/cut-off/{n}");
        let mut holders = Vec::new();
        for n in 0..HOLDERS {
            let holder = connect(follower.connect_string(), SESSION).await;
            let held = holder.mutex(path(n)).unwrap().acquire().await.unwrap();
            let waiting = wait_behind(&waiter.mutex(path(n)).unwrap(), &observer, 1).await;
            assert_eq!(stale.children(&path(n)).await.len(), 2);
            holders.push((holder, held, waiting));
            sleep(SESSION / HOLDERS / 3).await;
        }
        ensemble.cut_off(cut_off);
        let mut rounds = JoinSet::new();
        for (holder, held, waiting) in holders {
            rounds.spawn(margin(holder, held, waiting));
        }
        let mut margins = rounds.join_all().await;
        margins.sort();
        report(format!(
            "follower cut off, session {SESSION:?}: the next one holds {margins:.3?} after the deadline"
        ));
        for n in 0..HOLDERS {
            assert_eq!(observer.children(&path(n)).await.len(), 0);
            let names = stale.0.list_children(&path(n)).await.unwrap();
            assert_eq!(names.len(), 2, "the follower has heard of it");
        }
        ensemble.join(cut_off);
        for n in 0..HOLDERS {
            stale.wait_for_children(&path(n), 0).await;
        }
    })
    .await;
}

/// A server has missed the end of two holds without noticing it. Its clients keep waiting, since they cannot know which server
/// is wrong. Requests about such a node do not hammer the server.
#[tokio::test]
async fn a_waiter_waits_behind_a_node_that_only_its_server_has() {
    const PATHS: [&str; 2] = ["/ghost/mutex", "/ghost/semaphore"];
    let _alone = ONE_AT_A_TIME.lock().await;
    limit_to_if(LIMIT, have_zookeeper(), async {
        let ensemble = Ensemble::start_with(3, ZooKeeper::builder().tick(TICK).without_digests()).await;
        let holder = connect(ensemble.connect_string(), LONG).await;
        let locks =
            |client: &Client| (client.mutex(PATHS[0]).unwrap(), client.semaphore(PATHS[1], 1).unwrap());
        let (mutex, semaphore) = locks(&holder);
        let (held, permit) = (mutex.acquire().await.unwrap(), semaphore.acquire(1).await.unwrap());
        let alive = holder.mutex("/ghost/alive").unwrap().acquire().await.unwrap();
        let both_are_held = ensemble.snapshot().await;
        drop((held, permit));
        let observer = Observer::connect(ensemble.connect_string()).await;
        for path in PATHS {
            observer.wait_for_children(path, 0).await;
        }
        ensemble.let_the_first_forget(&both_are_held).await;

        let [first, .., last] = ensemble.members() else { panic!("three servers") };
        for (server, nodes) in [(first, 1), (last, 0)] {
            let observer = Observer::connect(server.connect_string()).await;
            for path in PATHS {
                assert_eq!(observer.children(path).await.len(), nodes, "{path} at {}", server.addr());
            }
        }
        let client = connect(first.connect_string(), SHORTEST).await;
        let (mutex, semaphore) = locks(&client);
        let waiting = client.mutex("/ghost/alive").unwrap();
        let mut waiting = tokio::spawn(async move { waiting.acquire().await.unwrap() });
        let both = async { tokio::join!(mutex.acquire(), semaphore.acquire(1)) };
        timeout(7 * SHORTEST, both).await.expect_err("somebody may hold");
        assert!(alive.is_held() && !waiting.is_finished());
        release(alive).await;
        release((&mut waiting).await.unwrap()).await;

        let url = format!("zk://{}?session_timeout=30s&operation_timeout=3s", first.connect_string());
        let backend = ZkBackend::connect(ZkOptions::from_url(&url).unwrap()).await.unwrap();
        let path = LockPath::new(PATHS[1]).unwrap();
        let ghost = backend.children(&path, None).await.unwrap()[0].clone();
        let packets = async || first.mntr().await["packets_received"];
        let mut sent = Vec::new();
        for request in ["delete", "set_data", "relabel"] {
            let before = packets().await;
            let refused = match request {
                "delete" => backend.delete(&path, &Target::Node(ghost.clone()), None).await.map(drop),
                "set_data" => backend.write_data(&path, &ghost, None, b"data").await.map(drop),
                _ => backend.relabel(&path, &ghost, Label::Read).await.map(drop),
            };
            let refused = refused.unwrap_err();
            sent.push((request, packets().await - before));
            println!("packets: {sent:?}, then {refused}");
            assert_eq!(refused.kind(), ErrorKind::Unavailable);
            assert!(refused.to_string().contains("its leader does not have"), "{refused}");
        }
        assert!(sent.iter().all(|(_, packets)| *packets < 200.0), "{sent:?}");
    })
    .await;
}

/// A latch was closed before the call, and the waiter's server does not know it yet.
#[tokio::test]
async fn a_latch_that_was_closed_is_not_passed_on_a_follower_that_is_behind() {
    let _alone = ONE_AT_A_TIME.lock().await;
    limit_to_if(LIMIT, have_zookeeper(), async {
        let ensemble = Ensemble::start_linked(3, ZooKeeper::builder().tick(TICK)).await;
        let (leader, behind) = (ensemble.leader().await, ensemble.followers().await[0]);
        let [closer, waiter] = [leader, behind].map(|member| ensemble.members()[member].connect_string());
        let (closer, waiter) = (connect(closer, LONG).await, connect(waiter, LONG).await);
        let [closed, waited] = [&closer, &waiter].map(|client| client.latch("/latch").unwrap());
        waited.wait().await.unwrap();
        ensemble.cut_off(behind);
        closed.close().await.unwrap();
        let error = waited.wait_timeout(TICK).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        ensemble.join(behind);
        closed.open().await.unwrap();
        timeout(LONG, waited.wait()).await.expect("it is open").unwrap();
    })
    .await;
}
