//! A holder's deadline on an ensemble of three real ZooKeeper servers, whose leader is replaced without noticing it, and whose
//! clients stand still while they connect.
//!
//! Times are printed; only their order is asserted.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::sync::{Mutex, oneshot};
use tokio::time::{Instant, sleep, sleep_until};
use zlock::{Client, ErrorKind, Guard, InterProcessMutex};
use zlock_testkit::zk::{Observer, connect, release, wait_behind};
use zlock_testkit::{Cut, Ensemble, FaultProxy, Flow, ZooKeeper, have_zookeeper, limit_to_if, report};

/// A small machine is too slow for two ensembles at the same time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());
const LIMIT: Duration = Duration::from_secs(180);
const TICK: Duration = Duration::from_millis(1500);
const WAITERS: Duration = Duration::from_secs(60);

/// Counts how often a holder has to notice its loss in time. `ZLOCK_ROUNDS` repeats each scenario, and `ZLOCK_OVERLAPS` prints
/// the overlaps instead of failing, for a comparison of versions.
fn rounds() -> u32 {
    std::env::var("ZLOCK_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1)
}

async fn ensemble() -> Ensemble {
    Ensemble::start_linked(3, ZooKeeper::builder().tick(TICK)).await
}

/// Connects a holder, which knows the servers' tick, and returns when it has the lock.
async fn hold(hosts: &str, session: Duration, tick: Duration, path: &str) -> (Client, Guard) {
    let (session, tick) = (session.as_millis(), tick.as_millis());
    let url = format!("zk://{hosts}?session_timeout={session}ms&server_tick={tick}ms");
    let client = zlock::connect(&url).await.unwrap();
    let held = client.mutex(path).unwrap().acquire().await.unwrap();
    (client, held)
}

/// Waits for the lock, in another session if one is lost to the election.
async fn wait(mutex: InterProcessMutex) -> Guard {
    loop {
        match mutex.acquire().await {
            Ok(guard) => return guard,
            Err(error) if error.kind() == ErrorKind::SessionLost => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Waits until the deadline has moved, at most for this time.
async fn renewed(client: &Client, most: Duration) {
    let deadline = || client.session_events().current().deadline;
    let (before, until) = (deadline(), Instant::now() + most);
    while deadline() == before && Instant::now() < until {
        sleep(Duration::from_millis(1)).await;
    }
}

/// Waits until the next one is granted, and reports for how long the first one still counted as held.
async fn overlap(held: &dyn Fn() -> bool, waiting: impl Future<Output = Guard>) -> (Guard, Duration) {
    let next = waiting.await;
    let granted = Instant::now();
    while held() {
        sleep(Duration::from_millis(5)).await;
    }
    let overlap = granted.elapsed();
    (next, if overlap < Duration::from_millis(5) { Duration::ZERO } else { overlap })
}

/// Reports the overlaps of all rounds, none of which may be more than nothing.
fn judge(scenario: &str, overlaps: &[Duration]) {
    report(format!("{scenario}: two held at the same time for {overlaps:.2?}"));
    if std::env::var_os("ZLOCK_OVERLAPS").is_none() {
        assert!(overlaps.iter().all(Duration::is_zero), "two held at the same time");
    }
}

/// Returns the servers other than this one.
fn others(ensemble: &Ensemble, one: usize) -> [&ZooKeeper; 2] {
    let others: Vec<_> =
        (0..3).filter(|other| *other != one).map(|other| &ensemble.members()[other]).collect();
    others.try_into().unwrap()
}

/// A holder is connected to the leader, a waiter to the other two servers, and something replaces the leader.
async fn replaced(scenario: &str, session: Duration, replace: impl AsyncFn(&Ensemble, usize, &Client)) {
    let _alone = ONE_AT_A_TIME.lock().await;
    limit_to_if(LIMIT * rounds(), have_zookeeper(), async {
        let mut overlaps = Vec::new();
        for round in 0..rounds() {
            let ensemble = ensemble().await;
            let leader = ensemble.leader().await;
            let [one, two] = others(&ensemble, leader);
            let majority = format!("{},{}", one.connect_string(), two.connect_string());
            let hosts = ensemble.members()[leader].connect_string();
            let waiter = connect(&majority, WAITERS).await;
            let observer = Observer::connect(&majority).await;
            let path = format!("/replaced/{round}");
            let (holder, held) = hold(&hosts, session, TICK, &path).await;
            let waiting = tokio::spawn(wait(waiter.mutex(&path).unwrap()));
            observer.wait_for_children(&path, 2).await;
            sleep(session / 4).await;
            replace(&ensemble, leader, &holder).await;
            let next = async { waiting.await.unwrap() };
            let (next, overlap) = overlap(&|| held.is_held(), next).await;
            assert!(next.fencing_token() > held.fencing_token());
            release(next).await;
            overlaps.push(overlap);
        }
        judge(scenario, &overlaps);
    })
    .await;
}

const LOST: Duration = Duration::from_secs(10);

/// The servers other than the leader elect another one within seconds.
async fn elect(ensemble: &Ensemble, leader: usize) {
    let [one, two] = others(ensemble, leader);
    one.stop();
    two.stop();
    tokio::join!(one.restart(), two.restart());
}

/// A leader that lost its followers still answers what needs no other server.
#[tokio::test]
async fn a_leader_that_was_cut_off_and_replaced_moves_no_deadline() {
    replaced("leader cut off and replaced", LOST, async |ensemble, leader, _| {
        ensemble.cut_off(leader);
        elect(ensemble, leader).await;
    })
    .await;
}

/// For a moment, it continues as if it still had its followers, and resumes the session.
#[tokio::test]
async fn a_leader_that_was_stopped_and_replaced_moves_no_deadline_between_two_stops() {
    replaced("leader stopped twice and replaced", LOST, async |ensemble, leader, holder| {
        let (stopped, resumed) = (&ensemble.members()[leader], Instant::now() + LOST * 3 / 5);
        ensemble.cut_off(leader);
        stopped.pause();
        elect(ensemble, leader).await;
        sleep_until(resumed).await;
        stopped.resume();
        renewed(holder, TICK / 2).await;
        stopped.pause();
    })
    .await;
}

/// A client on a thread of its own, which a test can stop.
struct Stoppable {
    tell: mpsc::Sender<Duration>,
    connecting: oneshot::Receiver<(Client, Guard)>,
}

const PAUSE: Duration = Duration::from_millis(2);

impl Stoppable {
    /// Connects in the background, and acquires the lock.
    fn start(hosts: String, session: Duration, path: String) -> Self {
        let (tell, told) = mpsc::channel::<Duration>();
        let (connected, connecting) = oneshot::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                tokio::spawn(async move {
                    let _ = connected.send(hold(&hosts, session, TICK, &path).await);
                });
                loop {
                    match told.try_recv() {
                        // All of its tasks stand still, as if the process did.
                        Ok(stop) => thread::sleep(stop),
                        Err(mpsc::TryRecvError::Empty) => sleep(PAUSE).await,
                        Err(mpsc::TryRecvError::Disconnected) => return,
                    }
                }
            });
        });
        Stoppable { tell, connecting }
    }

    /// Stops the client, lets the held answers of its server pass, and returns when it continues.
    async fn stop_and_heal(&self, stop: Duration, proxy: &FaultProxy) {
        self.tell.send(stop).unwrap();
        sleep(stop / 4).await;
        proxy.to_client(Flow::Pass);
        sleep(stop - stop / 4 + 2 * PAUSE).await;
    }
}

