//! A short run on a real cluster: `cargo xtask chaos` makes long ones.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;
use std::time::Duration;

use tokio::sync::Mutex;
use zlock_testkit::{
    have_etcd, have_faketime, have_mariadb, have_postgres, have_strace, have_zookeeper, limit_to,
};

/// Two clusters at a time are more than a small machine can do in time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// Starting, the faults, recovering, and the checks.
const LIMIT: Duration = Duration::from_secs(150);

/// Runs the program, and returns what it says. Shows all of that if it finds something.
async fn chaos(args: &'static [&str]) -> String {
    let _alone = ONE_AT_A_TIME.lock().await;
    let run =
        move || Command::new(env!("CARGO_BIN_EXE_zlock-proof")).arg("chaos").args(args).output().unwrap();
    let output = limit_to(LIMIT, tokio::task::spawn_blocking(run)).await.unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("\n0 violations\n"), "{text}");
    text
}

#[tokio::test]
async fn zookeeper_through_half_a_minute_of_faults() {
    if have_zookeeper() && have_strace() {
        chaos(&["--store", "zk", "--seconds", "30", "--seed", "117"]).await;
    }
}

#[tokio::test]
async fn postgres_through_a_promotion_that_loses_commits_and_a_step_back_in_quiet_time() {
    if have_postgres() && have_faketime() {
        let text = chaos(&["--store", "postgres", "--seconds", "20", "--seed", "11"]).await;
        assert!(text.contains("1 promotions that lost commits"), "{text}");
        assert!(text.contains("set to -3600 s"), "{text}");
    }
}

#[tokio::test]
async fn mariadb_through_a_kill_that_loses_commits() {
    if have_mariadb() {
        let text = chaos(&["--store", "mysql", "--seconds", "10", "--seed", "22"]).await;
        assert!(text.contains("1 restarts of all at once"), "{text}");
    }
}

#[tokio::test]
async fn etcd_through_half_a_minute_of_faults() {
    if have_etcd() && have_strace() {
        let text = chaos(&["--store", "etcd", "--seconds", "30", "--seed", "117"]).await;
        assert!(text.contains(" batches of "), "no writes left together: {text}");
    }
}
