//! Requests to ZooKeeper beyond those of locks. All of them are reads.

use zlock::LockPath;
use zlock::backend::NodeName;
use zlock::zk::ZkOptions;
use zookeeper_client::Error;

use crate::exit::Failure;
use crate::output::printable;

/// Returns the locks below a path: nodes with a child that is named like a queue's node.
pub(crate) async fn locks_below(
    options: &ZkOptions,
    prefix: Option<&LockPath>,
) -> Result<Vec<LockPath>, Failure> {
    let client = options.connect_client().await?;
    let mut found = Vec::new();
    let mut left = vec![prefix.map_or_else(String::new, ToString::to_string)];
    while let Some(path) = left.pop() {
        let children = match client.list_children(if path.is_empty() { "/" } else { &path }).await {
            Ok(children) => children,
            // Deleted meanwhile, or never created.
            Err(Error::NoNode) => continue,
            Err(error) => return Err(failed(&path, error)),
        };
        let (places, others): (Vec<_>, Vec<_>) =
            children.into_iter().partition(|name| NodeName::parse(name).is_some());
        if !places.is_empty() {
            found.extend(LockPath::new(&path).ok());
        }
        let is_own = |name: &String| path.is_empty() && name == "zookeeper";
        left.extend(others.iter().filter(|name| !is_own(name)).map(|name| format!("{path}/{name}")));
    }
    Ok(found)
}

/// Returns the failure of a request about a node, with its path below the chroot.
pub(crate) fn failed(path: &str, error: Error) -> Failure {
    let path = if path.is_empty() { "/" } else { path };
    Failure::failed(format!("{}: ZooKeeper: {error}", printable(path.as_bytes())))
}
