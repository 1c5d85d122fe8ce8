//! etcd's leases, granted to many clients at once or answered late.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use zlock_core::{CoordinationBackend, Result};
use zlock_etcd::{EtcdBackend, EtcdOptions};
use zlock_testkit::etcd::observer;
use zlock_testkit::{Etcd, FaultProxy, Flow, have_etcd, limit_to_if};

use crate::crowd::{MINUTE, SECOND, Site, is_served, returns_after_an_outage};

struct Leases {
    server: Etcd,
    proxy: FaultProxy,
}

fn options(proxy: &FaultProxy) -> EtcdOptions {
    EtcdOptions::new([proxy.connect_string()]).with_ttl(10 * SECOND)
}

async fn leases_made(server: &Etcd) -> u64 {
    server.metrics().await.sum("etcd_debugging_lease_granted_total") as u64
}

async fn leases(server: &Etcd) -> usize {
    let observer = observer(&server.connect_string()).await;
    observer.lease_client().leases().await.unwrap().leases().len()
}

impl Site for Leases {
    type Backend = EtcdBackend;

    async fn start() -> Self {
        let server = Etcd::start().await;
        let proxy = FaultProxy::start_grpc(server.addr()).await;
        Leases { server, proxy }
    }

    fn proxy(&self) -> &FaultProxy {
        &self.proxy
    }

    fn connect(&self) -> impl Future<Output = Result<EtcdBackend>> + Send + 'static {
        EtcdBackend::connect(options(&self.proxy))
    }

    async fn made(&self) -> u64 {
        leases_made(&self.server).await
    }

    async fn live(&self) -> u64 {
        leases(&self.server).await as u64
    }
}

#[tokio::test]
async fn late_answers_cost_no_lease() {
    limit_to_if(3 * MINUTE, have_etcd(), async {
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
    if have_etcd() {
        is_served::<Leases>().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_returns_after_an_outage() {
    if have_etcd() {
        returns_after_an_outage::<Leases>().await;
    }
}
