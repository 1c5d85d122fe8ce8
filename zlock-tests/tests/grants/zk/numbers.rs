//! Waiters of one client send a create and no listing if their sequence number directly follows that of the client's last
//! place. These tests create, delete and lose other things in between, on a real ZooKeeper.
//!
//! Where requests are counted, sessions are so long that no client sends a heartbeat.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use zlock::{Client, ErrorKind, Guard, InterProcessMutex, Release};
use zlock_testkit::zk::{FOREVER, Meter, Observer, connect, cost, mutex, release};
use zlock_testkit::{
    Cut, FaultProxy, Lose, ZooKeeper, have_zookeeper, limit, limit_if, limit_to_if, report, zk_op,
    zookeeper_or_skip, zookeeper_request,
};
use zookeeper_client::{Acls, CreateMode, Error};

const SESSION: Duration = Duration::from_secs(20);

type Waiting = JoinHandle<zlock::Result<Guard>>;

fn waiting(mutex: &InterProcessMutex) -> Waiting {
    let mutex = mutex.clone();
    tokio::spawn(async move { mutex.acquire().await })
}

async fn granted(waiting: Waiting) -> Guard {
    waiting.await.unwrap().unwrap()
}

/// One client's queue: a holder, a waiter that has listed, and another that has not.
struct Line {
    mutex: InterProcessMutex,
    held: Guard,
    waiting: Vec<Waiting>,
}

impl Line {
    async fn new(meter: &mut Meter, client: &Client, path: &str) -> Self {
        let mutex = client.mutex(path).unwrap();
        let mut line = Line { held: mutex.acquire().await.unwrap(), mutex, waiting: Vec::new() };
        line.join(meter, 2).await;
        line.join(meter, 1).await;
        line
    }

    /// Adds a waiter, and expects it to send this number of requests.
    async fn join(&mut self, meter: &mut Meter, requests: u64) {
        let before = meter.counts().await;
        self.waiting.push(waiting(&self.mutex));
        loop {
            let now = meter.counts().await;
            if now.ephemerals > before.ephemerals && cost(before, now).0 >= requests {
                break;
            }
            sleep(Duration::from_millis(2)).await;
        }
        // When this request is answered, the waiter has sent all of its own.
        assert!(self.mutex.try_acquire().await.unwrap().is_none());
        let (sent, _) = cost(before, meter.counts().await);
        assert_eq!(sent - 1, requests, "of waiter {}", self.waiting.len());
    }

    /// Expects all waiters to be granted the lock in the order in which they came.
    async fn serve(self) {
        let Line { mut held, waiting, .. } = self;
        for next in waiting {
            let token = held.fencing_token();
            release(held).await;
            held = granted(next).await;
            assert!(held.fencing_token() > token);
        }
        release(held).await;
    }
}

/// What another client creates under the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Other {
    Zlock,
    Curator,
    Kazoo,
    /// A place with a number that its creator has chosen.
    NumberByHand,
    Nested,
    NameWithoutNumber,
    /// A place that is removed before the next waiter comes.
    Gone,
}

const OTHERS: [Other; 7] = [
    Other::Zlock,
    Other::Curator,
    Other::Kazoo,
    Other::NumberByHand,
    Other::Nested,
    Other::NameWithoutNumber,
    Other::Gone,
];

impl Other {
    /// Creates the node and returns its name.
    async fn create(self, observer: &Observer, path: &str) -> String {
        let sequential = async |prefix: &str| {
            let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
            let created = observer.0.create(&format!("{path}/{prefix}"), b"", &options).await;
            format!("{prefix}{}", created.unwrap().1)
        };
        let by_hand = async |name: &str| {
            observer.make(&format!("{path}/{name}")).await;
            name.to_owned()
        };
        match self {
            Other::Zlock => panic!("by a client"),
            Other::Curator => sequential("_c_11111111-1111-1111-1111-111111111111-lock-").await,
            Other::Kazoo => sequential("11111111111111111111111111111111__lock__").await,
            Other::NumberByHand => by_hand("lock-0000000003").await,
            Other::Nested => by_hand("nested").await,
            Other::NameWithoutNumber => by_hand("config").await,
            Other::Gone => {
                let name = sequential("lock-").await;
                observer.remove(&format!("{path}/{name}")).await;
                name
            }
        }
    }

    fn is_place(self) -> bool {
        matches!(self, Other::Zlock | Other::Curator | Other::Kazoo | Other::NumberByHand)
    }
}

