//! Which node holds the lock and by what proof, who is next, and how long that takes.

mod bounds;
mod mem {
    mod seed;
    mod succession;
    mod waits;
}
mod zk {
    mod alone;
    mod numbers;
}
#[cfg(feature = "etcd")]
mod etcd {
    mod batches;
}
#[cfg(feature = "postgres")]
mod postgres {
    mod wakes;
}
