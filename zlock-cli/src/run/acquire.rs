//! Acquires the lock.

use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep, timeout_at};
use zlock::job::{Clock as _, JobRun, Outcome, RecurringJob, Run as LastRun, RunState, SystemClock, Tick};
use zlock::{
    Client, Error, ErrorKind, Guard, LeaderContext, Lock, LockContext, LockPath, Membership, SessionTerms,
};

use super::grace::Grace;
use super::log::Log;
use crate::args::{MembershipArgs, Run};
use crate::exit::Failure;
use crate::store::{Store, Target};

/// The time between two attempts to connect, for what begins again after each loss.
const PAUSE: Duration = Duration::from_secs(1);

/// Connects. A candidate and a member try until they succeed, and others as long as they may wait for the lock.
pub(super) async fn connect(
    args: &Run,
    target: &Target,
    since: Instant,
    log: &mut Log,
) -> Result<Store, Failure> {
    loop {
        let left = args.wait.map(|wait| wait.saturating_sub(since.elapsed()));
        let connected = match left.filter(|left| !left.is_zero()) {
            None => target.connect().await,
            Some(left) => target.clone().within(tenths(left)).connect().await,
        };
        let waits = || args.begins_again() || args.wait.is_some_and(|wait| since.elapsed() + PAUSE < wait);
        match connected {
            Err(error) if error.kind() == ErrorKind::Unavailable && waits() => {
                log.say(format!("{error}; retrying"));
                sleep(PAUSE).await;
            }
            connected => return Ok(connected?),
        }
    }
}

/// Rounds up to tenths of a second, since an error shows the time.
fn tenths(time: Duration) -> Duration {
    const TENTH: Duration = Duration::from_millis(100);
    TENTH * u32::try_from(time.as_nanos().div_ceil(TENTH.as_nanos())).unwrap_or(u32::MAX)
}

/// What the keeper holds while the command runs.
#[derive(Debug)]
pub(super) enum Held {
    Lock(Guard),
    /// A term as the leader.
    Term(Guard, LeaderContext),
    /// A claimed tick or key.
    Job(Box<JobRun>),
    /// A membership in a group.
    Member(Membership),
}

impl Held {
    /// Returns the lock. `None` for a membership, which is none.
    pub(super) fn lock(&self) -> Option<&LockContext> {
        match self {
            Held::Lock(guard) | Held::Term(guard, _) => Some(guard),
            Held::Job(run) => Some(run),
            Held::Member(_) => None,
        }
    }

    pub(super) fn path(&self) -> &LockPath {
        match self {
            Held::Lock(guard) | Held::Term(guard, _) => guard.path(),
            Held::Job(run) => run.path(),
            Held::Member(member) => member.path(),
        }
    }

    pub(super) fn is_held(&self) -> bool {
        match self {
            Held::Lock(guard) | Held::Term(guard, _) => guard.is_held(),
            Held::Job(run) => run.is_held(),
            Held::Member(member) => member.is_registered(),
        }
    }

    /// Waits until it is lost.
    pub(super) async fn lost(&self) -> Error {
        match self {
            Held::Lock(guard) | Held::Term(guard, _) => guard.lost().await,
            Held::Job(run) => run.lost().await,
            Held::Member(member) => member.lost().await,
        }
    }

    /// Waits until the lock lasts for long enough to start a command, for at most one session timeout. The deadline of a new
    /// session moves on once some heartbeats are answered, and servers may answer late.
    pub(super) async fn lasts(&self, store: &Store, grace: Grace) {
        let (session, timeout) = (store.session_events(), store.terms.timeout);
        let lasts = async {
            while session.current().slack().is_some_and(|left| !grace.permits_start(left)) {
                sleep(timeout / 100).await;
            }
        };
        tokio::select! {
            biased;
            () = lasts => {}
            _ = self.lost() => {}
            () = sleep(timeout) => {}
        }
    }

    /// Waits until somebody asks for it. A member is never asked.
    pub(super) async fn asked(&self) -> zlock::Result<()> {
        match self {
            Held::Lock(guard) => guard.revocation_requested().await,
            Held::Term(_, leader) => leader.step_down_requested().await,
            Held::Job(run) => run.revocation_requested().await,
            Held::Member(_) => std::future::pending().await,
        }
    }
}

/// Acquires the lock, and claims the tick or the key if the command line names one. Or joins a group.
pub(super) async fn hold(
    args: &Run,
    client: &Client,
    terms: SessionTerms,
    since: Instant,
    tick: Option<Tick>,
    log: &mut Log,
) -> Result<Held, Failure> {
    if let Some(membership) = &args.membership {
        // After a loss, this client's own last session may still have the ID.
        let patience = if args.is_again { 2 * terms.timeout } else { Duration::ZERO };
        return join(args, membership, client, Instant::now() + patience, log).await;
    }
    match (args.tick.zip(tick), &args.once) {
        (Some((period, tick)), _) => {
            let job = client.recurring_job(&args.name)?.period(period);
            claim(args, job, tick).await
        }
        (None, Some(key)) => {
            // Not below the lock of the same name.
            let job = client.recurring_job(format!("{}.once/{key}", args.name))?;
            claim(args, job, Tick::at(SystemTime::UNIX_EPOCH)).await
        }
        (None, None) => acquire(args, client, since, log).await,
    }
}

