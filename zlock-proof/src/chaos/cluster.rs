//! The cluster under test.

use std::collections::BTreeSet;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep};
use zlock_testkit::{
    Ensemble, Etcd, EtcdCluster, FaultProxy, Process, ZooKeeper, end_zookeeper_session, mysql,
};

use super::alone::Alone;
use super::clock::now;
use super::etcdctl;
use super::pair::Pair;
use super::plan::{Role, is_lossy};
use crate::history::Ns;

/// The ZooKeeper servers' tick.
const TICK: Duration = Duration::from_millis(500);

/// Locks that start near the wrap of ZooKeeper's sequence numbers, and their next number. One is right before the number that
/// a server assigns repeatedly, the other right before numbers that are no longer valid in a queue.
const COUNTED: [(&str, i32); 2] = [("/chaos/mutex", i32::MAX - 20), ("/chaos/rw", i32::MAX - (1 << 20) - 20)];

/// The store under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Zk,
    Etcd,
    Postgres,
    Mysql,
}

/// The numbers of successes of [`Cluster::maintain`].
#[derive(Debug, Default)]
pub(crate) struct Maintained {
    pub(crate) compactions: AtomicUsize,
    pub(crate) leader_moves: AtomicUsize,
}

/// A cluster of three servers, a pair, or one server.
#[derive(Debug)]
pub(crate) enum Cluster {
    Zk(Ensemble),
    Etcd(EtcdCluster),
    Postgres(Pair),
    Mysql(Alone),
}

/// Makes the same call on each member, for any store.
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
            Cluster::Postgres(pair) => {
                let $member = &pair.server($server);
                $do
            }
            Cluster::Mysql(alone) => {
                let $member = &alone.server;
                $do
            }
        }
    };
}

impl Cluster {
    /// Starts the servers. With an odd seed, ZooKeeper's followers wait for a paused leader longer than any pause here. With an
    /// even seed, they elect another leader after 5 s.
    pub(crate) async fn start(store: Store, seed: u64, session: Duration) -> Self {
        match store {
            Store::Zk => {
                let patience = if seed % 2 == 1 { "syncLimit=60" } else { "syncLimit=10" };
                let kind = ZooKeeper::builder().tick(TICK).config(patience).without_digests();
                let ensemble = Ensemble::start_linked(3, kind).await;
                count(&ensemble).await;
                Cluster::Zk(ensemble)
            }
            Store::Etcd => Cluster::Etcd(EtcdCluster::start(3).await),
            Store::Postgres => Cluster::Postgres(Pair::start(session, is_lossy(seed)).await),
            Store::Mysql => Cluster::Mysql(Alone::start(session, is_lossy(seed)).await),
        }
    }

    /// Returns the servers.
    pub(crate) fn addrs(&self) -> Vec<SocketAddr> {
        match self {
            Cluster::Zk(ensemble) => ensemble.members().iter().map(ZooKeeper::addr).collect(),
            Cluster::Etcd(cluster) => cluster.members().iter().map(Etcd::addr).collect(),
            Cluster::Postgres(pair) => pair.addrs(),
            Cluster::Mysql(alone) => vec![alone.server.addr()],
        }
    }

    /// Returns `true` if clients can use one server at a time only.
    pub(crate) fn has_one_primary(&self) -> bool {
        matches!(self, Cluster::Postgres(_) | Cluster::Mysql(_))
    }

    /// Returns `true` if the end of a server ends all sessions.
    pub(crate) fn is_lossy(&self) -> bool {
        match self {
            Cluster::Zk(_) | Cluster::Etcd(_) => false,
            Cluster::Postgres(pair) => pair.is_lossy,
            Cluster::Mysql(alone) => alone.is_lossy,
        }
    }

    /// Returns the servers' names and versions.
    pub(crate) fn version(&self) -> String {
        let (name, versions): (_, BTreeSet<_>) = match self {
            Cluster::Zk(ensemble) => {
                ("ZooKeeper", ensemble.members().iter().map(|member| member.version()).collect())
            }
            Cluster::Etcd(cluster) => {
                ("etcd", cluster.members().iter().map(|member| member.version()).collect())
            }
            Cluster::Postgres(pair) => ("PostgreSQL", [pair.server(0).version()].into()),
            Cluster::Mysql(alone) => ("MariaDB", [alone.server.version()].into()),
        };
        format!("{name} {}", versions.into_iter().collect::<Vec<_>>().join(" and "))
    }

    /// Starts a link to a server.
    pub(crate) async fn link(&self, server: SocketAddr) -> FaultProxy {
        match self {
            Cluster::Zk(_) => FaultProxy::start_zookeeper(server).await,
            Cluster::Etcd(_) | Cluster::Postgres(_) | Cluster::Mysql(_) => FaultProxy::start(server).await,
        }
    }

    /// Returns a URL for these addresses and this session timeout.
    pub(crate) fn url(&self, hosts: &[String], session: Duration) -> String {
        let (hosts, session) = (hosts.join(","), session.as_millis());
        match self {
            Cluster::Zk(_) => {
                format!("zk://{hosts}?session_timeout={session}ms&server_tick={}ms", TICK.as_millis())
            }
            Cluster::Etcd(_) => format!("etcd://{hosts}?ttl={session}ms"),
            Cluster::Postgres(_) => format!("postgres://zlock@{hosts}/zlock?session_timeout={session}ms"),
            Cluster::Mysql(_) => format!("mysql://zlock@{hosts}/zlock?session_timeout={session}ms"),
        }
    }

