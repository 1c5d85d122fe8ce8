//! Writes to the store itself that only take effect while a lock is held.

#[cfg(feature = "etcd")]
mod etcd;
mod mem;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod zk;
