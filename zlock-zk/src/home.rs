//! The tokio runtime that a backend lives on, and the client library's tasks there.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};

use spawns_core::{Spawn, Task, enter};
use zlock_core::CloseReason;

use crate::session::Shared;

/// Open while none of the library's tasks has been dropped before its end, which only the end of their runtime does.
///
/// The library's watchers panic when they are polled after that, and others may poll them on another runtime. So they
/// are polled through the gate, which is closed before a task goes.
#[derive(Debug)]
pub(crate) struct Gate(RwLock<bool>);

impl Default for Gate {
    fn default() -> Self {
        Gate(RwLock::new(true))
    }
}

impl Gate {
    /// Polls if the gate is open, and keeps it open meanwhile; `None` once it is closed.
    pub(crate) fn poll<T>(&self, poll: impl FnOnce() -> Poll<T>) -> Poll<Option<T>> {
        let open = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if *open { poll().map(Some) } else { Poll::Ready(None) }
    }

    /// Waits for polls under way: these do not block.
    fn close(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = false;
    }
}

/// Lets `connecting` spawn the library's tasks on the backend's runtime, whichever one polls it.
pub(crate) async fn at_home<F: Future>(shared: &Arc<Shared>, connecting: F) -> F::Output {
    let (home, mut connecting) = (Home(shared), pin!(connecting));
    poll_fn(|cx| {
        let _scope = enter(&home);
        connecting.as_mut().poll(cx)
    })
    .await
}

struct Home<'a>(&'a Arc<Shared>);

impl Spawn for Home<'_> {
    fn spawn(&self, task: Task) {
        let shared = self.0.clone();
        self.0.runtime.spawn(LibraryTask { shared, task: Some(Box::into_pin(task.future)) });
    }
}

/// A task of the library. If it is dropped before its end then its runtime ends, and the backend with it.
struct LibraryTask {
    shared: Arc<Shared>,
    task: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Future for LibraryTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(task) = &mut self.task else { return Poll::Ready(()) };
        let polled = task.as_mut().poll(cx);
        if polled.is_ready() {
            self.task = None;
        }
        polled
    }
}

impl Drop for LibraryTask {
    fn drop(&mut self) {
        // Whoever waits for an answer of the task is woken when that goes, and has to see why.
        if let Some(task) = self.task.take() {
            self.shared.gate.close();
            self.shared.close(CloseReason::Requested);
            drop(task);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_polled_behind_a_closed_gate() {
        let gate = Gate::default();
        assert_eq!(gate.poll(|| Poll::<u32>::Pending), Poll::Pending);
        assert_eq!(gate.poll(|| Poll::Ready(1)), Poll::Ready(Some(1)));
        gate.close();
        assert_eq!(gate.poll(|| -> Poll<u32> { unreachable!("closed") }), Poll::Ready(None));
    }
}
