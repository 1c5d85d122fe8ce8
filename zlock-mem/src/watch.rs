//! The one-shot watches of the server.

use std::collections::BTreeMap;

use tokio::sync::oneshot;
use zlock_core::{SessionId, WatchEvent};

use crate::link::ClientId;
use crate::request::Watcher;
use crate::tree::{Change, What};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Watched {
    /// One child of a parent, and its data. Before it exists, only if it is a value.
    Child(String, String),
    /// All children of a parent, which need not exist.
    Children(String),
}

impl Watched {
    fn parent(&self) -> &str {
        match self {
            Watched::Child(parent, _) | Watched::Children(parent) => parent,
        }
    }
}

#[derive(Debug)]
struct Armed {
    client: ClientId,
    session: SessionId,
    to: oneshot::Sender<WatchEvent>,
}

/// An event that must be sent to a client.
#[derive(Debug)]
pub(crate) struct Fired {
    pub(crate) client: ClientId,
    pub(crate) to: oneshot::Sender<WatchEvent>,
    pub(crate) event: WatchEvent,
}

/// All armed watches. They fire in the order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    armed: BTreeMap<Watched, BTreeMap<u64, Armed>>,
    by_id: BTreeMap<u64, Watched>,
}

impl Watches {
    /// Arms a watch, unless it was dropped while its request was in flight.
    pub(crate) fn arm(&mut self, watched: Watched, client: ClientId, session: SessionId, watcher: Watcher) {
        let Watcher { id, to } = watcher;
        if to.is_closed() {
            return;
        }
        self.by_id.insert(id, watched.clone());
        self.armed.entry(watched).or_default().insert(id, Armed { client, session, to });
    }

    /// Removes a watch. Returns `false` if it has fired or never existed.
    pub(crate) fn remove(&mut self, id: u64) -> bool {
        let Some(watched) = self.by_id.remove(&id) else { return false };
        if let Some(on) = self.armed.get_mut(&watched) {
            on.remove(&id);
            if on.is_empty() {
                self.armed.remove(&watched);
            }
        }
        true
    }

    /// Removes and returns the watches that a change fires.
    pub(crate) fn fire(&mut self, change: &Change) -> Vec<Fired> {
        let mut fired = Vec::new();
        if self.armed.is_empty() {
            return fired;
        }
        let event = match change.what {
            What::Deleted => WatchEvent::Deleted,
            What::Renamed => WatchEvent::Relabelled,
            // Only a value can be watched before it exists.
            What::Created | What::Written => WatchEvent::Changed,
        };
        self.take(&Watched::Child(change.parent.clone(), change.name.clone()), event, &mut fired);
        if change.what == What::Written {
            return fired;
        }
        self.take(&Watched::Children(change.parent.clone()), WatchEvent::Changed, &mut fired);
        fired
    }

    fn take(&mut self, watched: &Watched, event: WatchEvent, fired: &mut Vec<Fired>) {
        for (id, Armed { client, to, .. }) in self.armed.remove(watched).unwrap_or_default() {
            self.by_id.remove(&id);
            fired.push(Fired { client, to, event });
        }
    }

    /// Removes the watches of a session without an event, because its client learns of the session's end.
    pub(crate) fn end_session(&mut self, session: SessionId) {
        let by_id = &mut self.by_id;
        self.armed.retain(|_, on| {
            on.retain(|id, armed| armed.session != session || by_id.remove(id).is_none());
            !on.is_empty()
        });
    }

    /// Returns the number of watches on this path and below it.
    pub(crate) fn count(&self, path: &str) -> usize {
        let is_below =
            |parent: &str| parent.strip_prefix(path).is_some_and(|r| r.is_empty() || r.starts_with('/'));
        let is_it = |parent: &str, name: &str| crate::tree::split(path) == (parent, name);
        let counts = |watched: &Watched| {
            is_below(watched.parent()) || matches!(watched, Watched::Child(p, n) if is_it(p, n))
        };
        self.by_id.values().filter(|w| counts(w)).count()
    }

    /// Returns the number of watches on this child.
    pub(crate) fn on_child(&self, parent: &str, name: &str) -> usize {
        self.armed.get(&Watched::Child(parent.into(), name.into())).map_or(0, BTreeMap::len)
    }

    /// Returns the number of watches.
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }
}
