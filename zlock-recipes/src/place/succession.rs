//! Succession: the release of a place hands the lock to the place right behind it if both belong to the same client.
//!
//! This saves the waiter its watch and its second listing. It is safe by this rule: if the place right before mine *held* the
//! lock exclusively, and the store confirms that its node was removed while mine existed, then I hold the lock. All places
//! before it were gone when it was granted, and nothing comes in between, because a queue grows at its end.
//!
//! Some stores number nodes by counting all creates under a parent, by any client. On these, nothing is between two places
//! with consecutive numbers, and the second place needs no listing to know its predecessor. So a client whose creates
//! directly follow each other sends no listings. The confirmation then proves one more thing: it found both nodes, so they
//! have the same parent. A parent that was removed and created again counts from 0, and its numbers say nothing about older
//! nodes. But then the predecessor's node is gone, and its removal is not confirmed.
//!
//! | must stay true | how |
//! |---|---|
//! | the predecessor held | only the release of a hold hands over, never that of a place that was given up |
//! | exclusively, and still does | only mutexes: the node of any other lock may be relabelled |
//! | it is right before mine | a listing shows it, and the names are compared, since a create may leave a second node with its ID; or the numbers show it |
//! | both numbers are of one parent | only a confirmation grants, and it found both nodes; a promise that ends in any other way makes the waiter list |
//! | the own number is the right one | no backend omits the listing after an attempt of unknown outcome, which may have left a second node with the same ID |
//! | its node and mine are of one session | the epochs are compared, and a grant checks the current session |
//! | nothing comes in between | numbers that ZooKeeper may assign twice are excluded |
//! | no waiter is forgotten | a promise that ends without a grant, for any reason, makes the waiter list and *watch*; so does a release that does not progress |
//! | an operator's delete is noticed | by the heartbeat of the holder, which ends the promise; a long wait also watches the node, as behind other clients |
//!
//! The rule is model-checked, see `docs/CORRECTNESS.md`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use zlock_core::{
    CoordinationBackend, Created, Deletion, DeletionNotice, Label, LockPath, Mutex, Node, NodeId, Result,
    Sequence, Target,
};

/// How long a release may take to hand over before the successor checks the queue itself.
const ON_ITS_WAY: Duration = Duration::from_secs(1);

/// The places of a client that a successor may wait for.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<NodeId, Entry>,
    /// The numbers for each path that has places in a queue.
    paths: BTreeMap<LockPath, Numbers>,
}

/// The places in the queue of one path, by number.
#[derive(Debug, Default)]
struct Numbers {
    queued: BTreeMap<Sequence, NodeId>,
    /// `true` if the last place that was added has the number right after that of another place.
    in_a_row: bool,
}

#[derive(Debug)]
enum Entry {
    /// The create is in flight. A successor's listing may show the node before the answer has arrived.
    Creating {
        told: Option<oneshot::Sender<()>>,
    },
    Queued {
        node: Node,
        epoch: u64,
        deletion: DeletionNotice,
        next: Option<Successor>,
    },
}

/// A place of the client, from its create until the removal of its node begins. Dropping it hands nothing over.
#[derive(Debug)]
pub(crate) struct PlaceHandle {
    places: Arc<Places>,
    path: LockPath,
    node_id: NodeId,
}

/// The next place, as its predecessor knows it. If it is dropped before the lock is handed over, it ends the promise.
#[derive(Debug)]
pub(crate) struct Successor {
    node: Node,
    told: watch::Sender<News>,
}

/// A predecessor's promise to report its end, as its successor has it.
#[derive(Debug)]
pub(crate) struct Promise {
    told: watch::Receiver<News>,
    /// Reports that another client deleted the predecessor's node.
    deletion: DeletionNotice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    None,
    /// The request that hands over is about to be sent.
    OnItsWay,
    HandedOver,
}

/// The other place behind the same one.
#[allow(dead_code, reason = "dropped outside a lock")]
enum Other {
    Follows(oneshot::Sender<()>),
    HasPromise(Successor),
}

/// The result of following a place.
#[derive(Debug)]
pub(crate) enum Followed {
    /// The predecessor will report its end.
    Promised(Promise),
    /// The predecessor's create is in flight. Follow it again when this completes.
    NotYet(oneshot::Receiver<()>),
    /// The place belongs to another client, or does not hand over.
    No,
}

impl Places {
    /// Adds a place that is about to be created. `None` if nothing can succeed it.
    pub(crate) fn begin(
        self: &Arc<Self>,
        path: &LockPath,
        node_id: &NodeId,
        label: Label,
    ) -> Option<Arc<PlaceHandle>> {
        if label != Label::Lock {
            return None;
        }
        self.0.lock().entries.insert(node_id.clone(), Entry::Creating { told: None });
        Some(Arc::new(PlaceHandle { places: self.clone(), path: path.clone(), node_id: node_id.clone() }))
    }

    /// Returns `true` if the next place will probably be right behind another one. This is a guess: if it is wrong, a listing
    /// is sent after the create instead of together with it.
    pub(crate) fn is_in_a_row(&self, path: &LockPath) -> bool {
        self.0.lock().paths.get(path).is_some_and(|numbers| numbers.in_a_row)
    }

