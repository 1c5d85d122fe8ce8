//! A watch connection's server and the session's server that do not have the same nodes.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use zlock_core::{CoordinationBackend, Label, LockPath};
use zlock_recipes::Client;
use zlock_testkit::zk::{Relay, SESSION, create, operation, options, watch};
use zlock_testkit::{ZooKeeper, have_zookeeper, limit_to_if, zk_op};
use zlock_zk::ZkBackend;

/// What the session's own connection watches at most.
const OWN: usize = 64 * 1024;

/// Starts a relay whose first connection leads to a server that has all nodes, and whose others lead to one that has lost
/// them: there, each read of a node's data is turned into a read of a node that does not exist.
async fn relay_to_two_servers(server: SocketAddr) -> Relay {
    Relay::start(server, |connection, request| {
        if connection > 0 && operation(request) == zk_op::GET_DATA {
            // The last byte says whether to watch.
            let last = request.len() - 2;
            request[last] = b'x';
        }
    })
    .await
}

/// A waiter whose watch belongs on a connection to a server that lacks the node ahead pauses between its attempts.
#[tokio::test]
async fn a_waiter_does_not_hammer_servers_that_disagree() {
    limit_to_if(Duration::from_secs(60), have_zookeeper(), async {
        let server = ZooKeeper::start().await;
        let holder = ZkBackend::connect(options(&server.connect_string())).await.unwrap();
        let path = LockPath::new(format!("/{}", ["long"; 20].join("-").repeat(20))).unwrap();
        let first = create(&holder, &path, Label::Lock).await.node;
        let room = OWN / (path.as_str().len() + 1 + first.name.as_str().len());
        let mut nodes = vec![first];
        while nodes.len() <= room {
            nodes.push(create(&holder, &path, Label::Lock).await.node);
        }
        let relay = relay_to_two_servers(server.addr()).await;
        let options = options(&relay.hosts).with_operation_timeout(Duration::from_secs(1));
        let backend = std::sync::Arc::new(ZkBackend::connect(options).await.unwrap());
        // The room on the session's own connection, except for the last node.
        let mut watches = Vec::new();
        for node in &nodes[..room] {
            let watch = watch(&*backend, &path, node).await;
            watches.push(watch);
        }
        let client = Client::new(backend);
        let mutex = client.mutex(&path).unwrap();
        let waiter = tokio::spawn(async move { mutex.acquire().await });
        let packets = async || server.mntr().await["packets_received"];
        let before = packets().await;
        sleep(Duration::from_secs(3)).await;
        let sent = packets().await - before;
        println!("{sent} packets in 3 s");
        assert!(!waiter.is_finished());
        assert!(sent < 200.0, "{sent} packets in 3 s");
        holder.close().await.unwrap();
        let granted = timeout(3 * SESSION, waiter).await.unwrap().unwrap().unwrap();
        assert!(granted.is_held());
        drop(watches);
    })
    .await;
}
