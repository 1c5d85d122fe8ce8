//! Queues that had one node of ours and no other: the next create there may need no listing.
//!
//! A parent counts all creates under it, by any client. Suppose that our node N was alone in its queue, that we removed it,
//! and that our next create under the same parent gets the number N + 1. Then that node is alone, too: nothing before N was
//! left when N was listed, and nothing was created between the two. So a client that is the only user of a lock takes it with
//! one request and releases it with one.
//!
//! Numbers of two parents are unrelated, and a parent without children may be removed and created again at any time. A *pin*
//! shows whether that has happened: a watch on the parent, on the session's own connection. The server reports the removal
//! there before it answers a create under the new parent.
//!
//! | must stay true | how |
//! |---|---|
//! | nothing before N is left | a listing that was sent after N's create shows N alone, or N was itself found to be alone by this rule |
//! | N is removed | before the next create is sent, a delete of it was answered, and not with "no such node". It is known by its ID, because another node of ours may have its number under another parent |
//! | nothing was created since | the numbers are consecutive; numbers that a server may assign twice are excluded |
//! | N was under the pinned parent | the pin was armed while N was there: after N's create on the wire, or before it and has not fired, and before N's delete |
//! | the next node is under it, too | the pin has not fired when that create's answer arrives, and the connection has not changed since before the pin was sent |
//! | the answer belongs to that create | after a first attempt, whatever its outcome, the queue is listed |
//!
//! This is one of "The ways to a grant" in ARCHITECTURE.md, and the only one in which a number stands for a listing without a
//! confirmation of the store. It ends in `CreatedQueue::Alone`, which grants the lock.
//!
//! The rules are model-checked, see `docs/CORRECTNESS.md`. They rely on ZooKeeper's guarantee that a client receives the
//! event of a change that it watches before it sees the effects of the change. There are two known ways to circumvent that,
//! and both need an administrator. The first is to withdraw the permission to read the parent from its clients, which
//! withholds the event on servers with ZOOKEEPER-4799, and then to remove the parent and create it again. The second is to
//! restore a running server from a snapshot, after which no lock means anything.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use tokio::time::Instant;
use zlock_core::kit::SessionKey;
use zlock_core::{Mutex, Node, NodeId, Sequence};

use crate::watches::watching::Watching;

/// The number of queues that are remembered, the most recently used ones. A client that cycles through more queues pins none,
/// because it never returns to one that is remembered.
const MAX_QUEUES: usize = 100;

/// The longest path of a parent that is pinned, in bytes. The total length of watched paths is limited, see `watchers`.
const MAX_PATH: usize = 256;

/// [`Queues`] for all operations of a backend. Pins are dropped outside the mutex, because that sends a request.
#[derive(Default)]
pub(crate) struct Alone(Mutex<Queues<Pinned>>);

/// The queues that had one node of ours and no other, by the parent's path at the server. `P` is a pin.
///
/// What a method returns in addition to its answer is for the caller to drop. The functions that say whether a pin holds are
/// never called again for a pin after they have returned `false`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Queues<P> {
    queues: BTreeMap<String, Entry<P>>,
    /// The number of the latest pin.
    last_pin: u64,
    /// The latest epoch that is over.
    ended: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entry<P> {
    session: SessionKey,
    last: Option<Last>,
    pin: Option<(u64, P)>,
    used: Instant,
}

/// Our last node that was alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Last {
    /// Needed because another node of ours may have the same number under another parent.
    id: NodeId,
    number: Sequence,
    /// `true` if the node before it was ours and alone, too, so that no other client seems to use the queue.
    is_again: bool,
    removed: bool,
}

impl Last {
    fn new(node: &Node, is_again: bool) -> Self {
        Last { id: node.id.clone(), number: node.sequence, is_again, removed: false }
    }
}

/// A watch on a parent, and the number of changes of its connection when it was sent.
pub(crate) struct Pinned {
    watching: Watching,
    changes: u64,
}

/// How to create a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plan {
    /// With a listing.
    List,
    /// With a listing and a new pin: this client uses the queue again and again.
    Pin,
    /// Without a listing, which comes later unless [`Queues::confirm`] makes it unnecessary.
    Trust(Trusted),
}

/// What a create without a listing relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Trusted {
    /// The number of our last node, which was alone.
    pub number: Sequence,
    /// The number of the pin.
    pub pin: u64,
}

impl Pinned {
    /// `changes` must have been counted before the request of the watch was sent.
    pub(crate) fn new(watching: Watching, changes: u64) -> Self {
        Pinned { watching, changes }
    }

    /// Returns `true` if the parent is still the one that was pinned.
    fn holds(&mut self, changes: impl Fn() -> u64) -> bool {
        let watching = pin!(&mut self.watching);
        watching.poll(&mut Context::from_waker(Waker::noop())).is_pending() && changes() == self.changes
    }
}

impl<P> Entry<P> {
    /// Returns the number of the pin if the pin still holds. A pin that does not is returned as the second part.
    fn pin(&mut self, mut holds: impl FnMut(&mut P) -> bool) -> (Option<u64>, Option<P>) {
        let lost = self.pin.take_if(|(_, pinned)| !holds(pinned));
        (self.pin.as_ref().map(|(pin, _)| *pin), lost.map(|(_, pinned)| pinned))
    }
}

impl Alone {
    /// See [`Queues::plan`]. `changes` counts the changes of the session's connection so far.
    pub(crate) fn plan(&self, parent: &str, session: SessionKey, changes: impl Fn() -> u64) -> Plan {
        let (plan, _lost) = self.0.lock().plan(parent, session, |pinned| pinned.holds(&changes));
        plan
    }

