//! Holders that are cut off, paused or killed: which client holds the lock, and when each knows it.

mod zk {
    mod deadline;
    mod processes;
    mod silence;
}
#[cfg(feature = "etcd")]
mod etcd {
    mod processes;
}
