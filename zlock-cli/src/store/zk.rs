//! Requests to ZooKeeper beyond those of locks. All of them are reads.

use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;

use zlock::LockPath;
use zlock::backend::{NodeName, Queue};
use zlock::zk::ZkOptions;
use zookeeper_client::{Client, Error};

use super::{Count, Row, job_of};
use crate::exit::Failure;
use crate::output::printable;

/// The number of requests in flight. The client sends them in the order of the calls, and they are answered in this order.
pub(crate) const IN_FLIGHT: usize = 256;

/// Calls `row` with each lock below a path, and returns the paths that may not be read.
pub(super) async fn each_lock(
    options: &ZkOptions,
    prefix: Option<&LockPath>,
    mut row: impl FnMut(Row) -> Result<(), Failure>,
) -> Result<Count, Failure> {
    let client = options.connect_client().await?;
    // The server may be behind others.
    client.sync("/").await.map_err(|error| failed("", error))?;
    let mut walk = Walk::new(&client, prefix);
    while let Some(node) = walk.next().await? {
        let Ok(path) = LockPath::new(&node.path) else { continue };
        let queue = Queue::of_names(&node.places);
        if !queue.is_empty() {
            row(Row::of(path, &queue))?;
        }
    }
    Ok(walk.unread)
}

/// Calls `found` with the path of each job below a path, and returns the paths that may not be read.
pub(super) async fn each_job(
    options: &ZkOptions,
    prefix: Option<&LockPath>,
    mut found: impl AsyncFnMut(LockPath) -> Result<(), Failure>,
) -> Result<Count, Failure> {
    let client = options.connect_client().await?;
    // The server may be behind others.
    client.sync("/").await.map_err(|error| failed("", error))?;
    let mut walk = Walk::new(&client, prefix);
    while let Some(node) = walk.next().await? {
        for path in node.others.iter().filter_map(|name| job_of(&node.path, name)) {
            found(path).await?;
        }
    }
    Ok(walk.unread)
}

/// A node with the names of its children.
#[derive(Debug)]
pub(crate) struct Listed {
    /// The path below the chroot, empty for the root.
    pub(crate) path: String,
    /// The children that are named like the nodes of a queue.
    pub(crate) places: Vec<String>,
    /// The other children, sorted.
    pub(crate) others: Vec<String>,
}

type Children<'a> = Pin<Box<dyn Future<Output = Result<Vec<String>, Error>> + Send + 'a>>;

/// Lists all nodes below a path, depth first. Keeps in memory what is in flight, and the names beside it.
pub(crate) struct Walk<'a> {
    client: &'a Client,
    in_flight: VecDeque<(String, Children<'a>)>,
    /// Nodes whose children are not listed yet, with the number of the next one.
    left: Vec<(Rc<Listed>, usize)>,
    has_begun: bool,
    /// The nodes that may not be read.
    pub(crate) unread: Count,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(client: &'a Client, prefix: Option<&LockPath>) -> Self {
        let (in_flight, left, unread) = (VecDeque::new(), Vec::new(), Count::default());
        let mut walk = Walk { client, in_flight, left, has_begun: false, unread };
        walk.list(prefix.map_or_else(String::new, ToString::to_string));
        walk
    }

    fn list(&mut self, path: String) {
        let children = self.client.list_children(if path.is_empty() { "/" } else { &path });
        self.in_flight.push_back((path, Box::pin(children)));
    }

    /// Returns the next node. `None` at the end.
    ///
    /// # Errors
    /// The first node may not be read, or the server does not answer.
    pub(crate) async fn next(&mut self) -> Result<Option<Rc<Listed>>, Failure> {
        loop {
            self.send();
            let Some((path, children)) = self.in_flight.pop_front() else { return Ok(None) };
            match children.await {
                Ok(children) => return Ok(Some(self.found(path, children))),
                // Deleted meanwhile, or never created.
                Err(Error::NoNode) => {}
                Err(Error::NoAuth) if self.has_begun => self.unread.add(path),
                Err(error) => return Err(failed(&path, error)),
            }
        }
    }

    /// Sends requests for the next nodes.
    fn send(&mut self) {
        while self.in_flight.len() < IN_FLIGHT
            && let Some((parent, next)) = self.left.last_mut()
        {
            match parent.others.get(*next) {
                Some(name) => {
                    *next += 1;
                    let (is_own, path) = (parent.path.is_empty() && name == "zookeeper", parent.child(name));
                    if !is_own {
                        self.list(path);
                    }
                }
                None => drop(self.left.pop()),
            }
        }
    }

    fn found(&mut self, path: String, children: Vec<String>) -> Rc<Listed> {
        self.has_begun = true;
        let (places, mut others): (Vec<_>, Vec<_>) =
            children.into_iter().partition(|name| NodeName::parse(name).is_some());
        others.sort_unstable();
        let node = Rc::new(Listed { path, places, others });
        if !node.others.is_empty() {
            self.left.push((node.clone(), 0));
        }
        node
    }
}

impl Listed {
    /// Returns the path of a child.
    pub(crate) fn child(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }
}

/// Returns the failure of a request about a node, with its path below the chroot.
pub(crate) fn failed(path: &str, error: Error) -> Failure {
    let path = if path.is_empty() { "/" } else { path };
    Failure::failed(format!("{}: ZooKeeper: {error}", printable(path.as_bytes())))
}
