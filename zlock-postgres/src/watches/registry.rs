//! What the client watches. A notification of the server fires watches at once, and a poll does at the latest.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use tokio::sync::{Notify, oneshot};
use zlock_core::{Mutex, WatchEvent};

/// The number of notifications that are remembered.
const MAX_RECENT: usize = 1024;

/// The kind of a watched thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Node,
    Queue,
    Value,
    Group,
}

/// What is watched: the ID of a node, or the path of a queue, a value or a group.
pub(crate) type Key = (Kind, String);

/// All watches of a client.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    state: Mutex<State>,
    /// Notified when a watch is armed.
    armed: Notify,
}

#[derive(Debug, Default)]
struct State {
    watches: BTreeMap<Key, BTreeMap<u64, Armed>>,
    next_id: u64,
    /// The nodes that the last notifications were about.
    recent: VecDeque<String>,
    /// The number of notifications so far.
    mark: u64,
    /// Whether a notification to ourselves has arrived over the current connection.
    is_proved: bool,
}

#[derive(Debug)]
struct Armed {
    expected: Expected,
    fire: oneshot::Sender<WatchEvent>,
}

/// What a watch expects to stay as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    /// The label of a node, the nodes of a queue, or the members of a group. `None` if there is none.
    pub(crate) label: Option<String>,
    /// The version of a node's data or of a value. `None` if it does not count, or there is none.
    pub(crate) version: Option<i64>,
}

/// What a poll has found.
#[derive(Debug)]
pub(crate) struct Polled {
    pub(crate) key: Key,
    pub(crate) label: String,
    pub(crate) version: i64,
}

/// What a poll asks for.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) keys: Vec<Key>,
    /// Watches from this one on were armed later.
    before: u64,
}

/// A watch that is armed. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Watching {
    watches: Arc<Watches>,
    key: Key,
    id: u64,
    fired: oneshot::Receiver<WatchEvent>,
}

impl Watching {
    /// Waits for the event.
    pub(crate) async fn fired(&mut self) -> WatchEvent {
        (&mut self.fired).await.unwrap_or(WatchEvent::Changed)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut state = self.watches.state.lock();
        if let Some(armed) = state.watches.get_mut(&self.key) {
            armed.remove(&self.id);
            if armed.is_empty() {
                state.watches.remove(&self.key);
            }
        }
    }
}

impl Watches {
    /// Arms a watch on something that was read as expected.
    pub(crate) fn arm(self: &Arc<Self>, key: Key, expected: Expected) -> Watching {
        let mut state = self.state.lock();
        state.next_id += 1;
        let (id, (fire, fired)) = (state.next_id, oneshot::channel());
        state.watches.entry(key.clone()).or_default().insert(id, Armed { expected, fire });
        drop(state);
        self.armed.notify_one();
        Watching { watches: self.clone(), key, id, fired }
    }

    /// Waits until a watch is armed.
    pub(crate) async fn armed(&self) {
        while self.is_empty() {
            self.armed.notified().await;
        }
    }

