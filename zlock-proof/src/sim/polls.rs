//! Futures that are dropped after some polls, or not polled for some time.

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use tokio::time::sleep;

/// Polls the future at most this many times. Returns `None` if it has not completed by then.
pub(crate) async fn cut<F: Future>(polls: u64, future: F) -> Option<F::Output> {
    let mut future = Box::pin(future);
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            // Gone as soon as the poll has returned, whatever it waits for.
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Runs the future, but stops polling it for some time after this many polls, like a task that is busy elsewhere. `pause` is
/// called then and returns the duration.
pub(crate) async fn stall<F: Future>(polls: u64, pause: impl FnOnce() -> Duration, future: F) -> F::Output {
    let mut future = Box::pin(future);
    let (mut left, mut pause, mut pausing) = (polls, Some(pause), None);
    poll_fn(|cx| {
        if left == 0 {
            if let Some(pause) = pause.take() {
                pausing = Some(Box::pin(sleep(pause())));
            }
            if pausing.as_mut().is_some_and(|pausing| pausing.as_mut().poll(cx).is_pending()) {
                return Poll::Pending;
            }
            left = u64::MAX;
        }
        left -= 1;
        future.as_mut().poll(cx)
    })
    .await
}
