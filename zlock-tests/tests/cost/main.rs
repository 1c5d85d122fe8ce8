//! The cost of locks, by the servers' own counters.

use std::convert::Infallible;
use std::time::{Duration, UNIX_EPOCH};

use futures_util::future::join_all;
use tokio::task::yield_now;
use zlock_recipes::job::{Outcome, RecurringJob, Tick};
use zlock_recipes::{Barrier, Client, MembersWatch};

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

/// Runs the job of this tick if no client has. Returns whether it did.
async fn call(job: &RecurringJob, tick: u32) -> bool {
    let tick = Tick::at(UNIX_EPOCH + Duration::from_secs(60) * (29_000_000 + tick));
    match job.run(tick, async |_context| Ok::<_, Infallible>(())).await.unwrap() {
        Outcome::Ran(Ok(())) => true,
        Outcome::AlreadyRan(_) => false,
        other => panic!("{other:?}"),
    }
}

/// Waits until each watch shows this many members.
async fn see(watches: &mut [MembersWatch], members: usize) {
    for watch in watches {
        while watch.changed().await.unwrap().members.len() != members {}
    }
}
