//! The cluster under test.

use std::collections::BTreeSet;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep};
use zlock::InterProcessMutex;
use zlock_testkit::{Ensemble, Etcd, EtcdCluster, FaultProxy, Process, ZooKeeper, end_zookeeper_session};

use super::clock::now;
use super::etcdctl;
use super::plan::Role;
use crate::history::Ns;

/// The ZooKeeper servers' tick.
const TICK: Duration = Duration::from_millis(500);

/// Locks that begin near the wrap of ZooKeeper's numbers, and the number that comes next there: right before those that a
/// server gives again and again, and right before those that are no places any more.
const COUNTED: [(&str, i32); 2] = [("/chaos/mutex", i32::MAX - 20), ("/chaos/rw", i32::MAX - (1 << 20) - 20)];

/// Which store is under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Zk,
    Etcd,
}

/// How often [`Cluster::maintain`] succeeded.
#[derive(Debug, Default)]
pub(crate) struct Maintained {
    pub(crate) compactions: AtomicUsize,
    pub(crate) leader_moves: AtomicUsize,
}

/// Three servers of a store.
#[derive(Debug)]
pub(crate) enum Cluster {
    Zk(Ensemble),
    Etcd(EtcdCluster),
}

/// The same call on each member, whatever the store is.
macro_rules! member {
    ($self:ident, $server:ident, $member:ident => $do:expr) => {
        match $self {
            Cluster::Zk(cluster) => {
                let $member = &cluster.members()[$server];
                $do
            }
            Cluster::Etcd(cluster) => {
                let $member = &cluster.members()[$server];
                $do
            }
        }
    };
}

impl Cluster {
    /// Starts the servers. With an odd seed ZooKeeper's followers wait for a leader that stands still for longer than
    /// it ever does here; with an even one they look for another after 5 s.
    pub(crate) async fn start(store: Store, seed: u64) -> Self {
        match store {
            Store::Zk => {
                let patience = if seed % 2 == 1 { "syncLimit=60" } else { "syncLimit=10" };
                let kind = ZooKeeper::builder().tick(TICK).config(patience).without_digests();
                let ensemble = Ensemble::start_linked(3, kind).await;
                count(&ensemble).await;
                Cluster::Zk(ensemble)
            }
            Store::Etcd => Cluster::Etcd(EtcdCluster::start(3).await),
        }
    }

    /// The servers.
    pub(crate) fn addrs(&self) -> Vec<SocketAddr> {
        match self {
            Cluster::Zk(ensemble) => ensemble.members().iter().map(ZooKeeper::addr).collect(),
            Cluster::Etcd(cluster) => cluster.members().iter().map(Etcd::addr).collect(),
        }
    }

    /// The servers' names and versions.
    pub(crate) fn version(&self) -> String {
        let (name, versions): (_, BTreeSet<_>) = match self {
            Cluster::Zk(ensemble) => {
                ("ZooKeeper", ensemble.members().iter().map(|member| member.version()).collect())
            }
            Cluster::Etcd(cluster) => {
                ("etcd", cluster.members().iter().map(|member| member.version()).collect())
            }
        };
        format!("{name} {}", versions.into_iter().collect::<Vec<_>>().join(" and "))
    }

    /// A link to a server.
    pub(crate) async fn link(&self, server: SocketAddr) -> FaultProxy {
        match self {
            Cluster::Zk(_) => FaultProxy::start_zookeeper(server).await,
            Cluster::Etcd(_) => FaultProxy::start(server).await,
        }
    }

    /// A URL for these addresses and this session timeout.
    pub(crate) fn url(&self, hosts: &[String], session: Duration) -> String {
        let (hosts, session) = (hosts.join(","), session.as_millis());
        match self {
            Cluster::Zk(_) => {
                format!("zk://{hosts}?session_timeout={session}ms&server_tick={}ms", TICK.as_millis())
            }
            Cluster::Etcd(_) => format!("etcd://{hosts}?ttl={session}ms"),
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
            Cluster::Etcd(cluster) => cluster.leader().await,
        }
    }

    /// The sessions that there are, if a leader that stood still may end some of them when it goes on, although another
    /// one leads by then; `None` if not, or without an answer.
    ///
    /// etcd's does (issue 15247). What was done about it in 3.4.31 and 3.5.13 is not asked by a member whose clock ticks,
    /// as it does again when the whole process goes on: seen with 3.5.16.
    pub(crate) async fn endangered(&self, leader: usize) -> Option<BTreeSet<u64>> {
        let Cluster::Etcd(cluster) = self else { return None };
        let another = cluster.members()[(leader + 1) % cluster.members().len()].addr();
        spawn_blocking(move || etcdctl::leases(another)).await.expect("an answer")
    }