    /// Returns the number of a server in this role. Waits until there is one.
    pub(crate) async fn find(&self, role: Role) -> usize {
        let leader = self.leader().await;
        if role == Role::Leader { leader } else { (leader + 1) % self.addrs().len() }
    }

    /// Returns the number of the leader. Waits until there is one.
    pub(crate) async fn leader(&self) -> usize {
        match self {
            Cluster::Zk(ensemble) => ensemble.leader().await,
            Cluster::Etcd(cluster) => cluster.leader().await,
            Cluster::Postgres(pair) => pair.primary(),
            Cluster::Mysql(_) => 0,
        }
    }

    /// Returns all sessions, if a paused leader may end some of them when it resumes, although another member leads by then.
    /// Returns `None` if it cannot, or without a response.
    ///
    /// etcd's leader can (issue 15247). The check added in 3.4.31 and 3.5.13 is skipped by a member whose clock ticks, which it
    /// does again once the whole process resumes. Seen with 3.5.16.
    pub(crate) async fn endangered(&self, leader: usize) -> Option<BTreeSet<u64>> {
        let Cluster::Etcd(cluster) = self else { return None };
        let another = cluster.members()[(leader + 1) % cluster.members().len()].addr();
        spawn_blocking(move || etcdctl::leases(another)).await.expect("an answer")
    }

    /// Waits until a ZooKeeper leader has all other servers as followers.
    pub(crate) async fn whole(&self) {
        let Cluster::Zk(ensemble) = self else { return };
        while ensemble.followers().await.len() + 1 < ensemble.members().len() {
            sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) fn kill(&self, server: usize) {
        member!(self, server, member => member.stop());
    }

    /// Lets the server end as an operator does.
    pub(crate) async fn shut_down(&self, server: usize) {
        member!(self, server, member => member.shut_down().await);
    }

    pub(crate) async fn restart(&self, server: usize) {
        member!(self, server, member => member.restart().await);
    }

    pub(crate) async fn restart_all(&self) {
        self.restart_those(0..self.addrs().len()).await;
    }

    /// Kills these servers, and starts them again. Returns when they respond.
    pub(crate) async fn restart_those(&self, servers: impl Iterator<Item = usize> + Clone) {
        servers.clone().for_each(|server| self.kill(server));
        let mut starts = JoinSet::new();
        for server in servers {
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

    /// Cuts a ZooKeeper server off from the others, but not from its clients, or joins it again.
    pub(crate) fn set_apart(&self, server: usize, is_apart: bool) {
        let Cluster::Zk(ensemble) = self else { return };
        if is_apart { ensemble.cut_off(server) } else { ensemble.join(server) }
    }

    /// Makes a server's disk hang until the returned value is dropped.
    pub(crate) fn hang_disk(&self, server: usize) -> Process {
        member!(self, server, member => member.hang_disk())
    }

    pub(crate) fn resume(&self, server: usize) {
        member!(self, server, member => member.resume());
    }

    /// Ends a session at any server that responds. Returns `false` if that session certainly did not exist.
    pub(crate) async fn end_session(&self, session: u64) -> bool {
        if let Cluster::Postgres(pair) = self {
            return pair.end_session(session).await;
        }
        if let Cluster::Mysql(alone) = self {
            // Without a response, it may still have taken effect.
            return mysql::try_end_session(&alone.server, session.cast_signed()).await.unwrap_or(true);
        }
        let mut perhaps = false;
        for server in self.addrs() {
            let ended = match self {
                Cluster::Zk(_) => spawn_blocking(move || end_zookeeper_session(server, session)).await,
                _ => spawn_blocking(move || etcdctl::revoke(server, session)).await,
            };
            match ended.expect("a session's end") {
                Ok(ended) => return ended || perhaps,
                // Without a response, the request may still have taken effect.
                Err(_) => perhaps = true,
            }
        }
        perhaps
    }

    /// Maintains a healthy cluster like an operator: compacts etcd's history four times a second, and moves the leader every
    /// four seconds. Counts the successes of each, and reports since when the cluster had no leader known to all members.
    /// Never completes.
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

    /// Returns what former clients have left at the servers. Waits for the sessions of killed clients to end.
    pub(crate) async fn residue(&self, wait: Duration) -> Vec<String> {
        let until = Instant::now() + wait;
        loop {
            let left = match self {
                Cluster::Zk(ensemble) => zk_residue(ensemble).await,
                Cluster::Etcd(cluster) => etcd_residue(cluster).await,
                Cluster::Postgres(pair) => pair.residue(wait).await,
                Cluster::Mysql(alone) => alone.residue().await,
            };
            if left.is_empty() || Instant::now() > until {
                return left;
            }
            sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Sets the next sequence numbers of the locks in [`COUNTED`].
async fn count(ensemble: &Ensemble) {
    let url = format!("zk://{}", ensemble.connect_string());
    let client = zlock::connect(&url).await.expect("a client");
    for (path, _) in COUNTED {
        let lock = client.mutex(path).expect("a path");
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
    let listed = spawn_blocking(move || etcdctl::remaining(server)).await;
    left.extend(listed.expect("a look").unwrap_or_else(|error| vec![error.to_string()]));
    left
}
