//! Ensembles of ZooKeeper servers.

use std::time::Duration;

use tokio::runtime::Handle;
use zlock_suite::proxy::{FaultProxy, Flow, Port};

use super::daemon::{NotReady, POLL, retry_taken_ports};
use super::zookeeper::{ZooKeeper, ZooKeeperBuilder};

/// How long a link between members waits for one that does not listen yet. A member whose connection is refused tries again, but
/// one whose connection ends begins another election, and may not find the leader before `initLimit`.
const PATIENCE: Duration = Duration::from_secs(5);

/// An ensemble of real ZooKeeper servers.
#[derive(Debug)]
pub struct Ensemble {
    members: Vec<ZooKeeper>,
    /// The links between the members.
    _ports: Vec<Port>,
    links: Vec<Link>,
}

/// The link from a follower to another member, for when that member is the leader.
#[derive(Debug)]
struct Link {
    follower: usize,
    leader: usize,
    proxy: FaultProxy,
}

impl Ensemble {
    /// Starts an ensemble of this many servers. Returns when all of them are serving.
    ///
    /// # Panics
    /// If they do not: with a log.
    pub async fn start(size: usize) -> Self {
        Self::start_with(size, ZooKeeper::builder()).await
    }

    /// Starts an ensemble of this many servers with the same settings. A follower has 5 s (`syncLimit` ticks) to respond to its
    /// leader.
    ///
    /// # Panics
    /// If they do not start: with a log.
    pub async fn start_with(size: usize, kind: ZooKeeperBuilder) -> Self {
        let start = move || retry_taken_ports(|| Self::launch(size, &kind, false));
        tokio::task::spawn_blocking(start).await.expect("an ensemble")
    }

    /// Starts an ensemble whose members can be [cut off](Self::cut_off) from each other.
    ///
    /// # Panics
    /// If they do not start: with a log.
    pub async fn start_linked(size: usize, kind: ZooKeeperBuilder) -> Self {
        let start = move || retry_taken_ports(|| Self::launch(size, &kind, true));
        tokio::task::spawn_blocking(start).await.expect("an ensemble")
    }

    fn launch(size: usize, kind: &ZooKeeperBuilder, is_linked: bool) -> Result<Self, NotReady> {
        let ports: Vec<_> = (0..2 * size).map(|_| Port::reserve()).collect();
        let mut links = Vec::new();
        let pairs = (0..size).flat_map(|one| (0..size).map(move |other| (one, other)));
        for (follower, leader) in pairs.filter(|(one, other)| is_linked && one != other) {
            let proxy =
                Handle::current().block_on(FaultProxy::start_patient(ports[2 * leader].addr(), PATIENCE));
            links.push(Link { follower, leader, proxy });
        }
        // The members' configurations of each other may differ.
        let lines = |member: usize| {
            let mut lines = vec!["initLimit=60".to_owned(), "syncLimit=10".to_owned()];
            lines.extend((0..size).map(|other| {
                let link = links.iter().find(|link| (link.follower, link.leader) == (member, other));
                let data = link.map_or(ports[2 * other].addr(), |link| link.proxy.addr());
                format!("server.{}={data}:{}", other + 1, ports[2 * other + 1].number())
            }));
            lines
        };
        let members: Vec<_> =
            (0..size).map(|member| kind.clone().member(member + 1, &lines(member)).launch()).collect();
        members.iter().try_for_each(|member| member.wait_until_ready())?;
        Ok(Ensemble { members, _ports: ports, links })
    }

    /// Cuts a member of a [linked](Self::start_linked) ensemble off from the others: no messages between them arrive until it is
    /// [joined](Self::join) again. Clients can still reach the member. It responds to requests that do not need the others until
    /// it notices.
    ///
    /// # Panics
    /// Panics if the ensemble has no links.
    pub fn cut_off(&self, member: usize) {
        self.set_flow(member, Flow::Hold);
    }

    /// Joins a member with the others again.
    ///
    /// # Panics
    /// Panics if the ensemble has no links.
    pub fn join(&self, member: usize) {
        self.set_flow(member, Flow::Pass);
    }

    fn set_flow(&self, member: usize, flow: Flow) {
        assert!(!self.links.is_empty(), "an ensemble with links");
        let is_its = |link: &&Link| [link.follower, link.leader].contains(&member);
        self.links.iter().filter(is_its).for_each(|link| link.proxy.both(flow));
    }

    /// Returns the servers.
    #[must_use]
    pub fn members(&self) -> &[ZooKeeper] {
        &self.members
    }

    /// Returns the addresses of all servers in the format that clients expect.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.members.iter().map(ZooKeeper::connect_string).collect::<Vec<_>>().join(",")
    }

    /// Returns the index of the leader. Waits until there is one among the members that respond.
    ///
    /// # Cancel safety
    /// This method is cancel safe.
    pub async fn leader(&self) -> usize {
        loop {
            for (i, member) in self.members.iter().enumerate() {
                if member.mode().await.as_deref() == Some("leader") {
                    return i;
                }
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Returns the indexes of the members that currently follow the leader.
    pub async fn followers(&self) -> Vec<usize> {
        let mut followers = Vec::new();
        for (i, member) in self.members.iter().enumerate() {
            if member.mode().await.as_deref() == Some("follower") {
                followers.push(i);
            }
        }
        followers
    }
}
