//! Noticing nodes that the connected server lists although the leader does not have them.
//!
//! A server that rejoins its leader can miss a deletion for good (ZOOKEEPER-4643, -4785 and others; the README lists the
//! versions). A client of that server that waits behind such a node waits forever, since its watch never fires. So a
//! watch that has been silent for a long time asks the leader: unlike a read, a transaction that only checks whether
//! nodes exist is executed there.
//!
//! The finding is only logged. The client continues to wait, because it cannot know which server is wrong: a leader that has
//! lost a node which other servers still have looks the same, and the holder of that node is alive. Nor does a name identify
//! a node: if a create is repeated in a client's next session, a path that was removed in between can give it the same name
//! again.

use std::convert::Infallible;
use std::sync::Arc;

use tokio::time::sleep;
use zlock_core::kit::SessionKey;
use zlock_core::{LockPath, Node};
use zookeeper_client::{Error, MultiWriteError};

use crate::error::Failure;
use crate::operations::operation::{Leaves, Operation};
use crate::session::{ANY_VERSION, Freshness, Shared};

/// The number of session timeouts of silence after which a watch first asks the leader. The time doubles after each request.
const SILENCE: u32 = 3;

/// The maximum number of nodes that one transaction checks, beginning with the head of the queue.
const ASKED: usize = 100;

/// The nodes that a watch waits for, which are checked while it stays silent.
pub(crate) struct Suspects {
    shared: Arc<Shared>,
    session: SessionKey,
    parent: LockPath,
    nodes: Vec<Node>,
}

impl Suspects {
    pub(crate) fn new<'a>(
        shared: &Arc<Shared>,
        session: SessionKey,
        parent: &LockPath,
        nodes: impl IntoIterator<Item = &'a Node>,
    ) -> Self {
        let nodes = nodes.into_iter().take(ASKED).cloned().collect();
        Suspects { shared: shared.clone(), session, parent: parent.clone(), nodes }
    }

    /// Asks the leader repeatedly, with doubling pauses, and logs nodes that only the connected server has. Never completes.
    pub(crate) async fn watch(self) -> Infallible {
        let mut silence = self.shared.options.session_timeout.saturating_mul(SILENCE);
        loop {
            sleep(silence).await;
            // Boxed, because it is rarely needed and would otherwise add to the size of every watch.
            match Box::pin(self.find()).await {
                Ok(Some(path)) => tracing::error!(
                    %path,
                    "this client waits behind a node that the connected server lists and its leader does not have: the \
                     servers of this ensemble disagree, and locks on it are not safe until they are repaired"
                ),
                Ok(None) => {}
                Err(failure) => tracing::debug!(path = %self.parent, ?failure, "the leader was not asked"),
            }
            silence = silence.saturating_mul(2);
        }
    }

    /// Returns the path of a node that the connected server lists and the leader does not have.
    async fn find(&self) -> Result<Option<String>, Failure> {
        let mut operation = Operation::new(&self.shared, "exists_with_watch", &self.parent);
        let Some(gone) = self.unknown_to_the_leader(&mut operation).await? else { return Ok(None) };
        // The server has answered that transaction, so it has applied all transactions before it.
        let queue = operation.list(self.session, Freshness::Latest).await?;
        let listed = queue.iter().any(|node| node.name == gone.name);
        Ok(listed.then(|| operation.node_path(&gone.name)))
    }

    /// Returns the first node that the leader does not have.
    async fn unknown_to_the_leader(&self, operation: &mut Operation<'_>) -> Result<Option<&Node>, Failure> {
        let paths: Vec<_> = self.nodes.iter().map(|node| operation.node_path(&node.name)).collect();
        let asked = operation.send(self.session, Leaves::Nothing, move |live| async move {
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
