//! Threads with their own runtime, for tasks that must keep running while the user's runtime is blocked.

use std::future::Future;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::error::{Error, ErrorKind, Result};

/// The name of the threads. Linux truncates it to 15 characters.
const NAME: &str = "zlock-runtime";

/// A thread that drives its own tokio runtime. Cheap to clone.
///
/// The thread ends when the last handle is dropped and no task of the runtime is left. A backend that was connected on it
/// therefore keeps the thread until the backend's own task has ended the session.
#[derive(Clone, Debug)]
pub struct RuntimeThread {
    runtime: Handle,
    _owner: Arc<Owner>,
}

/// Dropped with the last handle.
#[derive(Debug)]
struct Owner(Arc<End>);

/// The condition for the end of the thread.
#[derive(Debug, Default)]
struct End {
    is_unowned: AtomicBool,
    changed: Notify,
}

impl End {
    /// Returns `true` if there are no handles and no tasks left. Must be called on the thread.
    fn has_come(&self) -> bool {
        self.is_unowned.load(Ordering::Acquire) && Handle::current().metrics().num_alive_tasks() == 0
    }

    /// Waits for that condition.
    async fn wait(&self) {
        while !self.has_come() {
            self.changed.notified().await;
        }
    }
}

impl RuntimeThread {
    /// Starts a thread.
    ///
    /// # Errors
    /// [`ErrorKind::Unexpected`] if the operating system cannot start the thread or provide what its runtime needs.
    pub fn start() -> Result<Self> {
        let end = Arc::<End>::default();
        let runtime = RuntimeThread::runtime(&end).map_err(|error| {
            let failed = Error::new(ErrorKind::Unexpected, "dedicated thread");
            failed.with_message("the thread could not be started").with_cause(error)
        })?;
        Ok(RuntimeThread { runtime, _owner: Arc::new(Owner(end)) })
    }

    fn runtime(end: &Arc<End>) -> std::io::Result<Handle> {
        let parks = end.clone();
        // The end of a task does not poll `End::wait`, but the thread parks at some time after it.
        let look = move || {
            if parks.has_come() {
                parks.changed.notify_one();
            }
        };
        let runtime = Builder::new_current_thread().enable_all().on_thread_park(look).build()?;
        let handle = runtime.handle().clone();
        let end = end.clone();
        let (give, take) = channel::<Runtime>();
        let drive = move || {
            let Ok(runtime) = take.recv() else { return };
            runtime.block_on(end.wait());
            runtime.shutdown_background();
        };
        if let Err(error) = thread::Builder::new().name(NAME.into()).spawn(drive) {
            // Dropping the runtime inside another runtime would panic.
            runtime.shutdown_background();
            return Err(error);
        }
        // The thread is waiting for it.
        let _ = give.send(runtime);
        Ok(handle)
    }

    /// Returns a handle to the runtime, which lives at least as long as this value.
    #[must_use]
    pub fn runtime_handle(&self) -> &Handle {
        &self.runtime
    }

    /// Runs a future to completion as a task on the thread.
    ///
    /// # Errors
    /// Those of the future.
    ///
    /// # Cancel safety
    /// Dropping the returned future cancels the task, which drops `future` on the thread.
    ///
    /// # Panics
    /// Panics if the future panics.
    pub async fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let ended = || Error::new(ErrorKind::Closed, "dedicated thread");
        run_on(&self.runtime, future).await.ok_or_else(ended)?
    }
}

/// Works without a runtime and without a clock.
impl Drop for Owner {
    fn drop(&mut self) {
        self.0.is_unowned.store(true, Ordering::Release);
        self.0.changed.notify_one();
    }
}

/// Runs a future on another runtime, and returns its output: `None` if that runtime ends before. A panic of the future goes on
/// here.
///
/// # Cancel safety
/// Dropping this drops the future.
pub async fn run_on<T: Send + 'static>(
    runtime: &Handle,
    future: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    // Dropping the set aborts the task.
    let mut task = JoinSet::new();
    task.spawn_on(future, runtime);
    match task.join_next().await? {
        Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
        output => output.ok(),
    }
}

