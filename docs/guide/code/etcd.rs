//! The code of the page about etcd, on a real server.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use zlock::Client;
use zlock::etcd::{EtcdBackend, EtcdOptions};
use zlock_testkit::{etcd_or_skip, limit};

#[tokio::test]
async fn by_url() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let url = format!("etcd://{}/guide?session_timeout=10s", server.connect_string());
        let client = zlock::connect(&url).await.unwrap();
        client.mutex("/by_url").unwrap().acquire().await.unwrap().release().await.unwrap();
        client.close().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn by_options() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let hosts = [server.connect_string()];
        // ANCHOR: options
        let options = EtcdOptions::new(hosts)
            .with_prefix("/production".try_into().unwrap())
            .with_ttl(Duration::from_secs(10))
            .with_user("orders", "secret");
        let backend = EtcdBackend::connect(options).await.unwrap();
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
        let Some(server) = etcd_or_skip().await else { return };
        let options = EtcdOptions::new([server.connect_string()]);
        let client = Client::new(EtcdBackend::connect(options.clone()).await.unwrap());
        let guard = client.mutex("/guarded_write").unwrap().acquire().await.unwrap();
        let mut etcd = etcd_client::Client::connect([server.connect_string()], None).await.unwrap();
        for held in [true, false] {
            // ANCHOR: guarded
            let key = options.node_key(guard.path(), &guard.node());
            let token = guard.fencing_token().number().cast_signed();
            let is_held = Compare::create_revision(key.as_str(), CompareOp::Equal, token);
            let write = Txn::new().when([is_held]).and_then([TxnOp::put("price", "17", None)]);
            let written = etcd.txn(write).await.unwrap().succeeded(); // false if the lock is not held
            // ANCHOR_END: guarded
            assert_eq!(written, held);
            if held {
                // An operator deletes the key; the holder does not know it yet.
                etcd.delete(key, None).await.unwrap();
            }
        }
    })
    .await;
}
