//! The holders and waiters of a lock.

use std::time::SystemTime;

use zlock_core::{FencingToken, Label, LockPath, NodeName, REVOKE, Result, SessionId};

use crate::client::inner::ClientInner;
use crate::queue::{Discipline, Verdict, judge};

/// One node in a lock's queue.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Participant {
    /// The name of the node.
    pub name: NodeName,
    /// The kind of lock that the node asks for: a mutex, a read lock, a write lock, or a number of permits.
    pub label: Label,
    /// `true` if it holds the lock, `false` if it is waiting.
    pub is_holder: bool,
    /// `true` if it was created in the current session of the calling client, by any of its locks.
    pub is_ours: bool,
    /// The data that its creator wrote. By default, zlock writes the host name and the process ID, and Curator an
    /// address. A request for revocation overwrites it.
    pub data: Vec<u8>,
    /// The time at which it was created, by the server's clock. Only ZooKeeper reports it, and a relabel creates a new
    /// node there. `None` on other stores. For display only.
    pub created: Option<SystemTime>,
    /// The session that owns the node, if any.
    pub session: Option<SessionId>,
    /// The fencing token of a holder with this node, if the store reports it:
    /// [`NodeData::fencing_token`](zlock_core::NodeData).
    pub fencing_token: Option<FencingToken>,
}

impl Participant {
    /// Returns `true` if another client has requested revocation.
    #[must_use]
    pub fn is_revocation_requested(&self) -> bool {
        self.data == REVOKE
    }
}

pub(crate) async fn participants(client: &ClientInner, path: &LockPath) -> Result<Vec<Participant>> {
    let backend = client.backend();
    let queue = backend.children(path, None).await?;
    let mut participants = Vec::with_capacity(queue.len());
    for node in queue.iter() {
        // Left out if it was deleted since the listing.
        let Some(told) = backend.data(path, node).await? else { continue };
        let verdict = judge(&queue, &node.id, Discipline::of(node.label));
        participants.push(Participant {
            name: node.name.clone(),
            label: node.label,
            is_holder: matches!(verdict, Verdict::Held { .. }),
            is_ours: told.session == Some(client.session.current().id),
            data: told.data,
            created: told.created,
            session: told.session,
            fencing_token: told.fencing_token,
        });
    }
    Ok(participants)
}
