//! What tests wait for, and what they print.

use std::fmt::Display;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::notice::say;

/// The time after which a condition is considered never to become true.
const LIMIT: Duration = Duration::from_secs(30);

/// Waits until the condition is true.
///
/// # Panics
/// Panics after 30 seconds.
pub async fn until(what: &str, mut is: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !is().await {
        assert!(began.elapsed() < LIMIT, "not after {LIMIT:?}: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Returns the output of a future that is ready at its first poll.
pub fn ready<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Prints past libtest, which keeps the output of a test that passes to itself.
pub fn report(line: impl Display) {
    say(&format!("  {line}"));
}
