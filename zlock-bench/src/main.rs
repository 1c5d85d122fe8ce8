//! Measures zlock's locks: `zlock-bench zk|etcd|postgres|mysql|mem [WORKLOAD..]` prints one line of JSON for each workload.
//!
//! One operation is an acquire and a release, with only a check in between that no other holder exists that must not. All tasks
//! share one counter of operations, until it is used up. A quarter as many operations run before, unmeasured.
//!
//! | workload | meaning |
//! |---|---|
//! | `w1` | one task, one lock |
//! | `w1-drop` | the same, the guard dropped |
//! | `w2-8`, `w2-32` | 8 or 32 tasks, each with its own session, one lock |
//! | `w2-8x8` | 8 sessions of 8 tasks, one lock; `max_acq_us` is the longest wait |
//! | `w2-8x8-handoff` | the same, with hand-off within 10 ms |
//! | `w3` | 64 tasks, one session, one lock |
//! | `w3-handoff` | the same, with hand-off within 10 ms |
//! | `w3-handoff-50us` | the same, and each holder keeps its core busy for 50 us |
//! | `w4` | 64 tasks, one session, each with its own lock |
//! | `w5` | 16 tasks, one session, one read/write lock, every 20th operation a write |
//! | `w6` | 32 tasks, one session, one semaphore of 8 permits |
//! | `w7` | 500 tasks queue behind a holder (`w7-enqueue`); a second later it releases the lock, and each task in turn acquires and releases it (`w7-drain`) |
//! | `w8` | 64 tasks, one session; each operation takes the next of 10,000 locks |
//! | `w9` | 3 candidates of an election, each with its own session: one operation is a campaign and a resignation |
//! | `growth` | one task, one lock, 100,000 operations: `tenths` is the rate in each tenth. Runs only if named |
//! | `fleet` | 200 sessions: at rest (`fleet-idle`), with one lock each (`fleet-holding`), as members of one group that each of them watches (`fleet-members`), and waiting at one semaphore (`fleet-waiting`): their cost, by the servers' own counters. Not on `mem`. Runs only if named |
//! | `overload` | 50, 200 and 1,000 tasks, one session, each with its own lock, in a loop: acquire within 50 ms, 1 ms of work, release (`overload-drop`: drop the guard); on `mem` with 5 ms in each direction. Counts grants in each of five seconds, acquisitions that came too late, and clean-ups that are pending at the end of each second. Runs only if named |
//!
//! | variable | meaning |
//! |---|---|
//! | `ZK_CONNECT` | host:port, comma-separated; for `zk` |
//! | `ETCD_ENDPOINTS` | the same for `etcd`, which needs the feature `etcd` |
//! | `POSTGRES_URL` | a URL of zlock for `postgres`, which needs the feature `postgres`. Beside `w1`, `w2-8`, `w2-32` and `w3`, lines of other peers follow: `SELECT .. FOR UPDATE`, and advisory locks |
//! | `ETCD_NO_BATCHES` | if set, each write to etcd is a request of its own |
//! | `BENCH_CURRENT_THREAD` | if set, everything runs on tokio's `current_thread` runtime. `TOKIO_WORKER_THREADS` is the number of threads otherwise |
//! | `PEERS_SCALE` | multiplies the operations |
//! | `PEERS_SERVER` | the value of the field `server` |
//! | `PEERS_SNAP` | a script that prints the servers' counters. It runs right before and right after the measured part, for the fields `before` and `after` |
#![allow(clippy::expect_used, clippy::panic, reason = "a bench that fails says so and ends")]

mod drive;
mod fleet;
mod overload;
#[cfg(feature = "postgres")]
mod plain;
mod report;
mod store;
mod workload;

use store::Store;
use tokio::runtime::Builder;

fn main() {
    let mut runtime = match std::env::var_os("BENCH_CURRENT_THREAD") {
        Some(_) => Builder::new_current_thread(),
        None => Builder::new_multi_thread(),
    };
    runtime.enable_all().build().expect("a runtime").block_on(measure());
}

async fn measure() {
    let mut args = std::env::args().skip(1);
    let store = match args.next().as_deref() {
        Some("zk") => Store::zookeeper(),
        #[cfg(feature = "etcd")]
        Some("etcd") => Store::etcd(),
        #[cfg(feature = "postgres")]
        Some("postgres") => Store::postgres(&postgres_url()),
        #[cfg(feature = "mysql")]
        Some("mysql") => Store::mysql(),
        Some("mem") => Store::mem(),
        _ => {
            eprintln!(
                "zlock-bench zk|etcd|postgres|mysql|mem [WORKLOAD..], etcd, postgres and mysql with the features of these names"
            );
            std::process::exit(2);
        }
    };
    let named: Vec<String> = args.collect();
    for workload in workload::ALL {
        let by_default = !workload::ONLY_NAMED.contains(&workload);
        if named.is_empty() && by_default || named.iter().any(|name| name == workload) {
            workload::run(&store, workload).await;
        }
    }
    #[cfg(feature = "postgres")]
    if store.name() == "postgres" {
        plain::run(&postgres_url(), &named).await;
    }
}

#[cfg(feature = "postgres")]
fn postgres_url() -> String {
    std::env::var("POSTGRES_URL").expect("POSTGRES_URL=postgres://user@host/database")
}
