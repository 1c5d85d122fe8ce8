//! Whether a client is shutting down, and what it waits for then.

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
    /// The client is shutting down from now on.
    pub(crate) fn begin(&self) {
        self.begun.store(true, Ordering::SeqCst);
        self.begins.notify_waiters();
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::SeqCst)
    }

    /// Waits until the client is shutting down.
    pub(crate) async fn begun(&self) {
        let mut begins = pin!(self.begins.notified());
        begins.as_mut().enable();
        if !self.has_begun() {
            begins.await;
        }
    }

    /// Waits until `is_idle`, which may come true when a hold or a release ends, and no release is under way.
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

    /// A hold has ended.
    pub(crate) fn hold_ended(&self) {
        if self.has_begun() {
            self.ended.notify_waiters();
        }
    }

    /// Counts a release that is about to be sent, until what is returned is dropped.
    pub(crate) fn release(&self) -> Releasing<'_> {
        self.releasing.fetch_add(1, Ordering::SeqCst);
        Releasing(self)
    }
}

/// A release under way.
pub(crate) struct Releasing<'a>(&'a ShutdownState);

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        self.0.releasing.fetch_sub(1, Ordering::SeqCst);
        self.0.hold_ended();
    }
}
