//! Drops a future after its k-th poll, for every k.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// When the future is dropped after its k-th poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drop {
    /// As soon as the k-th poll has returned.
    AtOnce,
    /// When it is woken again: what it waited for has happened, but it is not polled any more.
    WhenWoken,
}

/// The point at which a future is dropped.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// The number of polls.
    pub polls: usize,
    /// When it is dropped after these.
    pub drop: Drop,
}

impl Cut {
    /// Returns a name for the cut that is a path segment.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}-{:?}", self.polls, self.drop)
    }

    /// Runs the future up to the cut. Returns its output if it completes before.
    pub async fn run<F: Future>(self, future: F) -> Option<F::Output> {
        let mut future = Some(Box::pin(future));
        let mut polls = 0;
        poll_fn(move |cx| {
            if polls < self.polls {
                polls += 1;
                if let Some(output) = poll(&mut future, cx) {
                    return Poll::Ready(Some(output));
                }
                if polls < self.polls || self.drop == Drop::WhenWoken {
                    return Poll::Pending;
                }
            }
            future = None;
            Poll::Ready(None)
        })
        .await
    }
}

fn poll<F: Future>(future: &mut Option<Pin<Box<F>>>, cx: &mut std::task::Context<'_>) -> Option<F::Output> {
    match future.as_mut()?.as_mut().poll(cx) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Runs a situation for every cut until its future completes before the cut, and prints the number of cuts. The situation
/// returns `true` if the future has completed.
pub async fn sweep(name: &str, mut situation: impl AsyncFnMut(Cut) -> bool) {
    for drop in [Drop::AtOnce, Drop::WhenWoken] {
        let mut polls = 0;
        while !situation(Cut { polls, drop }).await {
            polls += 1;
            assert!(polls < 10_000, "{name}: the future is never done");
        }
        println!("SWEEP {name}, dropped {drop:?}: k = 0..={polls}");
    }
}

/// [`sweep`] with many cuts at a time, for a situation that takes long on a real server.
pub async fn sweep_together(name: &str, situation: impl AsyncFn(Cut) -> bool) {
    const WAVE: usize = 10;
    for drop in [Drop::AtOnce, Drop::WhenWoken] {
        let mut from = 0;
        let last = loop {
            let wave = (from..from + WAVE).map(|polls| situation(Cut { polls, drop }));
            let done = futures_util::future::join_all(wave).await;
            if let Some(first) = done.iter().position(|done| *done) {
                break from + first;
            }
            from += WAVE;
            assert!(from < 10_000, "{name}: the future is never done");
        };
        println!("SWEEP {name}, dropped {drop:?}: k = 0..={last}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sweep_drops_after_every_poll() {
        let mut seen = Vec::new();
        sweep("three yields", async |cut| {
            let mut polls = 0;
            let done = cut.run(async {
                for _ in 0..3 {
                    polls += 1;
                    tokio::task::yield_now().await;
                }
                polls += 1;
            });
            let done = done.await.is_some();
            seen.push((polls, done));
            done
        })
        .await;
        let each = [(0, false), (1, false), (2, false), (3, false), (4, true)];
        assert_eq!(seen, [each, each].concat());
    }
}
