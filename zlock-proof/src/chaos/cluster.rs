//! The cluster under test.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep};
use zlock_testkit::{Ensemble, ZooKeeper};

use super::plan::Role;
use super::zk_session;

/// The servers' tick.
const TICK: Duration = Duration::from_millis(500);

/// Which store is under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Zk,
}

/// Three servers of a store.
#[derive(Debug)]
pub(crate) enum Cluster {
    Zk(Ensemble),
}

impl Cluster {
    /// Starts the servers. With an odd seed ZooKeeper's followers wait for a leader that stands still for longer than
    /// it ever does here; with an even one they look for another after 5 s.
    pub(crate) async fn start(store: Store, seed: u64) -> Self {
        match store {
            Store::Zk => {
                let patience = if seed % 2 == 1 { "syncLimit=60" } else { "syncLimit=10" };
                Cluster::Zk(Ensemble::start_with(3, ZooKeeper::builder().tick(TICK).config(patience)).await)
            }
        }
    }

    /// The servers.
    pub(crate) fn addrs(&self) -> Vec<SocketAddr> {
        match self {
            Cluster::Zk(ensemble) => ensemble.members().iter().map(ZooKeeper::addr).collect(),
        }
    }

    /// A URL for these addresses and this session timeout.
    pub(crate) fn url(&self, hosts: &[String], session: Duration) -> String {
        let (hosts, session) = (hosts.join(","), session.as_millis());
        match self {
            Cluster::Zk(_) => {
                format!("zk://{hosts}?session_timeout={session}ms&server_tick={}ms", TICK.as_millis())
            }
        }
    }

    /// The number of a server in this role. Waits until there is one.
    pub(crate) async fn find(&self, role: Role) -> usize {
        let leader = self.leader().await;
        if role == Role::Leader { leader } else { (leader + 1) % self.addrs().len() }
    }

    /// The number of the leader. Waits until there is one.
    pub(crate) async fn leader(&self) -> usize {
        match self {
            Cluster::Zk(ensemble) => ensemble.leader().await,
        }
    }

    pub(crate) fn kill(&self, server: usize) {
        match self {
            Cluster::Zk(ensemble) => ensemble.members()[server].stop(),
        }
    }

    pub(crate) async fn restart(&self, server: usize) {
        match self {
            Cluster::Zk(ensemble) => ensemble.members()[server].restart().await,
        }
    }

    pub(crate) async fn restart_all(&self) {
        let servers = self.addrs().len();
        (0..servers).for_each(|server| self.kill(server));
        match self {
            Cluster::Zk(ensemble) => {
                let mut starts = JoinSet::new();
                for member in ensemble.members() {
                    let member = member.clone();
                    starts.spawn(async move { member.restart().await });
                }
                starts.join_all().await;
            }
        }
    }

    pub(crate) fn pause(&self, server: usize) {
        match self {
            Cluster::Zk(ensemble) => ensemble.members()[server].pause(),
        }
    }

    pub(crate) fn resume(&self, server: usize) {
        match self {
            Cluster::Zk(ensemble) => ensemble.members()[server].resume(),
        }
    }

    /// Ends a session by hand at any server that answers. `false` if there certainly was none of this number.
    pub(crate) async fn end_session(&self, session: u64) -> bool {
        let mut perhaps = false;
        for server in self.addrs() {
            let ended = match self {
                Cluster::Zk(_) => spawn_blocking(move || zk_session::end(server, session)).await,
            };
            match ended.expect("a session's end") {
                Ok(ended) => return ended || perhaps,
                // No answer: it may have been done all the same.
                Err(_) => perhaps = true,
            }
        }
        perhaps
    }

    /// What clients that are gone have left at the servers. Waits for the sessions of killed ones to end.
    pub(crate) async fn residue(&self, wait: Duration) -> Vec<String> {
        let until = Instant::now() + wait;
        loop {
            let left = match self {
                Cluster::Zk(ensemble) => zk_residue(ensemble).await,
            };
            if left.is_empty() || Instant::now() > until {
                return left;
            }
            sleep(Duration::from_millis(200)).await;
        }
    }
}

async fn zk_residue(ensemble: &Ensemble) -> Vec<String> {
    let mut left = Vec::new();
    for (server, member) in ensemble.members().iter().enumerate() {
        let counters = member.mntr().await;
        for what in ["ephemerals_count", "watch_count", "global_sessions"] {
            let count = counters.get(what).copied().unwrap_or(f64::NAN);
            if count != 0.0 {
                left.push(format!("server {server}: {what} is {count}"));
            }
        }
    }
    left
}
