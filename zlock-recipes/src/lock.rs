//! What a multi-lock can be made of.

use std::fmt::Debug;

use zlock_core::LockPath;

use crate::mutex::InterProcessMutex;
use crate::rwlock::{ReadLock, WriteLock};
use crate::semaphore::Permits;

/// A lock of any kind, to make a [`MultiLock`](crate::MultiLock) of: [`InterProcessMutex`], [`ReadLock`],
/// [`WriteLock`] or the [`Permits`] of a semaphore, and references to them. Only zlock implements it.
pub trait Lock: sealed::Sealed + Debug + Send + Sync {
    /// The path of the lock.
    fn path(&self) -> &LockPath;
}

pub(crate) mod sealed {
    use zlock_core::Label;

    use crate::handle::Handle;

    /// One lock of a set.
    #[derive(Clone, Debug)]
    pub struct Part {
        pub(crate) handle: Handle,
        pub(crate) label: Label,
    }

    pub trait Sealed {
        fn part(&self) -> Part;
    }
}

use self::sealed::{Part, Sealed};

macro_rules! lock {
    ($($lock:ty),*) => {$(
        impl Sealed for $lock {
            fn part(&self) -> Part {
                self.part()
            }
        }

        impl Lock for $lock {
            fn path(&self) -> &LockPath {
                self.path()
            }
        }
    )*};
}

lock!(InterProcessMutex, ReadLock, WriteLock, Permits);

macro_rules! forward {
    ($($wrapper:ty),*) => {$(
        impl<L: Lock + ?Sized> Sealed for $wrapper {
            fn part(&self) -> Part {
                (**self).part()
            }
        }

        impl<L: Lock + ?Sized> Lock for $wrapper {
            fn path(&self) -> &LockPath {
                (**self).path()
            }
        }
    )*};
}

forward!(&L, Box<L>);