    /// Links a place to `before`, which a listing showed right before it.
    pub(crate) fn follow(&self, before: &Node, created: &Created) -> Followed {
        if !may_succeed(&created.node) || before.sequence >= created.node.sequence {
            return Followed::No;
        }
        // An existing successor has lost its node, because two places cannot be right behind the same one. It is woken
        // outside the mutex.
        let (followed, _other) = match self.0.lock().entries.get_mut(&before.id) {
            Some(Entry::Creating { told }) => {
                let (sender, receiver) = oneshot::channel();
                (Followed::NotYet(receiver), told.replace(sender).map(Other::Follows))
            }
            Some(Entry::Queued { node, epoch, deletion, next })
                if *epoch == created.epoch && node.name == before.name =>
            {
                let (tell, told) = watch::channel(News::None);
                let successor = Successor { node: created.node.clone(), told: tell };
                let promise = Promise { told, deletion: deletion.clone() };
                (Followed::Promised(promise), next.replace(successor).map(Other::HasPromise))
            }
            _ => (Followed::No, None),
        };
        followed
    }

    /// Links a place that was created without a listing to the place with the number right before its own, if there is one.
    pub(crate) fn follow_number(&self, path: &LockPath, created: &Created) -> Option<(Node, Promise)> {
        let before = {
            let state = self.0.lock();
            let before = state.paths.get(path)?.queued.get(&number_before(&created.node))?;
            let Entry::Queued { node, .. } = state.entries.get(before)? else { return None };
            node.clone()
        };
        match self.follow(&before, created) {
            Followed::Promised(promise) => Some((before, promise)),
            _ => None,
        }
    }
}

impl State {
    /// Adds a place whose create was answered. The returned entry wakes a follower when it is dropped.
    fn insert(&mut self, path: &LockPath, entry: Entry) -> Option<Entry> {
        let Entry::Queued { node, .. } = &entry else { return None };
        let (node_id, number) = (node.id.clone(), node.sequence);
        let numbers = self.paths.entry(path.clone()).or_default();
        numbers.in_a_row = numbers.queued.contains_key(&number_before(node));
        numbers.queued.insert(number, node_id.clone());
        self.entries.insert(node_id, entry)
    }

    fn remove(&mut self, path: &LockPath, node_id: &NodeId) -> Option<Entry> {
        let entry = self.entries.remove(node_id)?;
        if let Entry::Queued { node, .. } = &entry
            && let Some(numbers) = self.paths.get_mut(path)
        {
            // In a parent that was created again, another place may have its number.
            if numbers.queued.get(&node.sequence) == Some(node_id) {
                numbers.queued.remove(&node.sequence);
            }
            if numbers.queued.is_empty() {
                self.paths.remove(path);
            }
        }
        Some(entry)
    }
}

fn number_before(node: &Node) -> Sequence {
    Sequence::new(node.sequence.get() - 1)
}

/// Returns `true` if the node's label never changes and its number is assigned only once.
fn may_succeed(node: &Node) -> bool {
    const EDGE: Sequence = Sequence::new(i32::MAX as i64);
    node.label == Label::Lock && node.sequence.get() >= 0 && node.sequence != EDGE
}

impl PlaceHandle {
    /// Records that the create was answered.
    pub(crate) fn created(&self, created: &Created) {
        let Created { node, epoch, deletion, .. } = created;
        // Dropping the old entry wakes its follower, outside the mutex.
        let _creating = if may_succeed(node) {
            let (node, deletion) = (node.clone(), deletion.clone());
            let queued = Entry::Queued { node, epoch: *epoch, deletion, next: None };
            self.places.0.lock().insert(&self.path, queued)
        } else {
            self.places.0.lock().remove(&self.path, &self.node_id)
        };
    }

    /// Takes the successor if there is one and it still waits. From here on, there cannot be another.
    pub(crate) fn next(&self) -> Option<Successor> {
        let entry = self.places.0.lock().remove(&self.path, &self.node_id)?;
        let Entry::Queued { next, .. } = entry else { return None };
        // An error if nobody waits any more.
        next.filter(|next| next.told.send(News::OnItsWay).is_ok())
    }
}

impl Drop for PlaceHandle {
    fn drop(&mut self) {
        drop(self.next());
    }
}

impl Promise {
    /// Waits for the end of the predecessor. Returns `true` if the lock was handed over.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn granted(&mut self) -> bool {
        let told = async {
            let begun = self.told.wait_for(|news| *news != News::None).await.is_ok();
            // A release that is not polled reports nothing.
            let end = timeout(ON_ITS_WAY, self.told.wait_for(|news| *news == News::HandedOver));
            begun && matches!(end.await, Ok(Ok(_)))
        };
        tokio::select! {
            biased;
            granted = told => granted,
            () = self.deletion.deleted() => false,
        }
    }

    /// Returns `true` if the lock is being handed over.
    pub(crate) fn is_on_its_way(&self) -> bool {
        *self.told.borrow() != News::None
    }
}

/// Removes the node of a hold, and hands the lock over to `next`.
///
/// # Cancel safety
/// The request may still take effect. `next` then checks the queue itself.
pub(crate) async fn remove(
    backend: &dyn CoordinationBackend,
    path: &LockPath,
    target: &Target,
    next: Option<Successor>,
) -> Result<Deletion> {
    let deletion = backend.delete(path, target, next.as_ref().map(|next| &next.node)).await?;
    if let (Deletion::HandedOver, Some(next)) = (deletion, next) {
        next.told.send_replace(News::HandedOver);
    }
    Ok(deletion)
}
