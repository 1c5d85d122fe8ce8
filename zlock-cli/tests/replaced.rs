//! `zlock run` on a leader of ZooKeeper that was replaced without noticing it: the command is dead before the next client holds
//! the lock.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::process::Stdio;
use std::time::Duration;

use tokio::time::sleep;
use zlock::ErrorKind;
use zlock_testkit::{Ensemble, ZooKeeper, have_zookeeper, limit_to_if, report};

use crate::support::{BEATS, beating, folder, last_beat, nanos, written, zlock};

const TICK: Duration = Duration::from_millis(1500);
const SESSION: Duration = Duration::from_secs(10);

/// Not a test by itself: `support::beating` runs it.
#[test]
fn beat() {
    support::beat();
}

/// The leader and the command are on one side of the cut, the majority and the next client on the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_replaced_leader_a_command_ends_before_the_next_holder_begins() {
    limit_to_if(support::LIMIT, have_zookeeper(), async {
        let ensemble = Ensemble::start_linked(3, ZooKeeper::builder().tick(TICK)).await;
        let leader = ensemble.leader().await;
        let others: Vec<_> = (0..3).filter(|n| *n != leader).map(|n| &ensemble.members()[n]).collect();
        let [one, two] = others[..] else { panic!("two followers") };
        let majority = format!("zk://{},{}?session_timeout=60s", one.connect_string(), two.connect_string());
        let next = zlock::connect(&majority).await.unwrap();
        let (folder, tick) = (folder(), TICK.as_millis());
        let beats = folder.path().join("beats");
        let host = ensemble.members()[leader].connect_string();
        let url = format!("zk://{host}?session_timeout={}s&server_tick={tick}ms", SESSION.as_secs());
        let mut command = zlock(&["run", "--url", &url, "--kill-after", "200ms", "replaced", "--"]);
        command.args(beating()).env(BEATS, &beats).stdout(Stdio::null()).stderr(Stdio::null());
        let mut zlock = command.spawn().unwrap();
        written(&beats).await;
        let mutex = next.mutex("/replaced").unwrap();
        let waiting = tokio::spawn(async move {
            loop {
                match mutex.acquire().await {
                    Ok(guard) => return (guard, nanos()),
                    // Lost to the election.
                    Err(error) if error.kind() == ErrorKind::SessionLost => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        sleep(SESSION / 4).await;
        ensemble.cut_off(leader);
        one.stop();
        two.stop();
        tokio::join!(one.restart(), two.restart());
        let (guard, granted) = waiting.await.unwrap();
        // Time for a command that is still alive to say so.
        sleep(Duration::from_millis(50)).await;
        let margin = granted.cast_signed() - last_beat(&beats).cast_signed();
        report(format!("the command ended {} ms before the next holder began", margin / 1_000_000));
        assert!(margin > 0);
        guard.release().await.unwrap();
        assert_eq!(zlock.wait().await.unwrap().code(), Some(123));
    })
    .await;
}