/// If any other node is created in between, the previous number is not the predecessor: the waiter lists, and waits for the
/// node that it finds.
#[tokio::test]
async fn whatever_is_created_in_between_is_found() {
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        let client = connect(meter.hosts(), FOREVER).await;
        let other_client = connect(meter.hosts(), FOREVER).await;
        let observer = Observer::connect(meter.hosts()).await;
        for other in OTHERS {
            let path = format!("/app/{other:?}");
            let mut line = Line::new(&mut meter, &client, &path).await;
            let (mut theirs, mut name) = (None, String::new());
            if other == Other::Zlock {
                theirs = Some(waiting(&other_client.mutex(&path).unwrap()));
                observer.wait_for_children(&path, 4).await;
                meter.wait_for_watches(1).await;
            } else {
                name = other.create(&observer, &path).await;
            }
            // The create, the listing, and the watch on a place of another client.
            line.join(&mut meter, if other.is_place() { 3 } else { 2 }).await;
            line.join(&mut meter, 2).await;
            line.join(&mut meter, 1).await;
            let names = observer.children(&path).await;
            let mut numbers: Vec<u32> = names
                .iter()
                .filter(|child| **child != name && child.contains("-lock-"))
                .map(|child| child.rsplit_once('-').unwrap().1.parse().unwrap())
                .collect();
            numbers.sort_unstable();
            report(format!("{other:?} in between: our numbers are {numbers:?}"));
            let expected =
                if other == Other::Zlock { vec![0, 1, 2, 3, 4, 5, 6] } else { vec![0, 1, 2, 4, 5, 6] };
            assert_eq!(numbers, expected);
            if !other.is_place() {
                line.serve().await;
                continue;
            }
            // The waiters before it are served, and none behind it.
            let behind = line.waiting.split_off(2);
            line.serve().await;
            if let Some(theirs) = theirs {
                let theirs = granted(theirs).await;
                sleep(Duration::from_millis(100)).await;
                assert!(behind.iter().all(|waiting| !waiting.is_finished()), "{other:?}: two hold");
                release(theirs).await;
            } else {
                sleep(Duration::from_millis(100)).await;
                assert!(behind.iter().all(|waiting| !waiting.is_finished()), "{other:?} is passed");
                observer.remove(&format!("{path}/{name}")).await;
            }
            for waiting in behind {
                release(granted(waiting).await).await;
            }
        }
    })
    .await;
}

/// The parent is removed, and the next one counts from 0 again. Number 1 follows number 0, but under another parent.
#[tokio::test]
async fn the_numbers_of_a_parent_that_was_made_again_grant_nothing() {
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        let client = connect(meter.hosts(), FOREVER).await;
        let theirs = mutex(meter.hosts(), FOREVER, "/app/again").await;
        let observer = Observer::connect(meter.hosts()).await;
        for is_dropped in [false, true] {
            let ours = client.mutex("/app/again").unwrap();
            let held = ours.acquire().await.unwrap();
            let mut line = Line { mutex: ours, held, waiting: Vec::new() };
            line.join(&mut meter, 2).await;
            for name in observer.children("/app/again").await {
                observer.remove(&format!("/app/again/{name}")).await;
            }
            observer.remove("/app/again").await;
            let theirs = theirs.acquire().await.unwrap();
            assert!(theirs.node().as_str().ends_with("-lock-0000000000"));
            // The new waiter gets number 1, and the holder had 0, so it only sends a create. The waiter that was behind the
            // holder before lists, finds that its node is gone, and has it removed.
            line.join(&mut meter, 1 + 2).await;
            let Line { held, mut waiting, .. } = line;
            let (later, gone) = (waiting.pop().unwrap(), waiting.pop().unwrap());
            if is_dropped {
                drop(held);
            } else {
                assert_eq!(held.release().await.unwrap(), Release::AlreadyLost);
            }
            assert_eq!(gone.await.unwrap().unwrap_err().kind(), ErrorKind::NodeDeleted);
            tokio::select! {
                () = meter.wait_for_watches(1) => {}
                () = async { while !later.is_finished() { sleep(Duration::from_millis(2)).await } } => {
                    panic!("granted, and another client holds");
                }
            }
            assert!(theirs.is_held() && !later.is_finished());
            release(theirs).await;
            release(granted(later).await).await;
            observer.wait_for_children("/app/again", 0).await;
            observer.remove("/app/again").await;
        }
    })
    .await;
}

