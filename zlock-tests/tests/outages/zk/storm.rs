//! Links that break all the time. Every create makes at most one node, and none is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use zlock_core::{CoordinationBackend, Label, LockPath, Needs, Target};
use zlock_testkit::zk::{SESSION, names, observer, options, path, token};
use zlock_testkit::{
    Cut, Ensemble, FaultProxy, Lose, ZooKeeper, have_zookeeper, limit_to, limit_to_if, until, zk_op,
    zookeeper_or_skip, zookeeper_request,
};
use zlock_zk::ZkBackend;

const TIME: Duration = Duration::from_secs(6);
const ANY: &[i32] =
    &[zk_op::CREATE2, zk_op::GET_CHILDREN, zk_op::DELETE, zk_op::SYNC, zk_op::MULTI, zk_op::CREATE_CONTAINER];

/// Creates, renames and deletes until `stop` is set. Some creates are dropped half way, and deleted by node ID.
async fn work(
    backend: Arc<ZkBackend>,
    path: LockPath,
    stop: Arc<AtomicBool>,
    mut rng: fastrand::Rng,
) -> (u32, u32) {
    let (mut done, mut failed) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let token = token();
        let patience = if rng.u8(..4) == 0 { Duration::from_millis(rng.u64(..10)) } else { SESSION * 10 };
        let create = backend.create_ephemeral_sequential(&path, Label::Write, &token, b"storm", Needs::Queue);
        let target = match timeout(patience, create).await {
            Ok(Ok(made)) => {
                let same = made
                    .queue
                    .listed()
                    .map_or(1, |queue| queue.iter().filter(|node| node.id == token).count());
                assert!(same <= 1, "{same} nodes of one create");
                match backend.relabel(&path, &made.node, Label::Read).await {
                    Ok(node) => Target::Node(node),
                    Err(_) => Target::Node(made.node),
                }
            }
            Ok(Err(_)) | Err(_) => Target::Id(token),
        };
        loop {
            match backend.delete(&path, &target, None).await {
                Ok(_) => break done += 1,
                Err(error) => {
                    assert!(error.is_retryable(), "{error}");
                    failed += 1;
                }
            }
        }
    }
    (done, failed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_links_leave_nothing() {
    limit_to(Duration::from_secs(120), async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let observer = observer(&server.connect_string()).await;
        let path = path("storm");
        let stop = Arc::new(AtomicBool::new(false));
        let proxy = FaultProxy::start_zookeeper(server.addr()).await;
        let mut workers = Vec::new();
        let mut backends = Vec::new();
        for _ in 0..3 {
            let backend = Arc::new(ZkBackend::connect(options(&proxy.connect_string())).await.unwrap());
            for _ in 0..4 {
                workers.push(tokio::spawn(work(backend.clone(), path.clone(), stop.clone(), rng.fork())));
            }
            backends.push(backend);
        }
        let began = Instant::now();
        while began.elapsed() < TIME {
            let cut = [Cut::Fin, Cut::Reset][rng.usize(..2)];
            if rng.bool() {
                proxy.cut(cut);
            } else {
                let lose = [Lose::Request, Lose::Answer][rng.usize(..2)];
                drop(proxy.lose_next(lose, zookeeper_request(ANY), cut));
            }
            sleep(Duration::from_millis(rng.u64(5..250))).await;
        }
        stop.store(true, Ordering::Relaxed);
        proxy.lose_next(Lose::Request, |_| false, Cut::Fin);
        for worker in workers {
            let (done, failed) = worker.await.unwrap();
            println!("{done} rounds, {failed} deletes failed");
            assert!(done > 0, "nothing was done");
        }
        for backend in &backends {
            assert_eq!(backend.session_events().current().epoch, 1, "no session was lost");
        }
        assert!(names(&observer, &path).await.is_empty(), "{:?}", names(&observer, &path).await);
    })
    .await;
}

/// Members of an ensemble stop and start, and sessions move from one to another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_go_and_come_leave_nothing() {
    limit_to_if(Duration::from_secs(240), have_zookeeper(), async {
        let ensemble = Ensemble::start_with(3, ZooKeeper::builder()).await;
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let path = path("ensemble");
        let stop = Arc::new(AtomicBool::new(false));
        let mut workers = Vec::new();
        for _ in 0..3 {
            let backend = Arc::new(ZkBackend::connect(options(&ensemble.connect_string())).await.unwrap());
            for _ in 0..2 {
                workers.push(tokio::spawn(work(backend.clone(), path.clone(), stop.clone(), rng.fork())));
            }
        }
        // A follower, then the leader.
        let follower = ensemble.followers().await[0];
        for member in [follower, ensemble.leader().await] {
            ensemble.members()[member].stop();
            sleep(Duration::from_secs(2)).await;
            ensemble.members()[member].restart().await;
            sleep(Duration::from_secs(2)).await;
        }
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            let (done, failed) = worker.await.unwrap();
            println!("{done} rounds, {failed} deletes failed");
            assert!(done > 0, "nothing was done");
        }
        let observer = observer(&ensemble.connect_string()).await;
        until("nothing is left", async || names(&observer, &path).await.is_empty()).await;
    })
    .await;
}
