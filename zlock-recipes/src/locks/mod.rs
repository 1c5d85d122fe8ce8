//! The locks as users see them: handles, the kinds of lock, and what creates them.

pub(crate) mod dyn_lock;
pub(crate) mod handle;
pub mod kind;
pub(crate) mod lock;
pub(crate) mod multi;
pub(crate) mod mutex;
pub(crate) mod participants;
pub(crate) mod rwlock;
pub(crate) mod semaphore;
pub(crate) mod template;
