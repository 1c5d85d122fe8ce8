//! Requests that arrive when nobody waits for their answers any more.

use std::time::Duration;

use tokio::time::sleep;
use zlock_core::{CoordinationBackend, Groups as _, Label, Target};
use zlock_postgres::{PostgresBackend, PostgresOptions};
use zlock_testkit::postgres::{create, names, observer, path};
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
        // Over the connection for writes, which exists from now on.
        client.leave(&lock).await.unwrap();
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
