//! A watch connection's server and the session's server that do not have the same nodes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::{SESSION, create, options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use zlock_core::{CoordinationBackend, Existence, Label, LockPath};
use zlock_recipes::Client;
use zlock_testkit::{ZooKeeper, have_zookeeper, limit_to};
use zlock_zk::ZkBackend;

/// What the session's own connection watches at most.
const OWN: usize = 64 * 1024;

/// A relay whose first connection leads to a server that has all nodes, and whose others lead to one that has lost them: there,
/// each read of a node's data is turned into a read of a node that does not exist.
async fn relay_to_two_servers(server: SocketAddr) -> String {
    const GET_DATA: [u8; 4] = 4_i32.to_be_bytes();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        for number in 0.. {
            let (client, _) = listener.accept().await.unwrap();
            let server = TcpStream::connect(server).await.unwrap();
            client.set_nodelay(true).and(server.set_nodelay(true)).unwrap();
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
            tokio::spawn(async move {
                let mut is_connected = false;
                while let Ok(length) = from_client.read_u32().await {
                    let mut request = vec![0; length as usize];
                    from_client.read_exact(&mut request).await?;
                    // The first one is a connect, without a header. The last byte says whether to watch.
                    if number > 0 && is_connected && request[4..8] == GET_DATA {
                        let last = request.len() - 2;
                        request[last] = b'x';
                    }
                    is_connected = true;
                    to_server.write_all(&[&length.to_be_bytes()[..], &request].concat()).await?;
                }
                std::io::Result::Ok(())
            });
        }
    });
    addr
}

/// A waiter whose watch belongs on a connection to a server that lacks the node ahead pauses between its attempts.
#[tokio::test]
async fn a_waiter_does_not_hammer_servers_that_disagree() {
    if !have_zookeeper() {
        return;
    }
    limit_to(Duration::from_secs(60), async {
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
        let options = options(&relay).with_operation_timeout(Duration::from_secs(1));
        let backend = std::sync::Arc::new(ZkBackend::connect(options).await.unwrap());
        // The room on the session's own connection, except for the last node.
        let mut watches = Vec::new();
        for node in &nodes[..room] {
            let Existence::Watching(watch) = backend.exists_with_watch(&path, node).await.unwrap() else {
                panic!("{node:?}")
            };
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
