//! Writes to etcd itself that only take effect while a lock is held.

use etcd_client::{Client as Observer, Compare, CompareOp, Txn, TxnOp};
use zlock_core::LockPath;
use zlock_etcd::{EtcdBackend, EtcdOptions};
use zlock_recipes::{Client, Guard};
use zlock_testkit::etcd::{observer, options, path, release};
use zlock_testkit::{FaultProxy, etcd_or_skip, limit};

/// A write that is guarded by the lock.
fn guarded(options: &EtcdOptions, guard: &Guard) -> Txn {
    let key = options.node_key(guard.path(), &guard.node());
    let token = guard.fencing_token().number().cast_signed();
    let held = Compare::create_revision(key, CompareOp::Equal, token);
    Txn::new().when([held]).and_then([TxnOp::put("guarded", "written", None)])
}

/// Writes under the lock, over a separate connection. Returns `true` if the write took effect.
async fn write(observer: &Observer, options: &EtcdOptions, guard: &Guard) -> bool {
    observer.kv_client().txn(guarded(options, guard)).await.unwrap().succeeded()
}

async fn connect(options: &EtcdOptions) -> Client {
    Client::new(EtcdBackend::connect(options.clone()).await.unwrap())
}

#[tokio::test]
async fn the_guarded_write_of_a_stale_holder_is_refused() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let observer = observer(&server.connect_string()).await;
        let proxy = FaultProxy::start(server.addr()).await;
        let lock = path("guarded");
        // A prefix is part of the key.
        let prefix = LockPath::new("/guarded").unwrap();
        let holder = options(&proxy.connect_string()).with_prefix(prefix.clone());
        let others = options(&server.connect_string()).with_prefix(prefix);
        let held = connect(&holder).await.mutex(lock.as_str()).unwrap();
        let held = held.acquire().await.unwrap();
        assert!(write(&observer, &holder, &held).await);
        // The holder is disconnected, so that it does not notice that its session is ended by hand.
        proxy.freeze().await;
        let backend = EtcdBackend::connect(others.clone()).await.unwrap();
        let key = holder.node_key(held.path(), &held.node());
        let lease = observer.kv_client().get(key, None).await.unwrap().kvs()[0].lease();
        observer.lease_client().revoke(lease).await.unwrap();
        let next = Client::new(backend).mutex(lock.as_str()).unwrap().acquire().await.unwrap();
        assert!(held.is_held(), "it does not know");
        assert!(!write(&observer, &holder, &held).await);
        assert!(write(&observer, &others, &next).await);
        release(next).await;
    })
    .await;
}

/// After a downgrade, a write lock keeps its key and its token.
#[tokio::test]
async fn the_node_is_the_one_that_is_held_now() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let (observer, options) =
            (observer(&server.connect_string()).await, options(&server.connect_string()));
        let lock = connect(&options).await.read_write_lock(path("guarded").as_str()).unwrap();
        let writing = lock.write().acquire().await.unwrap();
        assert!(write(&observer, &options, &writing).await);
        let reading = writing.downgrade().await.unwrap();
        assert!(write(&observer, &options, &reading).await);
        release(reading).await;
    })
    .await;
}

/// The session's next node has the same name. A write that is guarded by the previous node is refused.
#[tokio::test]
async fn the_guarded_write_of_an_earlier_hold_is_refused() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let (observer, options) =
            (observer(&server.connect_string()).await, options(&server.connect_string()));
        let lock = connect(&options).await.mutex(path("guarded").as_str()).unwrap();
        let first = lock.acquire().await.unwrap();
        let (node, earlier) = (first.node(), guarded(&options, &first));
        release(first).await;
        let second = lock.acquire().await.unwrap();
        assert_eq!(second.node(), node);
        assert!(!observer.kv_client().txn(earlier).await.unwrap().succeeded());
        assert!(write(&observer, &options, &second).await);
        release(second).await;
    })
    .await;
}
