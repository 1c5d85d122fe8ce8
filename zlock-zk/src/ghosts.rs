//! Ghosts: nodes that the connected server lists although the ensemble deleted them.
//!
//! A server that rejoins its leader can miss a deletion for good (ZOOKEEPER-4643, -4785 and others; the README lists the
//! versions). A client of that server that waits behind such a node would wait forever, since its watch never fires. So a
//! watch that has been silent for a long time asks the leader: unlike a read, a transaction that only checks whether
//! nodes exist is executed there.
//!
//! A ghost is left out of listings by its full name. Only names that were made for a single create, and so never come
//! back, are ever treated as ghosts.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::sleep;
use zlock_core::{LockPath, Node, Queue};
use zookeeper_client::{Error, MultiWriteError};

use crate::error::Failure;
use crate::operation::Operation;
use crate::session::{Freshness, Lease, Shared};

/// The number of session timeouts for which a watch is silent before it first asks the leader. The time doubles after each
/// request.
const SILENCE: u32 = 3;

/// The most nodes that one transaction checks, from the head of the queue on.
const ASKED: usize = 100;

/// The full paths of the ghosts that this session has found.
#[derive(Debug, Default)]
pub(crate) struct Ghosts(Mutex<HashSet<String>>);

impl Ghosts {
    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    /// Returns the queue without the ghosts.
    pub(crate) fn leave_out(&self, queue: Queue, path: impl Fn(&Node) -> String) -> Queue {
        let ghosts = self.lock();
        if !ghosts.is_empty() && queue.iter().any(|node| ghosts.contains(&path(node))) {
            let nodes = queue.into_vec();
            return Queue::wrapping(nodes.into_iter().filter(|node| !ghosts.contains(&path(node))).collect());
        }
        queue
    }
}

/// Returns `true` if the name was made for a single create: Curator's protected names, which are also ours. kazoo can use a
/// name again after the path above it was deleted.
fn is_unique(node: &Node) -> bool {
    node.name.as_str().starts_with("_c_")
}

/// The nodes that a watch waits for, which are checked when it stays silent.
pub(crate) struct Suspects {
    session: Arc<Shared>,
    lease: Lease,
    parent: LockPath,
    nodes: Vec<Node>,
}

impl Suspects {
    pub(crate) fn new<'a>(
        session: &Arc<Shared>,
        lease: Lease,
        parent: &LockPath,
        nodes: impl IntoIterator<Item = &'a Node>,
    ) -> Self {
        let nodes = nodes.into_iter().filter(|node| is_unique(node)).take(ASKED).cloned().collect();
        Suspects { session: session.clone(), lease, parent: parent.clone(), nodes }
    }

    /// Completes when one of the nodes turns out to be a ghost. From then on no listing of this session includes it.
    pub(crate) async fn ghost_found(self) {
        let mut silence = self.session.options.session_timeout.saturating_mul(SILENCE);
        loop {
            sleep(silence).await;
            // Boxed: rarely needed, and otherwise part of the size of every watch.
            match Box::pin(self.find()).await {
                Ok(Some(path)) => {
                    tracing::error!(
                        %path,
                        "the connected server shows a node that its leader does not have: the servers of this \
                         ensemble disagree. The node is ignored; restart that server with an empty data folder"
                    );
                    self.session.ghosts.lock().insert(path);
                    return;
                }
                Ok(None) => {}
                Err(failure) => tracing::debug!(path = %self.parent, ?failure, "the leader was not asked"),
            }
            silence = silence.saturating_mul(2);
        }
    }

    async fn find(&self) -> Result<Option<String>, Failure> {
        let operation = Operation::new(&self.session, "exists_with_watch", &self.parent);
        let Some(gone) = self.unknown_to_the_leader(&operation).await? else { return Ok(None) };
        // The server has answered that transaction, so it has applied all transactions before it. A node never gets an
        // earlier label back, so a node that is still listed under this name is the one that the leader does not have.
        let queue = operation.list(self.lease, Freshness::Latest).await?;
        let shown = queue.iter().any(|node| node.name == gone.name);
        Ok(shown.then(|| operation.node_path(&gone.name)))
    }

    /// Returns the first of the nodes that the leader does not have.
    async fn unknown_to_the_leader(&self, operation: &Operation<'_>) -> Result<Option<&Node>, Failure> {
        let paths: Vec<_> = self.nodes.iter().map(|node| operation.node_path(&node.name)).collect();
        let asked = operation.ask(self.lease, move |live| async move {
            let mut transaction = live.client.new_multi_writer();
            for path in &paths {
                transaction.add_check_version(path, ANY_VERSION)?;
            }
            match transaction.commit().await {
                Ok(_) => Ok(None),
                Err(MultiWriteError::OperationFailed { index, source: Error::NoNode }) => Ok(Some(index)),
                Err(error) => Err(Error::from(error)),
            }
        });
        Ok(asked.await?.and_then(|index| self.nodes.get(index)))
    }
}

/// Makes the check of a version a check of existence.
const ANY_VERSION: i32 = -1;

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "0123abcd-4567-89ab-cdef-0123456789ab";

    #[test]
    fn only_the_ghost_is_left_out() {
        let names = [format!("_c_{UUID}-__WRIT__0000000004"), format!("_c_{UUID}-__READ__0000000004")];
        let path = |node: &Node| format!("/a/{}", node.name);
        let ghosts = Ghosts::default();
        let left = || ghosts.leave_out(Queue::of_names(&names), path).len();
        assert_eq!(left(), 2);
        ghosts.lock().insert(format!("/b/{}", names[0]));
        assert_eq!(left(), 2, "a node of another path");
        ghosts.lock().insert(format!("/a/{}", names[0]));
        assert_eq!(left(), 1);
        assert_eq!(ghosts.leave_out(Queue::of_names(&names), path)[0].name.as_str(), names[1]);
    }

    #[test]
    fn a_name_that_may_come_back_is_never_suspected() {
        let unique = |name: &str| is_unique(&Node::listed(name).unwrap());
        assert!(unique(&format!("_c_{UUID}-lock-0000000004")));
        assert!(!unique("0123abcd456789abcdef0123456789ab__lock__0000000004"), "kazoo's");
        assert!(!unique("lock-0000000004"));
    }
}
