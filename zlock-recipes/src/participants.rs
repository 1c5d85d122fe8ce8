//! Who holds a lock and who waits for it.

use zlock_core::{LockPath, NodeName, Result};

use crate::client::Client;
use crate::queue::{Discipline, Verdict, judge};

/// One node in a lock's queue.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Participant {
    /// The name of the node.
    pub name: NodeName,
    /// Whether it holds; else it waits.
    pub is_holder: bool,
    /// What its maker wrote into it: with zlock host name and process id unless set, with Curator an
    /// address.
    pub data: Vec<u8>,
}

pub(crate) async fn participants(client: &Client, path: &LockPath) -> Result<Vec<Participant>> {
    let backend = &client.inner().backend;
    let queue = backend.children(path).await?;
    let mut participants = Vec::with_capacity(queue.len());
    for node in queue.iter() {
        // Gone since the listing: left out.
        if let Some(data) = backend.data(path, node).await? {
            let verdict = judge(&queue, &node.token, Discipline::of(node.label));
            let is_holder = matches!(verdict, Verdict::Held { .. });
            participants.push(Participant { name: node.name.clone(), is_holder, data });
        }
    }
    Ok(participants)
}
