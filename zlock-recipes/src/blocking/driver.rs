//! The thread behind a blocking client, and the conditions under which a call may wait for it.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::sync::{Arc, Weak};

use tokio::runtime::Handle;
use zlock_core::{Error, ErrorKind, Result, RuntimeThread};

use crate::guard::LockGuard;
use crate::guard::scope::Scope;
use crate::hold::Hold;

thread_local! {
    /// The locks that this thread holds, each once for every guard that the thread has of it.
    static HELD: RefCell<Vec<Weak<Hold>>> = const { RefCell::new(Vec::new()) };

    /// Used after tokio's own thread-locals, and so destroyed before them.
    static WAITED: Waited = const { Waited };

    /// `true` once [`WAITED`] is destroyed. Needs no destructor itself, so it can always be read.
    static IS_ENDING: Cell<bool> = const { Cell::new(false) };
}

/// Notes when a thread that has waited comes to its end. Tokio panics if a thread waits after some of tokio's thread-locals
/// are destroyed, even if those that tell whether there is a runtime are not.
struct Waited;

impl Drop for Waited {
    fn drop(&mut self) {
        IS_ENDING.set(true);
    }
}

/// Runs the futures of a blocking client. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Driver(RuntimeThread);

impl Driver {
    /// Creates a driver for a backend that lives on the thread, or elsewhere.
    pub(crate) fn new(thread: RuntimeThread) -> Self {
        Driver(thread)
    }

    /// Waits for the future on the calling thread.
    ///
    /// # Errors
    /// Those of the future, and `BlockingRefused`.
    pub(crate) fn run<T>(
        &self,
        operation: &'static str,
        future: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        may_block(operation)?;
        self.block_on(future)
    }

    /// Waits for the future where the calling thread [may block](may_block).
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        block_on(&self.0, future)
    }
}

/// Waits for a future where the calling thread [may block](may_block).
pub(crate) fn block_on<F: Future>(thread: &RuntimeThread, future: F) -> F::Output {
    thread.runtime_handle().block_on(async {
        WAITED.with(|_| ());
        future.await
    })
}

/// Returns the locks that the thread holds, as the scope of a call.
///
/// # Errors
/// `BlockingRefused` in the destructor of a thread-local, once the list is gone: the thread could wait for itself.
pub(crate) fn held(operation: &'static str) -> Result<Scope> {
    let held = HELD.try_with(|held| held.borrow().clone());
    held.map(Scope::of).map_err(|_| refused(operation, ENDING))
}

/// The locks that a guard adds to those of its thread, until it is dropped.
#[derive(Debug)]
pub(crate) struct Mine(Vec<Weak<Hold>>);

impl Mine {
    /// Adds the guard's locks to those of this thread.
    pub(crate) fn new(guard: &impl LockGuard) -> Self {
        let holds: Vec<_> = guard.guards().iter().map(|guard| Arc::downgrade(guard.hold())).collect();
        // Fails if the thread is ending. It acquires nothing more then.
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

/// Returns an error if the calling code must not block.
pub(crate) fn may_block(operation: &'static str) -> Result<()> {
    let why = match Handle::try_current() {
        _ if IS_ENDING.get() => ENDING,
        Ok(_) => "the call would block a thread of a tokio runtime: use the async client",
        Err(error) if error.is_thread_local_destroyed() => ENDING,
        Err(_) => return Ok(()),
    };
    Err(refused(operation, why))
}

fn refused(operation: &'static str, why: &'static str) -> Error {
    Error::new(ErrorKind::BlockingRefused, operation).with_message(why)
}
