//! Child processes, and the time limit.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use zlock_testkit::{Process, limit, limit_to};

const NONE: [&str; 0] = [];

fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[tokio::test]
async fn lines_environment_and_exit_code() {
    limit(async {
        let script = r#"echo "$1 $NAME"; echo second; exit 3"#;
        let mut child = Process::spawn("sh", &["-c", script, "sh", "a b"], &[("NAME", "value")]);
        assert_eq!(child.line().await.unwrap(), "a b value");
        assert_eq!(child.line_after("sec").await, "ond");
        assert_eq!(child.line().await, None);
        assert_eq!(child.wait().await, 3);
    })
    .await;
}

#[tokio::test]
async fn a_killed_child_is_dead_and_may_be_killed_again() {
    limit(async {
        let child = Process::spawn("sleep", &["1000"], &[]);
        assert!(child.is_running());
        child.kill();
        child.kill();
        assert_eq!(child.wait().await, 128 + 9);
    })
    .await;
}

#[tokio::test]
async fn a_paused_child_does_not_run() {
    limit(async {
        let child = Process::spawn("sleep", &["1000"], &[]);
        child.pause();
        while state(child.pid()) != Some('T') {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        child.resume();
        while state(child.pid()) != Some('S') {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Also when it is frozen it goes.
        child.pause();
        let pid = child.pid();
        drop(child);
        assert_eq!(state(pid), None);
    })
    .await;
}

#[tokio::test]
async fn a_grandchild_can_be_killed_by_its_pid() {
    limit(async {
        let mut child = Process::spawn("sh", &["-c", "sleep 1000 & echo $!; wait $!; echo $?"], &[]);
        let grandchild = child.line().await.unwrap().parse().unwrap();
        child.kill_descendant(grandchild);
        assert_eq!(child.line().await.unwrap(), "137");
    })
    .await;
}

#[tokio::test]
async fn grandchildren_go_too() {
    limit(async {
        let mut child = Process::spawn("sh", &["-c", "sleep 1000 & echo $!; wait"], &[]);
        let grandchild: u32 = child.line().await.unwrap().parse().unwrap();
        assert!(state(grandchild).is_some());
        drop(child);
        while state(grandchild).is_some_and(|state| state != 'Z') {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
#[should_panic(expected = "did not end within")]
async fn a_test_that_hangs_fails() {
    limit_to(Duration::from_millis(50), std::future::pending::<()>()).await;
}

/// Run by the next test, in a process that is killed.
#[tokio::test]
async fn child_of_a_killed_test() {
    if std::env::var("ZLOCK_CHILD").is_err() {
        return;
    }
    let child = Process::spawn("sleep", &["1000"], &[]);
    println!("\npid={}", child.pid());
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_child_does_not_outlive_a_test_process_that_is_killed() {
    limit(async {
        let mut test = Process::spawn_test("process::child_of_a_killed_test", &[("ZLOCK_CHILD", "1")]);
        let pid: u32 = test.line_after("pid=").await.parse().unwrap();
        assert!(state(pid).is_some());
        test.kill();
        while state(pid).is_some_and(|state| state != 'Z') {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let _ = Process::spawn("true", &NONE, &[]);
    })
    .await;
}
