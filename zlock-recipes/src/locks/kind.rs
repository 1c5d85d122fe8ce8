//! The kinds of lock that a [`LockHandle`](crate::LockHandle) can be of.

use std::fmt::Debug;

use zlock_core::Label;

use self::sealed::Sealed;
use crate::guard::write::WriteGuard;
use crate::guard::{Guard, LockGuard};

/// A kind of lock. This trait is sealed.
pub trait Kind: Sealed {}

impl<K: Sealed> Kind for K {}

/// The kind of a mutex: exclusive, and compatible with Curator's `InterProcessMutex`.
#[derive(Clone, Copy, Debug)]
pub struct Mutex;

/// The kind of a read lock: shared with other readers.
#[derive(Clone, Copy, Debug)]
pub struct Read;

/// The kind of a write lock: exclusive.
#[derive(Clone, Copy, Debug)]
pub struct Write;

/// The kind of a request for a semaphore's permits.
#[derive(Clone, Copy, Debug)]
pub struct Permits {
    pub(crate) n: u32,
    pub(crate) max: u32,
}

pub(crate) mod sealed {
    use super::{Debug, Guard, Label, LockGuard};

    pub trait Sealed: Clone + Debug + Send + Sync + 'static {
        type Guard: LockGuard + Into<Guard>;

        fn label(&self) -> Label;

        /// Converts the guard of a lock that was acquired with the label into the guard of this kind.
        fn guard(guard: Guard) -> Self::Guard;
    }
}

impl Sealed for Mutex {
    type Guard = Guard;

    fn label(&self) -> Label {
        Label::Lock
    }

    fn guard(guard: Guard) -> Guard {
        guard
    }
}

impl Sealed for Read {
    type Guard = Guard;

    fn label(&self) -> Label {
        Label::Read
    }

    fn guard(guard: Guard) -> Guard {
        guard
    }
}

impl Sealed for Write {
    type Guard = WriteGuard;

    fn label(&self) -> Label {
        Label::Write
    }

    fn guard(guard: Guard) -> WriteGuard {
        WriteGuard::new(guard)
    }
}

impl Sealed for Permits {
    type Guard = Guard;

    fn label(&self) -> Label {
        Label::Permits { weight: self.n, max: self.max, granted: false }
    }

    fn guard(guard: Guard) -> Guard {
        guard
    }
}

/// A kind that is known only at run time.
impl Sealed for Label {
    type Guard = Guard;

    fn label(&self) -> Label {
        *self
    }

    fn guard(guard: Guard) -> Guard {
        guard
    }
}
