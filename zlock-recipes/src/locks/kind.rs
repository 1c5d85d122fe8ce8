//! The kinds of lock that a [`LockHandle`](crate::LockHandle) can be of, and that a [`LockTemplate`](crate::LockTemplate)
//! can acquire.

use std::fmt::Debug;

use zlock_core::Label;

use self::sealed::Sealed;
use crate::guard::write::WriteGuard;
use crate::guard::{Guard, LockGuard};

/// A kind of lock, which decides the type of the guard. This trait is sealed.
///
/// | lock | kind | guard |
/// |---|---|---|
/// | [`InterProcessMutex`](crate::InterProcessMutex) | [`Mutex`] | [`Guard`] |
/// | [`ReadLock`](crate::ReadLock) | [`Read`] | [`Guard`] |
/// | [`WriteLock`](crate::WriteLock) | [`Write`] | [`WriteGuard`], which can be downgraded |
/// | [`PermitRequest`](crate::PermitRequest) | [`Permits`] | [`Guard`] |
/// | one that is known only at run time | [`Label`] | [`Guard`] |
pub trait Kind: Sealed {
    /// The guard of a held lock: [`WriteGuard`] for a [`WriteLock`](crate::WriteLock), and [`Guard`] for every other lock.
    type Guard: LockGuard + Into<Guard>;

    /// Converts the guard of a lock that was acquired with the label into the guard of this kind.
    #[doc(hidden)]
    fn guard(guard: Guard) -> Self::Guard;
}

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
    /// The number of permits to take.
    pub n: u32,
    /// The number of permits that there are.
    pub max: u32,
}

pub(crate) mod sealed {
    use super::{Debug, Label};

    pub trait Sealed: Clone + Debug + Send + Sync + 'static {
        fn label(&self) -> Label;
    }
}

impl Sealed for Mutex {
    fn label(&self) -> Label {
        Label::Lock
    }
}

impl Sealed for Read {
    fn label(&self) -> Label {
        Label::Read
    }
}

impl Sealed for Write {
    fn label(&self) -> Label {
        Label::Write
    }
}

impl Sealed for Permits {
    fn label(&self) -> Label {
        Label::Permits { weight: self.n, max: self.max, granted: false }
    }
}

/// A kind that is known only at run time.
impl Sealed for Label {
    fn label(&self) -> Label {
        *self
    }
}

/// The kinds with a plain guard.
macro_rules! plain {
    ($($kind:ty),*) => {$(
        impl Kind for $kind {
            type Guard = Guard;

            fn guard(guard: Guard) -> Guard {
                guard
            }
        }
    )*};
}

plain!(Mutex, Read, Permits, Label);

impl Kind for Write {
    type Guard = WriteGuard;

    fn guard(guard: Guard) -> WriteGuard {
        WriteGuard::new(guard)
    }
}
