//! Threads with a runtime of their own, for what has to go on while the user's runtime stands still.

use std::future::Future;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::{process, thread};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::error::{Error, ErrorKind, Result};

/// The name of the threads. Linux shows up to 15 characters.
const NAME: &str = "zlock-runtime";

/// A thread that drives a tokio runtime of its own. Cheap to clone.
///
/// The thread ends when the last handle is dropped and none of the runtime's tasks is left. So a backend that was
/// connected on it keeps it for as long as the backend's own task runs, which includes the end of its session.
#[derive(Clone, Debug)]
pub struct RuntimeThread {
    runtime: Handle,
    owner: Arc<Owner>,
}

/// Dropped with the last handle.
#[derive(Debug)]
struct Owner {
    end: Arc<End>,
    process: u32,
}

/// When the thread ends.
#[derive(Debug, Default)]
struct End {
    is_unowned: AtomicBool,
    changed: Notify,
}

impl End {
    /// Whether the runtime of the calling code has nothing left to do.
    fn has_come(&self) -> bool {
        self.is_unowned.load(Ordering::Acquire) && Handle::current().metrics().num_alive_tasks() == 0
    }

    /// Completes when the end has come.
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
    /// [`ErrorKind::Unexpected`] if the operating system refuses the thread, or what its runtime needs.
    pub fn start() -> Result<Self> {
        let end = Arc::<End>::default();
        let runtime = RuntimeThread::runtime(&end).map_err(|error| {
            let failed = Error::new(ErrorKind::Unexpected, "dedicated thread");
            failed.with_message("the thread could not be started").with_source(error)
        })?;
        Ok(RuntimeThread { runtime, owner: Arc::new(Owner { end, process: process::id() }) })
    }

    fn runtime(end: &Arc<End>) -> std::io::Result<Handle> {
        let parks = end.clone();
        // The end of a task does not poll `End::wait`. But then the thread is about to park, sooner or later.
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
            // Dropped inside another runtime, it would panic.
            runtime.shutdown_background();
            return Err(error);
        }
        // The thread waits for it.
        let _ = give.send(runtime);
        Ok(handle)
    }

    /// Returns the runtime, which lives at least as long as this handle of the thread.
    #[must_use]
    pub fn runtime_handle(&self) -> &Handle {
        &self.runtime
    }

    /// Returns the ID of the process that started the thread: a child that it forks has no such thread.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.owner.process
    }

    /// Runs a future to its end as a task on the thread.
    ///
    /// # Errors
    /// Those of the future.
    ///
    /// # Cancel safety
    /// Dropping the future drops the one that runs on the thread.
    ///
    /// # Panics
    /// If the future panics.
    pub async fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let task = self.runtime.spawn(future);
        let _abort = AbortOnDrop(task.abort_handle());
        match task.await {
            Ok(output) => output,
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            Err(error) => Err(Error::new(ErrorKind::Closed, "dedicated thread").with_source(error)),
        }
    }
}

/// Needs neither a runtime nor a clock.
impl Drop for Owner {
    fn drop(&mut self) {
        // A forked child has no such thread, and a lock that the thread held when it was forked is never free there.
        if self.process == process::id() {
            self.end.is_unowned.store(true, Ordering::Release);
            self.end.changed.notify_one();
        }
    }
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Connects on a thread of its own, so that code that blocks the caller's runtime does not lose its locks.
///
/// A backend's tasks, with the heartbeats that keep its session, live on the runtime that it is connected on. If all
/// threads of that runtime are blocked, by computation or by synchronous I/O, no heartbeat is sent. After about one session
/// timeout the session is over, and every lock is lost. With this function `connect` runs on a thread with a runtime of its
/// own, and the heartbeats stay there. The client is used as any other, on any runtime.
///
/// A blocked task learns nothing of a loss either. So it should look at [`is_held`] between its steps.
///
/// The thread ends when the client that `connect` returns is dropped, with its locks and guards; on mem, when the server is
/// dropped, if its clock runs there. `connect` may
/// return anything else that it spawns tasks for: the thread ends when none of its tasks is left.
///
/// # Errors
/// Those of `connect`; [`ErrorKind::Unexpected`] if the operating system refuses the thread.
///
/// # Cancel safety
/// As `connect`, which is dropped with this future.
///
/// # Panics
/// If `connect` panics.
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
                // It also sleeps: the thread has to find out by itself that it is the last one.
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
