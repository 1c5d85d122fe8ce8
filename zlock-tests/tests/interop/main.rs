//! Other libraries and programs on the same paths.

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
