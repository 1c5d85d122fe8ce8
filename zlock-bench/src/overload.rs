//! Counts what impatient tasks are granted when there are more of them than the store can serve.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use zlock::Client;

use crate::store::Store;

const TASKS: [usize; 3] = [50, 200, 1000];

/// The time limit of each acquisition.
const PATIENCE: Duration = Duration::from_millis(50);

/// How long a holder works.
const WORK: Duration = Duration::from_millis(1);

/// The time that requests and responses take on `mem`.
const LATENCY: Duration = Duration::from_millis(5);

/// The number of seconds that are counted.
const SECONDS: u64 = 5;

/// What the tasks have counted.
#[derive(Default)]
struct Counts {
    granted: AtomicU64,
    late: AtomicU64,
    is_over: AtomicBool,
}

/// Prints a line for each number of tasks, with guards that are released and with guards that are dropped.
pub(crate) async fn run(store: &Store) {
    for drops in [false, true] {
        for tasks in TASKS {
            load(store, tasks, drops).await;
        }
    }
}

async fn load(store: &Store, tasks: usize, drops: bool) {
    let client = Client::new(store.connect_over(LATENCY).await);
    let (counts, path) = (Arc::new(Counts::default()), store.path("overload"));
    let tasks: Vec<_> = (0..tasks)
        .map(|task| {
            let (counts, lock) = (counts.clone(), client.mutex(format!("{path}/{drops}/{tasks}/{task}")));
            let lock = lock.expect("a path");
            tokio::spawn(async move {
                while !counts.is_over.load(Ordering::Relaxed) {
                    let Ok(guard) = lock.acquire_timeout(PATIENCE).await else {
                        counts.late.fetch_add(1, Ordering::Relaxed);
                        continue;
                    };
                    counts.granted.fetch_add(1, Ordering::Relaxed);
                    sleep(WORK).await;
                    if drops {
                        drop(guard);
                    } else {
                        // A release that the store did not confirm in time goes on in the background.
                        let _ = guard.release().await;
                    }
                }
            })
        })
        .collect();
    let (mut each, mut pending) = (Vec::new(), Vec::new());
    for _ in 0..SECONDS {
        let (before, began) = (counts.granted.load(Ordering::Relaxed), Instant::now());
        sleep(Duration::from_secs(1)).await;
        let granted = counts.granted.load(Ordering::Relaxed) - before;
        each.push((granted as f64 / began.elapsed().as_secs_f64()) as u64);
        pending.push(client.pending_cleanups());
    }
    counts.is_over.store(true, Ordering::Relaxed);
    let count = tasks.len();
    for task in tasks {
        task.await.expect("a task");
    }
    println!(
        "{{\"peer\":\"zlock\",\"server\":\"{}\",\"workload\":\"overload{}\",\"clients\":{count},\
         \"granted_per_sec\":{each:?},\"mean\":{},\"late\":{},\"pending_cleanups\":{pending:?}}}",
        store.name(),
        if drops { "-drop" } else { "" },
        each.iter().sum::<u64>() / SECONDS,
        counts.late.load(Ordering::Relaxed),
    );
}
