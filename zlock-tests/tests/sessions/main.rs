//! How a session begins, what it costs while it is idle, and how it ends.

mod zk {
    mod close;
    mod rest;
    mod session;
}
#[cfg(feature = "etcd")]
mod etcd {
    mod rest;
    mod session;
}
#[cfg(feature = "postgres")]
mod postgres {
    mod dead;
    mod session;
}
