//! The nodes in the store: their names, numbers and parents, and what other clients leave beside them.

mod zk {
    mod sequence;
    mod tree;
    mod wrap;
}
#[cfg(feature = "etcd")]
mod etcd {
    mod reused;
}
