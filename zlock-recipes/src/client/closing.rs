//! The state of a client's shutdown, the conditions that it waits for, and who waits for it.

use std::sync::atomic::{AtomicUsize, Ordering};

use zlock_core::{Flag, Signal};

/// The state of a shutdown.
#[derive(Debug, Default)]
pub(crate) struct ShutdownState {
    pub(crate) begun: Flag,
    /// Raised for those who wait for nothing at the store, when the client is closed.
    pub(crate) closed: Flag,
    releasing: AtomicUsize,
    /// Notified when a hold or a release ends.
    ended: Signal,
}

impl ShutdownState {
    /// Waits until `is_idle` returns `true` and no release is in flight. Checks again whenever a hold or a release ends.
    pub(crate) async fn idle(&self, is_idle: impl Fn() -> bool) {
        let look = || (is_idle() && self.releasing.load(Ordering::SeqCst) == 0).then_some(());
        self.ended.until(look).await;
    }

    /// Reports the end of a hold.
    pub(crate) fn hold_ended(&self) {
        if self.begun.is_raised() {
            self.ended.notify();
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
