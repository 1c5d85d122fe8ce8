//! Requests that arrive when nobody waits for their answers any more.

use std::time::Duration;

use tokio::time::sleep;
use zlock_core::{CoordinationBackend, Label, Target};
use zlock_postgres::{PostgresBackend, PostgresOptions};
use zlock_testkit::postgres::{
    RawNode, backend, begin_session, create, create_node, delete_node, names, observer, path, sqlstate, token,
};
use zlock_testkit::{FaultProxy, Flow, limit, postgres_or_skip, until};

/// The first create is kept by the network, so it is repeated over another connection. It arrives when the lock was acquired and
/// released long since.
#[tokio::test]
async fn a_create_that_arrives_after_its_delete_has_no_effect() {
    limit(async {
        let Some(server) = postgres_or_skip().await else { return };
        let (first, second) =
            (FaultProxy::start(server.addr()).await, FaultProxy::start(server.addr()).await);
        let hosts = [first.connect_string(), second.connect_string()];
        let options = PostgresOptions::new(hosts).with_user("zlock", None).with_database("zlock");
        let options = options.with_ttl(Duration::from_secs(4)).with_create_schema(true);
        let client = PostgresBackend::connect(options).await.unwrap();
        let lock = path("thawed");
        // Over the connection for operations, which exists from now on.
        client.children(&lock, None).await.unwrap();
        let observer = observer(server).await;
        // New connections are made through the second link.
        first.to_server(Flow::Hold);
        first.refuse().await;
        let node = create(&client, &lock, Label::Lock).await.node;
        assert!(second.connections() > 0, "it was not repeated");
        assert_eq!(names(&observer, &lock).await, [node.id.as_str()]);
        client.delete(&lock, &Target::Node(node), None).await.unwrap();
        let before = first.bytes_to_server();
        first.to_server(Flow::Pass);
        until("the create arrives", async || first.bytes_to_server() > before).await;
        sleep(Duration::from_millis(300)).await;
        assert!(names(&observer, &lock).await.is_empty(), "a node that nobody removes");
    })
    .await;
}

/// The same, at the server: a create with the ID of a node that was given up is refused, for as long as the session lives.
#[tokio::test]
async fn a_create_that_was_given_up_is_void() {
    limit(async {
        let Some(server) = postgres_or_skip().await else { return };
        drop(backend(server).await);
        let observer = observer(server).await;
        let (session, lock, ids) = (begin_session(&observer).await, path("void"), [token(), token()]);
        let ids = ids.map(|id| id.to_string());
        let node = |n: usize| RawNode {
            session,
            path: lock.as_str(),
            id: &ids[n],
            ttl: Duration::from_secs(60),
            renews: true,
        };
        create_node(&observer, node(0)).await.unwrap();
        for id in &ids {
            delete_node(&observer, lock.as_str(), id, Some(session)).await.unwrap();
        }
        for n in 0..2 {
            assert_eq!(sqlstate(create_node(&observer, node(n)).await), "ZL004");
        }
        assert!(names(&observer, &lock).await.is_empty());
        // What was given up goes with the session.
        observer.execute("SELECT zlock.v1_end($1)", &[&session]).await.unwrap();
        observer.execute("SELECT * FROM zlock.v1_clean($1)", &[&session]).await.unwrap();
        let void = observer.query("SELECT 1 FROM zlock.void WHERE session = $1", &[&session]).await.unwrap();
        assert!(void.is_empty());
    })
    .await;
}

/// Requests that a client has repeated, and whose first copies arrive when it has moved on, undo nothing.
#[tokio::test]
async fn late_relabellings_and_leaves_undo_nothing() {
    limit(async {
        let Some(server) = postgres_or_skip().await else { return };
        drop(backend(server).await);
        let observer = observer(server).await;
        let (session, lock, id) = (begin_session(&observer).await, path("relabelled"), token().to_string());
        let ttl = Duration::from_secs(60);
        let node = RawNode { session, path: lock.as_str(), id: &id, ttl, renews: true };
        create_node(&observer, node).await.unwrap();
        let relabel = async |label: &str, count: i64| {
            let sql = "SELECT outcome FROM zlock.v1_relabel($1, $2, $3::text::uuid, $4, $5, false)";
            let row =
                observer.query_one(sql, &[&session, &lock.as_str(), &id, &label, &count]).await.unwrap();
            assert_eq!(row.get::<_, i32>(0), 0);
            let sql = "SELECT label FROM zlock.node WHERE id = $1::text::uuid";
            observer.query_one(sql, &[&id]).await.unwrap().get::<_, String>(0)
        };
        assert_eq!(relabel("granted 1", 1).await, "granted 1");
        assert_eq!(relabel("waiting 1", 2).await, "waiting 1");
        assert_eq!(relabel("granted 1", 1).await, "waiting 1");

        let group = path("left");
        let join = async |write: i64| {
            let sql =
                "SELECT outcome FROM zlock.v1_join($1, $2, 'w7', '', false, 0, $3, 60000, false, false)";
            let row = observer.query_one(sql, &[&session, &group.as_str(), &write]).await.unwrap();
            assert_eq!(row.get::<_, i32>(0), 0);
        };
        let leave = async |write: i64| {
            let sql = "SELECT zlock.v1_leave($1, $2, 'w7', 0, $3)";
            observer.execute(sql, &[&session, &group.as_str(), &write]).await.unwrap();
            names(&observer, &group).await.len()
        };
        join(1).await;
        assert_eq!(leave(2).await, 0);
        join(3).await;
        assert_eq!(leave(2).await, 1, "a late leave removes a later member");
        assert_eq!(leave(4).await, 0);
    })
    .await;
}
