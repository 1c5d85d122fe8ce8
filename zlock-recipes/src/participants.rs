//! Who holds a lock and who waits for it.

use std::time::SystemTime;

use zlock_core::{FencingToken, Label, LockPath, NodeName, Result, SessionId};

use crate::client_inner::ClientInner;
use crate::queue::{Discipline, Verdict, judge};
use crate::revocation::REVOKE;

/// One node in a lock's queue.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Participant {
    /// The name of the node.
    pub name: NodeName,
    /// What it asks for: all, to read, to write, or how many permits.
    pub label: Label,
    /// Whether it holds; else it waits.
    pub is_holder: bool,
    /// Whether it was made in the present session of the client that asks, by whichever of its locks.
    pub is_ours: bool,
    /// What its maker wrote into it: with zlock host name and process id unless set, with Curator an
    /// address. Who asks for the lock overwrites it.
    pub data: Vec<u8>,
    /// When it came, by the clock of the server: on ZooKeeper, where a node comes anew with each change of its
    /// label. `None` on stores that do not tell. To be shown, and nothing to decide by.
    pub created: Option<SystemTime>,
    /// The session that owns the node, if any.
    pub session: Option<SessionId>,
    /// The fencing token of a holder with this node, if the store tells: [`NodeData::fencing_token`](zlock_core::NodeData).
    pub fencing_token: Option<FencingToken>,
}

impl Participant {
    /// Whether somebody has asked it to let go.
    #[must_use]
    pub fn is_revocation_requested(&self) -> bool {
        self.data == REVOKE
    }
}

pub(crate) async fn participants(client: &ClientInner, path: &LockPath) -> Result<Vec<Participant>> {
    let backend = &client.backend;
    let queue = backend.children(path).await?;
    let mut participants = Vec::with_capacity(queue.len());
    for node in queue.iter() {
        // Gone since the listing: left out.
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
