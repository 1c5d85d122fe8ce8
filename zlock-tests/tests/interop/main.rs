//! Other libraries and programs on the same paths, and several stores in one process.

mod zk {
    mod barriers;
    mod members;
    mod mixed;
    mod peer;
    mod peers;
}
#[cfg(feature = "etcd")]
mod etcd {
    mod mixed;
    mod peers;
    mod values;
}
#[cfg(all(feature = "etcd", feature = "postgres"))]
mod stores;