/// After a stall, the client library sees the answer first, or its own impatience. So one attempt shows nothing.
const STALLS: u32 = 3;

/// Waits until a request has passed the proxy whose answer is held.
async fn asked(proxy: &FaultProxy, before: u64) {
    while proxy.bytes_to_server() == before {
        sleep(PAUSE).await;
    }
    // The server has handled it, and its leader, too.
    sleep(Duration::from_millis(100)).await;
}

const SESSION: Duration = Duration::from_secs(12);

/// The leader counts from the middle of the stall, unless its follower reports what came later. The follower dies before.
#[tokio::test]
async fn a_holder_that_stood_still_while_its_session_was_resumed_knows_its_deadline() {
    let _alone = ONE_AT_A_TIME.lock().await;
    limit_to_if(LIMIT * rounds(), have_zookeeper(), async {
        let mut overlaps = Vec::new();
        let ensemble = ensemble().await;
        let [follower, other] = ensemble.followers().await[..] else { panic!("two followers") };
        let (follower, other) = (&ensemble.members()[follower], &ensemble.members()[other]);
        let observer = Observer::connect(other.connect_string()).await;
        let waiter = connect(other.connect_string(), WAITERS).await;
        for round in 0..STALLS * rounds() {
            let proxy = FaultProxy::start_zookeeper(follower.addr()).await;
            let path = format!("/resumed/{round}");
            let mut holder = Stoppable::start(proxy.connect_string(), SESSION, path.clone());
            let (client, held) = (&mut holder.connecting).await.unwrap();
            let waiting = wait_behind(&waiter.mutex(&path).unwrap(), &observer, 1).await;
            sleep(SESSION / 3).await;
            proxy.to_client(Flow::Hold);
            proxy.cut(Cut::Reset);
            asked(&proxy, proxy.bytes_to_server()).await;
            holder.stop_and_heal(SESSION * 9 / 20, &proxy).await;
            renewed(&client, Duration::from_millis(300)).await;
            follower.pause();
            let (next, overlap) = overlap(&|| held.is_held(), async { waiting.await.unwrap() }).await;
            release(next).await;
            overlaps.push(overlap);
            follower.resume();
            while follower.mode().await.is_none() {
                sleep(Duration::from_millis(20)).await;
            }
        }
        judge("stopped while a session was resumed", &overlaps);
    })
    .await;
}

