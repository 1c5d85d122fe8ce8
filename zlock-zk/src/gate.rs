//! Keeps the client library's watchers from being polled after its tasks have gone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{PoisonError, RwLock};
use std::task::Poll;

/// Open while none of the library's tasks has been dropped before its end, which only the end of their runtime does: a
/// task that panics ends like any other, since `spawns_core` catches the panic.
///
/// The library's watchers panic when they are polled after either, and others may poll them on another runtime. So they
/// are polled through the gate. It is closed before a task is dropped, and catches what it cannot foresee.
#[derive(Debug)]
pub(crate) struct Gate(RwLock<bool>);

impl Default for Gate {
    fn default() -> Self {
        Gate(RwLock::new(true))
    }
}

impl Gate {
    /// Polls if the gate is open, and keeps it open meanwhile; `None` once it is closed, or if `poll` panics.
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

    /// Waits for polls under way: these do not block.
    pub(crate) fn close(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the library's watchers do after such a panic.
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
