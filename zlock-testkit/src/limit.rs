//! A time limit for every test: lock bugs hang.

use std::future::Future;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use crate::policy::test_name;

/// The time a test has unless it asks for another.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(60);

/// What a test that blocks its runtime gets on top before the whole process is ended.
const GRACE: Duration = Duration::from_secs(30);

/// Runs a test's body within [`DEFAULT_LIMIT`].
///
/// # Panics
/// When the time is over.
pub async fn limit<T>(body: impl Future<Output = T>) -> T {
    limit_to(DEFAULT_LIMIT, body).await
}

/// Runs a test's body within `time`. In paused time a test that waits for nothing fails at once.
///
/// # Panics
/// When the time is over. A body that blocks its runtime cannot be interrupted: half a minute later it ends
/// the whole test process.
pub async fn limit_to<T>(time: Duration, body: impl Future<Output = T>) -> T {
    let (done, watch) = channel::<()>();
    let name = test_name();
    std::thread::spawn(move || {
        if watch.recv_timeout(time + GRACE) == Err(RecvTimeoutError::Timeout) {
            crate::policy::say(&format!("test {name} blocks its runtime for more than {time:?}: aborting"));
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
