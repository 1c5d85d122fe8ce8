//! Lock handles as trait objects.

use std::fmt::Debug;

use zlock_core::{Label, LockPath};

use crate::locks::handle::LockHandle;
use crate::locks::kind::Kind;

/// A lock handle of any kind, as a trait object for a [`MultiLock`](crate::MultiLock) of different kinds. This trait is
/// sealed.
pub trait DynLock: sealed::Dyn + Debug + Send + Sync {
    /// Returns the path of the lock.
    fn path(&self) -> &LockPath;
}

impl<K: Kind> DynLock for LockHandle<K> {
    fn path(&self) -> &LockPath {
        self.path()
    }
}

impl<K: Kind> sealed::Dyn for LockHandle<K> {
    fn to_handle(&self) -> LockHandle<Label> {
        self.with_kind(self.kind.label())
    }
}

macro_rules! forward {
    ($($wrapper:ty),*) => {$(
        impl<L: DynLock + ?Sized> DynLock for $wrapper {
            fn path(&self) -> &LockPath {
                (**self).path()
            }
        }

        impl<L: DynLock + ?Sized> sealed::Dyn for $wrapper {
            fn to_handle(&self) -> LockHandle<Label> {
                (**self).to_handle()
            }
        }
    )*};
}

forward!(&L, Box<L>);

pub(crate) mod sealed {
    use super::{Label, LockHandle};

    pub trait Dyn {
        /// Returns the handle with its kind as a value.
        fn to_handle(&self) -> LockHandle<Label>;
    }
}
