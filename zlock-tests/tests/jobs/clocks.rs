//! Loops of jobs over months, and on machines whose clocks step. On mem, in paused time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use zlock::job::{Clock, Cron, Interval, Missed, Outcome, RecurringJob, Schedule, Tick};
use zlock::mem::MemServer;
use zlock::observer::Observer;
use zlock::{Client, LockPath};
use zlock_testkit::limit_to;

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 365 * DAY;

/// How much faster than tokio's a clock runs that goes through years. A loop that looks at it once a minute sees two ticks of a day.
const RATE: u32 = 600;

/// In paused time.
const LIMIT: Duration = Duration::from_secs(400 * 86_400);

/// A clock that steps, and may run faster than tokio's.
#[derive(Debug)]
struct Stepping {
    began: Instant,
    rate: u32,
    millis: AtomicU64,
}

impl Stepping {
    fn new(at: Tick, rate: u32) -> Arc<Self> {
        Arc::new(Stepping { began: Instant::now(), rate, millis: AtomicU64::new(at.millis()) })
    }

    /// The clock is set by that many milliseconds.
    fn step(&self, ahead: i64) {
        self.millis.store(self.millis.load(Ordering::SeqCst).strict_add_signed(ahead), Ordering::SeqCst);
    }

    /// Sleeps until the clock shows this time.
    async fn until(&self, time: Tick) {
        while let Ok(left) = time.time().duration_since(self.now()) {
            if left.is_zero() {
                break;
            }
            sleep((left / self.rate).max(Duration::from_millis(1))).await;
        }
    }
}

impl Clock for Stepping {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
            + Duration::from_millis(self.millis.load(Ordering::SeqCst))
            + self.began.elapsed() * self.rate
    }
}

fn at(time: &str) -> Tick {
    time.parse().unwrap()
}

fn later(tick: Tick, millis: u64) -> Tick {
    Tick::at(tick.time() + Duration::from_millis(millis))
}

fn cron(expression: &str) -> Cron {
    Cron::new(expression, "UTC").unwrap()
}

fn minutely() -> Interval {
    Interval::new(Duration::from_millis(MINUTE)).unwrap()
}

/// The ticks that were skipped, by the reports of one machine.
#[derive(Debug, Default)]
struct Skipped(AtomicU64);

impl Observer for Skipped {
    fn job_skipped(&self, _name: &str, ticks: u64) {
        self.0.fetch_add(ticks, Ordering::SeqCst);
    }
}

/// A machine with a client and a clock of its own.
struct Machine {
    job: RecurringJob,
    clock: Arc<Stepping>,
    skipped: Arc<Skipped>,
    runs: Arc<Mutex<Vec<Tick>>>,
}

impl Machine {
    fn new(server: &MemServer, now: Tick, rate: u32) -> Self {
        let (client, clock, skipped) =
            (Client::new(server.connect()), Stepping::new(now, rate), Arc::new(Skipped::default()));
        client.observe(skipped.clone()).unwrap();
        let job = client.recurring_job("/app/job").unwrap().with_metric_name("job").clock(clock.clone());
        Machine { job, clock, skipped, runs: Arc::default() }
    }

    fn with(self, job: impl FnOnce(RecurringJob) -> RecurringJob) -> Self {
        Machine { job: job(self.job), ..self }
    }

    /// Begins the loop, which ends when the test does or aborts it.
    fn every(&self, schedule: impl Schedule) -> JoinHandle<()> {
        let (job, runs) = (self.job.clone(), self.runs.clone());
        tokio::spawn(async move {
            let run = |_, tick| {
                runs.lock().unwrap().push(tick);
                async { Ok::<_, String>(()) }
            };
            panic!("{:?}", job.every(schedule, run).await);
        })
    }

    async fn run(&self, tick: Tick) -> bool {
        let outcome = self.job.run(tick, async |_| Ok::<_, String>(())).await.unwrap();
        matches!(outcome, Outcome::Ran(_))
    }

    fn runs(&self) -> Vec<Tick> {
        self.runs.lock().unwrap().clone()
    }

    fn skipped(&self) -> u64 {
        self.skipped.0.load(Ordering::SeqCst)
    }

    /// Leaves a record: this tick has run.
    async fn ran(self, tick: Tick) -> Self {
        assert!(self.run(tick).await);
        self
    }
}

