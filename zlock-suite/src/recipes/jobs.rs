//! Jobs that run once per tick, on every store that has values.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};
use zlock_core::{ErrorKind, MAX_DATA, Result};
use zlock_recipes::job::{
    Clock, Interval, JobContext, Missed, Outcome, RecurringJob, RunState, Schedule, Tick,
};
use zlock_recipes::{Client, Handoff, Scope};

use crate::case::{LONG, MOMENT, lock};
use crate::{Case, Process};

const MINUTE: Duration = Duration::from_secs(60);

/// A clock that a case moves. It also runs with tokio's time.
#[derive(Debug)]
struct TestClock {
    began: Instant,
    /// The time at the beginning, in milliseconds.
    millis: AtomicU64,
    looks: AtomicUsize,
}

impl TestClock {
    fn at(tick: Tick) -> Arc<Self> {
        let (began, millis) = (Instant::now(), AtomicU64::new(tick.millis()));
        Arc::new(TestClock { began, millis, looks: AtomicUsize::new(0) })
    }

    fn set(&self, tick: Tick) {
        self.millis.store(tick.millis(), Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> SystemTime {
        self.looks.fetch_add(1, Ordering::SeqCst);
        SystemTime::UNIX_EPOCH
            + Duration::from_millis(self.millis.load(Ordering::SeqCst))
            + self.began.elapsed()
    }
}

/// Returns the tick of this minute, since some day in 2025.
fn minute(n: u64) -> Tick {
    Tick::at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_764_000_000) + MINUTE * u32::try_from(n).unwrap())
}

/// Returns the job of the case, with a clock that shows this minute.
fn job(case: &Case<'_>, process: &Process, now: u64) -> (RecurringJob, Arc<TestClock>) {
    let (path, clock) = (case.root().join("job").unwrap(), TestClock::at(minute(now)));
    case.uses([path.clone()]);
    let job = process.client.recurring_job(path).unwrap().period(MINUTE).clock(clock.clone());
    (job, clock)
}

/// The record has only the beginning of the node data, which may be long, and need not be text.
pub async fn node_data_that_is_no_text(case: &Case<'_>) {
    let (a, path) = (case.process().await, case.path("job"));
    let builder = Client::builder(a.connection.backend.clone());
    let client = builder.with_node_data(vec![0xff; MAX_DATA]).unwrap().build();
    let job = client.recurring_job(&path).unwrap().period(MINUTE).clock(TestClock::at(minute(0)));
    let ran: Ran = job.run(minute(0), |_| async { Ok(()) }).await.unwrap();
    assert!(matches!(ran, Outcome::Ran(Ok(()))), "{ran:?}");
    let by = job.last().await.unwrap().unwrap().by;
    assert!(by.ends_with(" bytes)") && by.len() < 1000, "{by}");
}

type Ran = Outcome<std::result::Result<(), Infallible>>;

/// The runs of each tick.
#[derive(Clone, Debug, Default)]
struct Runs(Arc<Mutex<BTreeMap<Tick, usize>>>);

impl Runs {
    async fn run(&self, context: JobContext) -> std::result::Result<(), Infallible> {
        *lock(&self.0).entry(context.tick()).or_default() += 1;
        sleep(Duration::from_millis(1)).await;
        Ok(())
    }

    fn of(&self) -> Vec<(Tick, usize)> {
        lock(&self.0).iter().map(|(tick, runs)| (*tick, *runs)).collect()
    }
}

async fn call(job: &RecurringJob, tick: u64, runs: &Runs) -> Result<Ran> {
    job.run(minute(tick), |context| runs.run(context)).await
}

async fn ran(job: &RecurringJob, tick: u64, runs: &Runs) -> Ran {
    call(job, tick, runs).await.unwrap()
}

/// Checks that each of these ticks has run once. On a machine that is so busy that a session was lost, as many ticks as there were
/// errors may not have run, and none twice.
fn ran_once(runs: &Runs, ticks: u64, errors: usize) {
    let of = runs.of();
    assert!(of.iter().all(|(_, runs)| *runs == 1), "{of:?}");
    let missing = (1..=ticks).filter(|tick| !of.contains(&(minute(*tick), 1))).count();
    assert!(missing <= errors, "{missing} ticks did not run, {errors} calls failed: {of:?}");
}

/// Ten machines call at each tick, one after another or at the same time, as their clocks show it. The job is shorter than the
/// differences of the clocks.
pub async fn each_tick_runs_once_although_clocks_differ(case: &Case<'_>) {
    let (processes, runs): ([Process; 10], _) = (case.processes().await, Runs::default());
    let machines: Vec<_> = processes.iter().map(|process| job(case, process, 0)).collect();
    let ticks = u64::try_from(case.many(1000, 100)).unwrap();
    let mut errors = 0;
    for tick in 1..=ticks {
        let calls = machines.iter().zip(0..).map(|((job, clock), n)| {
            let runs = &runs;
            async move {
                // Two at a time, and longer apart than the job takes, in another order at each tick.
                let behind = (n * 7 + tick * 3) % 10 / 2;
                sleep(Duration::from_millis(if case.paused { behind * 20 } else { behind })).await;
                clock.set(minute(tick));
                call(job, tick, runs).await
            }
        });
        let outcomes = join_all(calls).await;
        let ran = outcomes.iter().filter(|outcome| matches!(outcome, Ok(Outcome::Ran(_)))).count();
        let failed: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
        assert!(failed.iter().all(|error| error.is_retryable() && !case.paused), "{failed:?}");
        assert!(ran == 1 || ran == 0 && !failed.is_empty(), "{outcomes:?}");
        errors += failed.len();
    }
    ran_once(&runs, ticks, errors);
}

