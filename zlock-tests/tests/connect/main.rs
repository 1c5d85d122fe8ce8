//! Connecting: servers that are unreachable, late, or found by DNS, and many clients at once.

mod crowd;
mod files;
mod unreachable;
mod zk {
    mod crowd;
    mod lazy;
    #[cfg(feature = "srv")]
    mod srv;
    mod unreachable;
}
#[cfg(feature = "etcd")]
mod etcd {
    mod crowd;
    mod lazy;
    #[cfg(feature = "srv")]
    mod srv;
    mod unreachable;
}
#[cfg(feature = "mysql")]
mod mysql {
    mod settings;
}
#[cfg(feature = "postgres")]
mod postgres {
    mod urls;
}
