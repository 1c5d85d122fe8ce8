//! Wakes tasks that wait for a condition, in the order in which they began to wait.
//!
//! Tokio's watch channel wakes in a random order, so that two runs with the same seed would differ.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use tokio::time::{self, Instant};

/// Wakes tasks when a condition may have changed.
#[derive(Debug, Default)]
pub struct Signal(Notify);

impl Signal {
    /// Wakes all tasks that wait.
    pub fn notify(&self) {
        self.0.notify_waiters();
    }

    /// Completes at the first [`notify`](Self::notify) after this call, even one before the future is polled.
    ///
    /// # Cancel safety
    /// Safe.
    pub fn notified(&self) -> impl Future<Output = ()> + Send {
        self.0.notified()
    }

    /// Waits until `look` returns a value. It is called at once, and again after each [`notify`](Self::notify).
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn until<R>(&self, mut look: impl FnMut() -> Option<R>) -> R {
        loop {
            let notified = self.notified();
            if let Some(result) = look() {
                return result;
            }
            notified.await;
        }
    }
}

/// A flag that is raised once, and wakes the tasks that wait for it.
#[derive(Debug, Default)]
pub struct Flag {
    is_raised: AtomicBool,
    signal: Signal,
}

impl Flag {
    /// Raises the flag for good.
    pub fn raise(&self) {
        self.is_raised.store(true, Ordering::SeqCst);
        self.signal.notify();
    }

    /// Returns `true` once the flag was raised.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.is_raised.load(Ordering::SeqCst)
    }

    /// Waits until the flag is raised.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn raised(&self) {
        self.signal.until(|| self.is_raised().then_some(())).await;
    }
}

/// Waits until `time`, or forever if there is none.
///
/// # Cancel safety
/// Safe.
///
/// # Panics
/// Panics outside a tokio runtime with time enabled, if there is a time.
pub async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => time::sleep_until(time).await,
        None => pending().await,
    }
}
