//! Acquires the lock.

use std::time::Duration;

use tokio::time::Instant;
use zlock::{Client, ErrorKind, Guard, Lock, LockPath};

use crate::args::Run;
use crate::exit::Failure;
use crate::store::{Store, Target};

/// Connects within the time limit for the lock.
pub(super) async fn connect(args: &Run, target: &Target) -> Result<Store, Failure> {
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
pub(super) async fn acquire(args: &Run, client: &Client, since: Instant) -> Result<Guard, Failure> {
    let path = &args.name;
    match args.permits {
        Some((n, max)) => within(&client.semaphore(path, max)?.permits(n)?, args, since).await,
        None if args.shared => within(&client.read_write_lock(path)?.read(), args, since).await,
        None => within(&client.mutex(path)?, args, since).await,
    }
}

async fn within<L: Lock<Guard = Guard>>(lock: &L, args: &Run, since: Instant) -> Result<Guard, Failure> {
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
