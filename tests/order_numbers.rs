//! The example, run as a user runs it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::process::{Command, Output};

use zlock_testkit::{Process, limit};

/// Included for its unit tests: cargo either builds an example as a program or runs its tests.
#[allow(dead_code, reason = "its main is not called here")]
#[path = "../examples/order_numbers.rs"]
mod example;

/// Runs the example to completion. `cargo test` builds it, but `cargo test --test order_numbers` uses an existing build.
fn run(args: &[&str]) -> (Option<i32>, String) {
    let ended = Command::new(Process::built("examples/order_numbers")).args(args).output();
    let Output { status, stdout, stderr } = ended.unwrap();
    (status.code(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
}

#[tokio::test]
async fn without_a_server_it_shows_duplicates_and_then_none() {
    limit(async {
        let (code, text) = run(&[]);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("10 orders, 9 duplicates"), "{text}");
        assert!(text.contains("10 orders, 0 duplicates, in order"), "{text}");
        assert!(text.ends_with("With the lock the numbers are unique and in order.\n"), "{text}");
    })
    .await;
}

#[tokio::test]
async fn what_cannot_run_says_why_and_fails_with_2() {
    limit(async {
        for (args, part) in [
            (&["--processes", "2"][..], "mem:// lives inside one process"),
            (&["--url", "redis://h"], "unknown scheme; use mem://, zk://, etcd://"),
            (&["--frob"], "unknown argument \"--frob\"; see --help"),
        ] {
            let (code, text) = run(args);
            assert_eq!(code, Some(2), "{text}");
            assert!(text.contains(part), "{text}");
        }
    })
    .await;
}

/// MX-06: ten processes, one lock.
#[cfg(feature = "zk")]
#[tokio::test]
async fn mx_06_ten_processes() {
    limit(async {
        let Some(server) = zlock_testkit::zookeeper_or_skip().await else { return };
        // Longer than the example's own value, since the test machine may be busy.
        let url = format!("zk://{}/ten_processes?session_timeout=8s", server.connect_string());
        let (code, text) = run(&["--url", &url, "--processes", "10", "--hold-ms", "1"]);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("100 orders, 0 duplicates, in order"), "{text}");
    })
    .await;
}

/// The same on etcd.
#[cfg(feature = "etcd")]
#[tokio::test]
async fn mx_06_ten_processes_on_etcd() {
    limit(async {
        let Some(server) = zlock_testkit::etcd_or_skip().await else { return };
        let url = format!("etcd://{}/ten_processes?ttl=8s", server.connect_string());
        let (code, text) = run(&["--url", &url, "--processes", "10", "--hold-ms", "1"]);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("100 orders, 0 duplicates, in order"), "{text}");
    })
    .await;
}

#[cfg(feature = "zk")]
#[tokio::test]
async fn a_process_killed_while_it_holds_stops_nobody() {
    limit(async {
        let Some(server) = zlock_testkit::zookeeper_or_skip().await else { return };
        // Longer than the example's own value, since the test machine may be busy.
        kill_the_holder(&format!("zk://{}/order_numbers?session_timeout=8s", server.connect_string())).await;
    })
    .await;
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn a_process_killed_while_it_holds_stops_nobody_on_etcd() {
    limit(async {
        let Some(server) = zlock_testkit::etcd_or_skip().await else { return };
        kill_the_holder(&format!("etcd://{}/order_numbers?ttl=8s", server.connect_string())).await;
    })
    .await;
}

#[cfg(any(feature = "zk", feature = "etcd"))]
async fn kill_the_holder(url: &str) {
    let args = ["--url", url, "--processes", "3", "--hold-ms", "200"];
    let mut parent = Process::spawn(Process::built("examples/order_numbers"), &args, &[]);
    let holder = parent.line_after("  process ").await;
    let (pid, holds) = holder.split_once(' ').unwrap();
    assert!(holds.starts_with("holds the lock"), "{holder}");
    parent.kill_descendant(pid.parse().unwrap());

    let killed = format!("  process {pid} was killed (signal: 9");
    parent.line_after(&killed).await;
    let mut orders = None;
    while let Some(line) = parent.line().await {
        let found = line.strip_suffix(" orders, 0 duplicates, in order");
        orders = found.map(String::from).or(orders);
    }
    // The orders of the two others, and what the killed process wrote before its end.
    let orders: u32 = orders.unwrap().strip_prefix("  = ").unwrap().parse().unwrap();
    assert!((20..30).contains(&orders), "{orders}");
    assert_eq!(parent.wait().await, 0);
}