/// Only the waiter whose node was deleted is skipped. No other misses its turn.
#[tokio::test]
async fn an_operators_deletes_wake_those_behind() {
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        let client = connect(meter.hosts(), FOREVER).await;
        let observer = Observer::connect(meter.hosts()).await;
        for deleted in [1, 2, 3] {
            let path = format!("/app/deleted-{deleted}");
            let mut line = Line::new(&mut meter, &client, &path).await;
            line.join(&mut meter, 1).await;
            let names = observer.children(&path).await;
            let name = names.iter().find(|name| name.ends_with(&format!("-{deleted:010}"))).unwrap();
            observer.remove(&format!("{path}/{name}")).await;
            let Line { held, waiting, .. } = line;
            release(held).await;
            for (number, waiting) in (1..).zip(waiting) {
                let taken = waiting.await.unwrap();
                if number == deleted {
                    assert_eq!(taken.unwrap_err().kind(), ErrorKind::NodeDeleted);
                } else {
                    release(taken.unwrap()).await;
                }
            }
            observer.wait_for_children(&path, 0).await;
        }
        // The holder's node. The holder notices the deletion with a heartbeat, and so does the waiter.
        let client = connect(meter.hosts(), Duration::from_secs(2)).await;
        let mutex = client.mutex("/app/holder").unwrap();
        let held = mutex.acquire().await.unwrap();
        let mut waiters = Vec::new();
        for number in 1..=3 {
            waiters.push(waiting(&mutex));
            observer.wait_for_children("/app/holder", number + 1).await;
        }
        observer.remove(&format!("/app/holder/{}", held.node())).await;
        for next in waiters {
            let next = granted(next).await;
            assert!(!held.is_held(), "two hold");
            release(next).await;
        }
    })
    .await;
}

#[tokio::test]
async fn cancelled_waiters_wake_those_behind() {
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        let client = connect(meter.hosts(), FOREVER).await;
        let observer = Observer::connect(meter.hosts()).await;
        for cancelled in [0, 1, 2] {
            let path = format!("/app/cancelled-{cancelled}");
            let mut line = Line::new(&mut meter, &client, &path).await;
            line.join(&mut meter, 1).await;
            line.join(&mut meter, 1).await;
            let before = meter.counts().await;
            line.waiting.remove(cancelled).abort();
            // The waiter behind it lists at once, and watches from then on.
            meter.wait_for_watches(1).await;
            observer.wait_for_children(&path, 4).await;
            let (_, writes) = cost(before, meter.counts().await);
            assert_eq!(writes, 1, "the removal of its node");
            line.serve().await;
            observer.wait_for_children(&path, 0).await;
        }
        assert_eq!(meter.counts().await.watches, 0);
    })
    .await;
}

/// If a waiter's create has to be repeated or looked for, the waiter lists the queue.
#[tokio::test]
async fn a_lost_create_is_one_node_and_served_in_order() {
    for (lose, cut) in [
        (Lose::Answer, Cut::Fin),
        (Lose::Answer, Cut::Reset),
        (Lose::Request, Cut::Fin),
        (Lose::Request, Cut::Reset),
    ] {
        lost(lose, cut, &[zk_op::CREATE2]).await;
    }
}

/// The release that hands over is not answered, so the waiter checks the queue itself.
#[tokio::test]
async fn a_lost_hand_over_wakes_the_next() {
    for lose in [Lose::Answer, Lose::Request] {
        lost(lose, Cut::Reset, &[zk_op::MULTI]).await;
    }
}

async fn lost(lose: Lose, cut: Cut, what: &'static [i32]) {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let path = format!("/lost/{lose:?}-{cut:?}-{}", what[0]);
        let proxy = FaultProxy::start_zookeeper(server.addr()).await;
        let mutex = mutex(proxy.connect_string(), SESSION, &path).await;
        let observer = Observer::connect(server.connect_string()).await;
        let held = mutex.acquire().await.unwrap();
        let mut waiters = Vec::new();
        for number in 1..=2 {
            waiters.push(waiting(&mutex));
            observer.wait_for_children(&path, number + 1).await;
        }
        let staged = proxy.lose_next(lose, zookeeper_request(what), cut);
        waiters.push(waiting(&mutex));
        if what == [zk_op::CREATE2] {
            staged.happened().await;
            // The waiter has only one place, whatever was repeated.
            mutex.participants().await.unwrap();
            observer.wait_for_children(&path, 4).await;
            release(held).await;
        } else {
            observer.wait_for_children(&path, 4).await;
            let released = held.release().await.unwrap();
            assert!(matches!(released, Release::Released | Release::Pending), "{released:?}");
            staged.happened().await;
        }
        for next in waiters {
            release(granted(next).await).await;
        }
        observer.wait_for_children(&path, 0).await;
    })
    .await;
}

