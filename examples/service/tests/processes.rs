//! Three replicas on a real server, killed and terminated in turn: no job runs twice at the same time, and none is skipped.
//!
//! Runs for 15 seconds, or for `ZLOCK_SERVICE_SECONDS`.
#![cfg(any(feature = "zk", feature = "etcd", feature = "postgres"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use zlock_service::Jobs;
use zlock_testkit::{Process, limit_to};

const REPLICAS: usize = 3;
const BETWEEN: Duration = Duration::from_millis(1500);
const LONG: Duration = Duration::from_secs(60);

async fn replica(url: &str, folder: &Path) -> Process {
    let env = [("ZLOCK_URL", url), ("LISTEN", "127.0.0.1:0"), ("JOBS", folder.to_str().unwrap())];
    let mut replica = Process::spawn::<&str>(env!("CARGO_BIN_EXE_zlock-service"), &[], &env);
    replica.line_after("listening on ").await;
    replica
}

async fn exit_code(replica: Process) -> i32 {
    timeout(LONG, replica.wait()).await.expect("the replica ends")
}

/// Checks the journal of all replicas. A job may start again only after the process that started it was killed. Returns the
/// number of completed jobs and of repeated ones.
fn check(journal: &str, killed: &BTreeSet<u32>) -> (u64, usize) {
    let (mut number, mut under_way, mut repeated) = (0, None, 0);
    for line in journal.lines() {
        let [what, of, by] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line:?}") };
        let (of, by): (u64, u32) = (of.parse().unwrap(), by.parse().unwrap());
        if what == "end" {
            assert_eq!(under_way, Some((of, by)), "{line:?}: another one had begun a job");
            (number, under_way) = (of, None);
            continue;
        }
        match under_way {
            None => assert_eq!(of, number + 1, "{line:?}: the last one that is done is {number}"),
            Some((before, victim)) => {
                assert!(killed.contains(&victim), "{line:?}: {victim} does job {before} at this time");
                // Killed before the job was recorded, or between that and its line in the journal.
                assert!(of == before || of == before + 1, "{line:?}: {before} was begun");
                repeated += usize::from(of == before);
            }
        }
        under_way = Some((of, by));
    }
    (number, repeated)
}

async fn run(url: String) {
    let seconds = std::env::var("ZLOCK_SERVICE_SECONDS").map_or(15, |seconds| seconds.parse().unwrap());
    let time = Duration::from_secs(seconds);
    limit_to(time + 3 * LONG, async {
        let folder = tempfile::tempdir().unwrap();
        let jobs = Jobs::new(folder.path(), Duration::ZERO);
        let mut replicas = Vec::new();
        for _ in 0..REPLICAS {
            replicas.push(replica(&url, folder.path()).await);
        }
        let (mut killed, mut ended) = (BTreeSet::new(), 0);
        let began = Instant::now();
        while began.elapsed() < time {
            for sigkill in [true, false] {
                sleep(BETWEEN).await;
                let victim = replicas.remove(0);
                if sigkill {
                    killed.insert(victim.pid());
                    victim.kill();
                    assert_eq!(exit_code(victim).await, 128 + 9);
                } else {
                    victim.terminate();
                    assert_eq!(exit_code(victim).await, 0, "it releases its lock in time");
                    ended += 1;
                }
                replicas.push(replica(&url, folder.path()).await);
            }
        }
        let before = jobs.last_done().unwrap();
        let goes_on = timeout(LONG, async {
            while jobs.last_done().unwrap() < before + 5 {
                sleep(Duration::from_millis(20)).await;
            }
        });
        goes_on.await.expect("jobs go on after the last kill");
        for replica in replicas {
            replica.terminate();
            assert_eq!(exit_code(replica).await, 0);
        }
        let journal = std::fs::read_to_string(folder.path().join("journal")).unwrap();
        let (done, repeated) = check(&journal, &killed);
        assert_eq!(done, jobs.last_done().unwrap());
        println!(
            "{done} jobs, each done once and in order; {} replicas killed, {ended} ended; {repeated} jobs repeated \
             because their replica was killed",
            killed.len()
        );
    })
    .await;
}

#[test]
#[should_panic(expected = "does job 2 at this time")]
fn two_at_once_are_found() {
    check("begin 1 10\nend 1 10\nbegin 2 10\nbegin 2 11\n", &BTreeSet::from([11]));
}

#[test]
#[should_panic(expected = "the last one that is done is 1")]
fn a_job_that_is_left_out_is_found() {
    check("begin 1 10\nend 1 10\nbegin 3 10\n", &BTreeSet::new());
}

#[cfg(feature = "zk")]
#[tokio::test]
async fn on_zookeeper() {
    let Some(server) = zlock_testkit::zookeeper_or_skip().await else { return };
    run(format!("zk://{}/service?session_timeout=2s", server.connect_string())).await;
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn on_etcd() {
    let Some(server) = zlock_testkit::etcd_or_skip().await else { return };
    run(format!("etcd://{}/service?session_timeout=2s", server.connect_string())).await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn on_postgres() {
    let Some(server) = zlock_testkit::postgres_or_skip().await else { return };
    run(format!("{}?session_timeout=2s&create_schema=true", server.url())).await;
}
