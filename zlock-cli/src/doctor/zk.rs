//! The doctor's checks of ZooKeeper servers.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use zlock::LockPath;
use zlock::zk::ZkOptions;
use zookeeper_client::{Client, Error, Stat};

use super::Advice;
use super::finding::Finding;
use super::version;
use crate::exit::Failure;
use crate::output::printable;
use crate::store::Count;
use crate::store::zk::{IN_FLIGHT, Walk, failed};

/// The time limit for a server's reply to a four-letter command.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) const ADVICE: Advice = Advice {
    credentials: "check ZLOCK_USER, its password, and ZLOCK_AUTH",
    session: "change the servers' limits, minSessionTimeout and maxSessionTimeout",
    reads: "check that this client may read below the path, and that the ensemble has a leader",
    writes: "check that the ensemble accepts writes: a leader, free disk space, no exhausted quota",
};

pub(super) async fn examine(
    options: &ZkOptions,
    prefix: Option<&LockPath>,
    findings: &mut Vec<Finding>,
) -> Result<(), Failure> {
    for addr in options.server_addresses().await? {
        if options.uses_tls() {
            findings.push(secured(&addr).await);
        } else {
            server(&addr, findings).await;
        }
    }
    let client = options.connect_client().await?;
    findings.extend(children(&client, prefix).await?);
    Ok(())
}

/// Checks that a server accepts connections. Its version is not checked over TLS.
async fn secured(addr: &str) -> Finding {
    match timeout(PATIENCE, TcpStream::connect(addr)).await {
        Ok(Ok(_)) => {
            Finding::good("server", format!("{addr} accepts connections; with TLS, no version is checked"))
        }
        _ => silent(addr),
    }
}

/// Checks the version and role of a server.
async fn server(addr: &str, findings: &mut Vec<Finding>) {
    let answer = timeout(PATIENCE, four_letters(addr, "srvr")).await.ok().flatten().unwrap_or_default();
    let field = |name: &str| answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let server = match (field("Zookeeper version"), field("Mode")) {
        (Some(found), Some(mode)) => {
            let number = found.split(['-', ',']).next().unwrap_or_default();
            let version = version::parse(number);
            let is_too_old = version.is_some_and(|version| version < version::CONTAINERS);
            // With several servers, other problems are known as well.
            let advice = version.and_then(version::zookeeper).filter(|_| is_too_old || mode != "standalone");
            let message = format!("{addr}: ZooKeeper {number}, {mode}");
            match advice {
                Some(advice) => Finding::bad("server", message, advice),
                None => Finding::good("server", message),
            }
        }
        _ if answer.is_empty() => silent(addr),
        // This four-letter command is disabled.
        _ if answer.contains("whitelist") => Finding::good(
            "server",
            format!("{addr} responds, but does not report its version (4lw.commands.whitelist)"),
        ),
        // Without a quorum, a server says so instead.
        _ => Finding::bad(
            "server",
            format!("{addr}: {}", printable(answer.trim().as_bytes())),
            "start more servers of the ensemble: a majority of them must run and reach each other",
        ),
    };
    findings.push(server);
}

fn silent(addr: &str) -> Finding {
    Finding::bad(
        "server",
        format!("{addr} does not respond"),
        "check that the server runs; the other servers in the URL are used meanwhile",
    )
}

async fn four_letters(addr: &str, word: &str) -> Option<String> {
    let mut stream = TcpStream::connect(addr).await.ok()?;
    stream.write_all(word.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

/// Finds nodes below the path that have no owning session, or that do not belong to a queue.
async fn children(client: &Client, prefix: Option<&LockPath>) -> Result<Vec<Finding>, Failure> {
    let mut walk = Walk::new(client, prefix);
    let mut checks = Checks { client, in_flight: VecDeque::new(), found: Found::default() };
    while let Some(node) = walk.next().await? {
        for name in &node.places {
            checks.send(node.child(name), true).await?;
        }
        let others = node.others.iter().filter(|name| !(node.path.is_empty() && *name == "zookeeper"));
        for name in others.filter(|_| !node.places.is_empty()) {
            checks.send(node.child(name), false).await?;
        }
    }
    let Found { ownerless, foreign } = checks.finish().await?;
    let mut findings = vec![
        super::listed(
            "ownerless nodes",
            &ownerless,
            "they hold locks, but belong to no session: remove them unless they were created on purpose",
        ),
        super::listed(
            "foreign nodes",
            &foreign,
            "zlock ignores them, but other programs may not: use each path for one kind of lock only",
        ),
    ];
    if walk.unread.total > 0 {
        findings.push(Finding::good("not checked", format!("paths that may not be read: {}", walk.unread)));
    }
    Ok(findings)
}

#[derive(Default)]
struct Found {
    ownerless: Count,
    foreign: Count,
}

/// Requests for the state of nodes.
struct Checks<'a> {
    client: &'a Client,
    /// The node, whether it is in a queue, and the request.
    in_flight: VecDeque<(String, bool, Stats<'a>)>,
    found: Found,
}

type Stats<'a> = Pin<Box<dyn Future<Output = Result<Option<Stat>, Error>> + Send + 'a>>;

impl Checks<'_> {
    /// Sends a request. Waits while too many are in flight.
    async fn send(&mut self, node: String, is_place: bool) -> Result<(), Failure> {
        let stat = Box::pin(self.client.check_stat(&node));
        self.in_flight.push_back((node, is_place, stat));
        if self.in_flight.len() < IN_FLIGHT { Ok(()) } else { self.receive().await }
    }

    async fn finish(mut self) -> Result<Found, Failure> {
        while !self.in_flight.is_empty() {
            self.receive().await?;
        }
        Ok(self.found)
    }

    async fn receive(&mut self) -> Result<(), Failure> {
        let Some((node, is_place, stat)) = self.in_flight.pop_front() else { return Ok(()) };
        let stat = stat.await.map_err(|error| failed(&node, error))?;
        match stat {
            Some(stat) if is_place && stat.ephemeral_owner == 0 => self.found.ownerless.add(node),
            Some(stat) if !is_place && is_data(&stat) => self.found.foreign.add(node),
            _ => {}
        }
        Ok(())
    }
}

/// Returns `true` if a node is not the path of a lock. The server does not report which nodes are containers; zlock's
/// containers have no data.
fn is_data(stat: &Stat) -> bool {
    stat.num_children == 0 && (stat.data_length > 0 || stat.ephemeral_owner != 0)
}
