//! ZooKeeper's sessions, made by many clients at once or answered late.

use tokio::time::Instant;
use zlock_core::Result;
use zlock_testkit::{FaultProxy, Flow, ZooKeeper, have_zookeeper, limit_to_if};
use zlock_zk::{ZkBackend, ZkOptions};

use crate::crowd::{MINUTE, Site, is_served, returns_after_an_outage};

struct Zk {
    server: ZooKeeper,
    proxy: FaultProxy,
}

impl Zk {
    /// Returns the number of transactions, of which each session that begins or ends is one, and of live sessions.
    async fn counts(&self) -> (u64, u64) {
        let srvr = self.server.four_letter_word("srvr").await.unwrap();
        let zxid = srvr.lines().find_map(|line| line.strip_prefix("Zxid: 0x")).unwrap();
        let changes = u64::from_str_radix(zxid, 16).unwrap() & 0xFFFF_FFFF;
        (changes, self.server.mntr().await["global_sessions"] as u64)
    }
}

impl Site for Zk {
    type Backend = ZkBackend;

    async fn start() -> Self {
        let server = ZooKeeper::builder().config("maxClientCnxns=0").start().await;
        let proxy = FaultProxy::start_zookeeper(server.addr()).await;
        Zk { server, proxy }
    }

    fn proxy(&self) -> &FaultProxy {
        &self.proxy
    }

    fn connect(&self) -> impl Future<Output = Result<ZkBackend>> + Send + 'static {
        ZkBackend::connect(ZkOptions::new([self.proxy.connect_string()]))
    }

    async fn made(&self) -> u64 {
        let (changes, live) = self.counts().await;
        (changes + live) / 2
    }

    async fn live(&self) -> u64 {
        self.counts().await.1
    }
}

#[tokio::test]
async fn late_answers_cost_no_session() {
    limit_to_if(2 * MINUTE, have_zookeeper(), async {
        for late in [1800, 2000, 2200, 3000].map(std::time::Duration::from_millis) {
            let zk = Zk::start().await;
            zk.proxy.to_client(Flow::Delay(late));
            let (before, began) = (zk.made().await, Instant::now());
            let client = zk.connect().await;
            let made = zk.made().await - before;
            println!(
                "late by {late:?}: {:?} after {:?}, {made} made",
                client.as_ref().err(),
                began.elapsed()
            );
            let client = client.unwrap();
            assert!(made <= 2, "{made} sessions were made");
            assert!(zk.live().await <= 2);
            drop(client);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_is_served() {
    if have_zookeeper() {
        is_served::<Zk>().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_returns_after_an_outage() {
    if have_zookeeper() {
        returns_after_an_outage::<Zk>().await;
    }
}
