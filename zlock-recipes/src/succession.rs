//! Succession: a waiter that stands right behind a place of its own client is told by that place's release that it holds.
//!
//! That saves the waiter its watch and its second listing. It is safe by this rule: if the place right before mine *held*
//! the lock exclusively, and the store confirms that its node was removed while mine was there, then I hold. Whatever
//! stood before it was gone when it was granted, and nothing comes in between, because a queue grows at its end.
//!
//! | must stay true | how |
//! |---|---|
//! | the predecessor held | only the release of a hold hands over, never that of a place that was given up |
//! | exclusively, and still does | mutexes alone: the node of any other lock may get another label |
//! | it is right before mine | a listing said so; its name is compared, since a create may leave a second node of its ID |
//! | its node and mine are of one session | the epochs are compared, and a grant looks at the session of its moment |
//! | nothing comes in between | not with numbers that ZooKeeper gives twice |
//! | no waiter is forgotten | a link that ends without a grant, for whatever reason, makes the waiter list and *watch*; so does one that has told nothing for a while |
//!
//! The rule is model-checked, see `docs/CORRECTNESS.md`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use zlock_core::{
    CoordinationBackend, Created, Deletion, DeletionNotice, HandOver, Label, LockPath, Node, NodeId, Result,
    Sequence, Target,
};

/// The places of a client that a successor may wait for.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<BTreeMap<NodeId, Arc<Entry>>>);

#[derive(Debug)]
struct Entry {
    node: Node,
    epoch: u64,
    deletion: DeletionNotice,
    next: Mutex<Option<Successor>>,
}

/// A place of the client, from its create until its node is about to be removed. Dropped, it hands over to nobody.
#[derive(Debug)]
pub(crate) struct Predecessor {
    places: Arc<Places>,
    node_id: NodeId,
}

/// Who is next, as its predecessor knows it.
#[derive(Debug)]
pub(crate) struct Successor {
    node: Node,
    granted: oneshot::Sender<()>,
}

/// The end of a successor: what its predecessor tells it.
#[derive(Debug)]
pub(crate) struct Link {
    granted: oneshot::Receiver<()>,
    /// That the predecessor's node was deleted by somebody else.
    deletion: DeletionNotice,
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, Arc<Entry>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a place that may come to hold; `None` if nobody can succeed it.
    pub(crate) fn add(self: &Arc<Self>, created: &Created) -> Option<Arc<Predecessor>> {
        let Created { node, epoch, deletion, .. } = created;
        if !may_succeed(node) {
            return None;
        }
        let (node_id, next) = (node.id.clone(), Mutex::default());
        let entry = Entry { node: node.clone(), epoch: *epoch, deletion: deletion.clone(), next };
        self.lock().insert(node_id.clone(), Arc::new(entry));
        Some(Arc::new(Predecessor { places: self.clone(), node_id }))
    }

    /// Links a place to `before`, which a listing showed right before it. `None` if that is not one of ours, or is about
    /// to be removed.
    pub(crate) fn follow(&self, before: &Node, created: &Created) -> Option<Link> {
        if !may_succeed(&created.node) || before.sequence >= created.node.sequence {
            return None;
        }
        let places = self.lock();
        let entry = places.get(&before.id)?;
        if entry.epoch != created.epoch || entry.node.name != before.name {
            return None;
        }
        let (granted, receiver) = oneshot::channel();
        // One that is there already has lost its node: two places are not right behind the same one.
        let mut next = entry.next.lock().unwrap_or_else(PoisonError::into_inner);
        *next = Some(Successor { node: created.node.clone(), granted });
        Some(Link { granted: receiver, deletion: entry.deletion.clone() })
    }
}

/// Its label is never changed, and its number is given once.
fn may_succeed(node: &Node) -> bool {
    const EDGE: Sequence = Sequence::new(i32::MAX as i64);
    node.label == Label::Lock && node.sequence.get() >= 0 && node.sequence != EDGE
}

impl Predecessor {
    /// Takes the successor, if there is one that still waits. From here on there is no other.
    pub(crate) fn next(&self) -> Option<Successor> {
        let entry = self.places.lock().remove(&self.node_id)?;
        let next = entry.next.lock().unwrap_or_else(PoisonError::into_inner).take();
        next.filter(|next| !next.granted.is_closed())
    }
}

impl Drop for Predecessor {
    fn drop(&mut self) {
        drop(self.next());
    }
}

impl Link {
    /// Waits for the end of the predecessor; `true` if the lock was handed over.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn granted(&mut self) -> bool {
        tokio::select! {
            biased;
            granted = &mut self.granted => granted.is_ok(),
            () = self.deletion.deleted() => false,
        }
    }
}

/// Removes the node of a hold, and hands the lock over to `next`.
///
/// # Cancel safety
/// The request may still take effect. `next` looks for itself.
pub(crate) async fn remove(
    backend: &dyn CoordinationBackend,
    path: &LockPath,
    target: &Target,
    next: Option<Successor>,
) -> Result<Deletion> {
    let (Target::Node(node), Some(Successor { node: next, granted })) = (target, next) else {
        return backend.delete(path, target).await;
    };
    match backend.hand_over(path, node, std::slice::from_ref(&next)).await? {
        HandOver::Confirmed => {
            // Only fails if it has been cancelled meanwhile: then its node is removed.
            let _ = granted.send(());
            Ok(Deletion::Deleted)
        }
        HandOver::Unconfirmed(deletion) => Ok(deletion),
        _ => Ok(Deletion::Deleted),
    }
}
