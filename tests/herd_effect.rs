//! The example, run as a user runs it.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

use zlock_testkit::{Process, limit};

/// Runs the example, which has to end well; gives notifications and requests of each design.
fn run(args: &[&str]) -> Vec<(u64, u64)> {
    let ended = Command::new(Process::built("examples/herd_effect")).args(args).output().unwrap();
    let text = String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned();
    assert!(ended.status.success(), "{text}");
    let row = |line: &str| {
        let mut cells = line.split('|').filter_map(|cell| cell.trim().parse().ok());
        Some((cells.next()?, cells.next()?))
    };
    text.lines().filter_map(row).collect()
}

#[tokio::test]
async fn on_mem_one_waiter_of_fifty_is_told() {
    limit(async { assert_eq!(run(&[]), [(50, 100), (50, 52), (1, 2)]) }).await;
}

#[cfg(feature = "zk")]
#[tokio::test]
async fn on_zookeeper_one_waiter_of_fifty_is_told() {
    limit(async {
        if !zlock_testkit::have_zookeeper() {
            return;
        }
        // A server of its own: its counters are read.
        let server = zlock_testkit::ZooKeeper::start().await;
        let url = format!("zk://{}", server.connect_string());
        let rows = run(&["--url", &url]);
        assert_eq!(rows.iter().map(|row| row.0).collect::<Vec<_>>(), [50, 50, 1]);
        // Delete and list; the herd's requests depend on who comes first.
        assert_eq!(rows[2].1, 2);
        assert!(rows[0].1 >= 50 && rows[1].1 >= 50, "{rows:?}");
    })
    .await;
}

#[tokio::test]
async fn what_cannot_run_says_why() {
    let ended =
        Command::new(Process::built("examples/herd_effect")).args(["--url", "mem:"]).output().unwrap();
    assert_eq!(ended.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("mem:: expected mem://"));
}
