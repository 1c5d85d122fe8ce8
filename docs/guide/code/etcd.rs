//! The code of the page about etcd, on a real server.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use zlock::etcd::{EtcdBackend, EtcdOptions};
use zlock::{Client, Guard};
use zlock_testkit::{etcd_or_skip, limit};

// ANCHOR: options
async fn connect(hosts: [String; 3]) -> zlock::Result<Client> {
    let options = EtcdOptions::new(hosts)
        .with_prefix("/production".try_into()?)
        .with_ttl(Duration::from_secs(10))
        .with_user("orders", "secret");
    Ok(Client::new(EtcdBackend::connect(options).await?))
}
// ANCHOR_END: options

// ANCHOR: batching
async fn connect_without_batching(host: String) -> zlock::Result<Client> {
    let options = EtcdOptions::new([host]).with_batching(false); // `true` by default
    Ok(Client::new(EtcdBackend::connect(options).await?))
}
// ANCHOR_END: batching

// ANCHOR: guarded
/// Sets the price if the lock is held. Otherwise nothing is written, and the result is `false`.
async fn set_price(
    etcd: &mut etcd_client::Client,
    options: &EtcdOptions, // those of the lock's client
    guard: &Guard,
    price: &str,
) -> Result<bool, etcd_client::Error> {
    let key = options.node_key(guard.path(), &guard.node());
    let token = guard.fencing_token().number().cast_signed();
    let is_held = Compare::create_revision(key, CompareOp::Equal, token);
    let write = Txn::new().when([is_held]).and_then([TxnOp::put("price", price, None)]);
    Ok(etcd.txn(write).await?.succeeded())
}
// ANCHOR_END: guarded

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
        let Some(server) = etcd_or_skip().await else { return };
        let options = EtcdOptions::new([server.connect_string()]);
        let client = Client::new(EtcdBackend::connect(options.clone()).await.unwrap());
        let guard = client.mutex("/guarded_write").unwrap().acquire().await.unwrap();
        let mut etcd = etcd_client::Client::connect([server.connect_string()], None).await.unwrap();
        assert!(set_price(&mut etcd, &options, &guard, "17").await.unwrap());

        // An operator deletes the key; the holder does not know it yet.
        etcd.delete(options.node_key(guard.path(), &guard.node()), None).await.unwrap();
        assert!(!set_price(&mut etcd, &options, &guard, "18").await.unwrap());
        assert_eq!(etcd.get("price", None).await.unwrap().kvs()[0].value(), b"17");
    })
    .await;
}

#[tokio::test]
async fn without_batching() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let client = connect_without_batching(server.connect_string()).await.unwrap();
        client.mutex("/orders/42").unwrap().run(async {}).await.unwrap();
        client.close().await.unwrap();
    })
    .await;
}
