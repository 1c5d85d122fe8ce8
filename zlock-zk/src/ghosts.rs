//! Nodes that the connected server shows and the ensemble does not have.
//!
//! A server that joins its leader again can miss a deletion for good (ZOOKEEPER-4643, -4785 and others; the README lists
//! the versions). The watch of whoever waits behind such a node never fires. So a wait that has been silent for a long
//! time asks the leader: a transaction that only checks whether the nodes exist is judged there, unlike a read.
//!
//! What is left out of listings is a name, and only a name that was made for one create and never comes back.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::sleep;
use zlock_core::{LockPath, Node, Queue};
use zookeeper_client::{Error, MultiWriteError};

use crate::error::Failure;
use crate::operation::Operation;
use crate::session::{Freshness, Lease, Shared};

/// For how many session timeouts a watch is silent before the leader is asked for the first time. Then the time doubles.
const SILENCE: u32 = 3;

/// How many nodes one transaction asks about: those at the front of the queue.
const ASKED: usize = 100;

/// The paths at the server of the nodes that this session has found to be gone.
#[derive(Debug, Default)]
pub(crate) struct Ghosts(Mutex<HashSet<String>>);

impl Ghosts {
    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    /// The queue without those nodes.
    pub(crate) fn leave_out(&self, queue: Queue, path: impl Fn(&Node) -> String) -> Queue {
        let ghosts = self.lock();
        if !ghosts.is_empty() && queue.iter().any(|node| ghosts.contains(&path(node))) {
            let nodes = queue.into_vec();
            return Queue::wrapping(nodes.into_iter().filter(|node| !ghosts.contains(&path(node))).collect());
        }
        queue
    }
}

/// Whether the name was made for one create: Curator's protected names, and so ours. kazoo uses a name again when the
/// path above it was removed in between.
fn is_unique(node: &Node) -> bool {
    node.name.as_str().starts_with("_c_")
}

/// What a silent watch waits for.
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

    /// Resolves when one of the nodes was found to be a ghost: from now on no listing has it.
    pub(crate) async fn ghost_found(self) {
        let mut silence = self.session.options.session_timeout.saturating_mul(SILENCE);
        loop {
            sleep(silence).await;
            // Rarely needed, and every wait would carry it.
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
        // The server has answered that transaction, so it has applied all that came before it. No label ever comes
        // back: a node that is shown under this name still is the one that the leader does not have.
        let queue = operation.list(self.lease, Freshness::Latest).await?;
        let shown = queue.iter().any(|node| node.name == gone.name);
        Ok(shown.then(|| operation.node_path(&gone.name)))
    }

    /// The first of the nodes that the leader does not have.
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

/// What makes the check of a version one of existence.
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
