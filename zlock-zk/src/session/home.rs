//! The tokio runtime that a backend lives on, and the client library's tasks there.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use spawns_core::{Spawn, Task, enter};
use zlock_core::CloseReason;

use crate::session::Shared;

/// Makes `connecting` spawn the library's tasks on the backend's runtime, whichever runtime polls it.
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

/// A task of the library. If it is dropped before its end, its runtime is ending, and the backend ends with it.
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
        // Dropping the task wakes everything that waits for its answers, so the reason must be visible by then.
        if let Some(task) = self.task.take() {
            self.shared.gate.close();
            self.shared.close(CloseReason::Requested);
            drop(task);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Handle;

    use super::*;
    use crate::config::ZkOptions;

    #[tokio::test]
    async fn a_panic_in_a_task_of_the_library_does_not_close_the_backend() {
        let shared = Arc::new(Shared::new(ZkOptions::new(["127.0.0.1:1"]), Handle::current()));
        let task = async { spawns_core::spawn(async { panic!("a bug of the library") }).await };
        assert!(at_home(&shared, task).await.unwrap_err().is_panic());
        assert!(shared.sessions.closed().is_none());
        assert_eq!(shared.gate.poll(|| Poll::Ready(1)), Poll::Ready(Some(1)));
    }
}
