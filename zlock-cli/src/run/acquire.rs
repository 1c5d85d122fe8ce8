//! Acquires the lock.

use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep};
use zlock::job::{Clock as _, JobRun, Outcome, RecurringJob, Run as LastRun, RunState, SystemClock, Tick};
use zlock::{Client, ErrorKind, Guard, LeaderContext, Lock, LockPath};

use super::log::Log;
use crate::args::Run;
use crate::exit::Failure;
use crate::store::{Store, Target};

/// The time between two attempts of a candidate to connect.
const PAUSE: Duration = Duration::from_secs(1);

/// Connects within the time limit for the lock. A candidate tries until it succeeds.
pub(super) async fn connect(args: &Run, target: &Target, log: &mut Log) -> Result<Store, Failure> {
    while args.candidacy.is_some() {
        match target.connect().await {
            Err(error) if error.kind() == ErrorKind::Unavailable => log.say(format!("{error}; retrying")),
            connected => return Ok(connected?),
        }
        sleep(PAUSE).await;
    }
    match args.wait.filter(|wait| !wait.is_zero()) {
        None => Ok(target.connect().await?),
        Some(wait) => Ok(target.clone().within(wait).connect().await?),
    }
}

/// What the keeper holds while the command runs.
#[derive(Debug)]
pub(super) enum Held {
    Lock(Guard),
    /// A term as the leader.
    Term(Guard, LeaderContext),
    /// A claimed tick or key.
    Job(JobRun),
}

impl Held {
    pub(super) fn guard(&self) -> &Guard {
        match self {
            Held::Lock(guard) | Held::Term(guard, _) => guard,
            Held::Job(run) => run,
        }
    }

    pub(super) fn leader(&self) -> Option<&LeaderContext> {
        match self {
            Held::Term(_, leader) => Some(leader),
            Held::Lock(_) | Held::Job(_) => None,
        }
    }
}

/// Acquires the lock, and claims the tick or the key if the command line names one.
pub(super) async fn hold(args: &Run, client: &Client, since: Instant) -> Result<Held, Failure> {
    match (args.tick, &args.once) {
        (Some(period), _) => {
            let job = client.recurring_job(&args.name)?.period(period);
            claim(args, job, Tick::nearest(SystemClock.now(), period)?).await
        }
        (None, Some(key)) => {
            // Not below the lock of the same name.
            let job = client.recurring_job(format!("{}.once/{key}", args.name))?;
            claim(args, job, Tick::at(SystemTime::UNIX_EPOCH)).await
        }
        (None, None) => acquire(args, client, since).await,
    }
}

async fn claim(args: &Run, job: RecurringJob, tick: Tick) -> Result<Held, Failure> {
    let job = job.attempts(args.attempts);
    let path = job.path();
    let what = match &args.once {
        None => format!("{path}: the tick {tick}"),
        Some(_) => path.to_string(),
    };
    let by = |run: &LastRun| format!("on {} since {}", run.by, run.since);
    match job.begin(tick).await {
        Ok(Ok(run)) => Ok(Held::Job(run)),
        Ok(Err(Outcome::Running(run))) => {
            let message = format!("{what} is running {}", by(&run));
            Err(unless_expected(args.on_busy, crate::exit::BUSY, message))
        }
        Ok(Err(Outcome::GaveUp(run))) => {
            let has = if run.state == RunState::Failed { "has failed" } else { "has begun and not ended" };
            let (attempt, by) = (run.attempt, by(&run));
            Err(Failure::failed(format!("{what} {has}, attempt {attempt} {by}; no attempts are left")))
        }
        Ok(Err(Outcome::AlreadyRan(run))) => {
            let message = format!("{what} has run already, {}", by(&run));
            Err(unless_expected(args.on_done, crate::exit::DONE, message))
        }
        Ok(Err(_)) => Err(Failure::failed(format!("{what}: an unknown outcome"))),
        Err(error) if error.kind() == ErrorKind::Busy => Err(busy(args, path)),
        Err(error) => Err(error.into()),
    }
}

/// Returns the failure with a code that a script may expect. If it sets another one than the default, there is no message.
fn unless_expected(code: u8, default: u8, message: String) -> Failure {
    Failure::new(code, if code == default { message } else { String::new() })
}

/// Acquires the lock that the command line selects.
///
/// # Errors
/// Fails with the exit code for a busy lock only if another client holds it. A store that does not respond is a failure
/// of zlock.
async fn acquire(args: &Run, client: &Client, since: Instant) -> Result<Held, Failure> {
    let path = &args.name;
    if let Some(candidacy) = &args.candidacy {
        let mut election = client.election(path)?;
        if let Some(value) = &candidacy.value {
            election = election.with_value(value.as_bytes())?;
        }
        let led = within(&election, args, since).await?;
        let leader = led.context();
        return Ok(Held::Term(led.into(), leader));
    }
    let guard = match args.permits {
        Some((n, max)) => within(&client.semaphore(path, max)?.permits(n)?, args, since).await,
        None if args.shared => within(&client.read_write_lock(path)?.read(), args, since).await,
        None => within(&client.mutex(path)?, args, since).await,
    };
    Ok(Held::Lock(guard?))
}

async fn within<L: Lock>(lock: &L, args: &Run, since: Instant) -> Result<L::Guard, Failure> {
    loop {
        let left = args.wait.map(|wait| wait.saturating_sub(since.elapsed()));
        let acquired = match left {
            _ if args.no_wait => lock.try_acquire().await,
            None => lock.acquire().await.map(Some),
            Some(Duration::ZERO) => lock.try_acquire().await,
            Some(left) => lock.acquire_timeout(left).await.map(Some),
        };
        match acquired {
            Ok(Some(guard)) => return Ok(guard),
            Ok(None) => return Err(busy(args, &args.name)),
            Err(error) => match error.kind() {
                ErrorKind::Busy => return Err(busy(args, &args.name)),
                // The place in the queue is lost: join the queue again.
                ErrorKind::SessionLost | ErrorKind::NodeDeleted => {}
                ErrorKind::Unavailable if args.candidacy.is_some() => {}
                _ => return Err(error.into()),
            },
        }
    }
}

/// Returns the failure for a busy lock. A script that sets `--on-busy` expects it, so there is no message.
pub(super) fn busy(args: &Run, path: &LockPath) -> Failure {
    let message = format!("{path}: another client holds the lock");
    unless_expected(args.on_busy, crate::exit::BUSY, message)
}
