//! The contract of backends, on each store.

#[cfg(feature = "etcd")]
mod etcd;
mod ledger;
mod mem;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod zk;