/// Connects on a separate thread, so that code that blocks the caller's runtime does not lose its locks.
///
/// A backend's tasks, including the heartbeats that keep its session alive, run on the runtime on which it was connected. If
/// all threads of that runtime are blocked by computation or synchronous I/O, no heartbeat is sent. After about one session
/// timeout, the session is over and all locks are lost. This function runs `connect` on a thread with its own runtime, and
/// the heartbeats stay there. The client can be used like any other, on any runtime.
///
/// A blocked task does not notice a loss either. It should check [`is_held`] between its steps.
///
/// The thread ends when the client returned by `connect`, its locks and its guards are dropped. A mem server whose clock runs
/// on the thread must be dropped too. `connect` may return other values and spawn tasks: the thread ends when no task is left.
///
/// # Errors
/// - Those of `connect`.
/// - [`ErrorKind::Unexpected`] if the operating system cannot start the thread.
///
/// # Cancel safety
/// As cancel safe as `connect`. Dropping this future drops `connect`.
///
/// # Panics
/// Panics if `connect` panics.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock::Result<()> {
/// # if cfg!(not(feature = "mem")) { return Ok(()); }
/// let client = zlock::with_dedicated_thread(zlock::connect("mem://")).await?;
/// let guard = client.mutex("/app/orders/42")?.acquire().await?;
/// std::thread::sleep(std::time::Duration::from_millis(10)); // or longer than a session
/// assert!(guard.is_held());
/// guard.release().await?;
/// client.close().await?;
/// # Ok(())
/// # }
/// ```
///
/// [`is_held`]: https://docs.rs/zlock/latest/zlock/struct.Guard.html#method.is_held
pub async fn with_dedicated_thread<T: Send + 'static>(
    connect: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    RuntimeThread::start()?.run(connect).await
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use tokio::time::{sleep, timeout};

    use super::*;

    async fn this_thread() -> Result<String> {
        let link = std::fs::read_link("/proc/thread-self").unwrap();
        Ok(format!("/proc/{}", link.display()))
    }

    async fn is_gone(thread: &str) {
        let gone = async {
            while Path::new(thread).exists() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(30), gone).await.expect("the thread ends");
    }

    #[tokio::test]
    async fn it_ends_with_its_last_handle() {
        let thread = RuntimeThread::start().unwrap();
        let path = thread.run(this_thread()).await.unwrap();
        let other = thread.clone();
        drop(thread);
        assert_eq!(other.run(this_thread()).await.unwrap(), path);
        drop(other);
        is_gone(&path).await;
    }

    #[tokio::test]
    async fn it_ends_with_its_last_task() {
        let (end, ends) = tokio::sync::oneshot::channel::<()>();
        let connect = async {
            tokio::spawn(async move {
                // The sleep makes the thread park, so that it must notice the end of the last task by itself.
                ends.await.unwrap();
                sleep(Duration::from_millis(50)).await;
            });
            this_thread().await
        };
        let path = with_dedicated_thread(connect).await.unwrap();
        sleep(Duration::from_millis(100)).await;
        assert!(Path::new(&path).exists(), "a task is left");
        end.send(()).unwrap();
        is_gone(&path).await;
    }

    #[tokio::test]
    async fn its_last_handle_may_be_dropped_on_it() {
        let thread = RuntimeThread::start().unwrap();
        let path = thread.run(this_thread()).await.unwrap();
        let own = thread.clone();
        thread.runtime_handle().spawn(async move {
            sleep(Duration::from_millis(20)).await;
            drop(own);
        });
        drop(thread);
        is_gone(&path).await;
    }

    #[tokio::test]
    async fn dropping_the_future_drops_what_runs() {
        let (kept, dropped) = tokio::sync::oneshot::channel::<()>();
        let connect = async move {
            let _kept = kept;
            std::future::pending::<Result<()>>().await
        };
        assert!(timeout(Duration::from_millis(50), with_dedicated_thread(connect)).await.is_err());
        let dropped = timeout(Duration::from_secs(30), dropped).await;
        dropped.expect("it is dropped").unwrap_err();
    }
}