/// No tick of these is doubted, although weeks or months are between some of them, in a loop that began at any time of the year.
#[tokio::test(start_paused = true)]
async fn schedules_with_long_pauses_lose_no_tick() {
    for (expression, from, to) in [
        ("0 6 * 1-6,9-12 MON-FRI", "2027-02-01T00:00:00Z", "2027-10-31T00:00:00Z"),
        ("0 3 * 6-8 *", "2027-07-10T00:00:00Z", "2029-07-10T00:00:00Z"),
        ("0 3 * 6-8 *", "2027-10-10T00:00:00Z", "2028-10-10T00:00:00Z"),
        ("0 3 1 */3 *", "2027-02-01T00:00:00Z", "2029-02-01T00:00:00Z"),
        ("0 3 1 */2 *", "2027-02-01T00:00:00Z", "2028-02-01T00:00:00Z"),
        ("0 3 29 2 *", "2027-02-01T00:00:00Z", "2032-03-01T00:00:00Z"),
    ] {
        limit_to(LIMIT, async {
            let schedule = cron(expression);
            // A period that is too short changes nothing, since the loop knows the schedule.
            for period in [None, Some(Duration::from_millis(DAY))] {
                let machine = Machine::new(&MemServer::new(), at(from), RATE);
                let machine = machine.with(|job| period.iter().fold(job, |job, period| job.period(*period)));
                let looping = machine.every(schedule.clone());
                machine.clock.until(at(to)).await;
                looping.abort();
                assert_eq!(machine.runs(), schedule.due(at(from), at(to)), "{expression} from {from}");
                assert_eq!(machine.skipped(), 0);
            }
        })
        .await;
    }
}

/// A program with a scheduler of its own does not say its period: ticks up to a quarter of a year apart are not doubted.
#[tokio::test(start_paused = true)]
async fn ticks_that_are_a_quarter_apart_run_without_a_period() {
    limit_to(LIMIT, async {
        for expression in ["0 3 1 */2 *", "0 3 1 */3 *", "0 6 * 1-6,9-12 MON-FRI"] {
            let machine = Machine::new(&MemServer::new(), at("2027-02-01T00:00:00Z"), RATE);
            for tick in cron(expression).due(at("2027-02-01T00:00:00Z"), at("2029-02-01T00:00:00Z")) {
                machine.clock.until(tick).await;
                assert!(machine.run(tick).await, "{expression}: {tick}");
            }
        }
    })
    .await;
}

/// No machine was there for ten weeks. After three periods, the job runs again, at each of its ticks.
#[tokio::test(start_paused = true)]
async fn monthly_job_runs_again_after_ten_weeks() {
    limit_to(LIMIT, async {
        let now = at("2027-03-16T00:00:00Z");
        let machine = Machine::new(&MemServer::new(), at("2027-01-01T03:00:00Z"), RATE);
        let machine = machine.ran(at("2027-01-01T03:00:00Z")).await;
        machine.clock.until(now).await;
        let looping = machine.every(cron("0 3 1 * *"));
        machine.clock.until(at("2028-01-15T00:00:00Z")).await;
        looping.abort();
        // The note is of 16 March.
        assert_eq!(
            machine.runs(),
            cron("0 3 1 * *").due(at("2027-06-30T00:00:00Z"), at("2028-01-15T00:00:00Z"))
        );
    })
    .await;
}

/// The minutes of these tests are counted from here.
fn minute(n: u64) -> Tick {
    later(at("2027-05-04T10:00:00Z"), n * MINUTE)
}

fn minutes(ticks: impl IntoIterator<Item = u64>) -> Vec<Tick> {
    ticks.into_iter().map(minute).collect()
}

/// A machine with a minutely job that has run at minute 0, ten seconds later.
async fn ten_past(server: &MemServer, missed: Missed) -> Machine {
    let machine = Machine::new(server, minute(0), 1).with(|job| job.missed(missed));
    let machine = machine.ran(minute(0)).await;
    sleep(Duration::from_secs(10)).await;
    machine
}

