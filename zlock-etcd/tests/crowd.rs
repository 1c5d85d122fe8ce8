//! Servers whose answers come late, and many clients that connect at the same moment.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::time::Duration;

use common::until;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use zlock_core::CoordinationBackend;
use zlock_etcd::{EtcdBackend, EtcdOptions};
use zlock_testkit::{Cut, Etcd, FaultProxy, Flow, have_etcd, limit_to};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// The number of clients that connect at once. `ZLOCK_CROWD` sets another one.
fn crowd() -> usize {
    std::env::var("ZLOCK_CROWD").map_or(40, |crowd| crowd.parse().unwrap())
}

async fn leases_made(server: &Etcd) -> u64 {
    server.metrics().await.sum("etcd_debugging_lease_granted_total") as u64
}

async fn leases(server: &Etcd) -> usize {
    let observer = common::observer(&server.connect_string()).await;
    observer.lease_client().leases().await.unwrap().leases().len()
}

fn options(proxy: &FaultProxy) -> EtcdOptions {
    EtcdOptions::new([proxy.connect_string()]).with_ttl(10 * SECOND)
}

/// Connects this many clients at once, and returns those that succeed.
async fn connect(proxy: &FaultProxy, clients: usize) -> Vec<EtcdBackend> {
    let mut connecting = JoinSet::new();
    for _ in 0..clients {
        connecting.spawn(EtcdBackend::connect(options(proxy)));
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
async fn late_answers_cost_no_lease() {
    limit_to(3 * MINUTE, async {
        if !have_etcd() {
            return;
        }
        let server = Etcd::start().await;
        for (late, ttl) in [(1800, 10), (2000, 10), (2200, 40), (3000, 10), (5000, 40)] {
            let late = Duration::from_millis(late);
            let proxy = FaultProxy::start_grpc(server.addr()).await;
            proxy.to_client(Flow::Delay(late));
            let (made, left) = (leases_made(&server).await, leases(&server).await);
            let began = Instant::now();
            let client = EtcdBackend::connect(options(&proxy).with_ttl(ttl * SECOND)).await;
            let made = leases_made(&server).await - made;
            println!(
                "late by {late:?}: {:?} after {:?}, {made} made",
                client.as_ref().err(),
                began.elapsed()
            );
            let client = client.unwrap();
            assert!(made <= 2, "{made} leases were made");
            let began = Instant::now();
            while leases(&server).await > left + 1 {
                assert!(began.elapsed() < 3 * late, "an abandoned lease is left");
                sleep(SECOND / 10).await;
            }
            proxy.to_client(Flow::Pass);
            client.close().await.unwrap();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_is_served() {
    limit_to(3 * MINUTE, async {
        if !have_etcd() {
            return;
        }
        let crowd = crowd();
        let server = Etcd::start().await;
        let proxy = FaultProxy::start_grpc(server.addr()).await;
        proxy.to_client(Flow::Delay(3 * SECOND));
        let (before, began) = (leases_made(&server).await, Instant::now());
        let clients = connect(&proxy, crowd).await;
        let (elapsed, served) = (began.elapsed(), clients.len());
        let made = leases_made(&server).await - before;
        println!("{crowd} clients at once: {served} served after {elapsed:?}, {made} leases made");
        proxy.to_client(Flow::Pass);
        assert_eq!(served, crowd);
        assert!(made <= 2 * crowd as u64, "{made} leases were made");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_returns_after_an_outage() {
    limit_to(4 * MINUTE, async {
        if !have_etcd() {
            return;
        }
        let crowd = crowd();
        let server = Etcd::start().await;
        let proxy = FaultProxy::start_grpc(server.addr()).await;
        let clients = connect(&proxy, crowd).await;
        assert_eq!(clients.len(), crowd);
        // All have their sessions, and none has its end confirmed.
        proxy.refuse().await;
        proxy.cut(Cut::Reset);
        until("the server has ended all sessions", async || leases(&server).await == 0).await;
        let before = leases_made(&server).await;
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
        let made = leases_made(&server).await - before;
        println!("{crowd} clients after an outage: {returned} back after {elapsed:?}, {made} leases made");
        proxy.to_client(Flow::Pass);
        assert_eq!(returned, crowd);
        assert!(made <= 2 * crowd as u64, "{made} leases were made");
    })
    .await;
}
