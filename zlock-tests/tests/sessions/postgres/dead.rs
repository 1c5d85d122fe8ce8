//! Processes that end without a word: others that are connected end their sessions.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use zlock_recipes::Client as Locks;
use zlock_testkit::postgres::{Linked, TTL, backend, linked, names, path};
use zlock_testkit::{limit, postgres_or_skip, until};

/// Longer than any look takes, and far shorter than the ten minutes between two sweeps.
const SOON: Duration = TTL.saturating_mul(5);

/// A waiter for permits or for a slot watches a queue, and none of its nodes. The holder is dead.
#[tokio::test]
async fn a_waiter_for_permits_and_one_for_a_slot_free_what_is_dead() {
    limit(async {
        let Some(server) = postgres_or_skip().await else { return };
        let Linked { proxy, backend: cut_off, .. } = linked(server).await;
        let (permits, slots) = (path("permits"), path("slots"));
        let dead = Locks::new(cut_off);
        let held = dead.semaphore(permits.as_str(), 2).unwrap().acquire(2).await.unwrap();
        let slot = dead.slots(slots.as_str(), 1).unwrap().acquire().await.unwrap();
        proxy.freeze().await;
        let client = Locks::new(backend(server).await);
        let permit = async {
            let permits = client.semaphore(permits.as_str(), 2).unwrap();
            timeout(SOON, permits.acquire(1)).await.expect("a dead holder keeps the permits").unwrap()
        };
        let other = async {
            let slots = client.slots(slots.as_str(), 1).unwrap();
            timeout(SOON, slots.acquire()).await.expect("a dead holder keeps the slot").unwrap()
        };
        let (permit, other) = tokio::join!(permit, other);
        assert!(!held.is_held() && !slot.guard().is_held(), "two hold");
        permit.release().await.unwrap();
        other.release().await.unwrap();
    })
    .await;
}

/// Two members wait at a barrier, and one of them dies. The other one watches the rounds only, and still frees its place.
#[tokio::test]
async fn a_member_of_a_barrier_frees_the_place_of_a_dead_one() {
    limit(async {
        let Some(server) = postgres_or_skip().await else { return };
        let Linked { proxy, backend: cut_off, observer } = linked(server).await;
        let barrier = path("barrier");
        let members = barrier.join("members").unwrap();
        let [alive, dead] = [backend(server).await, cut_off].map(|backend| {
            let barrier = Locks::new(backend).barrier(barrier.as_str(), 3).unwrap();
            tokio::spawn(async move { barrier.wait().await })
        });
        until("both are there", async || names(&observer, &members).await.len() == 2).await;
        proxy.freeze().await;
        let alone = async {
            while names(&observer, &members).await.len() > 1 {
                sleep(TTL / 10).await;
            }
        };
        timeout(SOON, alone).await.expect("a dead member is counted");
        assert!(!alive.is_finished());
        alive.abort();
        dead.abort();
    })
    .await;
}
