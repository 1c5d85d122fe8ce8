//! The code of the page about ZooKeeper, on a real server.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use zlock::zk::{Acl, AuthId, Permission, ZkBackend, ZkOptions};
use zlock::{Client, Guard};
use zlock_testkit::{limit, zookeeper_or_skip};

// ANCHOR: options
async fn connect(hosts: [String; 3]) -> zlock::Result<Client> {
    let options = ZkOptions::new(hosts)
        .with_chroot("/production".try_into()?)
        .with_session_timeout(Duration::from_secs(10))
        .with_auth("digest", "orders:secret")
        .with_acls([Acl::new(Permission::ALL, AuthId::authed())]);
    Ok(Client::new(ZkBackend::connect(options).await?))
}
// ANCHOR_END: options

// ANCHOR: guarded
/// Sets the price if the lock is held. Otherwise nothing is written, and the result is an error.
async fn set_price(
    zookeeper: &zookeeper_client::Client,
    options: &ZkOptions, // those of the lock's client
    guard: &Guard,
    price: &str,
) -> Result<(), zookeeper_client::Error> {
    let node = options.node_path(guard.path(), &guard.node());
    let mut write = zookeeper.new_check_writer(&node, None)?;
    write.add_set_data("/price", price.as_bytes(), None)?;
    write.commit().await?;
    Ok(())
}
// ANCHOR_END: guarded

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
        let host = server.connect_string();
        let client = connect([host.clone(), host.clone(), host]).await.unwrap();
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
        zookeeper.create("/price", b"16", &anyone).await.unwrap();
        set_price(&zookeeper, &options, &guard, "17").await.unwrap();

        // An operator deletes the node; the holder does not know it yet.
        zookeeper.delete(&options.node_path(guard.path(), &guard.node()), None).await.unwrap();
        set_price(&zookeeper, &options, &guard, "18").await.unwrap_err();
        assert_eq!(zookeeper.get_data("/price").await.unwrap().0, b"17");
    })
    .await;
}