    /// See [`Queues::confirm`].
    pub(crate) fn confirm(
        &self,
        parent: &str,
        session: SessionKey,
        changes: impl Fn() -> u64,
        trusted: Trusted,
        node: &Node,
    ) -> bool {
        let (now, holds) = (Instant::now(), |pinned: &mut Pinned| pinned.holds(&changes));
        let (is_alone, _lost) = self.0.lock().confirm(parent, session, holds, trusted, node, now);
        is_alone
    }

    /// See [`Queues::listed`].
    pub(crate) fn listed(
        &self,
        parent: &str,
        session: SessionKey,
        node: &Node,
        is_alone: bool,
        pinned: Option<Pinned>,
    ) {
        let now = Instant::now();
        let _surplus = self.0.lock().listed(parent, session, node, is_alone, pinned, now);
    }

    /// See [`Queues::removed`].
    pub(crate) fn removed(&self, parent: &str, session: SessionKey, node: &Node) {
        self.0.lock().removed(parent, session, node);
    }

    /// See [`Queues::end`].
    pub(crate) fn end(&self, epoch: u64) {
        let _pins = self.0.lock().end(epoch);
    }
}

impl<P> Default for Queues<P> {
    fn default() -> Self {
        Queues { queues: BTreeMap::new(), last_pin: 0, ended: 0 }
    }
}

impl<P> Queues<P> {
    /// Returns how to create the next node, and a pin that no longer holds.
    pub fn plan(
        &mut self,
        parent: &str,
        session: SessionKey,
        holds: impl FnMut(&mut P) -> bool,
    ) -> (Plan, Option<P>) {
        let Some(entry) = self.of(parent, session) else { return (Plan::List, None) };
        let Some(Last { number, is_again, removed: true, .. }) = entry.last else {
            return (Plan::List, None);
        };
        let (pin, lost) = entry.pin(holds);
        let plan = match pin {
            Some(pin) => Plan::Trust(Trusted { number, pin }),
            None if is_again && parent.len() <= MAX_PATH => Plan::Pin,
            None => Plan::List,
        };
        (plan, lost)
    }

    /// Returns `true` if this node, whose create was answered just now, is alone in its queue, and a pin that no longer
    /// holds.
    pub fn confirm(
        &mut self,
        parent: &str,
        session: SessionKey,
        holds: impl FnMut(&mut P) -> bool,
        trusted: Trusted,
        node: &Node,
        now: Instant,
    ) -> (bool, Option<P>) {
        let Some(entry) = self.of(parent, session) else { return (false, None) };
        let (pin, lost) = entry.pin(holds);
        let is_alone = pin == Some(trusted.pin) && node.sequence.get() == trusted.number.get() + 1;
        entry.last = is_alone.then(|| Last::new(node, true));
        entry.used = now;
        (is_alone, lost)
    }

    /// Records what a listing has shown for a node of ours that was created before: whether it is alone. `pinned` is the pin
    /// that was sent with its create. Returns a pin that is not kept.
    pub fn listed(
        &mut self,
        parent: &str,
        session: SessionKey,
        node: &Node,
        is_alone: bool,
        pinned: Option<P>,
        now: Instant,
    ) -> Option<P> {
        if session.epoch <= self.ended {
            return pinned;
        }
        let mut last = is_alone.then(|| Last::new(node, false));
        let pin = pinned.map(|pinned| {
            self.last_pin += 1;
            (self.last_pin, pinned)
        });
        let surplus = if let Some(entry) = self.of(parent, session) {
            if let (Some(before), Some(last)) = (&entry.last, &mut last) {
                last.is_again = last.number.get() - before.number.get() == 1;
            }
            (entry.last, entry.used) = (last, now);
            if pin.is_some() { std::mem::replace(&mut entry.pin, pin) } else { None }
        } else if is_alone {
            let oldest = self.make_room();
            let replaced = self.queues.insert(parent.to_owned(), Entry { session, last, pin, used: now });
            replaced.or(oldest).and_then(|entry| entry.pin)
        } else {
            pin
        };
        surplus.map(|(_, pinned)| pinned)
    }

    /// Records the answer to a delete of this node of ours, which found the node.
    pub fn removed(&mut self, parent: &str, session: SessionKey, node: &Node) {
        if let Some(entry) = self.of(parent, session)
            && let Some(last) =
                entry.last.as_mut().filter(|last| last.id == node.id && last.number == node.sequence)
        {
            last.removed = true;
        }
    }

    /// Removes all entries of this epoch, which is over, and of those before it. Returns their pins.
    pub fn end(&mut self, epoch: u64) -> Vec<P> {
        self.ended = self.ended.max(epoch);
        let pin = |entry: Entry<P>| Some(entry.pin?.1);
        std::mem::take(&mut self.queues).into_values().filter_map(pin).collect()
    }

    fn of(&mut self, parent: &str, session: SessionKey) -> Option<&mut Entry<P>> {
        self.queues.get_mut(parent).filter(|entry| entry.session == session)
    }

    /// Removes the least recently used queue if there is no room for another one.
    fn make_room(&mut self) -> Option<Entry<P>> {
        if self.queues.len() < MAX_QUEUES {
            return None;
        }
        let oldest = self.queues.iter().min_by_key(|(_, entry)| entry.used)?.0.clone();
        self.queues.remove(&oldest)
    }
}

impl fmt::Debug for Alone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Alone").field(&self.0.lock().queues.len()).finish()
    }
}