    pub(crate) fn kill(&self, server: usize) {
        member!(self, server, member => member.stop());
    }

    pub(crate) async fn restart(&self, server: usize) {
        member!(self, server, member => member.restart().await);
    }

    pub(crate) async fn restart_all(&self) {
        let servers = self.addrs().len();
        (0..servers).for_each(|server| self.kill(server));
        let mut starts = JoinSet::new();
        for server in 0..servers {
            member!(self, server, member => {
                let member = member.clone();
                starts.spawn(async move { member.restart().await })
            });
        }
        starts.join_all().await;
    }

    pub(crate) fn pause(&self, server: usize) {
        member!(self, server, member => member.pause());
    }

    /// Cuts a ZooKeeper server off from the others, but not from its clients, or joins it with them again.
    pub(crate) fn set_apart(&self, server: usize, is_apart: bool) {
        let Cluster::Zk(ensemble) = self else { return };
        if is_apart { ensemble.cut_off(server) } else { ensemble.join(server) }
    }

    /// Lets a server's disk hang until what is returned is dropped.
    pub(crate) fn hang_disk(&self, server: usize) -> Process {
        member!(self, server, member => member.hang_disk())
    }

    pub(crate) fn resume(&self, server: usize) {
        member!(self, server, member => member.resume());
    }

    /// Ends a session by hand at any server that answers. `false` if there certainly was none of this number.
    pub(crate) async fn end_session(&self, session: u64) -> bool {
        let mut perhaps = false;
        for server in self.addrs() {
            let ended = match self {
                Cluster::Zk(_) => spawn_blocking(move || end_zookeeper_session(server, session)).await,
                Cluster::Etcd(_) => spawn_blocking(move || etcdctl::revoke(server, session)).await,
            };
            match ended.expect("a session's end") {
                Ok(ended) => return ended || perhaps,
                // No answer: it may have been done all the same.
                Err(_) => perhaps = true,
            }
        }
        perhaps
    }

    /// What operators and their jobs do to a healthy cluster: etcd's history is compacted up to now, four times a second,
    /// and every four seconds the leader hands over. Counts how often each succeeds, and says since when the cluster had no
    /// leader, or none that all have heard of. Never ends by itself.
    pub(crate) async fn maintain(&self, done: &Maintained, moved: impl Fn(Ns)) {
        let Cluster::Etcd(cluster) = self else { return pending().await };
        for turn in 1_usize.. {
            sleep(Duration::from_millis(250)).await;
            let addrs: Vec<_> = cluster.members().iter().map(Etcd::addr).collect();
            let server = addrs[turn % addrs.len()];
            let compacted = spawn_blocking(move || etcdctl::compact(server)).await.expect("a try");
            done.compactions.fetch_add(usize::from(compacted.is_ok()), Ordering::Relaxed);
            if turn % 16 == 0 {
                let leader = cluster.leader().await;
                let (from, to) = (addrs[leader], addrs[(leader + 1 + turn / 16 % 2) % addrs.len()]);
                let since = now();
                let ended = spawn_blocking(move || etcdctl::move_leader(from, to)).await.expect("a try");
                cluster.leader().await;
                moved(since);
                done.leader_moves.fetch_add(usize::from(ended.is_ok()), Ordering::Relaxed);
            }
        }
    }

    /// What clients that are gone have left at the servers. Waits for the sessions of killed ones to end.
    pub(crate) async fn residue(&self, wait: Duration) -> Vec<String> {
        let until = Instant::now() + wait;
        loop {
            let left = match self {
                Cluster::Zk(ensemble) => zk_residue(ensemble).await,
                Cluster::Etcd(cluster) => etcd_residue(cluster).await,
            };
            if left.is_empty() || Instant::now() > until {
                return left;
            }
            sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Lets the locks of [`COUNTED`] begin where they are to begin.
async fn count(ensemble: &Ensemble) {
    let url = format!("zk://{}", ensemble.connect_string());
    let client = zlock::connect(&url).await.expect("a client");
    for (path, _) in COUNTED {
        let lock = InterProcessMutex::new(&client, path).expect("a path");
        drop(lock.acquire().await.expect("a lock"));
    }
    client.close().await.expect("the end of the session");
    ensemble.set_counters(&COUNTED).await;
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

async fn etcd_residue(cluster: &EtcdCluster) -> Vec<String> {
    let mut left = Vec::new();
    for (server, member) in cluster.members().iter().enumerate() {
        let watches = member.metrics().await.watches();
        if watches != 0 {
            left.push(format!("server {server}: {watches} watches"));
        }
    }
    let server = cluster.members()[0].addr();
    let listed = spawn_blocking(move || etcdctl::left(server)).await;
    left.extend(listed.expect("a look").unwrap_or_else(|error| vec![error.to_string()]));
    left
}
