//! Real ZooKeeper servers.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tokio::net::TcpStream;
use zlock_testkit::{
    Ensemble, Process, ZooKeeper, have_zookeeper, limit, limit_if, limit_to_if, zookeeper_or_skip,
};

const POLL: Duration = Duration::from_millis(20);

#[tokio::test]
async fn starts_stops_restarts_and_freezes() {
    limit_if(have_zookeeper(), async {
        let server = ZooKeeper::builder().config("snapCount=12345").start().await;
        let conf = server.four_letter_word("conf").await.unwrap();
        assert!(conf.contains("tickTime=500") && conf.contains("minSessionTimeout=1000"), "{conf}");
        assert_eq!(server.mode().await.as_deref(), Some("standalone"));
        let (addr, pid) = (server.addr(), server.pid());
        server.stop();
        assert_eq!(server.four_letter_word("ruok").await, None);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        server.restart().await;
        assert_eq!(server.addr(), addr);
        assert_eq!(server.four_letter_word("ruok").await.as_deref(), Some("imok"));
        server.pause();
        assert!(TcpStream::connect(addr).await.is_ok(), "the system takes connections");
        assert_eq!(server.four_letter_word("ruok").await, None);
        server.resume();
        assert_eq!(server.four_letter_word("ruok").await.as_deref(), Some("imok"));
        let (folder, pid) = (server.folder().to_owned(), server.pid());
        server.pause();
        drop(server);
        assert!(!folder.exists() && !Path::new(&format!("/proc/{pid}")).exists());
    })
    .await;
}

#[tokio::test]
async fn counts() {
    let Some(server) = zookeeper_or_skip().await else { return };
    limit(async {
        let before = server.mntr().await;
        let after = server.mntr().await;
        assert!(after["packets_received"] > before["packets_received"]);
        for name in ["watch_count", "ephemerals_count", "znode_count", "global_sessions"] {
            assert!(after.contains_key(name), "{name}: {after:?}");
        }
        assert_eq!(zookeeper_or_skip().await.unwrap().addr(), server.addr());
    })
    .await;
}

#[tokio::test]
async fn shows_the_log_when_it_does_not_start() {
    limit_if(have_zookeeper(), async {
        let start = tokio::spawn(ZooKeeper::builder().config("tickTime=nonsense").start());
        let panic = start.await.unwrap_err().into_panic();
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.contains("nonsense"), "{text}");
    })
    .await;
}

#[tokio::test]
async fn a_server_with_tls_listens_twice() {
    limit_if(have_zookeeper(), async {
        let server = ZooKeeper::builder().tls().start().await;
        let (addr, tls) = server.tls();
        assert!(tls.certificate().contains("BEGIN CERTIFICATE"));
        let mut keytool = Command::new("keytool");
        let shown = keytool.args(["-printcert", "-rfc", "-sslserver", &addr.to_string()]).output().unwrap();
        assert!(String::from_utf8_lossy(&shown.stdout).contains(tls.certificate().trim()), "{shown:?}");
    })
    .await;
}

#[tokio::test]
async fn an_ensemble_elects_another_leader() {
    limit_to_if(Duration::from_secs(120), have_zookeeper(), async {
        let ensemble = Ensemble::start(3).await;
        let first = ensemble.leader().await;
        assert_eq!(ensemble.followers().await.len(), 2);
        assert_eq!(ensemble.connect_string().split(',').count(), 3);
        ensemble.members()[first].stop();
        let second = ensemble.leader().await;
        assert_ne!(first, second);
        ensemble.members()[first].restart().await;
        while ensemble.followers().await.len() < 2 {
            tokio::time::sleep(POLL).await;
        }
    })
    .await;
}

/// A server with threads at work: those go on until the one that takes the signal has told them.
#[tokio::test]
async fn a_frozen_server_stops_at_once() {
    limit_if(have_zookeeper(), async {
        let server = ZooKeeper::start().await;
        let tasks = format!("/proc/{}/task", server.pid());
        for _ in 0..50 {
            let asked = tokio::spawn({
                let server = server.clone();
                async move { server.four_letter_word("mntr").await }
            });
            tokio::time::sleep(Duration::from_millis(2)).await;
            server.pause();
            for task in std::fs::read_dir(&tasks).unwrap() {
                let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
                assert!(stat.contains(") T "), "{stat}");
            }
            server.resume();
            asked.await.unwrap().unwrap();
        }
    })
    .await;
}

/// Run by the next test, in a process that is killed.
#[tokio::test]
async fn server_of_a_killed_test() {
    if std::env::var("ZLOCK_CHILD").is_err() {
        return;
    }
    let own = ZooKeeper::start().await;
    let shared = ZooKeeper::shared().await;
    for server in [&own, shared] {
        println!("\nserver={} {}", server.pid(), server.folder().display());
    }
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn no_server_outlives_a_test_process_that_is_killed() {
    limit_if(have_zookeeper(), async {
        let mut test = Process::spawn_test("zookeeper::server_of_a_killed_test", &[("ZLOCK_CHILD", "1")]);
        let lines = [test.line_after("server=").await, test.line_after("server=").await];
        let servers = lines.iter().map(|line| line.split_once(' ').unwrap());
        let servers: Vec<_> = servers.map(|(pid, folder)| (format!("/proc/{pid}"), folder)).collect();
        assert!(servers.iter().all(|(pid, folder)| Path::new(pid).exists() && Path::new(folder).exists()));
        test.kill();
        while servers.iter().any(|(pid, folder)| Path::new(pid).exists() || Path::new(folder).exists()) {
            tokio::time::sleep(POLL).await;
        }
    })
    .await;
}
