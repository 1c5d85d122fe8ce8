//! A time limit for every test: lock bugs hang.

use std::future::Future;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use crate::policy::test_name;

/// The default time limit of a test.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(60);

/// The additional time for a test that blocks its runtime, before the whole process is aborted.
const GRACE: Duration = Duration::from_secs(30);

/// Runs a test's body within [`DEFAULT_LIMIT`].
///
/// # Panics
/// Panics when the time limit passes.
pub async fn limit<T>(body: impl Future<Output = T>) -> T {
    limit_to(DEFAULT_LIMIT, body).await
}

/// Runs a test's body within [`DEFAULT_LIMIT`] if what it needs is there, and skips it otherwise: `limit_if(have_etcd(), ..)`.
///
/// # Panics
/// Panics when the time limit passes.
pub async fn limit_if(is_there: bool, body: impl Future<Output = ()>) {
    limit_to_if(DEFAULT_LIMIT, is_there, body).await;
}

/// Like [`limit_if`], within `time`.
///
/// # Panics
/// See [`limit_to`].
pub async fn limit_to_if(time: Duration, is_there: bool, body: impl Future<Output = ()>) {
    if is_there {
        limit_to(time, body).await;
    }
}

/// Runs a test's body within `time`. In paused time, a test without anything to wait for fails at once.
///
/// # Panics
/// Panics when the time limit passes. A body that blocks its runtime cannot be interrupted: half a minute later, the whole
/// test process is aborted.
pub async fn limit_to<T>(time: Duration, body: impl Future<Output = T>) -> T {
    let (done, watch) = channel::<()>();
    let name = test_name();
    std::thread::spawn(move || {
        if watch.recv_timeout(time + GRACE) == Err(RecvTimeoutError::Timeout) {
            crate::notice::say(&format!("test {name} blocks its runtime for more than {time:?}: aborting"));
            std::process::abort();
        }
    });
    let result = tokio::time::timeout(time, body).await;
    drop(done);
    match result {
        Ok(output) => output,
        Err(_) => panic!("the test did not end within {time:?}"),
    }
}
