//! The cost of jobs of which none is due.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use zlock::Client;
use zlock::job::{Clock, Interval};
use zlock::mem::{MemServer, Operation};

use super::requests::counts;

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

/// A wall clock that goes with tokio's time. It begins at a full hour.
#[derive(Debug)]
struct Hours(Instant);

impl Clock for Hours {
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + 490_000 * HOUR + self.0.elapsed()
    }
}

/// Returns the requests since the last look, without those of the session.
fn requests(server: &MemServer) -> Vec<(Operation, u64)> {
    let mut counts = counts(server);
    counts.retain(|(of, _)| !matches!(of, Operation::Connect | Operation::Heartbeat));
    counts
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_idle_jobs_send_nothing() {
    const JOBS: usize = 10_000;
    let (server, runs) = (MemServer::new(), Arc::new(AtomicUsize::new(0)));
    let (client, clock) = (Client::new(server.connect()), Arc::new(Hours(Instant::now())));
    let mut jobs = JoinSet::new();
    for n in 0..JOBS {
        let job = client.recurring_job(format!("/jobs/{n}")).unwrap().clock(clock.clone());
        let runs = runs.clone();
        jobs.spawn(async move {
            let run = async |_context, _tick| {
                runs.fetch_add(1, Ordering::SeqCst);
                Ok::<_, Infallible>(())
            };
            job.every(Interval::new(HOUR).unwrap(), run).await
        });
    }
    sleep(MINUTE).await;
    // Each has read its record once.
    assert_eq!(requests(&server), [(Operation::Value, JOBS as u64)]);
    sleep(10 * MINUTE).await;
    assert_eq!(requests(&server), [], "none was due");
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    jobs.abort_all();
}
