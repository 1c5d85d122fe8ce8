//! What the doctor asks ZooKeeper's servers.

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
use crate::store::zk::failed;

/// How long a server may take to describe itself.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) async fn examine(options: &ZkOptions, prefix: Option<&LockPath>) -> Result<Vec<Finding>, Failure> {
    let client = options.connect_client().await?;
    let mut findings = servers(options).await?;
    findings.extend(children(&client, prefix).await?);
    Ok(findings)
}

/// Version and role of each server.
async fn servers(options: &ZkOptions) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    for addr in options.server_addresses().await? {
        if options.is_secured() {
            findings.push(Finding::good("server", format!("{addr} is not asked for its version over TLS")));
            continue;
        }
        let answer = timeout(PATIENCE, four_letters(&addr, "srvr")).await.ok().flatten().unwrap_or_default();
        let field = |name: &str| {
            answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).map(str::to_owned)
        };
        let (found, mode) = (field("Zookeeper version"), field("Mode"));
        let server = match (found, mode) {
            (Some(found), Some(mode)) => {
                let number = found.split(['-', ',']).next().unwrap_or_default();
                let version = version::parse(number);
                findings.extend(version.map(|version| containers(&addr, version)));
                let advice = version.and_then(version::zookeeper);
                let message = format!("{addr}: ZooKeeper {number}, {mode}");
                match advice.filter(|_| mode != "standalone") {
                    Some(advice) => Finding::bad("server", message, advice),
                    None => Finding::good("server", message),
                }
            }
            _ if answer.is_empty() => Finding::bad(
                "server",
                format!("{addr} does not answer"),
                "see whether the server runs; the others of the URL are used meanwhile",
            ),
            // It answers, but not to this.
            _ => {
                Finding::good("server", format!("{addr} does not tell its version (4lw.commands.whitelist)"))
            }
        };
        findings.push(server);
    }
    Ok(findings)
}

/// Whether the server removes the paths of locks when they are empty.
fn containers(addr: &str, version: (u32, u32, u32)) -> Finding {
    if version >= (3, 5, 3) {
        return Finding::good("containers", format!("{addr} removes paths of locks when they are empty"));
    }
    let message = format!("{addr} does not know them: the paths of unused locks stay");
    Finding::bad("containers", message, "use ZooKeeper 3.9.4 or later")
}

async fn four_letters(addr: &str, word: &str) -> Option<String> {
    let mut stream = TcpStream::connect(addr).await.ok()?;
    stream.write_all(word.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

/// Nodes below the path that no session owns, or that are no places in a queue.
async fn children(client: &Client, prefix: Option<&LockPath>) -> Result<Vec<Finding>, Failure> {
    let (mut ownerless, mut foreign) = (Vec::new(), Vec::new());
    let mut left = vec![prefix.map_or_else(String::new, ToString::to_string)];
    while let Some(path) = left.pop() {
        let names = match client.list_children(if path.is_empty() { "/" } else { &path }).await {
            Ok(names) => names,
            Err(Error::NoNode) => continue,
            Err(error) => return Err(failed(error)),
        };
        let (places, others): (Vec<_>, Vec<_>) =
            names.into_iter().partition(|name| NodeName::parse(name).is_some());
        for name in &places {
            let node = format!("{path}/{name}");
            if client.check_stat(&node).await.map_err(failed)?.is_some_and(|stat| stat.ephemeral_owner == 0) {
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
            "they hold locks although no client has them: remove those that nobody has made on purpose",
        ),
        super::listed(
            "foreign nodes",
            &foreign,
            "zlock ignores them, and another program may not: use a path for one kind of lock only",
        ),
    ])
}

/// Whether a node is no path of a lock. A server does not tell which nodes are containers; those that zlock makes are
/// empty.
async fn is_data(client: &Client, node: &str) -> Result<bool, Failure> {
    let stat = client.check_stat(node).await.map_err(failed)?;
    Ok(stat.is_some_and(|stat| stat.num_children == 0 && (stat.data_length > 0 || stat.ephemeral_owner != 0)))
}
