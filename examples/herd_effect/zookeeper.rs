//! The three designs on a ZooKeeper server; the first two as the recipes' early users wrote them, with the
//! client library alone.

use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error};

use super::{Contender, Counts, Design, Mutex, Result, Store};

/// So long that hardly a heartbeat falls into a measurement.
const SESSION: Duration = Duration::from_secs(40);

const EVERYBODY: CreateOptions<'static> = CreateMode::Container.with_acls(Acls::anyone_all());

pub(crate) struct ZooKeeper {
    hosts: String,
    /// The server counts our own questions too.
    asked: AtomicU64,
}

impl ZooKeeper {
    pub(crate) fn new(hosts: &str) -> Result<Self> {
        let address = |(host, port): (&str, &str)| !host.is_empty() && port.parse::<u16>().is_ok();
        if hosts.rsplit_once(':').is_some_and(address) && !hosts.contains([',', '/']) {
            Ok(ZooKeeper { hosts: hosts.into(), asked: AtomicU64::new(0) })
        } else {
            Err(format!("zk://{hosts}: expected one server, host:port, since its counters are read").into())
        }
    }

    /// What the server says to the four letters.
    async fn ask(&self, letters: &str) -> Result<String> {
        let mut stream = TcpStream::connect(&self.hosts).await.map_err(|e| format!("{}: {e}", self.hosts))?;
        stream.write_all(letters.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    async fn client(&self) -> Result<Client> {
        Ok(Client::connector().with_session_timeout(SESSION).connect(&self.hosts).await?)
    }
}

#[async_trait]
impl Store for ZooKeeper {
    async fn contender(&self, design: Design) -> Result<Box<dyn Contender>> {
        let folder = format!("/zlock-herd-effect-{}", process::id());
        if design == Design::WatchPredecessor {
            let url = format!("zk://{}{folder}?session_timeout={}s", self.hosts, SESSION.as_secs());
            return Ok(Box::new(Mutex::new(&zlock::connect(&url).await?)?));
        }
        let client = self.client().await?;
        let parent = format!("{folder}/{design:?}");
        client.mkdir(&parent, &EVERYBODY).await?;
        Ok(match design {
            Design::OneName => Box::new(OneName { client, node: format!("{parent}/lock") }),
            _ => Box::new(WatchParent { client, parent, node: None }),
        })
    }

    async fn counts(&self) -> Result<Counts> {
        let answer = self.ask("mntr").await?;
        let asked = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        if !answer.contains("zk_packets_received") {
            let why = "does not tell its counters: it needs 4lw.commands.whitelist=mntr in its configuration";
            return Err(format!("{} {why}", self.hosts).into());
        }
        let number = |name: &str| {
            let value = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
            let value = value.and_then(|value| value.parse::<f64>().ok());
            value.map(|value| value as u64).ok_or_else(|| format!("{}: no {name}", self.hosts))
        };
        let mut notifications = 0;
        for what in ["created", "deleted", "changed", "children"] {
            notifications += number(&format!("zk_sum_node_{what}_watch_count"))?;
        }
        let requests = number("zk_packets_received")?.saturating_sub(asked);
        Ok(Counts { notifications, requests, watches: number("zk_watch_count")? })
    }
}

/// All create the same node.
struct OneName {
    client: Client,
    node: String,
}

#[async_trait]
impl Contender for OneName {
    async fn acquire(&mut self) -> Result {
        let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        loop {
            match self.client.create(&self.node, b"", &ephemeral).await {
                Ok(_) => return Ok(()),
                Err(Error::NodeExists) => {}
                Err(e) => return Err(e.into()),
            }
            match self.client.get_and_watch_data(&self.node).await {
                Ok((_, _, watcher)) => drop(watcher.changed().await),
                Err(Error::NoNode) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    async fn release(&mut self) -> Result {
        Ok(self.client.delete(&self.node, None).await?)
    }
}

/// A node each; everybody watches the queue.
struct WatchParent {
    client: Client,
    parent: String,
    node: Option<String>,
}

#[async_trait]
impl Contender for WatchParent {
    async fn acquire(&mut self) -> Result {
        let sequential = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let (_, sequence) = self.client.create(&format!("{}/lock-", self.parent), b"", &sequential).await?;
        let name = format!("lock-{sequence}");
        self.node = Some(format!("{}/{name}", self.parent));
        loop {
            let (names, watcher) = self.client.list_and_watch_children(&self.parent).await?;
            if names.iter().min() == Some(&name) {
                return Ok(());
            }
            watcher.changed().await;
        }
    }

    async fn release(&mut self) -> Result {
        let node = self.node.take().ok_or("not held")?;
        Ok(self.client.delete(&node, None).await?)
    }
}
