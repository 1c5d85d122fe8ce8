//! Checks that the servers of a cluster agree. If they do not, the store can break every promise of a lock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use zlock_testkit::{Etcd, ZooKeeper};
use zookeeper_client::{Client, Error};

use super::cluster::Cluster;
use super::etcdctl;

/// The pause between two reads.
const PAUSE: Duration = Duration::from_millis(500);

/// The time limit for the response of a serving server.
const ANSWER: Duration = Duration::from_secs(10);

/// The paths that ZooKeeper keeps for itself.
const OWN: &str = "/zookeeper";

/// The contents of a server: nodes and sessions by name, each with its immutable properties.
type Contents = BTreeMap<String, String>;

/// A name, and the properties on each server.
type Difference = (String, Vec<Option<String>>);

/// Reads all servers and returns a line for each disagreement.
pub(crate) async fn disagreement(cluster: &Cluster) -> Vec<String> {
    match cluster {
        Cluster::Zk(ensemble) => steady(async || look(ensemble.members(), zookeeper).await).await,
        Cluster::Etcd(cluster) => steady(async || look(cluster.members(), etcd).await).await,
        // One server has all, and the other is never read.
        Cluster::Postgres(_) | Cluster::Mysql(_) => Vec::new(),
    }
}

/// Returns differences that are the same in three reads, so that they are not delays: each read catches up with the leader
/// first, so a node that one server has in the first and third read must be on the others in the second. Clients may keep
/// running meanwhile.
async fn steady(look: impl AsyncFn() -> Vec<Contents>) -> Vec<String> {
    let mut steady = differences(&look().await);
    for _ in 0..2 {
        if steady.is_empty() {
            break;
        }
        sleep(PAUSE).await;
        let found = differences(&look().await);
        steady.retain(|difference| found.contains(difference));
    }
    steady.iter().map(show).collect()
}

/// Reads all servers at the same time.
async fn look<S, F>(servers: &[S], read: impl Fn(S) -> F) -> Vec<Contents>
where
    S: Clone,
    F: Future<Output = Result<Contents, String>> + Send + 'static,
{
    let reads = servers.iter().map(|server| tokio::spawn(timeout(ANSWER, read(server.clone()))));
    let mut all = Vec::new();
    for read in reads.collect::<Vec<_>>() {
        let answer = read.await.expect("a look").unwrap_or_else(|_| Err(format!("not within {ANSWER:?}")));
        all.push(answer.unwrap_or_else(unanswered));
    }
    all
}

/// Returns the contents of a server that does not respond, which differ from those of servers that do.
fn unanswered(why: String) -> Contents {
    [("the server".to_owned(), format!("does not answer ({why})"))].into()
}

async fn zookeeper(member: ZooKeeper) -> Result<Contents, String> {
    let mut contents = zookeeper_nodes(&member.connect_string()).await.map_err(|error| error.to_string())?;
    let dump = member.four_letter_word("dump").await.ok_or("no answer to dump")?;
    let (tracker, nodes) = dump.split_once("ephemeral nodes dump:").unwrap_or((&dump, ""));
    contents.extend(sessions(tracker).map(|session| (format!("session {session}"), "known".to_owned())));
    for (path, session) in session_nodes(nodes) {
        // Its session lists this node, but no parent does.
        contents.entry(path.to_owned()).or_insert_with(|| format!("without a parent, of session {session}"));
    }
    Ok(contents)
}

