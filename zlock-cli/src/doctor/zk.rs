//! The doctor's checks of ZooKeeper servers.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use zlock::LockPath;
use zlock::backend::NodeName;
use zlock::zk::ZkOptions;
use zookeeper_client::{Client, Error};

use super::finding::Finding;
use super::version;
use crate::exit::Failure;
use crate::output::printable;
use crate::store::zk::failed;

/// The time limit for a server's reply to a four-letter command.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) async fn examine(
    options: &ZkOptions,
    prefix: Option<&LockPath>,
    findings: &mut Vec<Finding>,
) -> Result<(), Failure> {
    for addr in options.server_addresses().await? {
        if options.is_secured() {
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
            findings.extend(version.map(|version| containers(addr, version)));
            let advice = version.and_then(version::zookeeper);
            let message = format!("{addr}: ZooKeeper {number}, {mode}");
            match advice.filter(|_| mode != "standalone") {
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

/// Checks that the server removes the paths of unused locks.
fn containers(addr: &str, version: (u32, u32, u32)) -> Finding {
    if version >= (3, 5, 3) {
        return Finding::good("containers", format!("{addr} removes the paths of unused locks"));
    }
    let message = format!("{addr} does not support them: the paths of unused locks stay");
    Finding::bad("containers", message, "use ZooKeeper 3.9.4 or later")
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
    let (mut ownerless, mut foreign) = (Vec::new(), Vec::new());
    let mut left = vec![prefix.map_or_else(String::new, ToString::to_string)];
    while let Some(path) = left.pop() {
        let names = match client.list_children(if path.is_empty() { "/" } else { &path }).await {
            Ok(names) => names,
            Err(Error::NoNode) => continue,
            Err(error) => return Err(failed(&path, error)),
        };
        let (places, others): (Vec<_>, Vec<_>) =
            names.into_iter().partition(|name| NodeName::parse(name).is_some());
        for name in &places {
            let node = format!("{path}/{name}");
            let stat = client.check_stat(&node).await.map_err(|error| failed(&node, error))?;
            if stat.is_some_and(|stat| stat.ephemeral_owner == 0) {
                ownerless.push(node);
            }
        }
        for name in others.into_iter().filter(|name| !(path.is_empty() && name == "zookeeper")) {
            let node = format!("{path}/{name}");
            if !places.is_empty() && is_data(client, &node).await? {
                foreign.push(node.clone());
            }
            left.push(node);
        }
    }
    Ok(vec![
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
    ])
}

/// Returns `true` if a node is not the path of a lock. The server does not report which nodes are containers; zlock's
/// containers have no data.
async fn is_data(client: &Client, node: &str) -> Result<bool, Failure> {
    let stat = client.check_stat(node).await.map_err(|error| failed(node, error))?;
    Ok(stat.is_some_and(|stat| stat.num_children == 0 && (stat.data_length > 0 || stat.ephemeral_owner != 0)))
}