/// The same for a new session, and a lock that is acquired in it at once.
#[tokio::test]
async fn a_holder_that_stood_still_while_its_session_began_knows_its_deadline() {
    let _alone = ONE_AT_A_TIME.lock().await;
    limit_to_if(LIMIT * rounds(), have_zookeeper(), async {
        let mut overlaps = Vec::new();
        let ensemble = ensemble().await;
        let [follower, other] = ensemble.followers().await[..] else { panic!("two followers") };
        let (follower, other) = (&ensemble.members()[follower], &ensemble.members()[other]);
        let waiter = connect(other.connect_string(), WAITERS).await;
        for round in 0..STALLS * rounds() {
            let path = format!("/begun/{round}");
            // With the parents.
            release(waiter.mutex(&path).unwrap().acquire().await.unwrap()).await;
            let proxy = FaultProxy::start_zookeeper(follower.addr()).await;
            proxy.to_client(Flow::Hold);
            let mut holder = Stoppable::start(proxy.connect_string(), SESSION, path.clone());
            asked(&proxy, 0).await;
            holder.stop_and_heal(SESSION * 9 / 20, &proxy).await;
            let (_client, held) = (&mut holder.connecting).await.unwrap();
            follower.pause();
            let mutex = waiter.mutex(&path).unwrap();
            let (next, overlap) = overlap(&|| held.is_held(), async { mutex.acquire().await.unwrap() }).await;
            release(next).await;
            overlaps.push(overlap);
            follower.resume();
            while follower.mode().await.is_none() {
                sleep(Duration::from_millis(20)).await;
            }
        }
        judge("stopped while a session began", &overlaps);
    })
    .await;
}

/// Returns the number of packets that a server has received, and the length of its transaction logs.
async fn cost(server: &ZooKeeper) -> (f64, usize) {
    let mut length = 0;
    for file in std::fs::read_dir(server.folder().join("data/version-2")).unwrap() {
        let file = file.unwrap();
        if file.file_name().to_string_lossy().starts_with("log.") {
            // The rest of the file is reserved.
            let bytes = std::fs::read(file.path()).unwrap();
            length += bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        }
    }
    (server.mntr().await["packets_received"], length)
}

/// A session without own nodes writes nothing, and one that holds sends no more packets.
#[tokio::test]
async fn a_session_that_holds_costs_twelve_packets_and_three_writes() {
    const TIMEOUTS: u32 = 4;
    let _alone = ONE_AT_A_TIME.lock().await;
    limit_to_if(LIMIT, have_zookeeper(), async {
        let server = ZooKeeper::builder().tick(TICK).start().await;
        let session = Duration::from_secs(5);
        let client = connect(server.connect_string(), session).await;
        let mutex = client.mutex("/cost/lock").unwrap();
        let mut held = None;
        for state in ["idle", "holding"] {
            if state == "holding" {
                held = Some(mutex.acquire().await.unwrap());
            }
            let (packets, length) = cost(&server).await;
            sleep(session * TIMEOUTS).await;
            let (packets_after, length_after) = cost(&server).await;
            // The question itself is one.
            let packets = (packets_after - packets - 1.0) / f64::from(TIMEOUTS);
            let bytes = (length_after - length) as u32 / TIMEOUTS;
            report(format!("{state}: {packets} packets and {bytes} bytes of log in each session timeout"));
            assert!(packets <= 12.5 && (bytes == 0) == (state == "idle"));
        }
        assert!(held.is_some_and(|held| held.is_held()));
    })
    .await;
}
