//! Many clients and random faults, in paused time: what must hold whatever happens.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use zlock::mem::{Fate, MemLink, MemServer};
use zlock::{Client, Guard, InterProcessMutex, LockPath, LockTemplate};

const CLIENTS: u64 = 5;
const ROUNDS: usize = 12;
const LONG: Duration = Duration::from_secs(600);

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn millis(&mut self, n: u64) -> Duration {
        Duration::from_millis(self.below(n))
    }
}

/// Who is inside, and the highest fencing token seen there.
#[derive(Default)]
struct Inside {
    held: Vec<zlock::Held>,
    highest: u64,
    grants: usize,
}

impl Inside {
    fn enter(&mut self, guard: &Guard, seed: u64) {
        assert!(guard.is_held(), "seed {seed}: granted and not held");
        self.held.retain(zlock::Held::is_held);
        assert!(ends_sessions_early(seed) || self.held.is_empty(), "seed {seed}: two hold");
        let token = guard.fencing_token().get();
        assert!(token > self.highest, "seed {seed}: token {token} after {}", self.highest);
        (self.highest, self.grants) = (token, self.grants + 1);
        self.held.push(guard.held());
    }
}

async fn worker(client: Client, inside: Arc<Mutex<Inside>>, seed: u64, number: u64) {
    let mut random = Random(seed * 1000 + number);
    let lock = InterProcessMutex::new(&client, "/app/lock").unwrap();
    let template = LockTemplate::new(&client, "/app").unwrap();
    for _ in 0..ROUNDS {
        let patience = random.millis(8000);
        match random.below(6) {
            0 => {
                let stay = random.millis(300);
                let inner = inside.clone();
                let lock = lock.clone();
                let _ = timeout(
                    patience,
                    template.execute("lock", |held| async move {
                        if let Ok(guard) = lock.acquire().await {
                            assert!(guard.is_held() == held.is_held());
                            inner.lock().unwrap().enter(&guard, seed);
                            sleep(stay).await;
                        }
                    }),
                )
                .await;
            }
            kind => {
                let acquired = match kind {
                    1 => lock.try_acquire().await.ok().flatten(),
                    2 => lock.acquire_timeout(patience).await.ok(),
                    _ => timeout(patience, lock.acquire()).await.ok().and_then(Result::ok),
                };
                if let Some(guard) = acquired {
                    inside.lock().unwrap().enter(&guard, seed);
                    sleep(random.millis(300)).await;
                    if random.below(30) == 0 {
                        drop(timeout(patience, guard.lost()).await);
                    }
                    match random.below(3) {
                        0 => drop(guard),
                        1 => drop(timeout(random.millis(5), guard.release()).await),
                        _ => drop(guard.release().await),
                    }
                }
            }
        }
        sleep(random.millis(200)).await;
    }
}

/// A session that the server ends before its time is an operator's doing: the holder learns it a moment late,
/// and only the fencing tokens keep the order.
fn ends_sessions_early(seed: u64) -> bool {
    seed.is_multiple_of(4)
}

fn harm(server: &MemServer, link: &MemLink, random: &mut Random, seed: u64) {
    match random.below(10) {
        0 => link.cut(),
        1 => link.mute(),
        2 => link.suspend(),
        3 => link.reset(),
        4 if ends_sessions_early(seed) => link.expire(),
        5 => link.delay(random.millis(400), random.millis(400)),
        6 => server.stop(),
        7 => server.reap_containers(),
        _ => link.heal(),
    }
}

fn run(seed: u64) -> (usize, u64) {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (server, inside) = (MemServer::new(), Arc::new(Mutex::new(Inside::default())));
        let (mut clients, mut links, mut tasks) = (Vec::new(), Vec::new(), JoinSet::new());
        for number in 0..CLIENTS {
            let backend = server.connect();
            links.push(backend.link());
            let client = Client::builder(backend).with_seed(seed + number).build();
            tasks.spawn(worker(client.clone(), inside.clone(), seed, number));
            clients.push(client);
        }
        let faults = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let (told, mut losses, often) = (faults.clone(), Random(seed ^ 77), [40, 12, 4][(seed % 3) as usize]);
        server.on_request(move |_, _| {
            let fate = losses.below(often);
            if fate < 2 {
                told.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            [Fate::LoseRequest, Fate::LoseAnswer, Fate::Pass][fate.min(2) as usize]
        });
        let mut random = Random(seed);
        for _ in 0..60 {
            sleep(random.millis(1500)).await;
            server.start();
            harm(&server, &links[random.below(CLIENTS) as usize], &mut random, seed);
            faults.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        server.start();
        server.clear_faults();
        for link in &links {
            link.heal();
            link.delay(Duration::ZERO, Duration::ZERO);
        }
        let finished = timeout(LONG, async {
            while let Some(done) = tasks.join_next().await {
                done.unwrap()
            }
        });
        assert!(finished.await.is_ok(), "seed {seed}: somebody hangs");
        sleep(Duration::from_secs(30)).await;
        let path = LockPath::new("/app/lock").unwrap();
        assert_eq!(server.names(&path), [""; 0], "seed {seed}: left behind");
        assert_eq!(server.watches(), 0, "seed {seed}");
        assert!(clients.iter().all(|c| c.pending_removals() == 0), "seed {seed}: pending");
        (inside.lock().unwrap().grants, faults.load(std::sync::atomic::Ordering::Relaxed))
    })
}

#[test]
fn simulation() {
    let from = std::env::var("FROM").ok().and_then(|v| v.parse().ok()).unwrap_or(0);
    let seeds = std::env::var("SEEDS").ok().and_then(|v| v.parse().ok()).unwrap_or(100);
    let (mut grants, mut faults) = (0, 0);
    for seed in from..from + seeds {
        let (g, f) = run(seed);
        (grants, faults) = (grants + g, faults + f);
    }
    println!("{seeds} seeds, {grants} grants, {faults} faults");
}
