//! A separate server, and its counters.

use std::time::Duration;

use tokio::time::sleep;

use crate::ZooKeeper;

/// A session timeout that outlasts every test, so that no client sends a heartbeat.
pub const FOREVER: Duration = Duration::from_secs(3600);

/// Reads the server's counters, and subtracts its own requests.
#[derive(Debug)]
pub struct Meter {
    /// The server.
    pub server: ZooKeeper,
    asked: u64,
}

/// A snapshot of the server's counters.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// The number of requests.
    pub requests: u64,
    /// Every write has a transaction number, and nothing else does.
    pub writes: u64,
    /// The number of watches.
    pub watches: u64,
    /// The number of ephemeral nodes.
    pub ephemerals: u64,
    /// The number of watches that reported a deletion.
    pub told: u64,
    /// The number of deletions that had a watch.
    pub told_of: u64,
    /// The number of watches that reported a change of the children.
    pub herd: u64,
}

impl Meter {
    /// Starts a server.
    pub async fn start() -> Self {
        // Without the server's background removal of empty parents, which counts as writes.
        let kind = ZooKeeper::builder()
            .session_timeouts(Duration::from_secs(1), FOREVER)
            .container_check_interval(FOREVER);
        Meter { server: kind.start().await, asked: 0 }
    }

    /// Returns the address for clients.
    #[must_use]
    pub fn hosts(&self) -> String {
        self.server.connect_string()
    }

    /// Reads the counters.
    ///
    /// # Panics
    /// Panics if the server does not answer.
    pub async fn counts(&mut self) -> Counts {
        let status = self.server.four_letter_word("srvr").await.unwrap();
        let zxid = status.lines().find_map(|line| line.strip_prefix("Zxid: 0x")).unwrap();
        let numbers = self.server.mntr().await;
        self.asked += 2;
        let number = |name: &str| numbers[name] as u64;
        Counts {
            requests: number("packets_received") - self.asked,
            writes: u64::from_str_radix(zxid, 16).unwrap(),
            watches: number("watch_count"),
            ephemerals: number("ephemerals_count"),
            told: number("sum_node_deleted_watch_count"),
            told_of: number("cnt_node_deleted_watch_count"),
            herd: number("sum_node_children_watch_count"),
        }
    }

    /// Waits until the server has this many watches.
    pub async fn wait_for_watches(&mut self, watches: u64) {
        while self.counts().await.watches != watches {
            sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Returns the numbers of requests and writes between two snapshots.
#[must_use]
pub fn cost(before: Counts, after: Counts) -> (u64, u64) {
    (after.requests - before.requests, after.writes - before.writes)
}
