//! The thread behind a blocking client, and when a call may wait for it.

use std::cell::RefCell;
use std::future::Future;
use std::sync::{Arc, Weak};

use tokio::runtime::Handle;
use zlock_core::{Error, ErrorKind, Result, RuntimeThread};

use super::guard::BlockingGuard;
use crate::guard::LockGuard;
use crate::hold::Hold;
use crate::scope::Scope;

thread_local! {
    /// The locks that this thread holds, each as often as the thread has guards of it.
    static HELD: RefCell<Vec<Weak<Hold>>> = const { RefCell::new(Vec::new()) };
}

/// Runs the futures of a blocking client. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Driver(RuntimeThread);

impl Driver {
    /// For a backend that lives elsewhere, or will live on the thread.
    pub(crate) fn new(thread: RuntimeThread) -> Self {
        Driver(thread)
    }

    /// The process that the thread is in.
    pub(crate) fn process(&self) -> u32 {
        self.0.process()
    }

    /// Whether this is a forked child: there is no thread here.
    pub(crate) fn is_forked(&self) -> bool {
        self.process() != std::process::id()
    }

    /// Waits for the future on the calling thread.
    ///
    /// # Errors
    /// `BlockingRefused`, and those of the future.
    pub(crate) fn run<T>(
        &self,
        operation: &'static str,
        future: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        may_block(operation, self.process())?;
        self.block_on(future)
    }

    /// Waits for the future where the calling thread [may block](may_block).
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.0.runtime_handle().block_on(future)
    }

    /// Waits for an acquisition, in which the thread's locks are entered again. They include the new one from then on.
    pub(crate) fn acquire<G: LockGuard>(
        &self,
        operation: &'static str,
        acquisition: impl Future<Output = Result<G>>,
    ) -> Result<BlockingGuard<G>> {
        let guard = self.run(operation, held(operation)?.scope(acquisition))?;
        Ok(BlockingGuard::entered(guard, self))
    }

    /// Does the same for an attempt.
    pub(crate) fn try_acquire<G: LockGuard>(
        &self,
        operation: &'static str,
        attempt: impl Future<Output = Result<Option<G>>>,
    ) -> Result<Option<BlockingGuard<G>>> {
        let guard = self.run(operation, held(operation)?.scope(attempt))?;
        Ok(guard.map(|guard| BlockingGuard::entered(guard, self)))
    }
}

/// The locks that the thread holds, as the scope of a call.
///
/// # Errors
/// `BlockingRefused` in a destructor of the thread's locals, if it is not known any more: the thread could wait for itself.
fn held(operation: &'static str) -> Result<Scope> {
    let held = HELD.try_with(|held| held.borrow().clone());
    held.map(Scope::of).map_err(|_| refused(operation, ENDING))
}

/// What a guard adds to the locks that its thread holds, until it is dropped.
#[derive(Debug)]
pub(crate) struct Mine(Vec<Weak<Hold>>);

impl Mine {
    /// The guard's locks are this thread's.
    pub(crate) fn new(guard: &impl LockGuard) -> Self {
        let holds: Vec<_> = guard.guards().iter().map(|guard| Arc::downgrade(guard.hold())).collect();
        // An error if the thread is ending: then it acquires nothing any more.
        let _ = HELD.try_with(|held| held.borrow_mut().extend(holds.iter().cloned()));
        Mine(holds)
    }
}

impl Drop for Mine {
    fn drop(&mut self) {
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            for hold in &self.0 {
                if let Some(index) = held.iter().rposition(|other| other.ptr_eq(hold)) {
                    held.remove(index);
                }
            }
        });
    }
}

const ENDING: &str = "the thread is ending";

/// An error where the calling code must not block, or where the thread of this process is not there.
pub(crate) fn may_block(operation: &'static str, process: u32) -> Result<()> {
    let why = match Handle::try_current() {
        _ if process != std::process::id() => {
            "this process was forked, and the thread that keeps the session is its parent's: connect in the child"
        }
        Ok(_) => "the thread belongs to a tokio runtime, which it would hold up: use the async client",
        Err(error) if error.is_thread_local_destroyed() => ENDING,
        Err(_) => return Ok(()),
    };
    Err(refused(operation, why))
}

fn refused(operation: &'static str, why: &'static str) -> Error {
    Error::new(ErrorKind::BlockingRefused, operation).with_message(why)
}
