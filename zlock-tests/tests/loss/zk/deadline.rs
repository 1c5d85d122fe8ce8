//! A session ends locally before it ends at the server.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use zlock_core::{CoordinationBackend, Label, Values, WriteOutcome};
use zlock_testkit::zk::{SESSION, backend, connected, create, linked, lost_and_gone, names, observer, path};
use zlock_testkit::{
    Cut, Ensemble, Flow, Lose, Process, ZooKeeper, have_zookeeper, limit, limit_to_if, until, zk_op,
    zookeeper_or_skip, zookeeper_request,
};
use zlock_zk::{ZkBackend, ZkOptions};

/// A silent server: packets are swallowed, without a connection reset.
#[tokio::test]
async fn the_deadline_comes_before_the_server_ends_the_session() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        for flow in [Flow::Swallow, Flow::Hold] {
            let l = linked(server).await;
            let path = path("deadline");
            let made = create(&l.backend, &path, Label::Lock).await;
            // Some heartbeats later, so that the deadline has moved.
            sleep(SESSION / 2).await;
            let began = Instant::now();
            l.proxy.both(flow);
            let is_gone = async || names(&l.observer, &path).await.is_empty();
            let (lost, gone) = lost_and_gone(&l.backend, is_gone).await;
            println!("{flow:?}: lost after {:?}, gone after {:?}", lost - began, gone - began);
            assert!(lost < gone);
            assert!(lost - began > SESSION / 3, "not without need");
            assert!(!made.deletion.is_deleted(), "that is said of living sessions only");
        }
    })
    .await;
}

/// Requests without answers keep the session alive at the server. Ours ends in spite of that.
#[tokio::test]
async fn unanswered_requests_do_not_move_the_deadline() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let l = linked(server).await;
        let path = path("unanswered");
        let _made = create(&l.backend, &path, Label::Lock).await;
        l.proxy.to_client(Flow::Swallow);
        let is_gone = async || names(&l.observer, &path).await.is_empty();
        let (lost, gone) = lost_and_gone(&l.backend, is_gone).await;
        assert!(lost < gone);
    })
    .await;
}

/// A follower answers, and dies before it informs the leader.
#[tokio::test]
async fn the_deadline_holds_when_the_follower_dies_right_after_an_answer() {
    limit_to_if(Duration::from_secs(120), have_zookeeper(), async {
        // The shortest session timeout that these servers grant: two ticks.
        let tick = Duration::from_secs(1);
        let kind = ZooKeeper::builder().tick(tick).session_timeouts(2 * tick, 60 * tick);
        let ensemble = Ensemble::start_with(3, kind).await;
        let [follower, other] = ensemble.followers().await[..] else { panic!("two followers") };
        let observer = observer(&ensemble.members()[other].connect_string()).await;
        for server_tick in [None, Some(tick)] {
            let mut options = ZkOptions::new([ensemble.members()[follower].connect_string()])
                .with_session_timeout(2 * tick);
            if let Some(tick) = server_tick {
                options = options.with_server_tick(tick);
            }
            let backend = ZkBackend::connect(options).await.unwrap();
            let path = path("follower");
            let _made = create(&backend, &path, Label::Lock).await;
            let events = backend.session_events();
            // The deadline moves when a heartbeat is answered. After the first heartbeats it still depends on earlier requests.
            for _ in 0..4 {
                let before = events.current().deadline;
                while events.current().deadline == before {
                    sleep(Duration::from_millis(1)).await;
                }
            }
            ensemble.members()[follower].stop();
            let is_gone = async || names(&observer, &path).await.is_empty();
            let (lost, gone) = lost_and_gone(&backend, is_gone).await;
            println!("tick {server_tick:?}: the node was there for {:?} after the deadline", gone - lost);
            assert!(lost < gone);
            ensemble.members()[follower].restart().await;
        }
    })
    .await;
}

/// Every sixth heartbeat of a session with several nodes lists them, and they are a twelfth of the session timeout apart.
#[tokio::test]
async fn a_deleted_node_is_reported_long_before_the_session_ends() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let l = linked(server).await;
        let path = path("gone");
        let made = create(&l.backend, &path, Label::Lock).await;
        let mut kept = create(&l.backend, &path, Label::Write).await;
        l.observer.delete(&format!("{path}/{}", made.node.name), None).await.unwrap();
        let began = Instant::now();
        let mut gone = made.deletion.clone();
        gone.deleted().await;
        assert!(began.elapsed() < SESSION * 3 / 4, "{:?}", began.elapsed());
        // A rename is not a deletion, however often it happens.
        for label in [Label::Read, Label::Write].into_iter().cycle().take(100) {
            kept.node = l.backend.relabel(&path, &kept.node, label).await.unwrap();
        }
        sleep(SESSION / 2).await;
        assert!(!kept.deletion.is_deleted());
    })
    .await;
}