/// Returns the nodes of a server, after it has caught up with the leader.
async fn zookeeper_nodes(server: &str) -> Result<Contents, Error> {
    let client = Client::connector().with_session_timeout(ANSWER).connect(server).await?;
    client.sync("/").await?;
    let mut nodes = Contents::new();
    let mut paths = vec!["/".to_owned()];
    while let Some(path) = paths.pop() {
        let children = match client.list_children(&path).await {
            Err(Error::NoNode) => continue,
            children => children?,
        };
        let above = if path == "/" { "" } else { &path };
        for child in children.iter().map(|child| format!("{above}/{child}")).filter(|child| child != OWN) {
            if let Some(stat) = client.check_stat(&child).await? {
                let owner = match stat.ephemeral_owner {
                    0 => String::new(),
                    owner => format!(" of session {owner:#x}"),
                };
                nodes.insert(child.clone(), format!("created by {:#x}{owner}", stat.czxid));
            }
            paths.push(child);
        }
    }
    Ok(nodes)
}

/// Returns the sessions in a session tracker's listing. A leader's format differs from a follower's.
fn sessions(tracker: &str) -> impl Iterator<Item = &str> {
    tracker.split_whitespace().filter(|word| word.starts_with("0x"))
}

/// Returns the nodes that sessions own, each with its session.
fn session_nodes(nodes: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut session = "";
    nodes.lines().map(str::trim).filter_map(move |line| match line.strip_suffix(':') {
        Some(owner) if owner.starts_with("0x") => {
            session = owner;
            None
        }
        _ => line.starts_with('/').then_some((line, session)),
    })
}

async fn etcd(member: Etcd) -> Result<Contents, String> {
    let server = member.addr();
    let contents = spawn_blocking(move || etcdctl::contents(server)).await.map_err(|e| e.to_string())?;
    contents.map_err(|error| error.to_string())
}

/// Returns the names for which the servers differ.
fn differences(servers: &[Contents]) -> BTreeSet<Difference> {
    let names: BTreeSet<_> = servers.iter().flat_map(BTreeMap::keys).collect();
    let found = names.into_iter().map(|name| {
        let values: Vec<_> = servers.iter().map(|contents| contents.get(name).cloned()).collect();
        (name.clone(), values)
    });
    found.filter(|(_, values)| values.windows(2).any(|two| two[0] != two[1])).collect()
}