/// Returns the tick that is nearest to now. Warns if another one is nearly as near, which other machines' clocks may name.
pub(super) fn nearest(period: Duration, log: &mut Log) -> Result<Tick, Failure> {
    let now = SystemClock.now();
    let tick = Tick::nearest(now, period)?;
    let distance = now.duration_since(tick.time()).unwrap_or_else(|early| early.duration());
    if distance > period * 2 / 5 {
        log.say(format!(
            "--tick: the nearest tick, {tick}, is {distance:.0?} away, and the next one hardly further: another machine may \
             name that. Start the command near the ticks, which are the multiples of {period:?} since 1970, in UTC"
        ));
    }
    Ok(tick)
}

/// Joins the group once the ID is free. With `--no-wait`, waits no longer than `until`.
///
/// A member that took its ID over replaces nobody after a loss, and waits no longer, either: two of them would end each other for ever.
async fn join(
    args: &Run,
    membership: &MembershipArgs,
    client: &Client,
    until: Instant,
    log: &mut Log,
) -> Result<Held, Failure> {
    let (group, MembershipArgs { id, payload, take_over }) = (client.members(&args.name)?, membership);
    let was_lost = *take_over && args.is_again;
    let gives_up = args.no_wait || was_lost;
    loop {
        let payload = payload.as_ref().map_or_else(Vec::new, |payload| payload.as_bytes().to_vec());
        let joined = if *take_over && !was_lost {
            group.take_over(id, payload).await
        } else {
            group.join(id, payload).await
        };
        match joined {
            Ok(member) => return Ok(Held::Member(member)),
            Err(error) if error.kind() == ErrorKind::Taken && gives_up && Instant::now() >= until => {
                let code = if was_lost { crate::exit::LOST } else { crate::exit::BUSY };
                return Err(Failure::new(code, error.to_string()));
            }
            Err(error) if error.kind() == ErrorKind::Taken => {
                let mut watch = group.watch();
                let left = async {
                    if watch.changed().await?.get(id).is_none() {
                        // The member has left, or the node belongs to no session: then no view ever shows it.
                        log.say(format!("{error}; retrying"));
                        sleep(PAUSE).await;
                        return Ok::<_, Error>(());
                    }
                    while watch.changed().await?.get(id).is_some() {}
                    Ok(())
                };
                if !gives_up {
                    left.await?;
                } else if let Ok(left) = timeout_at(until, left).await {
                    left?;
                }
            }
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Unavailable | ErrorKind::Settling | ErrorKind::SessionLost
                ) =>
            {
                sleep(PAUSE).await
            }
            Err(error) => return Err(error.into()),
        }
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
    let begun = loop {
        match job.begin(tick).await {
            // Nobody runs it.
            Err(error) if error.kind() == ErrorKind::Settling => sleep(PAUSE).await,
            begun => break begun,
        }
    };
    match begun {
        Ok(Ok(run)) => Ok(Held::Job(Box::new(run))),
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
        Ok(Err(Outcome::Doubted(run))) => {
            let message =
                "so much later than the last one that this machine's clock may be wrong, and not run";
            let until = "if nobody runs the job, a call after three periods does";
            Err(Failure::failed(format!("{what} is {message}; the last one is {}; {until}", run.tick)))
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
async fn acquire(args: &Run, client: &Client, since: Instant, log: &mut Log) -> Result<Held, Failure> {
    let path = &args.name;
    if let Some(candidacy) = &args.candidacy {
        let mut election = client.election(path)?;
        if let Some(value) = &candidacy.value {
            election = election.with_value(value.as_bytes())?;
        }
        let led = within(&election, args, since, log).await?;
        let leader = led.context();
        return Ok(Held::Term(led.into(), leader));
    }
    let guard = match args.permits {
        Some((n, max)) => within(&client.semaphore(path, max)?.permits(n)?, args, since, log).await,
        None if args.shared => within(&client.read_write_lock(path)?.read(), args, since, log).await,
        None => within(&client.mutex(path)?, args, since, log).await,
    };
    Ok(Held::Lock(guard?))
}

/// Acquires the lock within the time to wait. Until then, it tries again if the store does not answer.
async fn within<L: Lock>(lock: &L, args: &Run, since: Instant, log: &mut Log) -> Result<L::Guard, Failure> {
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
                // Nobody holds it, so a crontab with --no-wait must not skip its run.
                ErrorKind::Settling if left.is_none_or(|left| left.is_zero() || left > PAUSE) => {
                    log.say(format!("{error}; retrying"));
                    sleep(PAUSE).await;
                }
                ErrorKind::Unavailable if !args.no_wait && left.is_none_or(|left| left > PAUSE) => {
                    log.say(format!("{error}; retrying"));
                    sleep(PAUSE).await;
                }
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
