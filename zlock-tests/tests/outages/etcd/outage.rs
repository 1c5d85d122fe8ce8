//! An outage that the session survives costs the server the same, however often clients have retried meanwhile.

use std::time::Duration;

use zlock_etcd::EtcdBackend;
use zlock_recipes::Client;
use zlock_suite::outage::{Outage, outage, paths};
use zlock_testkit::etcd::{names, observer, options};
use zlock_testkit::{Cut, Etcd, FaultProxy, have_etcd, limit_to_if};

/// The maximum number of requests for each node and each grant.
const REQUESTS: usize = 8;

async fn requests_after(how: Outage, break_link: impl AsyncFnOnce(&FaultProxy)) {
    limit_to_if(Duration::from_secs(300), have_etcd(), async {
        let server = Etcd::start().await;
        let proxy = FaultProxy::start(server.addr()).await;
        let options = options(&proxy.connect_string()).with_ttl(Duration::from_secs(15));
        let client = Client::new(EtcdBackend::connect(options).await.unwrap());
        let observer = observer(&server.connect_string()).await;
        let counted = outage(
            &client,
            how,
            async || break_link(&proxy).await,
            async || proxy.heal().await,
            async || server.metrics().await.messages().values().sum(),
        );
        let counted = counted.await;
        for path in paths() {
            assert!(names(&observer, &path).await.is_empty());
        }
        counted.check(REQUESTS);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_is_cut() {
    let cut = async |proxy: &FaultProxy| {
        proxy.refuse().await;
        proxy.cut(Cut::Reset);
    };
    requests_after(Outage::Cut, cut).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_falls_silent() {
    requests_after(Outage::Mute, async |proxy: &FaultProxy| proxy.freeze().await).await;
}
