//! The task of a backend.

use std::fmt;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::sessions::Sessions;
use crate::contract::backend::Close;
use crate::session::reporter::report;

/// The task behind a backend, which keeps the backend's sessions alive. It also runs the jobs of [`Sessions::background`] and
/// reports the session to its [`Observer`](crate::observer::Observer), if there is one.
///
/// Dropping the handle does what [`close`](Self::close) does, without waiting for it.
pub struct Task {
    /// Closes the backend for its callers.
    shut: Box<dyn Fn() + Send + Sync>,
    closing: watch::Sender<bool>,
    /// The result of the task. If the sender is gone, the task ended with its runtime.
    ended: watch::Receiver<Option<Close>>,
}

/// Notifies the task of a backend that it must end.
#[derive(Clone, Debug)]
pub struct Closing(watch::Receiver<bool>);

impl Closing {
    /// Completes when the backend is closed or dropped.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn wait(&mut self) {
        // Fails if the handle was dropped.
        let _ = self.0.wait_for(|closing| *closing).await;
    }
}

impl Task {
    /// The time limit for a task to end its session at the store after its backend was closed.
    pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

    /// Spawns the task on the current runtime.
    ///
    /// `shut` closes the backend, as far as that is possible without I/O. `run` is called at once. Its future keeps the backend's
    /// sessions alive until [`Closing::wait`] completes or no further session can begin. Then it ends the last session at the store,
    /// and returns [`Close::Ended`](crate::Close::Ended) if the store has confirmed that within
    /// [`CLOSE_TIMEOUT`](Self::CLOSE_TIMEOUT).
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
    pub fn spawn<T, F>(
        sessions: &Sessions<T>,
        shut: impl Fn() + Send + Sync + 'static,
        run: impl FnOnce(Closing) -> F,
    ) -> Self
    where
        F: Future<Output = Close> + Send + 'static,
    {
        let (closing, closing_seen) = watch::channel(false);
        let (end, ended) = watch::channel(None);
        let run = run(Closing(closing_seen));
        let background = sessions.background().run();
        let reports = report(sessions.events());
        tokio::spawn(async move {
            let close = tokio::select! {
                biased;
                close = run => close,
                never = background => match never {},
                never = reports => match never {},
            };
            end.send_replace(Some(close));
        });
        Task { shut: Box::new(shut), closing, ended }
    }

    /// Returns `true` if the task has ended, or was dropped with its runtime.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.ended.has_changed().is_err()
    }

    /// Closes the backend for all callers at once, requests the end of the task, and waits for it.
    ///
    /// Returns [`Close::Pending`] if the runtime of the task has ended, or if the task has not ended within twice
    /// [`CLOSE_TIMEOUT`](Self::CLOSE_TIMEOUT), for example because its runtime is not being driven. May be called any number
    /// of times.
    ///
    /// # Cancel safety
    /// Safe: the task ends nevertheless.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    pub async fn close(&self) -> Close {
        (self.shut)();
        self.closing.send_replace(true);
        let mut ended = self.ended.clone();
        let ended = timeout(2 * Self::CLOSE_TIMEOUT, ended.wait_for(Option::is_some)).await;
        ended.ok().and_then(Result::ok).and_then(|close| *close).unwrap_or(Close::Pending)
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        (self.shut)();
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Task").field(&*self.ended.borrow()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::{Instant, sleep};

    use super::*;

    fn spawn<F>(run: impl FnOnce(Closing) -> F) -> Task
    where
        F: Future<Output = Close> + Send + 'static,
    {
        Task::spawn(&Sessions::<()>::new("refused"), || {}, run)
    }

    #[tokio::test(start_paused = true)]
    async fn close_returns_what_the_task_found() {
        let task = spawn(|mut closing| async move {
            closing.wait().await;
            sleep(Duration::from_secs(1)).await;
            Close::Ended
        });
        assert!(!task.is_finished());
        assert_eq!((task.close().await, task.close().await), (Close::Ended, Close::Ended));
        assert!(task.is_finished());
    }

    #[tokio::test(start_paused = true)]
    async fn close_does_not_wait_for_ever() {
        let task = spawn(|_| pending());
        let began = Instant::now();
        assert_eq!(task.close().await, Close::Pending);
        assert_eq!(began.elapsed(), Duration::from_secs(4));
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_handle_ends_the_task() {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        drop(spawn(|mut closing| async move {
            closing.wait().await;
            let _ = sender.send(());
            Close::Pending
        }));
        receiver.await.unwrap();
    }

    #[test]
    fn a_task_whose_runtime_ended_is_not_waited_for() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let task = runtime().block_on(async { spawn(|_| pending()) });
        assert!(task.is_finished());
        assert_eq!(runtime().block_on(task.close()), Close::Pending);
    }
}
