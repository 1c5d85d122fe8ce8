//! The cost of locks, by the servers' own counters.

use futures_util::future::join_all;
use tokio::task::yield_now;
use zlock_recipes::{Barrier, Client};

mod mem {
    mod barriers;
    mod jobs;
    mod members;
    mod requests;
    mod sizes;
    mod slots;
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

/// Passes the barrier with all members, and waits until their nodes are removed.
async fn round(members: &[(Client, Barrier)]) {
    join_all(members.iter().map(async |(client, barrier)| {
        barrier.wait().await.unwrap();
        while client.pending_cleanups() > 0 {
            yield_now().await;
        }
    }))
    .await;
}
