//! Succession: the release of a place hands the lock to the place right behind it, if that is of the same client.
//!
//! That saves the waiter its watch and its second listing. It is safe by this rule: if the place right before mine *held*
//! the lock exclusively, and the store confirms that its node was removed while mine was there, then I hold. Whatever
//! stood before it was gone when it was granted, and nothing comes in between, because a queue grows at its end.
//!
//! Some stores number nodes by counting every create under a parent, whoever's. There nobody is between two places with
//! consecutive numbers, and the second one needs no listing to know its predecessor. So a client whose creates directly
//! follow each other sends no listings. The confirmation then proves one thing more: it found both nodes, so they are in one
//! parent. A parent that was removed and made again counts from 0, and its numbers say nothing about older nodes; but then the
//! predecessor's node is gone, and no removal of it is confirmed.
//!
//! | must stay true | how |
//! |---|---|
//! | the predecessor held | only the release of a hold hands over, never that of a place that was given up |
//! | exclusively, and still does | mutexes alone: the node of any other lock may get another label |
//! | it is right before mine | a listing says so, and its name is compared, since a create may leave a second node of its ID; or the numbers say so |
//! | both numbers are of one parent | only a confirmation grants, and it found both nodes; a link that ends in any other way makes the waiter list |
//! | the own number is the right one | no backend leaves the listing out after an attempt of unknown outcome, which may have left a second node of the same ID |
//! | its node and mine are of one session | the epochs are compared, and a grant looks at the session of its moment |
//! | nothing comes in between | numbers that ZooKeeper gives twice are excluded |
//! | no waiter is forgotten | a link that ends without a grant, for whatever reason, makes the waiter list and *watch*; so does a release that does not go on |
//! | an operator's delete is noticed | by the heartbeat of the holder, which notifies the link; a long wait also watches the node, as behind other clients |
//!
//! The rule is model-checked, see `docs/CORRECTNESS.md`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;
use zlock_core::{
    CoordinationBackend, Created, Deletion, DeletionNotice, HandOver, Label, LockPath, Node, NodeId, Result,
    Sequence, Target,
};

/// How long a release may take to hand over, before the successor looks for itself.
const ON_ITS_WAY: Duration = Duration::from_secs(1);

/// The places of a client that a successor may wait for.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<NodeId, Entry>,
    /// Of the paths that have places in a queue.
    paths: BTreeMap<LockPath, Numbers>,
}

/// The places in the queue of one path, by number.
#[derive(Debug, Default)]
struct Numbers {
    queued: BTreeMap<Sequence, NodeId>,
    /// The last place that was added has the number right behind that of another one.
    in_a_row: bool,
}

#[derive(Debug)]
enum Entry {
    /// The create is under way. Its answer may come to light in the listing of a successor before it is heard.
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

/// A place of the client, from its create until its node is about to be removed. Dropping it hands nothing over.
#[derive(Debug)]
pub(crate) struct Predecessor {
    places: Arc<Places>,
    path: LockPath,
    node_id: NodeId,
}

/// The next place, as its predecessor knows it. If it is dropped before the lock is handed over, it notifies the link.
#[derive(Debug)]
pub(crate) struct Successor {
    node: Node,
    told: Arc<Told>,
}

/// The successor's end of a link, which receives the messages of its predecessor.
#[derive(Debug)]
pub(crate) struct Link {
    told: Arc<Told>,
    /// The predecessor's node was deleted by another client.
    deletion: DeletionNotice,
}

#[derive(Debug, Default)]
struct Told {
    news: Mutex<News>,
    changed: Notify,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum News {
    #[default]
    None,
    /// The request that hands over is about to be sent.
    OnItsWay,
    HandedOver,
    NotHandedOver,
}

/// Another place behind the same one.
#[allow(dead_code, reason = "dropped outside a lock")]
enum Other {
    Follows(oneshot::Sender<()>),
    IsLinked(Successor),
}

/// The result of following a place.
#[derive(Debug)]
pub(crate) enum Followed {
    /// It will tell.
    Linked(Link),
    /// Its create is not answered yet. Follow it again when this completes.
    NotYet(oneshot::Receiver<()>),
    /// It is not one of ours, or does not hand over.
    No,
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a place that is about to be created; `None` if nobody can succeed it.
    pub(crate) fn begin(
        self: &Arc<Self>,
        path: &LockPath,
        node_id: &NodeId,
        label: Label,
    ) -> Option<Arc<Predecessor>> {
        if label != Label::Lock {
            return None;
        }
        self.lock().entries.insert(node_id.clone(), Entry::Creating { told: None });
        Some(Arc::new(Predecessor { places: self.clone(), path: path.clone(), node_id: node_id.clone() }))
    }

    /// Returns `true` if the next place will probably be right behind another one. It is a guess: where it is wrong, a
    /// listing is sent after the create instead of together with it.
    pub(crate) fn is_in_a_row(&self, path: &LockPath) -> bool {
        self.lock().paths.get(path).is_some_and(|numbers| numbers.in_a_row)
    }

