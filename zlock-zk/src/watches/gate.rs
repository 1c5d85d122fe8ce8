//! Keeps the client library's watchers from being polled after its tasks have gone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{PoisonError, RwLock};
use std::task::Poll;

/// Open until one of the library's tasks is dropped before its end. Only the end of their runtime drops a task that way: a
/// task that panics ends like any other, because `spawns_core` catches the panic.
///
/// The library's watchers panic when they are polled after either event, and other tasks may poll them on another runtime. So
/// they are polled through the gate, which is closed before a task is dropped, and which catches panics that it cannot
/// prevent.
#[derive(Debug)]
pub(crate) struct Gate(RwLock<bool>);

impl Default for Gate {
    fn default() -> Self {
        Gate(RwLock::new(true))
    }
}

impl Gate {
    /// Polls if the gate is open, and keeps it open during the poll. `None` once it is closed, or if `poll` panics.
    pub(crate) fn poll<T>(&self, poll: impl FnOnce() -> Poll<T>) -> Poll<Option<T>> {
        let open = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if !*open {
            return Poll::Ready(None);
        }
        match catch_unwind(AssertUnwindSafe(poll)) {
            Ok(polled) => polled.map(Some),
            Err(_) => {
                tracing::error!("a task of the client library has panicked");
                Poll::Ready(None)
            }
        }
    }

    /// Closes the gate. Waits for polls in progress, which do not block.
    pub(crate) fn close(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The library's watchers panic like this after such a panic.
    #[test]
    fn a_watcher_that_panics_is_at_its_end() {
        assert_eq!(Gate::default().poll(|| -> Poll<u32> { panic!("no sender") }), Poll::Ready(None));
    }

    #[test]
    fn nothing_is_polled_behind_a_closed_gate() {
        let gate = Gate::default();
        assert_eq!(gate.poll(|| Poll::<u32>::Pending), Poll::Pending);
        assert_eq!(gate.poll(|| Poll::Ready(1)), Poll::Ready(Some(1)));
        gate.close();
        assert_eq!(gate.poll(|| -> Poll<u32> { unreachable!("closed") }), Poll::Ready(None));
    }
}
