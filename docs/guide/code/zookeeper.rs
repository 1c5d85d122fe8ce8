//! The code of the page about ZooKeeper, on a real server.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use zlock::Client;
use zlock::zk::{Acl, AuthId, Permission, ZkBackend, ZkOptions};
use zlock_testkit::{limit, zookeeper_or_skip};

#[tokio::test]
async fn by_url() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let url = format!("zk://{}/guide?session_timeout=10s", server.connect_string());
        let client = zlock::connect(&url).await.unwrap();
        client.mutex("/by_url").unwrap().acquire().await.unwrap().release().await.unwrap();
        client.close().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn by_options() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let hosts = [server.connect_string()];
        // ANCHOR: options
        let options = ZkOptions::new(hosts)
            .with_chroot("/production".try_into().unwrap())
            .with_session_timeout(Duration::from_secs(10))
            .with_auth("digest", "orders:secret")
            .with_acls([Acl::new(Permission::ALL, AuthId::authed())]);
        let backend = ZkBackend::connect(options).await.unwrap();
        let client = Client::new(backend);
        // ANCHOR_END: options
        client.mutex("/by_options").unwrap().acquire().await.unwrap().release().await.unwrap();
        client.close().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn guarded_write() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let options = ZkOptions::new([server.connect_string()]);
        let client = Client::new(ZkBackend::connect(options.clone()).await.unwrap());
        let guard = client.mutex("/guarded_write").unwrap().acquire().await.unwrap();
        let zookeeper = zookeeper_client::Client::connect(&server.connect_string()).await.unwrap();
        let anyone = zookeeper_client::CreateMode::Persistent.with_acls(zookeeper_client::Acls::anyone_all());
        zookeeper.create("/guarded_price", b"16", &anyone).await.unwrap();
        for held in [true, false] {
            // ANCHOR: guarded
            let node = options.node_path(guard.path(), &guard.node());
            let mut write = zookeeper.new_check_writer(&node, None).unwrap();
            write.add_set_data("/guarded_price", b"17", None).unwrap();
            let written = write.commit().await; // an error if the lock is not held: nothing was written
            // ANCHOR_END: guarded
            assert_eq!(written.is_ok(), held);
            if held {
                // An operator deletes the node; the holder does not know it yet.
                zookeeper.delete(&node, None).await.unwrap();
            }
        }
    })
    .await;
}
