//! Writes to ZooKeeper itself that only take effect while a lock is held.

use std::time::Duration;

use zlock::zk::{ZkBackend, ZkOptions};
use zlock::{Client, Guard};
use zlock_testkit::zk::{LONG, Observer, release, wait_behind};
use zlock_testkit::{FaultProxy, ZooKeeper, limit, zookeeper_or_skip};

fn options(server: &ZooKeeper, chroot: &str) -> ZkOptions {
    let url = format!("zk://{}{chroot}", server.connect_string());
    ZkOptions::from_url(&url).unwrap().with_session_timeout(LONG)
}

async fn connect(options: &ZkOptions) -> Client {
    Client::new(ZkBackend::connect(options.clone()).await.unwrap())
}

/// Writes to a node under the lock, over a separate connection. Returns `true` if the write took effect.
async fn write(observer: &Observer, options: &ZkOptions, guard: &Guard, path: &str) -> bool {
    let node = options.node_path(guard.path(), &guard.node());
    let mut writes = observer.0.new_check_writer(&node, None).unwrap();
    writes.add_set_data(path, b"written", None).unwrap();
    writes.commit().await.is_ok()
}

/// A holder that has not noticed that its node is gone.
#[tokio::test]
async fn the_guarded_write_of_a_stale_holder_is_refused() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        // A chroot is part of the path.
        let options = options(server, "/guarded/chroot");
        let observer = Observer::connect(server.connect_string()).await;
        observer.make("/guarded/data").await;
        // Its heartbeats are minutes apart, so it does not notice.
        let stale = connect(&options).await.mutex("/lock").unwrap();
        let next = connect(&options).await.mutex("/lock").unwrap();
        let held = stale.acquire().await.unwrap();
        assert!(write(&observer, &options, &held, "/guarded/data").await);
        let waiting = next.acquire();
        let mut waiting = std::pin::pin!(waiting);
        assert!(tokio::time::timeout(Duration::from_millis(50), &mut waiting).await.is_err());

        observer.remove(&options.node_path(held.path(), &held.node())).await;
        let next = waiting.await.unwrap();
        assert!(held.is_held(), "it does not know");
        assert!(!write(&observer, &options, &held, "/guarded/data").await);
        assert!(write(&observer, &options, &next, "/guarded/data").await);
        // A revocation is requested, which changes the holder's node.
        stale.request_revocation().await.unwrap();
        assert!(write(&observer, &options, &next, "/guarded/data").await);
        release(next).await;
    })
    .await;
}

/// A disconnected holder's session ends.
#[tokio::test]
async fn the_guarded_write_of_a_holder_whose_session_is_over_is_refused() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let proxy = FaultProxy::start_zookeeper(server.addr()).await;
        let cut_off = ZkOptions::new([proxy.connect_string()]).with_session_timeout(Duration::from_secs(1));
        let observer = Observer::connect(server.connect_string()).await;
        observer.make("/guarded/session").await;
        let held = connect(&cut_off).await.mutex("/guarded/lock").unwrap().acquire().await.unwrap();
        let next = connect(&options(server, "")).await.mutex("/guarded/lock").unwrap();
        let waiting = wait_behind(&next, &observer, 1).await;
        proxy.freeze().await;
        let next = waiting.await.unwrap();
        assert!(!write(&observer, &cut_off, &held, "/guarded/session").await);
        assert!(write(&observer, &cut_off, &next, "/guarded/session").await);
        release(next).await;
    })
    .await;
}

/// After a downgrade, a write lock has another node.
#[tokio::test]
async fn the_node_is_the_one_that_is_held_now() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let options = options(server, "");
        let observer = Observer::connect(server.connect_string()).await;
        observer.make("/guarded/downgrade").await;
        let lock = connect(&options).await.read_write_lock("/guarded/rw").unwrap();
        let writing = lock.write().acquire().await.unwrap();
        let before = writing.node();
        assert!(write(&observer, &options, &writing, "/guarded/downgrade").await);
        let reading = writing.downgrade().await.unwrap();
        assert_ne!(reading.node(), before);
        assert!(write(&observer, &options, &reading, "/guarded/downgrade").await);
        release(reading).await;
    })
    .await;
}