    /// Links a place to `before`, which a listing showed right before it.
    pub(crate) fn follow(&self, before: &Node, created: &Created) -> Followed {
        if !may_succeed(&created.node) || before.sequence >= created.node.sequence {
            return Followed::No;
        }
        // One that is there already has lost its node: two places are not right behind the same one. It is woken outside
        // the lock.
        let (followed, _other) = match self.lock().entries.get_mut(&before.id) {
            Some(Entry::Creating { told }) => {
                let (sender, receiver) = oneshot::channel();
                (Followed::NotYet(receiver), told.replace(sender).map(Other::Follows))
            }
            Some(Entry::Queued { node, epoch, deletion, next })
                if *epoch == created.epoch && node.name == before.name =>
            {
                let told = Arc::<Told>::default();
                let successor = Successor { node: created.node.clone(), told: told.clone() };
                let link = Link { told, deletion: deletion.clone() };
                (Followed::Linked(link), next.replace(successor).map(Other::IsLinked))
            }
            _ => (Followed::No, None),
        };
        followed
    }

    /// Links a place that was created without a listing to the one with the number right before its own, if there is one.
    pub(crate) fn follow_number(&self, path: &LockPath, created: &Created) -> Option<(Node, Link)> {
        let before = {
            let state = self.lock();
            let before = state.paths.get(path)?.queued.get(&number_before(&created.node))?;
            let Entry::Queued { node, .. } = state.entries.get(before)? else { return None };
            node.clone()
        };
        match self.follow(&before, created) {
            Followed::Linked(link) => Some((before, link)),
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
            // In a parent that was made again another place may have its number.
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

/// Its label is never changed, and its number is given once.
fn may_succeed(node: &Node) -> bool {
    const EDGE: Sequence = Sequence::new(i32::MAX as i64);
    node.label == Label::Lock && node.sequence.get() >= 0 && node.sequence != EDGE
}

impl Predecessor {
    /// The create was answered.
    pub(crate) fn created(&self, created: &Created) {
        let Created { node, epoch, deletion, .. } = created;
        // Dropping the old entry wakes its follower. That happens outside the lock.
        let _creating = if may_succeed(node) {
            let (node, deletion) = (node.clone(), deletion.clone());
            let queued = Entry::Queued { node, epoch: *epoch, deletion, next: None };
            self.places.lock().insert(&self.path, queued)
        } else {
            self.places.lock().remove(&self.path, &self.node_id)
        };
    }

    /// Takes the successor, if there is one that still waits. From here on there is no other.
    pub(crate) fn next(&self) -> Option<Successor> {
        let entry = self.places.lock().remove(&self.path, &self.node_id)?;
        let Entry::Queued { next, .. } = entry else { return None };
        let next = next.filter(Successor::still_waits)?;
        next.told.tell(News::OnItsWay);
        Some(next)
    }
}

impl Drop for Predecessor {
    fn drop(&mut self) {
        drop(self.next());
    }
}

impl Told {
    fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, news: News) {
        *self.news() = news;
        self.changed.notify_one();
    }

    /// Waits until this is no longer the news, and returns what is.
    async fn after(&self, known: News) -> News {
        loop {
            let news = *self.news();
            if news != known {
                return news;
            }
            self.changed.notified().await;
        }
    }
}

impl Successor {
    fn still_waits(&self) -> bool {
        Arc::strong_count(&self.told) > 1
    }

    fn hand_over(self) {
        self.told.tell(News::HandedOver);
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if *self.told.news() != News::HandedOver {
            self.told.tell(News::NotHandedOver);
        }
    }
}

impl Link {
    /// Waits for the end of the predecessor; `true` if the lock was handed over.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn granted(&mut self) -> bool {
        let told = async {
            if self.told.after(News::None).await == News::OnItsWay {
                // A release that is not polled tells nothing.
                let _ = timeout(ON_ITS_WAY, self.told.after(News::OnItsWay)).await;
            }
            *self.told.news() == News::HandedOver
        };
        tokio::select! {
            biased;
            granted = told => granted,
            () = self.deletion.deleted() => false,
        }
    }

    /// Whether the lock is being handed over.
    pub(crate) fn is_on_its_way(&self) -> bool {
        matches!(*self.told.news(), News::OnItsWay | News::HandedOver)
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
    let (Target::Node(node), Some(next)) = (target, next) else {
        return backend.delete(path, target).await;
    };
    match backend.hand_over(path, node, std::slice::from_ref(&next.node)).await? {
        HandOver::Confirmed => {
            next.hand_over();
            Ok(Deletion::Deleted)
        }
        HandOver::Unconfirmed(deletion) => Ok(deletion),
        _ => Ok(Deletion::Deleted),
    }
}