    /// Returns the number of watches.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().watches.values().map(BTreeMap::len).sum()
    }

    /// Returns `true` if nothing is watched.
    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().watches.is_empty()
    }

    /// Returns `true` if anything of this kind is watched.
    pub(crate) fn has(&self, kind: Kind) -> bool {
        self.state.lock().watches.keys().any(|key| key.0 == kind)
    }

    /// Returns `true` if the server reports all that is watched.
    pub(crate) fn is_notified(&self) -> bool {
        let state = self.state.lock();
        state.is_proved && state.watches.keys().all(|key| key.0 == Kind::Node)
    }

    /// Returns a mark for [`was_notified`](Self::was_notified), to be taken before a request is sent.
    pub(crate) fn mark(&self) -> u64 {
        self.state.lock().mark
    }

    /// Returns `true` if there may have been a notification about a node since the mark.
    pub(crate) fn was_notified(&self, node: &str, mark: u64) -> bool {
        let state = self.state.lock();
        let since = usize::try_from(state.mark - mark).unwrap_or(usize::MAX);
        since > state.recent.len() || state.recent.iter().rev().take(since).any(|recent| recent == node)
    }

    /// Handles the payload of a notification.
    pub(crate) fn received(&self, payload: &str) {
        let mut chars = payload.chars();
        match chars.next() {
            Some(event) => self.notified(event, chars.as_str()),
            None => self.state.lock().is_proved = true,
        }
    }

    /// Forgets that notifications arrive.
    pub(crate) fn unproved(&self) {
        self.state.lock().is_proved = false;
    }

    /// Fires the watches on a node: `d` for a node that was deleted, `r` for another label, `c` for other data.
    pub(crate) fn notified(&self, event: char, node: &str) {
        let mut state = self.state.lock();
        state.mark += 1;
        state.recent.push_back(node.to_owned());
        if state.recent.len() > MAX_RECENT {
            state.recent.pop_front();
        }
        let key = (Kind::Node, node.to_owned());
        state.fire(&key, |expected| match event {
            'd' => Some(WatchEvent::Deleted),
            'r' => expected.version.is_none().then_some(WatchEvent::Relabelled),
            _ => expected.version.map(|_| WatchEvent::Changed),
        });
    }

    /// Returns what a poll that is sent now asks for.
    pub(crate) fn watched(&self) -> Watched {
        let state = self.state.lock();
        Watched { keys: state.watches.keys().cloned().collect(), before: state.next_id + 1 }
    }

    /// Fires the watches on what is not as expected.
    pub(crate) fn polled(&self, watched: &Watched, polled: &[Polled]) {
        let mut state = self.state.lock();
        let found: BTreeMap<_, _> = polled.iter().map(|polled| (&polled.key, polled)).collect();
        for key in &watched.keys {
            let found = found.get(key);
            state.fire_before(key, watched.before, |expected| differs(key.0, expected, found.copied()));
        }
    }
}

fn differs(kind: Kind, expected: &Expected, found: Option<&Polled>) -> Option<WatchEvent> {
    match (kind, found) {
        (Kind::Node, None) => Some(WatchEvent::Deleted),
        (Kind::Node, Some(found)) => match expected.version {
            None => (expected.label.as_ref() != Some(&found.label)).then_some(WatchEvent::Relabelled),
            Some(version) => (version != found.version).then_some(WatchEvent::Changed),
        },
        (Kind::Queue | Kind::Group, found) => {
            (expected.label.as_ref() != found.map(|found| &found.label)).then_some(WatchEvent::Changed)
        }
        (Kind::Value, found) => {
            (expected.version != found.map(|found| found.version)).then_some(WatchEvent::Changed)
        }
    }
}

/// Returns the members of a group, whose numbers are in order, as a watch expects them. `None` if there are none.
pub(crate) fn contents(numbers: impl Iterator<Item = i64>) -> Option<String> {
    let numbers: Vec<_> = numbers.map(|number| number.to_string()).collect();
    (!numbers.is_empty()).then(|| numbers.join(","))
}

impl State {
    fn fire(&mut self, key: &Key, event: impl Fn(&Expected) -> Option<WatchEvent>) {
        self.fire_before(key, u64::MAX, event);
    }

    fn fire_before(&mut self, key: &Key, before: u64, event: impl Fn(&Expected) -> Option<WatchEvent>) {
        let Some(armed) = self.watches.get_mut(key) else { return };
        let mut fired = BTreeSet::new();
        for (id, armed) in armed.iter().filter(|(id, _)| **id < before) {
            if event(&armed.expected).is_some() {
                fired.insert(*id);
            }
        }
        for id in fired {
            if let Some(armed) = armed.remove(&id)
                && let Some(event) = event(&armed.expected)
            {
                // Fails if nobody waits any more.
                let _ = armed.fire.send(event);
            }
        }
        if armed.is_empty() {
            self.watches.remove(key);
        }
    }
}
