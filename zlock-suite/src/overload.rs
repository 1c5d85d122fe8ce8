//! More tasks than the store can serve, each with its own lock and little patience.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use zlock_core::{ErrorKind, observer::Observer, observer::RequestOutcome};
use zlock_recipes::Client;

/// The minimum time limit of an acquisition.
const PATIENCE: Duration = Duration::from_millis(50);

/// The time limit of an acquisition is this many times what one takes alone: a disk may be slow.
const ALONE: u32 = 5;

/// How long a holder works.
const WORK: Duration = Duration::from_millis(1);

/// The time in which all grants must have been made. They take a few seconds on a store that is not overloaded.
const LIMIT: Duration = Duration::from_secs(120);

/// How a task gives up its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It awaits the release.
    Release,
    /// It drops the guard.
    Drop,
}

/// What happened until a number of locks was granted.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    /// The number of tasks.
    pub tasks: usize,
    /// The time limit of each acquisition.
    pub patience: Duration,
    /// The number of granted locks.
    pub granted: usize,
    /// The number of creates that were given up before they were answered.
    pub late: usize,
    /// The maximum number of clean-ups that were pending at once.
    pub pending: usize,
    /// The time that it took.
    pub elapsed: Duration,
}

impl Counted {
    /// Checks that creates were rarely in vain, and that clean-ups did not pile up.
    ///
    /// # Panics
    /// Panics if not.
    pub fn check(&self) {
        let Counted { tasks, patience, granted, late, pending, elapsed } = *self;
        println!("{self:?}");
        // A store that is too slow for this patience leaves a few creates to try with. Without a limit, each task would send
        // one in each of these times.
        let tried = FEW * elapsed.div_duration_f64(patience) as usize;
        assert!(late <= granted / 2 + tasks + tried, "creates in vain: {self:?}");
        // One for each task that has just dropped its guard, and one for each create that may have been in flight.
        assert!(pending <= tasks + MOST_TURNS, "clean-ups pile up: {self:?}");
    }
}

/// How many creates are in flight to a store that answers none of them in time, at most.
const FEW: usize = 4;

/// The maximum number of creates in flight.
const MOST_TURNS: usize = 256;

#[derive(Debug, Default)]
struct Creates {
    late: AtomicUsize,
}

impl Observer for Creates {
    fn request_ended(&self, operation: &'static str, _: Duration, outcome: RequestOutcome) {
        if operation == "create" && outcome != RequestOutcome::Answered {
            self.late.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Returns the time limit of each acquisition on this store.
async fn patience(client: &Client) -> Duration {
    let mutex = client.mutex("/overload/alone").unwrap();
    let mut slowest = Duration::ZERO;
    for time in 0..5 {
        let began = Instant::now();
        mutex.acquire().await.unwrap().release().await.unwrap();
        // The first one also opens the session.
        if time > 0 {
            slowest = slowest.max(began.elapsed());
        }
    }
    PATIENCE.max(ALONE * slowest)
}

/// Runs tasks in a loop until this many locks were granted: acquire, work, release.
///
/// # Panics
/// Panics if that takes too long, or if an acquisition fails for another reason than its time limit.
pub async fn overload(client: &Client, tasks: usize, ending: Ending, grants: usize) -> Counted {
    let (creates, granted) = (Arc::new(Creates::default()), Arc::new(AtomicUsize::new(0)));
    let patience = patience(client).await;
    client.observe(creates.clone()).unwrap();
    let began = Instant::now();
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let mutex = client.mutex(format!("/overload/{task}")).unwrap();
        let granted = granted.clone();
        running.spawn(async move {
            while granted.load(Ordering::SeqCst) < grants {
                let guard = match mutex.acquire_timeout(patience).await {
                    Ok(guard) => guard,
                    Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::Timeout(_)) => continue,
                    Err(error) => panic!("{error}"),
                };
                granted.fetch_add(1, Ordering::SeqCst);
                sleep(WORK).await;
                match ending {
                    Ending::Release => drop(guard.release().await.unwrap()),
                    Ending::Drop => drop(guard),
                }
            }
        });
    }
    let mut pending = 0;
    let all = async {
        while !running.is_empty() {
            pending = pending.max(client.pending_cleanups());
            if let Ok(Some(task)) = timeout(10 * WORK, running.join_next()).await {
                task.unwrap();
            }
        }
    };
    let ended = timeout(LIMIT, all).await;
    let (granted, late) = (granted.load(Ordering::SeqCst), creates.late.load(Ordering::SeqCst));
    let counted = Counted { tasks, patience, granted, late, pending, elapsed: began.elapsed() };
    assert!(ended.is_ok(), "too few were granted: {counted:?}");
    while client.pending_cleanups() > 0 {
        sleep(10 * WORK).await;
    }
    counted
}
