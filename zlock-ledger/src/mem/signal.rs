//! A value that tasks wait for.

use std::fmt;
use std::pin::pin;

use tokio::sync::Notify;
use zlock_core::Mutex;

/// A value, and the tasks that wait until it changes. They are woken in the order in which they began to wait, unlike the receivers
/// of tokio's `watch`, whose order is random.
pub(crate) struct Signal<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Copy> Signal<T> {
    pub(crate) fn new(value: T) -> Self {
        Signal { value: Mutex::new(value), changed: Notify::new() }
    }

    pub(crate) fn get(&self) -> T {
        *self.value.lock()
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.value.lock());
        self.changed.notify_waiters();
    }

    /// Waits until the value is as wanted.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn wait_for(&self, wanted: impl Fn(T) -> bool) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if wanted(self.get()) {
                return;
            }
            changed.await;
        }
    }
}

impl<T: Copy + fmt::Debug> fmt::Debug for Signal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