/// Formats a difference: `/l/n: created by 0x7 of session 0x1 on server 2, missing on servers 0 and 1`.
fn show((name, values): &Difference) -> String {
    let mut by_value: BTreeMap<Option<&str>, Vec<String>> = BTreeMap::new();
    for (server, value) in values.iter().enumerate() {
        by_value.entry(value.as_deref()).or_default().push(server.to_string());
    }
    // Existing entries come first.
    let parts = by_value.iter().rev().map(|(value, servers)| {
        let what = value.unwrap_or("missing");
        format!("{what} on server{} {}", if servers.len() > 1 { "s" } else { "" }, servers.join(" and "))
    });
    format!("{name}: {}", parts.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use zlock_testkit::{Ensemble, EtcdCluster, have_etcd, have_zookeeper, limit_if};
    use zookeeper_client::{Acls, CreateMode};

    use super::*;

    /// Makes a node of a session, and leaves it there.
    async fn make(server: &str, path: &str) -> Client {
        let client = Client::connector().with_session_timeout(ANSWER).connect(server).await.unwrap();
        let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        client.create(path, b"", &options).await.unwrap();
        client
    }

    fn make_key(server: &Etcd, key: &str) {
        let put = server.etcdctl(&["put", key, "x"]);
        let mut etcdctl = std::process::Command::new(&put[0]);
        assert!(etcdctl.env("ETCDCTL_API", "3").args(&put[1..]).output().unwrap().status.success());
    }

    #[tokio::test]
    async fn zookeeper_servers_that_disagree_are_found() {
        limit_if(have_zookeeper(), async {
            // These servers are no ensemble, so each has its own contents.
            let servers = [ZooKeeper::start().await, ZooKeeper::start().await];
            let client = make(&servers[1].connect_string(), "/node").await;
            let lines = steady(async || look(&servers, zookeeper).await).await;
            let session = client.session_id().0;
            assert!(lines[0].starts_with("/node: created by 0x"), "{lines:?}");
            assert!(lines[0].ends_with(&format!("of session {session:#x} on server 1, missing on server 0")));
            assert_eq!(lines[1..], [format!("session {session:#x}: known on server 1, missing on server 0")]);
        })
        .await;
    }

    #[tokio::test]
    async fn zookeeper_servers_that_are_busy_agree() {
        limit_if(have_zookeeper(), async {
            let ensemble = Ensemble::start(3).await;
            let server = ensemble.members()[1].connect_string();
            let _stays = make(&server, "/stays").await;
            let busy = tokio::spawn(async move {
                loop {
                    let client = make(&server, "/comes-and-goes").await;
                    client.delete("/comes-and-goes", None).await.unwrap();
                }
            });
            let cluster = Cluster::Zk(ensemble);
            for _ in 0..3 {
                assert_eq!(disagreement(&cluster).await, [""; 0]);
            }
            busy.abort();
        })
        .await;
    }

    #[tokio::test]
    async fn etcd_servers_that_disagree_are_found() {
        limit_if(have_etcd(), async {
            let servers = [Etcd::start().await, Etcd::start().await];
            make_key(&servers[0], "/key");
            let lines = steady(async || look(&servers, etcd).await).await;
            assert_eq!(lines[0], "/key: created by 2 under lease 0 on server 0, missing on server 1");
            assert!(lines[1].starts_with("the hash of all keys: "), "{lines:?}");
        })
        .await;
    }

    #[tokio::test]
    async fn etcd_servers_that_are_busy_agree() {
        limit_if(have_etcd(), async {
            let cluster = EtcdCluster::start(3).await;
            let server = cluster.members()[0].clone();
            let busy = spawn_blocking(move || (0..100).for_each(|n| make_key(&server, &format!("/{n}"))));
            let cluster = Cluster::Etcd(cluster);
            for _ in 0..3 {
                assert_eq!(disagreement(&cluster).await, [""; 0]);
            }
            busy.await.unwrap();
        })
        .await;
    }

    fn contents(text: &str) -> Contents {
        text.split(' ')
            .filter_map(|entry| entry.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    #[test]
    fn what_differs_is_named_with_the_servers() {
        for (servers, lines) in [
            (["a=1 b=2", "a=1 b=2", "a=1 b=2"], &[][..]),
            (["a=1", "a=1", "a=1 b=2"], &["b: 2 on server 2, missing on servers 0 and 1"]),
            (["a=1", "a=2", "a=1"], &["a: 2 on server 1, 1 on servers 0 and 2"]),
            (["a=1", "a=2", ""], &["a: 2 on server 1, 1 on server 0, missing on server 2"]),
        ] {
            let found = differences(&servers.map(contents));
            assert_eq!(found.iter().map(show).collect::<Vec<_>>(), lines, "{servers:?}");
        }
    }

    #[test]
    fn sessions_are_read_from_leaders_and_followers() {
        let follower = "SessionTracker dump:\nGlobal Sessions(2):\n0x100000a\t3000ms\n0x200000b\t3000ms\n";
        assert_eq!(sessions(follower).collect::<Vec<_>>(), ["0x100000a", "0x200000b"]);
        let leader = "SessionTracker dump:\nGlobal Session Sets (1)/(1):\n\
                      1 expire at Sat Nov 21 16:00:00 UTC 2026:\n\t0x100000a\n";
        assert_eq!(sessions(leader).collect::<Vec<_>>(), ["0x100000a"]);
    }

    #[test]
    fn nodes_are_read_with_their_sessions() {
        let nodes = "\nSessions with Ephemerals (2):\n0xa:\n\t/l/n\n\t/l/m\n0xb:\n\t/k\nConnections dump:\n";
        let expected = [("/l/n", "0xa"), ("/l/m", "0xa"), ("/k", "0xb")];
        assert_eq!(session_nodes(nodes).collect::<Vec<_>>(), expected);
    }
}
