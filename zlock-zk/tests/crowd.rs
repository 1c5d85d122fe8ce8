//! Servers whose answers come late, and many clients that connect at the same moment.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::time::Duration;

use common::until;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use zlock_core::CoordinationBackend;
use zlock_testkit::{Cut, FaultProxy, Flow, ZooKeeper, have_zookeeper, limit_to};
use zlock_zk::{ZkBackend, ZkOptions};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// The number of clients that connect at once. `ZLOCK_CROWD` sets another one.
fn crowd() -> usize {
    std::env::var("ZLOCK_CROWD").map_or(40, |crowd| crowd.parse().unwrap())
}

/// The sessions of a server on which nothing else is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Count {
    /// The transactions: each session that begins or ends is one.
    changes: u64,
    live: u64,
}

impl Count {
    async fn of(server: &ZooKeeper) -> Self {
        let srvr = server.four_letter_word("srvr").await.unwrap();
        let zxid = srvr.lines().find_map(|line| line.strip_prefix("Zxid: 0x")).unwrap();
        let changes = u64::from_str_radix(zxid, 16).unwrap() & 0xFFFF_FFFF;
        let live = server.mntr().await["global_sessions"] as u64;
        Count { changes, live }
    }

    /// Returns how many sessions were made since `before`.
    fn made_since(self, before: Count) -> u64 {
        (self.changes - before.changes + self.live - before.live) / 2
    }
}

/// Returns how many sessions these clients have needed so far. With answers as late as here, no session of ten seconds lasts:
/// the first ones to have one are looking for another one before the last ones have theirs.
fn needed(clients: &[ZkBackend]) -> u64 {
    clients.iter().map(|client| client.session_events().current().epoch + u64::from(is_lost(client))).sum()
}

fn is_lost(client: &ZkBackend) -> bool {
    client.session_terms().is_none()
}

fn options(proxy: &FaultProxy) -> ZkOptions {
    ZkOptions::new([proxy.connect_string()])
}

/// Connects this many clients at once, and returns those that succeed.
async fn connect(proxy: &FaultProxy, clients: usize) -> Vec<ZkBackend> {
    let mut connecting = JoinSet::new();
    for _ in 0..clients {
        connecting.spawn(ZkBackend::connect(options(proxy)));
    }
    let mut connected = Vec::new();
    while let Some(client) = connecting.join_next().await {
        match client.unwrap() {
            Ok(client) => connected.push(client),
            Err(error) => assert!(error.to_string().contains("no session within"), "{error}"),
        }
    }
    connected
}

#[tokio::test]
async fn late_answers_cost_no_session() {
    limit_to(2 * MINUTE, async {
        if !have_zookeeper() {
            return;
        }
        for late in [1800, 2000, 2200, 3000].map(Duration::from_millis) {
            let server = ZooKeeper::start().await;
            let proxy = FaultProxy::start_zookeeper(server.addr()).await;
            proxy.to_client(Flow::Delay(late));
            let before = Count::of(&server).await;
            let began = Instant::now();
            let client = ZkBackend::connect(options(&proxy)).await;
            let after = Count::of(&server).await;
            let made = after.made_since(before);
            println!(
                "late by {late:?}: {:?} after {:?}, {made} made",
                client.as_ref().err(),
                began.elapsed()
            );
            let client = client.unwrap();
            assert!(made <= 2, "{made} sessions were made");
            assert!(after.live <= 2, "{after:?}");
            drop(client);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_is_served() {
    limit_to(3 * MINUTE, async {
        if !have_zookeeper() {
            return;
        }
        let crowd = crowd();
        let server = ZooKeeper::builder().config("maxClientCnxns=0").start().await;
        let proxy = FaultProxy::start_zookeeper(server.addr()).await;
        proxy.to_client(Flow::Delay(3 * SECOND));
        let before = Count::of(&server).await;
        let began = Instant::now();
        let clients = connect(&proxy, crowd).await;
        let (elapsed, served) = (began.elapsed(), clients.len());
        let made = Count::of(&server).await.made_since(before);
        let needed = needed(&clients);
        println!(
            "{crowd} clients at once: {served} served after {elapsed:?}, {made} sessions made for {needed}"
        );
        proxy.to_client(Flow::Pass);
        assert_eq!(served, crowd);
        assert!(made <= 2 * needed, "{made} sessions were made");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_returns_after_an_outage() {
    limit_to(4 * MINUTE, async {
        if !have_zookeeper() {
            return;
        }
        let crowd = crowd();
        let server = ZooKeeper::builder().config("maxClientCnxns=0").start().await;
        let proxy = FaultProxy::start_zookeeper(server.addr()).await;
        let clients = connect(&proxy, crowd).await;
        assert_eq!(clients.len(), crowd);
        proxy.refuse().await;
        proxy.cut(Cut::Reset);
        until("all sessions are lost", async || clients.iter().all(is_lost)).await;
        until("the server has ended them", async || Count::of(&server).await.live == 0).await;
        let before = Count::of(&server).await;
        proxy.heal().await;
        proxy.to_client(Flow::Delay(3 * SECOND));
        let began = Instant::now();
        let mut back = vec![false; crowd];
        while began.elapsed() < 30 * SECOND && !back.iter().all(|back| *back) {
            for (back, client) in back.iter_mut().zip(&clients) {
                *back |= client.session_events().current().epoch > 1;
            }
            sleep(SECOND / 20).await;
        }
        let (elapsed, returned) = (began.elapsed(), back.iter().filter(|back| **back).count());
        let made = Count::of(&server).await.made_since(before);
        let needed = needed(&clients) - crowd as u64;
        println!(
            "{crowd} clients after an outage: {returned} back after {elapsed:?}, {made} sessions made for {needed}"
        );
        proxy.to_client(Flow::Pass);
        assert_eq!(returned, crowd);
        assert!(made <= 2 * needed, "{made} sessions were made");
    })
    .await;
}
