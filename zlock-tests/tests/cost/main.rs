//! The cost of locks, by the servers' own counters.

mod mem {
    mod requests;
    mod sizes;
}
mod zk {
    mod many;
    mod requests;
}
#[cfg(feature = "etcd")]
mod etcd {
    mod requests;
}
