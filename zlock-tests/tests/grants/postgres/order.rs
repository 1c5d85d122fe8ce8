//! The order of the nodes of a queue, and what a create and a delete see of each other.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_postgres::Client;
use zlock_core::LockPath;
use zlock_testkit::postgres::{
    RawNode, backend, begin_session, create_node, delete_node, observer, path, token,
};
use zlock_testkit::{PostgresServer, limit, postgres_or_skip};

const TTL: Duration = Duration::from_secs(60);

/// Returns the server once it has the schema, and a connection.
async fn server() -> Option<(&'static PostgresServer, Client)> {
    let server = postgres_or_skip().await?;
    drop(backend(server).await);
    Some((server, observer(server).await))
}

/// A queue of the two nodes of two sessions.
struct Pair {
    lock: LockPath,
    sessions: [i64; 2],
    ids: [String; 2],
}

impl Pair {
    async fn new(observer: &Client, name: &str) -> Self {
        let sessions = [begin_session(observer).await, begin_session(observer).await];
        Pair { lock: path(name), sessions, ids: [token(), token()].map(|id| id.to_string()) }
    }

    fn node(&self, n: usize) -> RawNode<'_> {
        RawNode {
            session: self.sessions[n],
            path: self.lock.as_str(),
            id: &self.ids[n],
            ttl: TTL,
            renews: true,
        }
    }
}

/// Who looks never finds a node in front of one that it has seen before: a number is taken and becomes visible under one lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_become_visible_in_their_order() {
    const WRITERS: usize = 32;
    const CREATES: usize = 25;
    limit(async {
        let Some((server, looker)) = server().await else { return };
        let lock = path("visible");
        let mut writers = JoinSet::new();
        for _ in 0..WRITERS {
            let (writer, lock) = (observer(server).await, lock.clone());
            writers.spawn(async move {
                let session = begin_session(&writer).await;
                for _ in 0..CREATES {
                    let id = token().to_string();
                    let node = RawNode { session, path: lock.as_str(), id: &id, ttl: TTL, renews: true };
                    create_node(&writer, node).await.unwrap();
                }
            });
        }
        let (mut seen, mut looks) = (BTreeSet::new(), 0);
        while seen.len() < WRITERS * CREATES {
            let sql = "SELECT seq FROM zlock.node WHERE path = $1";
            let rows = looker.query(sql, &[&lock.as_str()]).await.unwrap();
            let now: BTreeSet<i64> = rows.iter().map(|row| row.get(0)).collect();
            let last = seen.last().copied().unwrap_or(0);
            let late: Vec<_> = now.difference(&seen).filter(|seq| **seq < last).collect();
            assert!(late.is_empty(), "{late:?} have appeared in front of {last}, after {looks} looks");
            seen = now;
            looks += 1;
        }
        writers.join_all().await;
    })
    .await;
}

/// A create that has waited for another one sees it.
#[tokio::test]
async fn a_create_sees_the_one_that_it_has_waited_for() {
    limit(async {
        let Some((server, mut one)) = server().await else { return };
        let pair = Pair::new(&one, "waited").await;
        let other = observer(server).await;
        let open = one.transaction().await.unwrap();
        create_node(&open, pair.node(0)).await.unwrap();
        let later = async {
            sleep(Duration::from_millis(200)).await;
            open.commit().await.unwrap();
        };
        let (created, ()) = tokio::join!(create_node(&other, pair.node(1)), later);
        let found: Vec<_> = created.unwrap().into_iter().map(|(id, ..)| id).collect();
        assert_eq!(found, [pair.ids[1].clone(), pair.ids[0].clone()]);
    })
    .await;
}

/// The predecessor is deleted after a create has read it, and before the create is visible. The delete waits, and then finds whom
/// to wake.
#[tokio::test]
async fn a_delete_sees_the_create_that_has_seen_its_node() {
    limit(async {
        let Some((server, mut one)) = server().await else { return };
        let pair = Pair::new(&one, "deleted").await;
        create_node(&one, pair.node(0)).await.unwrap();
        let other = observer(server).await;
        let open = one.transaction().await.unwrap();
        let seen = create_node(&open, pair.node(1)).await.unwrap();
        assert_eq!(seen[1].0, pair.ids[0]);
        let commit = async {
            sleep(Duration::from_millis(200)).await;
            open.commit().await.unwrap();
        };
        let (deleted, ()) = tokio::join!(delete_node(&other, pair.lock.as_str(), &pair.ids[0], None), commit);
        assert_eq!(deleted.unwrap(), (0, vec![pair.sessions[1]]), "who waits is woken");
    })
    .await;
}
