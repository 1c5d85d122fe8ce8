//! Locks on a real ZooKeeper whose paths have exhausted the server's sequence numbers, or are about to.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use zlock::{Client, Guard};
use zlock_testkit::zk::{Observer, connect, mutex, numbers, release, server_that_counted_to, wait_behind};
use zlock_testkit::{ZooKeeper, have_zookeeper, limit_if, limit_to_if, report};
use zookeeper_client::{Acls, CreateMode};

const SESSION: Duration = Duration::from_secs(20);
/// A short operation timeout: shorter than the waits.
const OPERATION: Duration = Duration::from_secs(3);
/// The number of sequence numbers on either side of the wrap that are not used as places.
const EDGE: i32 = 1 << 20;

/// The resource that a lock protects. It detects concurrent use.
#[derive(Debug, Default)]
struct Room {
    inside: AtomicU32,
    visits: AtomicU32,
    token: AtomicU64,
}

impl Room {
    async fn visit(&self, guard: Guard, time: Duration) {
        let token = guard.fencing_token().number();
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two holders, the second is {guard:?}");
        let before = self.token.swap(token, Ordering::SeqCst);
        assert!(before < token, "the fencing token fell from {before} to {token}");
        sleep(time).await;
        assert!(guard.is_held());
        self.visits.fetch_add(1, Ordering::SeqCst);
        self.inside.fetch_sub(1, Ordering::SeqCst);
        release(guard).await;
    }
}

/// Makes tasks of several clients acquire the lock concurrently, again and again.
fn crowd(clients: &[Client], tasks: usize, rounds: u32, path: &str, room: &Arc<Room>) -> JoinSet<()> {
    let mut crowd = JoinSet::new();
    for client in clients {
        for task in 0..tasks {
            let (mutex, room) = (client.mutex(path).unwrap(), room.clone());
            crowd.spawn(async move {
                for round in 0..rounds {
                    let guard = mutex.acquire().await.unwrap_or_else(|error| panic!("{error}"));
                    // Some stay while the others come again.
                    let stays = task == 0 && round == 1;
                    room.visit(guard, Duration::from_millis(if stays { 100 } else { 1 })).await;
                }
            });
        }
    }
    crowd
}

async fn clients(server: &ZooKeeper, count: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(connect(server.connect_string(), SESSION).await);
    }
    clients
}

/// Clients with the short operation timeout.
async fn impatient_clients(server: &ZooKeeper, count: usize) -> Vec<Client> {
    let (hosts, session, operation) = (server.connect_string(), SESSION.as_millis(), OPERATION.as_millis());
    let url = format!("zk://{hosts}?session_timeout={session}ms&operation_timeout={operation}ms");
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(zlock::connect(&url).await.unwrap());
    }
    clients
}

async fn end(mut tasks: JoinSet<()>) {
    while tasks.join_next().await.transpose().unwrap().is_some() {}
}

/// Creates another client's node, as Curator does.
async fn foreign(observer: &Observer, path: &str) -> String {
    let prefix = format!("{path}/_c_77777777-7777-7777-7777-777777777777-lock-");
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let (_, number) = observer.0.create(&prefix, b"", &options).await.unwrap();
    format!("{prefix}{number}")
}

/// From 2147483647 on, servers give numbers that they have given before.
#[tokio::test]
async fn numbers_that_a_server_gives_twice_are_at_the_edge() {
    limit_if(have_zookeeper(), async {
        const PATH: &str = "/numbers";
        let server = server_that_counted_to(&[(PATH, i32::MAX - 2)]).await;
        let observer = Observer::connect(server.connect_string()).await;
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let mut given = Vec::new();
        for together in [1, 1, 1, 1, 4, 1, 4, 1] {
            // A request is sent when its future is created.
            let prefix = format!("{PATH}/{:032x}-lock-", given.len());
            let prefixes: Vec<_> = (0..together).map(|n| format!("{prefix}{n}-lock-")).collect();
            let sent: Vec<_> = prefixes.iter().map(|p| observer.0.create(p, b"", &options)).collect();
            let mut numbers = Vec::new();
            for create in sent {
                numbers.push(create.await.unwrap().1.into_i64());
            }
            given.push(numbers);
        }
        report(format!("numbers given, what was sent together in brackets: {given:?}"));
        let (max, min, edge) = (i64::from(i32::MAX), i64::from(i32::MIN), i64::from(EDGE));
        let is_at_the_edge = |n: &i64| *n >= max - edge || *n <= min + edge;
        assert!(given.iter().flatten().all(is_at_the_edge));
        let different: HashSet<_> = given.iter().flatten().collect();
        assert!(different.len() < given.iter().flatten().count(), "no number was given twice");
    })
    .await;
}