/// A session that owns one node, and writes so often that no heartbeat has to, learns of the node's deletion all the same.
#[tokio::test]
async fn a_session_that_keeps_writing_learns_of_its_deleted_node() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let l = linked(server).await;
        let (lock, other) = (path("written"), path("others"));
        let made = create(&l.backend, &lock, Label::Lock).await;
        let mut version = None;
        let writes = async {
            loop {
                let written = l.backend.write_value(&other, version, b"data", None).await;
                let WriteOutcome::Written(now) = written.unwrap() else {
                    panic!("somebody else has written")
                };
                version = Some(now);
                sleep(SESSION / 50).await;
            }
        };
        let lost = async {
            sleep(SESSION).await;
            l.observer.delete(&format!("{lock}/{}", made.node.name), None).await.unwrap();
            timeout(2 * SESSION, made.deletion.clone().deleted()).await.expect("it never learns");
        };
        tokio::select! {
            () = lost => {}
            () = writes => {}
        }
    })
    .await;
}

/// In a paused process, the client library still reports a connection, but the clock shows that the deadline has passed.
#[tokio::test]
async fn a_paused_process_wakes_up_without_its_session() {
    const NAME: &str = concat!(module_path!(), "::a_paused_process_wakes_up_without_its_session");
    const SERVER: &str = "ZLOCK_TEST_ZK_PAUSED";
    const PATH: &str = "/paused-process/lock";
    let path = zlock_core::LockPath::new(PATH).unwrap();
    // In the child process.
    if let Ok(server) = std::env::var(SERVER) {
        let backend = backend(&server).await;
        let made = create(&backend, &path, Label::Lock).await;
        println!("\nheld");
        let events = backend.session_events();
        let mut last = Instant::now();
        loop {
            sleep(Duration::from_millis(1)).await;
            // Read the clock before `is_live`, so that a pause between the two is noticed in the next round.
            let now = Instant::now();
            let live = events.is_live(made.epoch);
            // After such a long pause, the session must not be live, whatever the reason for the pause.
            if now - last > SESSION * 7 / 8 {
                println!("\nwoke {}", if live { "and believes in it" } else { "without it" });
            }
            last = now;
        }
    }
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let observer = observer(&server.connect_string()).await;
        let mut child = Process::spawn_test(NAME, &[(SERVER, &server.connect_string())]);
        child.line_after("held").await;
        sleep(SESSION / 2).await;
        child.pause();
        until("the node is gone", async || names(&observer, &path).await.is_empty()).await;
        child.resume();
        assert_eq!(child.line_after("woke").await.trim(), "without it");
        child.kill();
    })
    .await;
}

/// The server may grant another timeout than requested. The deadline follows the granted one.
#[tokio::test]
async fn the_granted_timeout_counts() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        // The test servers grant between 1 s and 2 min.
        for (asked, granted) in [(Duration::from_millis(100), 1.0), (Duration::from_secs(1000), 120.0)] {
            let options = ZkOptions::new([server.connect_string()]).with_session_timeout(asked);
            let backend = ZkBackend::connect(options).await.unwrap();
            let left = backend.session_events().current().deadline.unwrap() - Instant::now();
            assert!(left.as_secs_f64() < 0.99 * granted && left.as_secs_f64() > 0.5 * granted, "{left:?}");
        }
    })
    .await;
}

/// With very many nodes, heartbeats no longer list them.
#[tokio::test]
async fn very_many_nodes_are_kept_without_a_list() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let l = linked(server).await;
        let path = path("many");
        let mut made = Vec::new();
        for _ in 0..1001 {
            made.push(create(&l.backend, &path, Label::Lock).await);
        }
        l.proxy.lose_next(Lose::Answer, zookeeper_request(&[zk_op::SYNC]), Cut::Fin).happened().await;
        sleep(SESSION).await;
        connected(&l.backend, 1).await;
        assert!(!made.iter().any(|made| made.deletion.is_deleted()));
    })
    .await;
}
