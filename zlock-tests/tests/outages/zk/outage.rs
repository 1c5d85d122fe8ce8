//! An outage that the session survives costs the server the same, however often clients have retried meanwhile.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use zlock_core::{CoordinationBackend, Deletion, Label, Target};
use zlock_recipes::Client;
use zlock_suite::outage::{Outage, outage, paths};
use zlock_testkit::zk::{create, mkdir, names, observer, options, path, token};
use zlock_testkit::{Cut, FaultProxy, ZooKeeper, have_zookeeper, limit_to_if};
use zlock_zk::ZkBackend;

/// The maximum number of requests for each node and each grant. A node in a queue takes five: create, list, watch, list again,
/// delete. If its acquisition was given up, three more: a sync, a listing, and the removal of its watch.
const REQUESTS: usize = 8;

async fn requests_after(how: Outage, break_link: impl AsyncFnOnce(&FaultProxy)) {
    limit_to_if(Duration::from_secs(300), have_zookeeper(), async {
        let server = ZooKeeper::start().await;
        let proxy = FaultProxy::start_zookeeper(server.addr()).await;
        let options = options(&proxy.connect_string()).with_session_timeout(Duration::from_secs(15));
        let client = Client::new(ZkBackend::connect(options).await.unwrap());
        let observer = observer(&server.connect_string()).await;
        let counted = outage(
            &client,
            how,
            async || break_link(&proxy).await,
            async || proxy.heal().await,
            async || server.mntr().await["packets_received"] as u64,
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

#[tokio::test]
async fn one_listing_serves_many_deletes() {
    limit_to_if(Duration::from_secs(60), have_zookeeper(), async {
        let server = ZooKeeper::start().await;
        let backend = Arc::new(ZkBackend::connect(options(&server.connect_string())).await.unwrap());
        let observer = observer(&server.connect_string()).await;
        let path = path("many");
        mkdir(&observer, &path).await;
        let mut targets = Vec::new();
        for _ in 0..10 {
            targets.push((create(&*backend, &path, Label::Lock).await.node.id, Deletion::Deleted));
        }
        targets.extend((0..990).map(|_| (token(), Deletion::AlreadyDeleted)));
        let before = server.mntr().await["packets_received"];
        let mut deletes = JoinSet::new();
        for (id, deletion) in targets {
            let (backend, path) = (backend.clone(), path.clone());
            deletes.spawn(async move {
                assert_eq!(backend.delete(&path, &Target::Id(id), None).await.unwrap(), deletion);
            });
        }
        while let Some(delete) = deletes.join_next().await {
            delete.unwrap();
        }
        let requests = server.mntr().await["packets_received"] - before;
        // 10 deletes, a sync and a listing for the first, a sync and a listing for all others, and a heartbeat.
        assert!(requests < 40.0, "{requests}");
        assert!(names(&observer, &path).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_delete_that_is_not_polled_holds_up_no_other() {
    limit_to_if(Duration::from_secs(60), have_zookeeper(), async {
        let server = ZooKeeper::start().await;
        let backend = ZkBackend::connect(options(&server.connect_string())).await.unwrap();
        let path = path("kept");
        create(&backend, &path, Label::Lock).await;
        let (kept, other) = (Target::Id(token()), Target::Id(token()));
        // This delete waits for its listing.
        let mut kept = pin!(backend.delete(&path, &kept, None));
        assert!(timeout(Duration::ZERO, &mut kept).await.is_err());
        let deleted = timeout(Duration::from_secs(5), backend.delete(&path, &other, None)).await;
        assert_eq!(deleted.unwrap().unwrap(), Deletion::AlreadyDeleted);
        assert_eq!(kept.await.unwrap(), Deletion::AlreadyDeleted);
    })
    .await;
}
