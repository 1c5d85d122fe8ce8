//! What a client reports of jobs that run once per tick.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, timeout};
use zlock::Client;
use zlock::job::{Clock, Interval, RecurringJob, Tick};
use zlock::mem::MemServer;
use zlock::observer::{JobOutcome, Observer};
use zlock_testkit::{limit, limit_to};

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct Seen(Mutex<Vec<String>>);

impl Seen {
    fn say(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Observer for Seen {
    fn job_ended(&self, name: &str, outcome: JobOutcome, late: Duration) {
        self.say(format!("{name} {} {late:?}", outcome.as_str()));
    }

    fn job_skipped(&self, name: &str, ticks: u64) {
        self.say(format!("{name} skipped {ticks}"));
    }

    fn job_last_done(&self, name: &str, tick: SystemTime, period: Duration) {
        self.say(format!("{name} last {} each {period:?}", Tick::at(tick)));
    }
}

/// A clock that goes with tokio's time from a full hour, and 7 seconds.
#[derive(Debug)]
struct Later(Instant);

impl Clock for Later {
    fn now(&self) -> SystemTime {
        minute(0).time() + Duration::from_secs(7) + self.0.elapsed()
    }
}

fn minute(n: u32) -> Tick {
    let hour: Tick = "2025-11-24T21:00:00Z".parse().unwrap();
    Tick::at(hour.time() + n * MINUTE)
}

fn machine(server: &MemServer) -> (Client, RecurringJob, Arc<Seen>) {
    let (client, seen) = (Client::new(server.connect()), Arc::new(Seen::default()));
    client.observe(seen.clone()).unwrap();
    let job = client.recurring_job("/app/job").unwrap().period(MINUTE).clock(Arc::new(Later(Instant::now())));
    (client, job, seen)
}

#[tokio::test(start_paused = true)]
async fn runs_and_the_last_success_are_reported_by_all_and_outcomes_by_the_one_that_runs() {
    limit(async {
        let server = MemServer::new();
        let (client, job, seen) = machine(&server);
        let (_other, loser, seen_by_loser) = machine(&server);
        let (job, loser) = (job.with_metric_name("report").attempts(9), loser.with_metric_name("report"));
        let run = |tick, result| job.run(minute(tick), async move |_context| result);
        assert!(run(0, Err("no disk")).await.is_ok());
        assert_eq!(seen.take(), ["report failed 7s"]);
        assert!(run(0, Ok(())).await.is_ok());
        assert_eq!(seen.take(), ["report done 7s", "report last 2025-11-24T21:00:00Z each 60s"]);
        assert!(loser.run(minute(0), async |_context| Ok::<_, &str>(())).await.is_ok());
        assert_eq!(seen_by_loser.take(), ["report last 2025-11-24T21:00:00Z each 60s"]);
        let lost = job.run(minute(1), async |context| {
            server.remove(context.path(), context.node().as_str());
            Err::<(), _>(context.lost().await.to_string())
        });
        assert!(lost.await.unwrap_err().is_lock_lost());
        assert!(seen.take().contains(&"report lost 0ns".to_owned()));
        drop(client);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn skipped_ticks_and_the_period_of_the_schedule_are_reported() {
    limit(async {
        let (client, job, seen) = machine(&MemServer::new());
        assert!(job.run(Tick::at(minute(0).time() - 4 * MINUTE), async |_| Ok::<_, &str>(())).await.is_ok());
        assert_eq!(seen.take(), [] as [&str; 0], "a job without a name is not measured");
        // Without a period of its own.
        let job = client.recurring_job("/app/job").unwrap().clock(Arc::new(Later(Instant::now())));
        let job = job.with_metric_name("report");
        let looping = job.every(Interval::new(MINUTE).unwrap(), async |_context, _tick| Ok::<_, &str>(()));
        assert!(timeout(MINUTE / 2, looping).await.is_err());
        let seen = seen.take();
        for line in ["report skipped 3", "report done 7s", "report last 2025-11-24T21:00:00Z each 60s"] {
            assert!(seen.iter().any(|seen| seen == line), "{line}: {seen:?}");
        }
    })
    .await;
}

/// A run takes longer than the period. The machine that waited for its tick has missed none.
#[tokio::test(start_paused = true)]
async fn a_tick_that_another_machine_runs_is_not_skipped() {
    limit_to(10 * MINUTE, async {
        let server = MemServer::new();
        let (one, two) = (machine(&server), machine(&server));
        let (long, brief) = (MINUTE + MINUTE / 12, MINUTE / 12);
        let every = |job: RecurringJob| async move {
            let (first, job) = (minute(1), job.with_metric_name("report").attempts(3));
            let looping = job.every(Interval::new(MINUTE).unwrap(), async |_, tick| {
                tokio::time::sleep(if tick == first { long } else { brief }).await;
                Ok::<_, &str>(())
            });
            assert!(timeout(4 * MINUTE, looping).await.is_err());
        };
        // The record is there, so that no loop begins with what was missed before.
        assert!(one.1.run(minute(0), async |_| Ok::<_, &str>(())).await.is_ok());
        tokio::join!(every(one.1), every(two.1));
        let seen = [one.2.take(), two.2.take()].concat();
        let (done, skipped): (Vec<_>, Vec<_>) =
            seen.iter().filter(|line| !line.contains("last")).partition(|line| line.contains("done"));
        assert!(done.len() >= 3 && skipped.is_empty(), "{seen:?}");
    })
    .await;
}
