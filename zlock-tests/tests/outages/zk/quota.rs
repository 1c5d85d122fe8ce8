//! A quota that the server enforces.

use std::time::Duration;

use zlock_core::ErrorKind;
use zlock_recipes::{Client, Release};
use zlock_testkit::zk::options;
use zlock_testkit::{ZooKeeper, have_zookeeper, limit_to_if};
use zlock_zk::ZkBackend;
use zookeeper_client::{Acls, CreateMode};

/// Returns what is in the node of a quota: a limit of this many nodes, the path itself included.
fn at_most(nodes: u32) -> Vec<u8> {
    format!("count=-1,bytes=-1=;byteHardLimit=-1=;countHardLimit={nodes}").into()
}

/// A quota that is used up is like a database that is full: the error names it, and another attempt may succeed.
#[tokio::test]
async fn a_quota_that_is_used_up_is_named_and_may_be_raised() {
    limit_to_if(Duration::from_secs(60), have_zookeeper(), async {
        let server = ZooKeeper::builder().config("enforceQuota=true").start().await;
        let options = options(&server.connect_string()).with_operation_timeout(Duration::from_secs(1));
        let client = Client::new(ZkBackend::connect(options).await.unwrap());
        let mutex = client.mutex("/app/lock").unwrap();
        assert_eq!(mutex.acquire().await.unwrap().release().await.unwrap(), Release::Released);
        let operator = zookeeper_client::Client::connect(&server.connect_string()).await.unwrap();
        let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let limits = "/zookeeper/quota/app/zookeeper_limits";
        for (path, data) in [
            ("/zookeeper/quota/app", Vec::new()),
            (limits, at_most(2)),
            ("/zookeeper/quota/app/zookeeper_stats", b"count=2,bytes=0".to_vec()),
        ] {
            operator.create(path, &data, &persistent).await.unwrap();
        }
        let error = mutex.acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.is_retryable() && error.to_string().contains("quota"), "{error}");
        println!("{error}");
        operator.set_data(limits, &at_most(3), None).await.unwrap();
        assert_eq!(mutex.acquire().await.unwrap().release().await.unwrap(), Release::Released);
    })
    .await;
}