/// Holds the job until its lock is lost, and ends the session of its process meanwhile.
async fn die(case: &Case<'_>, process: &Process, job: &RecurringJob, tick: u64) {
    let began = AtomicBool::new(false);
    let run = job.run(minute(tick), |_| async {
        began.store(true, Ordering::SeqCst);
        pending::<std::result::Result<(), Infallible>>().await
    });
    let killed = async {
        case.until("the job runs", async || began.load(Ordering::SeqCst)).await;
        case.store.expire(&process.connection).await;
    };
    let (outcome, ()) = tokio::join!(run, killed);
    let error = outcome.unwrap_err();
    assert!(error.is_lock_lost(), "{error}");
}

/// The process of a run dies. With one attempt, the tick is not run again, and the next call reports it. With more, it is run again
/// with a larger token.
pub async fn killed_run_is_repeated_if_attempts_allow(case: &Case<'_>) {
    let ([a, b], runs) = (case.processes().await, Runs::default());
    let (on_a, on_b) = (job(case, &a, 1).0, job(case, &b, 1).0);
    die(case, &a, &on_a, 1).await;
    let started = on_b.last().await.unwrap().unwrap();
    assert_eq!((started.state, started.attempt, started.tick), (RunState::Started, 1, minute(1)));
    assert_eq!(ran(&on_b, 1, &runs).await, Outcome::GaveUp(started.clone()));
    let on_b = on_b.attempts(2);
    let again = on_b.run(minute(1), |context| async move {
        Ok::<_, Infallible>((context.attempt(), context.fencing_token()))
    });
    let Outcome::Ran(Ok((attempt, token))) = again.await.unwrap() else { panic!("not run again") };
    assert_eq!(attempt, 2);
    assert!(token > started.fencing_token, "{token:?} after {started:?}");
    assert!(matches!(ran(&on_b, 1, &runs).await, Outcome::AlreadyRan(run) if run.state == RunState::Done));
    assert_eq!(runs.of(), []);
}

/// A failed run is repeated as often as attempts allow.
pub async fn failed_run_is_repeated_if_attempts_allow(case: &Case<'_>) {
    let ([a, b], runs) = (case.processes().await, Runs::default());
    let jobs = [job(case, &a, 1).0.attempts(3), job(case, &b, 1).0.attempts(3)];
    for attempt in 1..=3 {
        let outcome = jobs[attempt % 2].run(minute(1), |_| async { Err::<(), _>("no disk") }).await;
        assert_eq!(outcome.unwrap(), Outcome::Ran(Err("no disk")), "attempt {attempt}");
    }
    for job in &jobs {
        let outcome = ran(job, 1, &runs).await;
        let Outcome::GaveUp(run) = outcome else { panic!("{outcome:?}") };
        assert_eq!((run.state, run.attempt, run.last_done), (RunState::Failed, 3, None));
    }
}

/// A call does not wait for a run that is under way, and a later tick does not begin beside it.
pub async fn running_job_is_reported(case: &Case<'_>) {
    let ([a, b], runs) = (case.processes().await, Runs::default());
    let ((on_a, clock), (on_b, _)) = (job(case, &a, 1), job(case, &b, 2));
    let calls = |_: JobContext| async {
        let seen = on_b.last().await.unwrap().unwrap();
        for job in [on_b.clone(), on_b.clone().attempts(2)] {
            for tick in [1, 2] {
                let began = Instant::now();
                assert_eq!(ran(&job, tick, &runs).await, Outcome::Running(seen.clone()), "tick {tick}");
                assert!(began.elapsed() < LONG);
            }
        }
        Ok::<_, Infallible>(())
    };
    assert_eq!(on_a.run(minute(1), calls).await.unwrap(), Outcome::Ran(Ok(())));
    clock.set(minute(2));
    assert_eq!(ran(&on_a, 2, &runs).await, Outcome::Ran(Ok(())));
    assert_eq!(runs.of(), [(minute(2), 1)]);
}

