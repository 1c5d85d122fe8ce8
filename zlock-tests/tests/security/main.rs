//! TLS, users and passwords.

#[cfg(feature = "etcd")]
mod etcd;
#[cfg(any(feature = "zk-tls", feature = "zk-sasl"))]
mod zk;
