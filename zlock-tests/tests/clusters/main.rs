//! Clusters of three servers, some of which die, freeze or are replaced.

mod zk {
    mod ensemble;
    mod proof;
}
#[cfg(feature = "etcd")]
mod etcd {
    mod cluster;
}
