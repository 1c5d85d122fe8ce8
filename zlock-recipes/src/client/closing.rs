//! The state of a client's shutdown, and the conditions that it waits for.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// The state of a shutdown.
#[derive(Debug, Default)]
pub(crate) struct ShutdownState {
    begun: AtomicBool,
    releasing: AtomicUsize,
    /// Notified once, at the beginning.
    begins: Notify,
    /// Notified when a hold or a release ends.
    ended: Notify,
}

impl ShutdownState {
    /// Begins the shutdown.
    pub(crate) fn begin(&self) {
        self.begun.store(true, Ordering::SeqCst);
        self.begins.notify_waiters();
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::SeqCst)
    }

    /// Waits until the shutdown begins.
    pub(crate) async fn begun(&self) {
        // `notify_waiters` notifies it from here on, even before its first poll.
        let begins = self.begins.notified();
        if !self.has_begun() {
            begins.await;
        }
    }

    /// Waits until `is_idle` returns `true` and no release is in flight. Checks again whenever a hold or a release ends.
    pub(crate) async fn idle(&self, is_idle: impl Fn() -> bool) {
        loop {
            let mut ended = pin!(self.ended.notified());
            ended.as_mut().enable();
            if is_idle() && self.releasing.load(Ordering::SeqCst) == 0 {
                return;
            }
            ended.await;
        }
    }

    /// Reports the end of a hold.
    pub(crate) fn hold_ended(&self) {
        if self.has_begun() {
            self.ended.notify_waiters();
        }
    }

    /// Counts a release that is about to be sent, until the returned value is dropped.
    pub(crate) fn release(&self) -> Releasing<'_> {
        self.releasing.fetch_add(1, Ordering::SeqCst);
        Releasing(self)
    }
}

/// A release in flight.
pub(crate) struct Releasing<'a>(&'a ShutdownState);

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        self.0.releasing.fetch_sub(1, Ordering::SeqCst);
        self.0.hold_ended();
    }
}
