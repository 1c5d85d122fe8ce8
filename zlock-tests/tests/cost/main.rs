//! The cost of locks, by the servers' own counters.

mod mem {
    mod jobs;
    mod members;
    mod requests;
    mod sizes;
    mod values;
}
mod zk {
    mod barriers;
    mod election;
    mod jobs;
    mod many;
    mod members;
    mod requests;
    mod values;
}
#[cfg(feature = "etcd")]
mod etcd {
    mod barriers;
    mod election;
    mod jobs;
    mod members;
    mod requests;
    mod values;
}
#[cfg(feature = "postgres")]
mod postgres {
    mod barriers;
    mod election;
    mod jobs;
    mod members;
    mod requests;
    mod values;
}