/// The record and the release are one transaction: once the run has ended, the lock is free, and a session that is lost then
/// changes nothing.
pub async fn session_that_is_lost_after_the_run_changes_nothing(case: &Case<'_>) {
    let ([a, b], runs) = (case.processes().await, Runs::default());
    let (on_a, on_b) = (job(case, &a, 1).0.attempts(2), job(case, &b, 1).0.attempts(2));
    assert_eq!(ran(&on_a, 1, &runs).await, Outcome::Ran(Ok(())));
    assert_eq!(case.store.names(on_a.path()).await, [] as [String; 0]);
    case.store.expire(&a.connection).await;
    assert!(matches!(ran(&on_b, 1, &runs).await, Outcome::AlreadyRan(_)));
    assert!(matches!(ran(&on_a, 1, &runs).await, Outcome::AlreadyRan(_)));
    assert_eq!(runs.of(), [(minute(1), 1)]);
}

/// An operator removes the node of a holder that has not noticed it. Its successor runs the tick, and the late end of the first
/// run is refused.
pub async fn late_end_is_refused(case: &Case<'_>) {
    let ([a, b], runs) = (case.processes().await, Runs::default());
    let (on_a, on_b) = (job(case, &a, 1).0.attempts(2), job(case, &b, 1).0.attempts(2));
    let work = |context: JobContext| async move {
        case.store.remove(context.path(), context.node().as_str()).await;
        assert_eq!(ran(&on_b, 1, &runs).await, Outcome::Ran(Ok(())));
        Ok::<_, Infallible>(on_b)
    };
    let error = on_a.run(minute(1), work).await.unwrap_err();
    assert!(error.is_lock_lost(), "{error}");
    let last = on_a.last().await.unwrap().unwrap();
    assert_eq!((last.state, last.attempt), (RunState::Done, 2));
}

