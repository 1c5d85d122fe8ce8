//! Acquires the lock.

use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use zlock::{Client, ErrorKind, Guard, LeaderContext, Lock, LockPath};

use super::log::Log;
use crate::args::Run;
use crate::exit::Failure;
use crate::store::{Store, Target};

/// The time between two attempts of a candidate to connect.
const PAUSE: Duration = Duration::from_secs(1);

/// A held lock.
pub(super) struct Acquired {
    pub(super) guard: Guard,
    /// Set for an election.
    pub(super) leader: Option<LeaderContext>,
}

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

/// Acquires the lock that the command line selects.
///
/// # Errors
/// Fails with the exit code for a busy lock only if another client holds it. A store that does not respond is a failure
/// of zlock.
pub(super) async fn acquire(args: &Run, client: &Client, since: Instant) -> Result<Acquired, Failure> {
    let path = &args.name;
    if let Some(candidacy) = &args.candidacy {
        let mut election = client.election(path)?;
        if let Some(value) = &candidacy.value {
            election = election.with_value(value.as_bytes())?;
        }
        let led = within(&election, args, since).await?;
        let leader = Some(led.context());
        return Ok(Acquired { guard: led.into(), leader });
    }
    let guard = match args.permits {
        Some((n, max)) => within(&client.semaphore(path, max)?.permits(n)?, args, since).await,
        None if args.shared => within(&client.read_write_lock(path)?.read(), args, since).await,
        None => within(&client.mutex(path)?, args, since).await,
    };
    Ok(Acquired { guard: guard?, leader: None })
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
fn busy(args: &Run, path: &LockPath) -> Failure {
    let is_expected = args.on_busy != crate::exit::BUSY;
    let message = if is_expected { String::new() } else { format!("{path}: another client holds the lock") };
    Failure::new(args.on_busy, message)
}