#[tokio::test]
async fn six_that_come_together_at_the_edge_hold_one_after_the_other() {
    limit_if(have_zookeeper(), async {
        const PATH: &str = "/six";
        let server = server_that_counted_to(&[(PATH, i32::MAX - 3)]).await;
        let room = Arc::new(Room::default());
        end(crowd(&clients(&server, 6).await, 1, 5, PATH, &room)).await;
        assert_eq!(room.visits.load(Ordering::SeqCst), 30);
    })
    .await;
}

/// Crosses each border with a hundred tasks at once.
#[tokio::test]
async fn a_hundred_at_once_hold_one_after_the_other_at_any_number() {
    limit_to_if(Duration::from_secs(120), have_zookeeper(), async {
        let counters = [
            ("/hundred/last-places", i32::MAX - 200),
            ("/hundred/last-number", i32::MAX - 3),
            ("/hundred/edge", i32::MAX - EDGE - 5),
            ("/hundred/late", (1 << 30) - 3),
            ("/hundred/wrapped", i32::MIN),
        ];
        let server = server_that_counted_to(&counters).await;
        let clients = clients(&server, 5).await;
        for (path, counter) in counters {
            let room = Arc::new(Room::default());
            end(crowd(&clients, 20, 2, path, &room)).await;
            assert_eq!(room.visits.load(Ordering::SeqCst), 200, "{path}: from {counter} on");
        }
    })
    .await;
}

#[tokio::test]
async fn permits_are_counted_right_at_the_edge() {
    limit_if(have_zookeeper(), async {
        const PATH: &str = "/permits";
        const MAX: u32 = 3;
        let server = server_that_counted_to(&[(PATH, i32::MAX - EDGE - 5)]).await;
        let out = Arc::new(AtomicU32::new(0));
        let mut tasks = JoinSet::new();
        for client in clients(&server, 4).await {
            for n in 0..5 {
                let (semaphore, out) = (client.semaphore(PATH, MAX).unwrap(), out.clone());
                tasks.spawn(async move {
                    for _ in 0..3 {
                        let permits = 1 + n % 2;
                        let guard =
                            semaphore.acquire(permits).await.unwrap_or_else(|error| panic!("{error}"));
                        let now = out.fetch_add(permits, Ordering::SeqCst) + permits;
                        assert!(now <= MAX, "{now} of {MAX} permits are out");
                        sleep(Duration::from_millis(2)).await;
                        out.fetch_sub(permits, Ordering::SeqCst);
                        release(guard).await;
                    }
                });
            }
        }
        end(tasks).await;
    })
    .await;
}

/// A client that arrives at the edge waits as long as the lock is held, and uses no numbers meanwhile.
#[tokio::test]
async fn acquire_waits_at_the_edge_for_longer_than_an_operation_may_take() {
    limit_if(have_zookeeper(), async {
        const PATH: &str = "/waits";
        let server = server_that_counted_to(&[(PATH, i32::MAX - EDGE - 3)]).await;
        let observer = Observer::connect(server.connect_string()).await;
        let clients = impatient_clients(&server, 5).await;
        let first = clients[0].mutex(PATH).unwrap();
        // A client that finds the path empty would reset the counter.
        let node = foreign(&observer, PATH).await;
        let held = wait_behind(&first, &observer, 1).await;
        // The session's requests are executed in order: behind this create, the first one has listed the foreign node.
        let second = wait_behind(&first, &observer, 2).await;
        observer.remove(&node).await;
        let held = held.await.unwrap();
        let places = numbers(&observer, PATH).await;
        assert!(places.contains(&(i32::MAX - EDGE - 1)), "not in the last place: {places:?}");
        let room = Arc::new(Room::default());
        let others = crowd(&clients[1..], 5, 2, PATH, &room);
        sleep(OPERATION * 3 / 2).await;
        assert!(held.is_held() && !second.is_finished());
        assert_eq!(observer.children(PATH).await.len(), 2, "nobody else has a place");
        let asked = first.try_acquire().await.unwrap();
        assert!(asked.is_none());
        release(held).await;
        let held = second.await.unwrap();
        sleep(OPERATION * 3 / 2).await;
        assert_eq!(room.visits.load(Ordering::SeqCst), 0);
        release(held).await;
        end(others).await;
        let held = first.acquire().await.unwrap();
        let number = numbers(&observer, PATH).await[0];
        assert!((0..=40).contains(&number), "counted from the beginning, one for each: {number}");
        release(held).await;
    })
    .await;
}