/// A tick that is further ahead of this machine's clock than a period is refused, and the others run on.
pub async fn tick_from_the_future_is_refused(case: &Case<'_>) {
    let (a, runs) = (case.process().await, Runs::default());
    let (job, _clock) = job(case, &a, 1);
    // A year.
    for tick in [1 + 365 * 1440, 3] {
        let error = job.run(minute(tick), |context| runs.run(context)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    assert_eq!(job.last().await.unwrap(), None);
    for tick in [1, 2] {
        assert_eq!(ran(&job, tick, &runs).await, Outcome::Ran(Ok(())));
    }
    assert_eq!(runs.of(), [(minute(1), 1), (minute(2), 1)]);
}

/// Minutes of a year.
const YEAR: u64 = 365 * 1440;

/// One machine's clock is a year ahead. Its ticks are refused, by calls and by its loop, and the others run on.
pub async fn clock_that_is_a_year_ahead_is_refused_and_the_others_run_on(case: &Case<'_>) {
    let ([a, b, c], runs) = (case.processes().await, Runs::default());
    let (machines, (ahead, clock)) = ([job(case, &a, 1), job(case, &b, 1)], job(case, &c, 1 + YEAR));
    for tick in 1..=6 {
        machines.iter().for_each(|(_, clock)| clock.set(minute(tick)));
        clock.set(minute(tick + YEAR));
        let (first, second) =
            (&machines[usize::from(tick % 2 == 0)].0, &machines[usize::from(tick % 2 == 1)].0);
        assert_eq!(ran(first, tick, &runs).await, Outcome::Ran(Ok(())), "tick {tick}");
        for _call in 0..2 {
            let outcome = ran(&ahead, tick + YEAR, &runs).await;
            let Outcome::Doubted(run) = outcome else { panic!("{outcome:?}") };
            assert_eq!((run.tick, run.doubted), (minute(tick), vec![minute(tick + YEAR)]));
        }
        assert!(matches!(ran(second, tick, &runs).await, Outcome::AlreadyRan(_)), "tick {tick}");
    }
    // So many that the first one is not far from the last run, on a schedule with few ticks in a year.
    let loops = ahead.clone().missed(Missed::All(u32::MAX)).period(MINUTE * 1440);
    let daily = Interval::new(MINUTE * 1440).unwrap();
    let looping = loops.every(daily, |context, _| runs.run(context));
    assert!(timeout(MOMENT * 2, looping).await.is_err(), "the loop has ended");
    let ticks: Vec<_> = (1..=6).map(|tick| (minute(tick), 1)).collect();
    assert_eq!(runs.of(), ticks);
}

/// Nobody ran the job for so long that the first machine to come back is doubted. After three periods it runs again.
pub async fn machine_that_is_alone_after_a_long_pause_is_doubted_for_three_periods(case: &Case<'_>) {
    let (a, runs) = (case.process().await, Runs::default());
    let (job, clock) = job(case, &a, 1);
    assert_eq!(ran(&job, 1, &runs).await, Outcome::Ran(Ok(())));
    for tick in 0..3 {
        clock.set(minute(YEAR + tick));
        assert!(matches!(ran(&job, YEAR + tick, &runs).await, Outcome::Doubted(_)), "{tick}");
    }
    clock.set(minute(YEAR + 3));
    assert_eq!(ran(&job, YEAR + 3, &runs).await, Outcome::Ran(Ok(())));
    assert_eq!(job.last().await.unwrap().unwrap().doubted, []);
}

/// Nobody ran the job for a week, and two machines whose clocks are years ahead ask for it, too. The one that is right runs it.
pub async fn wrong_clocks_do_not_keep_a_right_one_from_running(case: &Case<'_>) {
    const WEEK: u64 = 7 * 1440;
    let ([a, b, c], runs) = (case.processes().await, Runs::default());
    let ((job_a, clock), wrong) =
        (job(case, &a, 1), [(job(case, &b, 1), YEAR), (job(case, &c, 1), 3 * YEAR)]);
    assert_eq!(ran(&job_a, 1, &runs).await, Outcome::Ran(Ok(())));
    let mut outcomes = Vec::new();
    for tick in WEEK..WEEK + 5 {
        for ((job, clock), ahead) in &wrong {
            clock.set(minute(tick + ahead));
            let outcome = ran(job, tick + ahead, &runs).await;
            assert!(matches!(outcome, Outcome::Doubted(_)), "{outcome:?} at {tick}");
        }
        clock.set(minute(tick));
        outcomes.push(matches!(ran(&job_a, tick, &runs).await, Outcome::Ran(_)));
    }
    assert_eq!(outcomes, [false, false, false, true, true]);
}

/// A period that is too short or too long is refused before anything is sent.
pub async fn bad_periods_are_refused(case: &Case<'_>) {
    let (a, runs) = (case.process().await, Runs::default());
    for period in
        [Duration::ZERO, Duration::from_micros(999), Duration::from_secs(367 * 86_400), Duration::MAX]
    {
        let job = job(case, &a, 1).0.period(period);
        let schedule = Interval::new(MINUTE).unwrap();
        let looped = job.every(schedule, |context, _| runs.run(context)).await.unwrap_err();
        for error in [looped, call(&job, 1, &runs).await.unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.to_string().contains(&format!("{period:?}")), "{error}");
        }
        assert_eq!(job.last().await.unwrap(), None);
    }
}

/// A client that holds the job's lock runs a tick once, although each call enters the lock again.
pub async fn job_inside_its_own_lock_runs_once(case: &Case<'_>) {
    let a = case.process().await;
    let job = job(case, &a, 1).0.attempts(2);
    let work = |_: JobContext| async {
        sleep(MOMENT).await;
        Ok::<_, Infallible>(())
    };
    let guard = a.client.mutex(job.path()).unwrap().acquire().await.unwrap();
    let both = async { tokio::join!(job.run(minute(1), work), job.run(minute(1), work)) };
    let (one, two) = guard.scope(both).await;
    let (one, two) = (one.unwrap(), two.unwrap());
    let is_one =
        |one: &Ran, other: &Ran| *one == Outcome::Ran(Ok(())) && matches!(other, Outcome::Running(_));
    assert!(is_one(&one, &two) || is_one(&two, &one), "{one:?} {two:?}");
    guard.release().await.unwrap();
}

/// A job is inside a hold that waiters of the client share a node with. The end of the run is the end of the hold, and their turn
/// follows.
pub async fn run_that_ends_a_shared_hold_passes_the_turn_on(case: &Case<'_>) {
    let a = case.process().await;
    let (job, _) = job(case, &a, 1);
    let mutex = a.client.mutex(job.path()).unwrap().with_handoff(Handoff::within(LONG));
    let outer = mutex.acquire().await.unwrap();
    let run = outer.scope(job.begin(minute(1))).await.unwrap().unwrap();
    let waits = mutex.clone();
    let waiter = tokio::spawn(async move { waits.acquire().await });
    sleep(MOMENT).await;
    outer.release().await.unwrap();
    run.done().await.unwrap();
    let next = timeout(LONG, waiter).await.expect("it waits for ever").unwrap().unwrap();
    assert!(next.is_held());
    next.release().await.unwrap();
    assert_eq!(job.last().await.unwrap().map(|run| run.state), Some(RunState::Done));
}

/// The record is text. Fields of later programs are kept, and other data is refused.
pub async fn record_is_text_with_room_for_more(case: &Case<'_>) {
    let (a, runs) = (case.process().await, Runs::default());
    let (job, clock) = job(case, &a, 1);
    assert_eq!(job.last().await.unwrap(), None);
    assert_eq!(ran(&job, 1, &runs).await, Outcome::Ran(Ok(())));
    let record = a.client.shared_value(job.record_path()).unwrap();
    let text = |data: Option<Vec<u8>>| String::from_utf8(data.unwrap()).unwrap();
    let now = text(record.get().await.unwrap().map(|value| value.data));
    let begin = format!("zlock job 1\ntick: {}\nstate: done\nattempt: 1\ntoken: ", minute(1));
    assert!(now.starts_with(&begin) && now.contains(&format!("\ndone: {}\n", minute(1))), "{now}");
    record.update(|data| Some([data.unwrap(), b"mood: good\n"].concat())).await.unwrap();
    clock.set(minute(2));
    assert_eq!(ran(&job, 2, &runs).await, Outcome::Ran(Ok(())));
    let now = text(record.get().await.unwrap().map(|value| value.data));
    assert!(now.ends_with("\nmood: good\n") && now.contains(&format!("tick: {}\n", minute(2))), "{now}");
    record.update(|_| Some(b"something else".into())).await.unwrap();
    let error = job.run(minute(3), |context| runs.run(context)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}

/// Runs `every` until it has made this many runs, and a moment longer.
async fn every(case: &Case<'_>, job: &RecurringJob, runs: &Runs, before: usize, more: usize) {
    let count = || runs.of().iter().map(|(_, runs)| runs).sum::<usize>();
    let schedule = Interval::new(MINUTE).unwrap();
    let looping = job.every(schedule, |context, _| runs.run(context));
    let looked = async {
        case.until("the runs", async || count() >= before + more).await;
        sleep(MOMENT).await;
    };
    tokio::select! {
        biased;
        ended = looping => panic!("{ended:?}"),
        () = looked => {}
    }
    assert_eq!(count(), before + more, "{:?}", runs.of());
}

/// After 1,000 ticks without any process: one run, none, or as many as `All` says, the last ones.
pub async fn missed_ticks_run_as_the_policy_says(case: &Case<'_>) {
    let (a, runs) = (case.process().await, Runs::default());
    let (job, clock) = job(case, &a, 1);
    // Without a record, nothing was missed.
    every(case, &job, &runs, 0, 0).await;
    assert_eq!(ran(&job, 1, &runs).await, Outcome::Ran(Ok(())));
    clock.set(minute(1001));
    every(case, &job.clone().missed(Missed::Skip), &runs, 1, 0).await;
    every(case, &job.clone().missed(Missed::All(3)), &runs, 1, 3).await;
    let ticks = [1, 999, 1000, 1001].map(|tick| (minute(tick), 1));
    assert_eq!(runs.of(), ticks);
    clock.set(minute(2001));
    every(case, &job.clone().starting_deadline(MINUTE / 2).missed(Missed::All(9)), &runs, 4, 1).await;
    clock.set(minute(3001));
    every(case, &job, &runs, 5, 1).await;
    assert_eq!(runs.of().last(), Some(&(minute(3001), 1)));
    // All of them have run: neither the same process nor another one runs any again.
    every(case, &job, &runs, 6, 0).await;
}

/// Of several ticks that were missed, each has its attempts, although later ones are due.
pub async fn each_missed_tick_has_its_attempts(case: &Case<'_>) {
    let (a, runs) = (case.process().await, Runs::default());
    let (job, clock) = job(case, &a, 1);
    assert_eq!(ran(&job, 1, &runs).await, Outcome::Ran(Ok(())));
    clock.set(minute(1001));
    let job = job.missed(Missed::All(3)).attempts(2);
    let (runs, schedule) = (&runs, Interval::new(MINUTE).unwrap());
    let looping = job.every(schedule, |context, _| async move {
        let attempt = context.attempt();
        let Ok(()) = runs.run(context).await;
        if attempt == 1 { Err("no disk") } else { Ok(()) }
    });
    let looked = async {
        let count = async || runs.of().iter().map(|(_, runs)| runs).sum::<usize>() >= 7;
        case.until("the runs", count).await;
        sleep(MOMENT).await;
    };
    tokio::select! {
        biased;
        ended = looping => panic!("{ended:?}"),
        () = looked => {}
    }
    assert_eq!(runs.of(), [(1, 1), (999, 2), (1000, 2), (1001, 2)].map(|(tick, runs)| (minute(tick), runs)));
}

/// Another process runs for so long that several ticks are due. The loop that waited for it runs what it would run after a pause.
pub async fn tick_that_had_to_wait_may_be_missed(case: &Case<'_>) {
    let ([a, b], runs) = (case.processes().await, Runs::default());
    let ((on_a, _), (on_b, clock)) = (job(case, &a, 2), job(case, &b, 3));
    let work = on_a.run(minute(2), |_| async {
        let waits = async || case.store.names(on_a.path()).await.len() == 2;
        case.until("the other one waits", waits).await;
        clock.set(minute(5));
        Ok::<_, Infallible>(())
    });
    let next = async {
        case.until("the first one runs", async || on_b.last().await.unwrap().is_some()).await;
        every(case, &on_b, &runs, 0, 1).await;
    };
    let (outcome, ()) = tokio::join!(work, next);
    assert_eq!(outcome.unwrap(), Outcome::Ran(Ok(())));
    assert_eq!(runs.of(), [(minute(5), 1)]);
}

/// A loop that waits for its next tick ends when the client shuts down, and when it is closed.
pub async fn loop_ends_with_its_client(case: &Case<'_>) {
    for (shuts_down, kind) in [(true, ErrorKind::ShuttingDown), (false, ErrorKind::Closed)] {
        let (a, runs) = (case.process().await, Runs::default());
        let (job, _clock) = job(case, &a, 1);
        let (schedule, began) = (Interval::new(60 * MINUTE).unwrap(), Instant::now());
        let end = async {
            sleep(MOMENT).await;
            if shuts_down {
                a.client.shutdown(MOMENT).await.unwrap();
            } else {
                a.client.close().await.unwrap();
            }
        };
        let (ended, ()) = tokio::join!(job.every(schedule, |context, _| runs.run(context)), end);
        assert_eq!(ended.unwrap_err().kind(), kind);
        assert!(began.elapsed() < MINUTE / 2, "{:?}", began.elapsed());
    }
}

/// An operator empties the record while the job runs. The loop knows that it has run the tick.
pub async fn record_that_is_emptied_during_a_run_does_not_repeat_it(case: &Case<'_>) {
    let (a, runs) = (case.process().await, Runs::default());
    let (job, clock) = job(case, &a, 1);
    assert_eq!(ran(&job, 1, &runs).await, Outcome::Ran(Ok(())));
    clock.set(minute(2));
    let record = a.client.shared_value(job.record_path()).unwrap();
    let work = async |context: JobContext, _| {
        record.update(|_| Some(Vec::new())).await.unwrap();
        runs.run(context).await
    };
    let looked = async {
        case.until("the run", async || runs.of().len() == 2).await;
        // The first pause after a failure is shorter.
        sleep(MOMENT * 10).await;
    };
    tokio::select! {
        biased;
        ended = job.every(Interval::new(MINUTE).unwrap(), work) => panic!("{ended:?}"),
        () = looked => {}
    }
    assert_eq!(runs.of(), [(minute(1), 1), (minute(2), 1)]);
}

/// A run panics. That counts as a failure: the loop goes on, with another attempt.
pub async fn panic_is_a_failure(case: &Case<'_>) {
    let (a, runs) = (case.process().await, Runs::default());
    let (job, clock) = job(case, &a, 1);
    assert_eq!(ran(&job, 1, &runs).await, Outcome::Ran(Ok(())));
    clock.set(minute(2));
    let job = job.attempts(2);
    let work = async |context: JobContext, _| {
        assert_eq!(context.attempt(), 2, "the first attempt panics");
        runs.run(context).await
    };
    let has_ended = async || job.last().await.unwrap().is_some_and(|run| run.last_done == Some(minute(2)));
    tokio::select! {
        biased;
        ended = job.every(Interval::new(MINUTE).unwrap(), work) => panic!("{ended:?}"),
        () = case.until("the second attempt is recorded", has_ended) => {}
    }
    assert_eq!(runs.of(), [(minute(1), 1), (minute(2), 1)]);
}

/// A schedule of one tick, which it returns however late it is.
#[derive(Debug)]
struct OnlyOnce;

impl Schedule for OnlyOnce {
    fn next(&self, _after: Tick) -> Option<Tick> {
        Some(minute(2))
    }
}

/// A schedule that returns a tick which is not later has no more ticks.
pub async fn tick_that_is_not_later_ends_the_loop(case: &Case<'_>) {
    let (a, runs) = (case.process().await, Runs::default());
    let (job, clock) = job(case, &a, 1);
    assert_eq!(ran(&job, 1, &runs).await, Outcome::Ran(Ok(())));
    clock.set(minute(3));
    job.every(OnlyOnce, |context, _| runs.run(context)).await.unwrap();
    assert_eq!(runs.of(), [(minute(1), 1), (minute(2), 1)]);
}

/// The lock of a run is lost in an outage. A shutdown during the outage does not wait for the run.
pub async fn lost_run_does_not_hold_up_a_shutdown(case: &Case<'_>) {
    let a = case.process().await;
    let (job, clock) = job(case, &a, 1);
    assert_eq!(ran(&job, 1, &Runs::default()).await, Outcome::Ran(Ok(())));
    clock.set(minute(2));
    let (begun, begins) = oneshot::channel();
    let mut begun = Some(begun);
    let looping = tokio::spawn(async move {
        let work = |context: JobContext, _| {
            if let Some(begun) = begun.take() {
                begun.send(context).unwrap();
            }
            pending::<std::result::Result<(), Infallible>>()
        };
        job.every(Interval::new(MINUTE).unwrap(), work).await
    });
    let run = begins.await.unwrap();
    case.links().freeze(&a.connection).await;
    run.lost().await;
    let outcome = timeout(LONG, a.client.shutdown(3 * LONG)).await.expect("the shutdown waits").unwrap();
    assert_eq!(outcome.still_held, 0);
    let ended = looping.await.unwrap().unwrap_err();
    assert!(matches!(ended.kind(), ErrorKind::ShuttingDown | ErrorKind::Closed), "{ended}");
    case.links().heal(&a.connection).await;
}

/// The loop moves from one process to another and back. No tick is run twice.
pub async fn no_tick_is_replayed_when_the_runner_changes(case: &Case<'_>) {
    let ([a, b], runs) = (case.processes().await, Runs::default());
    let ((on_a, clock_a), (on_b, clock_b)) = (job(case, &a, 1), job(case, &b, 1));
    assert_eq!(ran(&on_a, 1, &runs).await, Outcome::Ran(Ok(())));
    for (n, job) in [&on_a, &on_b, &on_a, &on_b].into_iter().enumerate() {
        let tick = u64::try_from(n).unwrap() + 2;
        clock_a.set(minute(tick));
        clock_b.set(minute(tick));
        // Whatever it took for missed would be run.
        every(case, &job.clone().missed(Missed::All(9)), &runs, n + 1, 1).await;
    }
    let expected: Vec<_> = (1..=5).map(|tick| (minute(tick), 1)).collect();
    assert_eq!(runs.of(), expected);
}

/// The clock is set back by an hour: nothing runs again, the loop does not spin, and it goes on when the clock has caught up.
pub async fn clock_that_is_set_back_runs_nothing_again(case: &Case<'_>) {
    let (a, runs) = (case.process().await, Runs::default());
    let (job, clock) = job(case, &a, 60);
    assert_eq!(ran(&job, 60, &runs).await, Outcome::Ran(Ok(())));
    clock.set(minute(0));
    let looks = clock.looks.load(Ordering::SeqCst);
    every(case, &job, &runs, 1, 0).await;
    assert!(matches!(ran(&job, 1, &runs).await, Outcome::AlreadyRan(_)));
    let looks = clock.looks.load(Ordering::SeqCst) - looks;
    assert!(looks < 20, "the loop looked {looks} times at the clock");
    clock.set(minute(61));
    every(case, &job, &runs, 1, 1).await;
    assert_eq!(runs.of(), [(minute(60), 1), (minute(61), 1)]);
}

/// An attempt fails while other machines wait for it in their loops. They pause, too, so that what the job needs has time to recover.
pub async fn failed_attempt_is_followed_by_a_pause_on_all_machines(case: &Case<'_>) {
    let ([a, b, c], runs) = (case.processes().await, Runs::default());
    let machines = [&a, &b, &c].map(|process| job(case, process, 2).0.attempts(3));
    assert_eq!(ran(&machines[0], 1, &runs).await, Outcome::Ran(Ok(())));
    let began = Mutex::new(Vec::new());
    let fails = async |_: JobContext, _| {
        lock(&began).push(Instant::now());
        sleep(MOMENT).await;
        Err::<(), _>("it fails")
    };
    let loops = join_all(machines.iter().map(|job| job.every(Interval::new(MINUTE).unwrap(), fails)));
    let all = case.until("all attempts are used up", async || {
        let last = machines[0].last().await.unwrap().unwrap();
        (last.attempt, last.state) == (3, RunState::Failed)
    });
    tokio::select! {
        biased;
        ended = loops => panic!("{ended:?}"),
        () = all => {}
    }
    let gaps: Vec<_> = lock(&began).windows(2).map(|two| two[1] - two[0]).collect();
    assert_eq!(gaps.len(), 2, "{gaps:?}");
    assert!(gaps.iter().all(|gap| *gap >= MOMENT + Duration::from_millis(500)), "{gaps:?}");
}

/// The closure itself runs in the scope of the lock, not only the future that it returns.
pub async fn closure_runs_in_the_scope_of_the_lock(case: &Case<'_>) {
    let a = case.process().await;
    let (job, _clock) = job(case, &a, 1);
    let lock = a.client.mutex(job.path()).unwrap();
    let enter_again = |_| {
        let scope = Scope::current();
        async move { scope.scope(lock.acquire_timeout(LONG)).await?.release().await }
    };
    let outcome = timeout(LONG, job.run(minute(1), enter_again)).await.unwrap().unwrap();
    assert!(matches!(outcome, Outcome::Ran(Ok(_))), "{outcome:?}");
}

/// An attempt fails after the next ticks were due. With `Missed::All`, the machine that waited for it makes the next attempts at the
/// tick before it goes on.
pub async fn late_failure_leaves_the_other_attempts(case: &Case<'_>) {
    let ([a, b], runs) = (case.processes().await, Runs::default());
    let ((on_a, _), (on_b, clock)) = (job(case, &a, 2), job(case, &b, 2));
    let (on_a, on_b) = (on_a.attempts(2), on_b.attempts(2).missed(Missed::All(3)));
    assert_eq!(ran(&on_a, 1, &runs).await, Outcome::Ran(Ok(())));
    let work = on_a.run(minute(2), |_| async {
        let waits = async || case.store.names(on_a.path()).await.len() == 2;
        case.until("the other one waits", waits).await;
        clock.set(minute(4));
        Err::<(), _>("it fails")
    });
    let taken_over = async {
        let runs_on_a = async || on_b.last().await.unwrap().unwrap().tick == minute(2);
        case.until("the first one runs", runs_on_a).await;
        every(case, &on_b, &runs, 1, 3).await;
    };
    let (failed, ()) = tokio::join!(work, taken_over);
    assert_eq!(failed.unwrap(), Outcome::Ran(Err("it fails")));
    assert_eq!(runs.of(), [1, 2, 3, 4].map(|tick| (minute(tick), 1)));
}

/// A process waits in its loop for the run of another one, and takes over if that dies.
pub async fn loop_takes_over_from_a_dead_process(case: &Case<'_>) {
    let ([a, b], runs) = (case.processes().await, Runs::default());
    let ((on_a, _), (on_b, clock)) = (job(case, &a, 2), job(case, &b, 2));
    assert_eq!(ran(&on_b, 1, &runs).await, Outcome::Ran(Ok(())));
    clock.set(minute(2));
    let on_b = on_b.attempts(2);
    let began = Instant::now();
    let work = on_a.run(minute(2), |_| async {
        // The other one waits for this one by now.
        sleep(MOMENT).await;
        case.store.expire(&a.connection).await;
        pending::<std::result::Result<(), Infallible>>().await
    });
    let ((), lost) = tokio::join!(
        async {
            let runs_on_a = async || on_b.last().await.unwrap().unwrap().tick == minute(2);
            case.until("the other one runs", runs_on_a).await;
            every(case, &on_b, &runs, 1, 1).await;
        },
        work
    );
    assert!(lost.unwrap_err().is_lock_lost());
    assert!(began.elapsed() < MINUTE, "it waited for the next tick");
    let last = on_b.last().await.unwrap().unwrap();
    assert_eq!((last.state, last.attempt), (RunState::Done, 2));
}

/// Sets its flag when the work is dropped or has ended.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The process that runs the job is cut off. Its closure is cancelled before another process begins the tick again.
pub async fn run_that_is_cut_off_is_cancelled_before_another_begins(case: &Case<'_>) {
    let ([a, b], ended) = (case.processes().await, AtomicBool::new(false));
    let (on_a, on_b) = (job(case, &a, 1).0, job(case, &b, 1).0.attempts(2));
    let ended = &ended;
    let cut_off = on_a.run(minute(1), |_| async {
        let _ended = Ended(ended);
        case.links().cut(&a.connection).await;
        pending::<std::result::Result<(), Infallible>>().await
    });
    let next = async {
        case.until("the first one runs", async || on_b.last().await.unwrap().is_some()).await;
        let run = async || {
            let outcome =
                on_b.run(minute(1), |_| async { Ok::<_, Infallible>(ended.load(Ordering::SeqCst)) }).await;
            match outcome.unwrap() {
                Outcome::Ran(Ok(was_ended)) => {
                    assert!(was_ended, "two run at the same time");
                    true
                }
                Outcome::Running(_) => false,
                other => panic!("{other:?}"),
            }
        };
        case.until("the second one runs", run).await;
        case.links().heal(&a.connection).await;
    };
    let (outcome, ()) = tokio::join!(cut_off, next);
    let error = outcome.unwrap_err();
    assert!(error.is_lock_lost(), "{error}");
}

/// The answers to the end of the run are lost: the run has ended, once, and the next call finds that.
pub async fn lost_answer_to_the_end_changes_nothing(case: &Case<'_>) {
    let ([a, b], runs) = (case.processes().await, Runs::default());
    let (on_a, on_b) = (job(case, &a, 1).0.attempts(3), job(case, &b, 1).0.attempts(3));
    let run = on_a.run(minute(1), |context| async {
        let result = runs.run(context).await;
        case.links().mute(&a.connection).await;
        result
    });
    let heal = async {
        let is_done = async || on_b.last().await.unwrap().is_some_and(|run| run.state == RunState::Done);
        case.until("the record says that it is done", is_done).await;
        case.links().heal(&a.connection).await;
    };
    let (outcome, ()) = tokio::join!(run, heal);
    assert_eq!(outcome.unwrap(), Outcome::Ran(Ok(())));
    for job in [&on_a, &on_b] {
        assert!(matches!(ran(job, 1, &runs).await, Outcome::AlreadyRan(_)));
    }
    assert_eq!(runs.of(), [(minute(1), 1)]);
}

/// Answers are lost at every moment of a run, those to claims among them: each tick runs once, not never and not twice.
pub async fn lost_answers_to_claims_change_nothing(case: &Case<'_>) {
    let ([a, b], runs) = (case.processes().await, Runs::default());
    let ((on_a, clock), (on_b, _)) = (job(case, &a, 0), job(case, &b, 100));
    let mut errors = 0;
    for tick in 1..=30 {
        clock.set(minute(tick));
        let fault = async {
            sleep(Duration::from_millis(tick % 15)).await;
            case.links().mute(&a.connection).await;
            sleep(Duration::from_millis(40)).await;
            case.links().heal(&a.connection).await;
        };
        let (outcome, ()) = tokio::join!(call(&on_a, tick, &runs), fault);
        match outcome {
            Ok(outcome) => assert_eq!(outcome, Outcome::Ran(Ok(())), "tick {tick}"),
            Err(error) => {
                assert!(error.is_retryable() && !case.paused, "{error}");
                errors += 1;
                continue;
            }
        }
        assert!(matches!(ran(&on_b, tick, &runs).await, Outcome::AlreadyRan(_)), "tick {tick}");
    }
    ran_once(&runs, 30, errors);
}
