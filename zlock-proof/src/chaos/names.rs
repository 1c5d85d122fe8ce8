//! Checks what many lock names leave behind in a process and at a server.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep};
use zlock::Release;
use zlock_testkit::{Etcd, MariaDb, PostgresServer, Process, ZooKeeper, mysql};

use super::cluster::Store;
use super::etcdctl;

/// The number of names in use at the same time.
const WORKERS: usize = 32;

/// How much memory may grow after a tenth of the names, when one-time allocations have been made.
const LIMIT_KB: u64 = 4 * 1024;

/// The time limit for the server to remove what it removes by itself.
const CLEAN_WITHIN: Duration = Duration::from_secs(60);

/// The command that runs the process.
pub(crate) const COMMAND: &str = "chaos-names";

/// Acquires and releases one lock for each of this many names, in a separate process. Returns `true` if nothing is left.
pub(crate) async fn run(store: Store, names: u64) -> bool {
    match store {
        Store::Zk => {
            let server = ZooKeeper::builder().container_check_interval(Duration::from_secs(1)).start().await;
            let nodes = server.mntr().await["znode_count"];
            let flat = in_a_process(&format!("zk://{}", server.connect_string()), names).await;
            let clean = clean(async || {
                let counters = server.mntr().await;
                let left = counters["znode_count"] - nodes;
                (left, counters["ephemerals_count"], counters["watch_count"])
            });
            flat & clean.await
        }
        Store::Postgres => {
            let server = PostgresServer::start().await;
            let flat = in_a_process(&format!("{}?create_schema=true", server.url()), names).await;
            let clean = clean(async || {
                let sql = "SELECT count(*) FROM zlock.entry WHERE kind = 0 UNION ALL SELECT count(*) FROM zlock.session";
                let left = server.sql(sql).await;
                let count = |line: usize| {
                    left.lines().nth(line).and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
                };
                (count(0), count(1), 0.0)
            });
            flat & clean.await
        }
        Store::Mysql => {
            let server = MariaDb::start(&[]).await;
            let flat = in_a_process(&format!("{}?create_schema=true", server.url()), names).await;
            let clean = clean(async || {
                let sql = "SELECT (SELECT COUNT(*) FROM zlock_entry WHERE kind = 0), (SELECT COUNT(*) FROM zlock_session)";
                let left: Vec<(u32, u32)> = mysql::sql(&server, sql, ()).await;
                (left[0].0.into(), left[0].1.into(), 0.0)
            });
            flat & clean.await
        }
        Store::Etcd => {
            let server = Etcd::start().await;
            let flat = in_a_process(&format!("etcd://{}", server.connect_string()), names).await;
            let clean = clean(async || {
                let addr = server.addr();
                let left = spawn_blocking(move || etcdctl::remaining(addr)).await.expect("a look");
                (left.expect("an answer").len() as f64, 0.0, server.metrics().await.watches() as f64)
            });
            flat & clean.await
        }
    }
}

/// Waits until the server has no node, no node of a session, and no watch.
async fn clean(look: impl AsyncFn() -> (f64, f64, f64)) -> bool {
    let until = Instant::now() + CLEAN_WITHIN;
    loop {
        let left = look().await;
        let is_clean = left == (0.0, 0.0, 0.0);
        if is_clean || Instant::now() > until {
            let verdict = if is_clean { "ok" } else { "VIOLATION" };
            println!("{verdict}: left at the server: {left:?} (nodes, nodes of sessions, watches)");
            return is_clean;
        }
        sleep(Duration::from_millis(200)).await;
    }
}

async fn in_a_process(url: &str, names: u64) -> bool {
    let program = std::env::current_exe().expect("the path of this program");
    let mut process = Process::spawn(program, &[COMMAND, url, &names.to_string()], &[]);
    while let Some(line) = process.line().await {
        println!("{line}");
    }
    process.wait().await == 0
}

/// Runs the process.
pub(crate) fn process(args: &[String]) -> ExitCode {
    let [url, names] = args else { panic!("URL NAMES") };
    let names = names.parse().expect("a number");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    if runtime.block_on(take_all(url, names)) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn take_all(url: &str, names: u64) -> bool {
    let client = zlock::connect(url).await.expect("a client");
    let began = Instant::now();
    let (next, warm) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS {
        let (client, next, warm) = (client.clone(), next.clone(), warm.clone());
        workers.spawn(async move {
            loop {
                let name = next.fetch_add(1, Ordering::Relaxed);
                if name >= names {
                    return;
                }
                if name == names / 10 {
                    warm.store(resident_kb(), Ordering::Relaxed);
                }
                let lock = client.mutex(format!("/names/{name}")).expect("a path");
                let guard = lock.acquire().await.expect("a lock");
                assert_eq!(guard.release().await.expect("a release"), Release::Released);
            }
        });
    }
    workers.join_all().await;
    let (warm, end) = (warm.load(Ordering::Relaxed), resident_kb());
    client.close().await.expect("the end of the session");
    let is_flat = end <= warm + LIMIT_KB;
    println!(
        "{}: {names} names in {:.0?}: {warm} kB resident after a tenth of them, {end} kB at the end",
        if is_flat { "ok" } else { "VIOLATION" },
        began.elapsed(),
    );
    is_flat
}

/// Returns the resident memory of this process.
fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