/// A machine boots at 1970, and its clock is set half a minute later. A job without a record has missed nothing.
#[tokio::test(start_paused = true)]
async fn boot_in_1970_runs_no_tick_of_a_job_without_a_record() {
    limit_to(LIMIT, async {
        for missed in [Missed::Latest, Missed::All(5), Missed::Skip] {
            let boot = later(at("1970-01-01T00:00:00Z"), 20 * SECOND);
            let machine = Machine::new(&MemServer::new(), boot, 1).with(|job| job.missed(missed));
            let _looping = machine.every(minutely());
            sleep(Duration::from_secs(10)).await;
            machine.clock.step(minute(0).millis().strict_sub(boot.millis()).cast_signed());
            machine.clock.until(later(minute(3), SECOND)).await;
            assert_eq!((machine.runs(), machine.skipped()), (minutes([1, 2, 3]), 0), "{missed:?}");
        }
    })
    .await;
}

/// A machine boots at 1970, and there is a record: it waits for the tick after that.
#[tokio::test(start_paused = true)]
async fn boot_in_1970_waits_for_the_tick_after_the_record() {
    limit_to(LIMIT, async {
        let server = MemServer::new();
        let _other = ten_past(&server, Missed::Skip).await;
        let boot = later(at("1970-01-01T00:00:00Z"), 20 * SECOND);
        let machine = Machine::new(&server, boot, 1).with(|job| job.missed(Missed::Skip));
        let _looping = machine.every(minutely());
        sleep(Duration::from_secs(60)).await;
        machine.clock.step(minute(1).millis().strict_sub(boot.millis()).cast_signed() - 50_000);
        machine.clock.until(later(minute(3), SECOND)).await;
        assert_eq!((machine.runs(), machine.skipped()), (minutes([1, 2, 3]), 0));
    })
    .await;
}

/// The clock is an hour behind for 50 seconds, in which a tick is due.
#[tokio::test(start_paused = true)]
async fn clock_that_is_an_hour_behind_for_a_while_loses_no_tick() {
    limit_to(LIMIT, async {
        for missed in [Missed::Latest, Missed::All(5), Missed::Skip] {
            let machine = ten_past(&MemServer::new(), missed).await;
            let _looping = machine.every(minutely());
            sleep(Duration::from_secs(5)).await;
            machine.clock.step(-HOUR.cast_signed());
            sleep(Duration::from_secs(50)).await;
            machine.clock.step(HOUR.cast_signed());
            machine.clock.until(later(minute(3), SECOND)).await;
            assert_eq!((machine.runs(), machine.skipped()), (minutes([1, 2, 3]), 0), "{missed:?}");
        }
    })
    .await;
}

/// The clock is a year ahead for two minutes. What was due meanwhile is treated as if the machine had not been there.
#[tokio::test(start_paused = true)]
async fn clock_that_is_a_year_ahead_for_a_while_leaves_out_no_tick() {
    limit_to(LIMIT, async {
        for (missed, runs, skipped) in [
            (Missed::Latest, &[2, 3, 4][..], 1),
            (Missed::All(5), &[1, 2, 3, 4], 0),
            (Missed::Skip, &[3, 4], 2),
        ] {
            let machine = ten_past(&MemServer::new(), missed).await;
            let _looping = machine.every(minutely());
            sleep(Duration::from_secs(5)).await;
            machine.clock.step(YEAR.cast_signed());
            sleep(Duration::from_secs(120)).await;
            machine.clock.step(-YEAR.cast_signed());
            machine.clock.until(later(minute(4), SECOND)).await;
            let expected = (minutes(runs.iter().copied()), skipped);
            assert_eq!((machine.runs(), machine.skipped()), expected, "{missed:?}");
        }
    })
    .await;
}

/// The clock of a process is set back. What has run does not run again, even if the record is deleted at the same time.
#[tokio::test(start_paused = true)]
async fn clock_that_is_set_back_for_good_runs_nothing_twice() {
    limit_to(LIMIT, async {
        for is_deleted in [false, true] {
            let server = MemServer::new();
            let machine = ten_past(&server, Missed::All(5)).await;
            let _looping = machine.every(minutely());
            machine.clock.until(later(minute(2), SECOND)).await;
            machine.clock.step(-(2 * MINUTE).cast_signed());
            if is_deleted {
                server.remove(&LockPath::new("/app").unwrap(), "job.job");
            }
            machine.clock.until(later(minute(4), SECOND)).await;
            assert_eq!((machine.runs(), machine.skipped()), (minutes([1, 2, 3, 4]), 0), "{is_deleted}");
        }
    })
    .await;
}

