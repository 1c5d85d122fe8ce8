//! Several ZooKeeper servers that are one.

use super::daemon::{NotReady, POLL, retry_taken_ports};
use super::zookeeper::{ZooKeeper, ZooKeeperBuilder};
use crate::port::Port;

/// An ensemble of real ZooKeeper servers.
#[derive(Debug)]
pub struct Ensemble {
    members: Vec<ZooKeeper>,
    /// Of the members among themselves.
    _ports: Vec<Port>,
}

impl Ensemble {
    /// Starts this many servers as one ensemble; returns when all serve.
    ///
    /// # Panics
    /// If they do not: with a log.
    pub async fn start(size: usize) -> Self {
        Self::start_with(size, ZooKeeper::builder()).await
    }

    /// Starts this many servers of one kind. A follower has 5 s (`syncLimit` ticks) to answer its leader.
    ///
    /// # Panics
    /// If they do not start: with a log.
    pub async fn start_with(size: usize, kind: ZooKeeperBuilder) -> Self {
        let start = move || retry_taken_ports(|| Self::launch(size, &kind));
        tokio::task::spawn_blocking(start).await.expect("an ensemble")
    }

    fn launch(size: usize, kind: &ZooKeeperBuilder) -> Result<Self, NotReady> {
        let ports: Vec<_> = (0..2 * size).map(|_| Port::reserve()).collect();
        let mut lines = vec!["initLimit=60".to_owned(), "syncLimit=10".to_owned()];
        lines.extend(
            ports
                .chunks(2)
                .zip(1..)
                .map(|(pair, id)| format!("server.{id}=127.0.0.1:{}:{}", pair[0].number(), pair[1].number())),
        );
        let members: Vec<_> = (1..=size).map(|id| kind.clone().member(id, &lines).launch()).collect();
        members.iter().try_for_each(|member| member.wait_until_ready())?;
        Ok(Ensemble { members, _ports: ports })
    }

    /// The servers.
    #[must_use]
    pub fn members(&self) -> &[ZooKeeper] {
        &self.members
    }

    /// All servers as clients take them.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.members.iter().map(ZooKeeper::connect_string).collect::<Vec<_>>().join(",")
    }

    /// The index of the leader. Waits until there is one among the members that answer.
    ///
    /// # Cancel safety
    /// Safe.
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

    /// The indexes of the members that follow the leader now.
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