#[tokio::test]
async fn a_restart_of_the_server_costs_nobody_its_place() {
    limit_if(have_zookeeper(), async {
        let server = ZooKeeper::start().await;
        let mutex = mutex(server.connect_string(), SESSION, "/app/restart").await;
        let held = mutex.acquire().await.unwrap();
        let mut waiters = Vec::new();
        for number in 1..=3 {
            waiters.push(waiting(&mutex));
            while mutex.participants().await.unwrap().len() <= number {
                sleep(Duration::from_millis(2)).await;
            }
        }
        server.restart().await;
        waiters.push(waiting(&mutex));
        while mutex.participants().await.unwrap().len() < 5 {
            sleep(Duration::from_millis(2)).await;
        }
        assert!(held.is_held());
        release(held).await;
        let mut last = None;
        for next in waiters {
            let next = granted(next).await;
            assert!(last < Some(next.fencing_token()));
            last = Some(next.fencing_token());
            release(next).await;
        }
    })
    .await;
}

/// The resource that a lock protects. It detects concurrent use.
#[derive(Debug, Default)]
struct Room {
    inside: AtomicU32,
    visits: AtomicU32,
    token: AtomicU64,
}

impl Room {
    async fn visit(&self, guard: Guard) {
        let token = guard.fencing_token().number();
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two holders, the second is {guard:?}");
        let before = self.token.swap(token, Ordering::SeqCst);
        assert!(before < token, "the fencing token fell from {before} to {token}");
        tokio::task::yield_now().await;
        assert!(guard.is_held());
        self.visits.fetch_add(1, Ordering::SeqCst);
        self.inside.fetch_sub(1, Ordering::SeqCst);
        match guard.release().await.unwrap() {
            Release::Released | Release::Pending => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Two clients with many tasks each, some of which give up, on links that are cut. Meanwhile another client uses the path for
/// other things, and the path is removed whenever it is empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_all_kinds_has_one_holder() {
    const PATH: &str = "/app/crowd";
    const TASKS: u32 = 12;
    const ROUNDS: u32 = 60;
    limit_to_if(Duration::from_secs(180), have_zookeeper(), async {
        let kind = ZooKeeper::builder().container_check_interval(Duration::from_millis(5));
        let server = kind.start().await;
        let observer = Observer::connect(server.connect_string()).await;
        let proxies = [
            FaultProxy::start_zookeeper(server.addr()).await,
            FaultProxy::start_zookeeper(server.addr()).await,
        ];
        let (room, is_over) = (Arc::<Room>::default(), Arc::<AtomicBool>::default());
        let mut tasks = JoinSet::new();
        for (at, proxy) in proxies.iter().enumerate() {
            let client = connect(proxy.connect_string(), SESSION).await;
            for task in 0..TASKS {
                let (mutex, room) = (client.mutex(PATH).unwrap(), room.clone());
                tasks.spawn(async move {
                    for round in 0..ROUNDS {
                        // Some tasks wait for only a moment.
                        if (task + round) % 4 == 0 {
                            let patience = Duration::from_micros(u64::from(task * 37 + round * 53) % 4000);
                            match timeout(patience, mutex.acquire()).await {
                                Ok(guard) => room.visit(guard.unwrap()).await,
                                Err(_) => continue,
                            }
                        } else {
                            room.visit(mutex.acquire().await.unwrap()).await;
                        }
                        if round % 20 == 19 {
                            // So that the queue is empty now and then.
                            sleep(Duration::from_millis(20 * (at as u64 + 1))).await;
                        }
                    }
                });
            }
        }
        let meddler = tokio::spawn({
            let is_over = is_over.clone();
            async move {
                let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
                while !is_over.load(Ordering::SeqCst) {
                    match observer.0.create(&format!("{PATH}/config"), b"", &options).await {
                        Ok(_) => observer.remove(&format!("{PATH}/config")).await,
                        Err(Error::NoNode) => {}
                        Err(error) => panic!("{error}"),
                    }
                    sleep(Duration::from_millis(3)).await;
                }
                observer
            }
        });
        let cutter = async {
            let mut cuts = 0;
            loop {
                for proxy in &proxies {
                    sleep(Duration::from_millis(700)).await;
                    proxy.cut(Cut::Reset);
                    cuts += 1;
                    report(format!("{cuts} cuts, {} visits", room.visits.load(Ordering::SeqCst)));
                }
            }
        };
        tokio::select! {
            () = async { while tasks.join_next().await.transpose().unwrap().is_some() {} } => {}
            () = cutter => {}
        }
        is_over.store(true, Ordering::SeqCst);
        let observer = meddler.await.unwrap();
        observer.wait_for_children(PATH, 0).await;
        report(format!("{} visits", room.visits.load(Ordering::SeqCst)));
    })
    .await;
}