/// A machine sleeps for half an hour, and another one runs the job. Then it sleeps again, and none does.
#[tokio::test(start_paused = true)]
async fn skipped_ticks_are_those_that_no_machine_ran() {
    limit_to(LIMIT, async {
        for missed in [Missed::Latest, Missed::Skip] {
            let server = MemServer::new();
            let machine = ten_past(&server, missed).await;
            let _looping = machine.every(minutely());
            let other = Machine::new(&server, minute(30), 1);
            for tick in 1..=30 {
                assert!(other.run(minute(tick)).await);
            }
            machine.clock.step((30 * MINUTE).cast_signed());
            machine.clock.until(later(minute(31), SECOND)).await;
            assert_eq!((machine.runs(), machine.skipped()), (minutes([31]), 0), "{missed:?}");
            machine.clock.step((30 * MINUTE).cast_signed());
            machine.clock.until(later(minute(63), SECOND)).await;
            let runs = machine.runs();
            let skipped = 63 - 30 - u64::try_from(runs.len()).unwrap();
            assert_eq!((machine.skipped(), runs.last()), (skipped, Some(&minute(63))), "{missed:?} {runs:?}");
            assert!(runs.len() < 5, "{missed:?} {runs:?}");
        }
    })
    .await;
}

/// The record is deleted or emptied while the job runs. The process knows that it has run the tick.
#[tokio::test(start_paused = true)]
async fn record_that_is_deleted_during_a_run_does_not_repeat_it() {
    limit_to(LIMIT, async {
        for (is_deleted, attempts) in [(true, 1), (false, 1), (true, 2), (false, 2)] {
            let server = MemServer::new();
            let machine = ten_past(&server, Missed::Latest).await;
            let record = Client::new(server.connect()).shared_value("/app/job.job").unwrap();
            let (job, runs) = (machine.job.clone().attempts(attempts), machine.runs.clone());
            let _looping = tokio::spawn(async move {
                let run = |context: zlock::job::JobContext, tick| {
                    runs.lock().unwrap().push(tick);
                    let (server, record) = (server.clone(), record.clone());
                    async move {
                        if tick == minute(1) && is_deleted {
                            server.remove(&LockPath::new("/app").unwrap(), "job.job");
                        } else if tick == minute(1) {
                            record.update(|_| Some(Vec::new())).await.unwrap();
                        }
                        sleep(Duration::from_millis(u64::from(context.attempt()))).await;
                        Ok::<_, String>(())
                    }
                };
                panic!("{:?}", job.every(minutely(), run).await);
            });
            machine.clock.until(later(minute(3), SECOND)).await;
            let first = std::iter::repeat_n(1, attempts as usize);
            assert_eq!(machine.runs(), minutes(first.chain([2, 3])), "{is_deleted} {attempts}");
        }
    })
    .await;
}

/// A machine whose clock was 20 days ahead has run the job. When an operator has deleted the record, the next tick runs, in a loop that
/// began before or after that run.
#[tokio::test(start_paused = true)]
async fn record_with_a_tick_in_the_future_is_repaired_by_deleting_it() {
    limit_to(LIMIT, async {
        for is_restarted in [false, true] {
            let server = MemServer::new();
            let machine = ten_past(&server, Missed::Latest).await;
            let machine = machine.with(|job| job.period(Duration::from_millis(DAY)));
            let mut looping = machine.every(minutely());
            machine.clock.until(later(minute(1), SECOND)).await;
            let ahead = later(minute(1), 20 * DAY);
            let _ahead = Machine::new(&server, ahead, 1).ran(ahead).await;
            if is_restarted {
                looping.abort();
                looping = machine.every(minutely());
            }
            machine.clock.until(later(minute(3), SECOND)).await;
            assert_eq!(machine.runs(), minutes([1]));
            server.remove(&LockPath::new("/app").unwrap(), "job.job");
            machine.clock.until(later(minute(5), SECOND)).await;
            assert_eq!(machine.runs(), minutes([1, 4, 5]), "{is_restarted}");
            looping.abort();
        }
    })
    .await;
}