/// Far from the edge, locks work on a path that is never empty.
#[tokio::test]
async fn a_late_path_that_others_keep_busy_is_used_as_it_is() {
    limit_if(have_zookeeper(), async {
        const PATH: &str = "/late";
        const LATE: i32 = 1 << 30;
        let server = server_that_counted_to(&[(PATH, LATE)]).await;
        let observer = Observer::connect(server.connect_string()).await;
        let mut node = foreign(&observer, PATH).await;
        let stop = Arc::new(AtomicBool::new(false));
        let others = tokio::spawn({
            let (observer, stop) = (observer.clone(), stop.clone());
            async move {
                while !stop.load(Ordering::SeqCst) {
                    // The next node is created before the last one is removed.
                    let next = foreign(&observer, PATH).await;
                    observer.remove(&node).await;
                    node = next;
                    sleep(Duration::from_millis(5)).await;
                }
                observer.remove(&node).await;
            }
        });
        let room = Arc::new(Room::default());
        let clients = clients(&server, 4).await;
        end(crowd(&clients, 5, 3, PATH, &room)).await;
        assert!(numbers(&observer, PATH).await[0] > LATE + 60, "it was never empty");
        stop.store(true, Ordering::SeqCst);
        others.await.unwrap();
        let guard = clients[0].mutex(PATH).unwrap().acquire().await.unwrap();
        assert_eq!(
            numbers(&observer, PATH).await,
            [0],
            "the path was empty, so it counts from the beginning"
        );
        room.visit(guard, Duration::ZERO).await;
    })
    .await;
}

/// A path with a foreign child cannot be removed.
#[tokio::test]
async fn a_late_path_that_cannot_be_removed_is_used_as_it_is() {
    limit_if(have_zookeeper(), async {
        const PATH: &str = "/kept";
        let server = server_that_counted_to(&[(PATH, 1 << 30)]).await;
        let observer = Observer::connect(server.connect_string()).await;
        observer.make(&format!("{PATH}/config")).await;
        let room = Arc::new(Room::default());
        end(crowd(&clients(&server, 2).await, 2, 3, PATH, &room)).await;
        assert_eq!(observer.children(PATH).await, ["config"]);
    })
    .await;
}

/// At the edge there is no order, so zlock waits for foreign nodes. After that, all clients queue up.
#[tokio::test]
async fn a_node_of_somebody_else_at_the_edge_is_waited_for() {
    limit_if(have_zookeeper(), async {
        const PATH: &str = "/not-ours";
        let server = server_that_counted_to(&[(PATH, i32::MAX - 1)]).await;
        let observer = Observer::connect(server.connect_string()).await;
        let node = foreign(&observer, PATH).await;
        let mut waiting = JoinSet::new();
        for client in impatient_clients(&server, 3).await {
            let mutex = client.mutex(PATH).unwrap();
            waiting.spawn(async move { mutex.acquire().await.unwrap() });
            // So that the clients do not poll at the same moments.
            sleep(Duration::from_millis(300)).await;
        }
        sleep(OPERATION * 3 / 2).await;
        assert!(waiting.try_join_next().is_none());
        assert_eq!(observer.children(PATH).await.len(), 1);
        observer.remove(&node).await;
        let held = waiting.join_next().await.unwrap().unwrap();
        observer.wait_for_children(PATH, 3).await;
        release(held).await;
        while let Some(held) = waiting.join_next().await {
            release(held.unwrap()).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_restart_of_the_server_does_not_end_the_wait_at_the_edge() {
    limit_if(have_zookeeper(), async {
        const PATH: &str = "/restarted";
        let server = server_that_counted_to(&[(PATH, i32::MAX - 1)]).await;
        let observer = Observer::connect(server.connect_string()).await;
        let node = foreign(&observer, PATH).await;
        let mutex = mutex(server.connect_string(), SESSION, PATH).await;
        let waiter = mutex.clone();
        let waiting = tokio::spawn(async move { waiter.acquire().await.unwrap() });
        sleep(Duration::from_millis(300)).await;
        server.restart().await;
        sleep(Duration::from_millis(300)).await;
        assert!(!waiting.is_finished());
        observer.remove(&node).await;
        let guard = waiting.await.unwrap();
        assert_eq!(numbers(&observer, PATH).await, [0]);
        release(guard).await;
    })
    .await;
}

#[tokio::test]
async fn a_wait_at_the_edge_that_is_cancelled_leaves_nothing() {
    limit_if(have_zookeeper(), async {
        const PATH: &str = "/cancelled";
        let server = server_that_counted_to(&[(PATH, i32::MAX - 1)]).await;
        let observer = Observer::connect(server.connect_string()).await;
        let node = foreign(&observer, PATH).await;
        let client = connect(server.connect_string(), SESSION).await;
        let mutex = client.mutex(PATH).unwrap();
        // At each step of the acquisition, and long after.
        for time in (0..40).map(|n| Duration::from_micros(150 * n)).chain([Duration::from_secs(2)]) {
            assert!(timeout(time, mutex.acquire()).await.is_err());
        }
        while client.pending_cleanups() > 0 {
            sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(observer.children(PATH).await.len(), 1);
        observer.remove(&node).await;
        let guard = mutex.acquire().await.unwrap();
        assert_eq!(numbers(&observer, PATH).await, [0]);
        release(guard).await;
    })
    .await;
}
