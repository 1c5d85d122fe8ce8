//! Processes that end without a word: others that are connected end their sessions.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_postgres::Client;
use zlock_recipes::Client as Locks;
use zlock_testkit::postgres::{
    Linked, RawNode, TTL, backend, begin_session, create_node, linked, names, observer, path, token,
};
use zlock_testkit::{PostgresServer, have_postgres, limit, limit_if, postgres_or_skip, until};

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

async fn overdue(observer: &Client) -> Vec<i64> {
    let rows = observer.query("SELECT zlock.v1_overdue()", &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// More sessions have died than one answer has room for. Each is marked, and those that are marked keep no other one waiting.
#[tokio::test]
async fn each_overdue_session_is_found() {
    limit_if(have_postgres(), async {
        let server = PostgresServer::start().await;
        drop(backend(&server).await);
        let observer = observer(&server).await;
        let mut dead = Vec::new();
        for _ in 0..250 {
            dead.push(begin_session(&observer).await);
        }
        let age = "UPDATE zlock.session SET renewed = renewed - interval '1 hour' WHERE id = ANY ($1)";
        observer.execute(age, &[&dead]).await.unwrap();
        let mut marked = Vec::new();
        loop {
            let found = overdue(&observer).await;
            if found.is_empty() {
                break;
            }
            for id in found {
                observer.execute("SELECT zlock.v1_suspect($1)", &[&id]).await.unwrap();
                marked.push(id);
            }
        }
        marked.sort_unstable();
        dead.sort_unstable();
        assert_eq!(marked, dead);
        // They can be ended once their timeout has passed since.
        observer
            .execute("UPDATE zlock.session SET suspect = suspect - interval '1 hour'", &[])
            .await
            .unwrap();
        assert_eq!(overdue(&observer).await.len(), 100);
    })
    .await;
}

/// A client believes that it rests, and the server has a node of it, or a create that is in flight. The answer says so, at once.
#[tokio::test]
async fn a_session_with_a_node_does_not_rest() {
    limit(async {
        let Some(server) = postgres_or_skip().await else { return };
        drop(backend(server).await);
        let (mut one, other) = (observer(server).await, observer(server).await);
        let (session, lock, id) = (begin_session(&one).await, path("rests"), token().to_string());
        let rests = async || -> bool {
            let sql = "SELECT rests FROM zlock.v1_beat($1, 60000, 600000, false, '{}')";
            other.query_one(sql, &[&session]).await.unwrap().get(0)
        };
        assert!(rests().await);
        let open = one.transaction().await.unwrap();
        let node = RawNode { session, path: lock.as_str(), id: &id, ttl: 15 * TTL, renews: false };
        let sql = "SELECT zlock.v1_share_session($1)";
        open.execute(sql, &[&session]).await.unwrap();
        assert!(!rests().await, "a create is in flight");
        create_node(&open, node).await.unwrap();
        open.commit().await.unwrap();
        assert!(!rests().await, "there is a node");
    })
    .await;
}
