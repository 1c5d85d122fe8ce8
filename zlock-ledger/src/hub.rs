//! What the client watches. One poll asks for all of it, and hints come sooner.
//!
//! Each watch keeps the state that its own read has seen, and fires when there is another one. What fires it is only a reason to read
//! again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::{Notify, oneshot};
use zlock_core::{Mutex, SessionId, WatchEvent};

use crate::ledger::{Entry, Kind, Mark, Scope};

/// One entry, or a whole scope.
type What = (Scope, Option<String>);

/// The number of owners that a watch keeps.
pub(crate) const MAX_OWNERS: usize = 128;

/// All watches of a client.
#[derive(Debug, Default)]
pub struct Hub {
    state: Mutex<State>,
    /// Notified when there is a reason to poll earlier.
    pub(crate) sooner: Notify,
}

#[derive(Debug, Default)]
struct State {
    watches: BTreeMap<What, BTreeMap<u64, Armed>>,
    next: u64,
    /// The incarnation that was seen last.
    incarnation: u64,
    /// Whether hints arrive over the current connection.
    is_hinted: bool,
    /// Whether there was a reason to poll earlier since the last look.
    is_due: bool,
}

#[derive(Debug)]
struct Armed {
    /// The incarnation that was known before the read. States of different ones are not comparable.
    incarnation: u64,
    /// The number of entries and the highest number of a write. `None` before the read.
    seen: Option<(u64, u64)>,
    /// The sessions of others that the watch depends on, the nearest one first.
    owners: Vec<SessionId>,
    /// The number of the place of another client that is waited for.
    place: Option<u64>,
    /// Whether all sessions ahead of that are among the owners.
    knows_ahead: bool,
    fire: oneshot::Sender<WatchEvent>,
}

/// A watch, which is armed before what it is about is read. Dropping it removes it.
#[derive(Debug)]
pub struct Watching {
    hub: Arc<Hub>,
    what: What,
    id: u64,
    fired: oneshot::Receiver<WatchEvent>,
}

impl Watching {
    /// Sets what was read of it, in the order of the entries. Returns the sessions of others that are in the way, the nearest one first.
    pub fn read(&self, entries: &[Entry], own: SessionId) -> Vec<SessionId> {
        let seen = mark(entries);
        // Of a whole scope, those before the own entry, and in a group then those behind it.
        let position = entries.iter().rposition(|entry| entry.owner == Some(own)).unwrap_or(entries.len());
        let (before, behind) = entries.split_at(position);
        let behind = if self.what.0.kind == Kind::Group { behind } else { &[] };
        let owners = owners(behind.iter().chain(before), own);
        self.hub.change(self, |armed| (armed.seen, armed.owners) = (Some(seen), owners.clone()));
        self.hub.sooner.notify_one();
        owners
    }

    /// Records that the client waits behind the place with this number, and so has to look at all sessions ahead of it, too.
    pub(crate) fn waits_behind(&self, number: u64) {
        self.hub.change(self, |armed| armed.place = Some(number));
    }

    /// Waits until it fires.
    pub async fn fired(mut self) -> WatchEvent {
        (&mut self.fired).await.unwrap_or(WatchEvent::Changed)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut state = self.hub.state.lock();
        if let Some(armed) = state.watches.get_mut(&self.what) {
            armed.remove(&self.id);
            if armed.is_empty() {
                state.watches.remove(&self.what);
            }
        }
    }
}

/// Returns the owners of entries, but for the own session, the last one first.
pub(crate) fn owners<'a>(
    entries: impl IntoIterator<Item = &'a Entry, IntoIter: DoubleEndedIterator>,
    own: SessionId,
) -> Vec<SessionId> {
    let mut owners = Vec::new();
    for owner in entries.into_iter().rev().filter_map(|entry| entry.owner) {
        if owner != own && !owners.contains(&owner) && owners.len() < MAX_OWNERS {
            owners.push(owner);
        }
    }
    owners
}

/// Returns the state of what was read: no two states of a scope have both numbers in common.
fn mark(entries: &[Entry]) -> (u64, u64) {
    (entries.len() as u64, entries.iter().map(|entry| entry.changed).max().unwrap_or(0))
}

/// What a poll asks for, and which watches that concerns.
#[derive(Debug, Default)]
pub struct Asked {
    /// What is asked for.
    pub marks: Vec<Mark>,
    watches: Vec<(What, Vec<u64>)>,
}

impl Hub {
    /// Arms a watch on an entry or on a whole scope, which is then read.
    pub fn arm(self: &Arc<Self>, scope: &Scope, key: Option<&str>) -> Watching {
        let what = (scope.clone(), key.map(str::to_owned));
        let (fire, fired) = oneshot::channel();
        let mut state = self.state.lock();
        state.next += 1;
        let id = state.next;
        let (incarnation, owners) = (state.incarnation, Vec::new());
        let armed = Armed { incarnation, seen: None, owners, place: None, knows_ahead: false, fire };
        state.watches.entry(what.clone()).or_default().insert(id, armed);
        drop(state);
        Watching { hub: self.clone(), what, id, fired }
    }

    fn change(&self, watching: &Watching, change: impl FnOnce(&mut Armed)) {
        let mut state = self.state.lock();
        if let Some(armed) =
            state.watches.get_mut(&watching.what).and_then(|armed| armed.get_mut(&watching.id))
        {
            change(armed);
        }
    }

    /// Returns the number of watches.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().watches.values().map(BTreeMap::len).sum()
    }

    /// Returns `true` if hints report all that is watched.
    pub(crate) fn is_hinted(&self) -> bool {
        let state = self.state.lock();
        state.is_hinted && state.watches.keys().all(|(scope, key)| scope.kind == Kind::Queue && key.is_some())
    }

    /// Handles a hint: fires the watches on an entry and on its scope. `None` if hints begin to arrive, after any may have been missed.
    pub(crate) fn hint(&self, hint: Option<(Scope, String)>) {
        match hint {
            Some((scope, key)) => self.changed(&scope, &key),
            None => {
                self.state.lock().is_hinted = true;
                self.poll_soon();
            }
        }
    }

    /// Records that hints no longer arrive.
    pub(crate) fn unhinted(&self) {
        self.state.lock().is_hinted = false;
    }

    /// Fires the watches on an entry that has changed, and on its scope.
    pub(crate) fn changed(&self, scope: &Scope, key: &str) {
        let mut state = self.state.lock();
        for key in [Some(key.to_owned()), None] {
            for armed in
                state.watches.remove(&(scope.clone(), key)).into_iter().flat_map(BTreeMap::into_values)
            {
                // Fails if nobody waits any more.
                let _ = armed.fire.send(WatchEvent::Changed);
            }
        }
    }

    /// Makes the next poll follow soon.
    pub(crate) fn poll_soon(&self) {
        self.state.lock().is_due = true;
        self.sooner.notify_one();
    }

    /// Returns `true` if there was a reason to poll earlier since the last call.
    pub(crate) fn take_due(&self) -> bool {
        std::mem::take(&mut self.state.lock().is_due)
    }

    /// Returns what a poll that is sent now asks for: each state that a watch has seen, once.
    pub fn asks(&self) -> Asked {
        let state = self.state.lock();
        let mut asked = Asked::default();
        for (what, watches) in &state.watches {
            let mut by_seen = BTreeMap::<(u64, u64), Vec<u64>>::new();
            for (id, armed) in watches {
                armed.seen.iter().for_each(|seen| by_seen.entry(*seen).or_default().push(*id));
            }
            for ((count, changed), ids) in by_seen {
                let scope = what.0.clone();
                asked.marks.push(match &what.1 {
                    Some(key) => Mark::Key { scope, key: key.clone(), changed },
                    None => Mark::Scope { scope, count, changed },
                });
                asked.watches.push((what.clone(), ids));
            }
        }
        asked
    }

    /// Records the incarnation in which a session begins.
    pub fn begin(&self, incarnation: u64) {
        self.state.lock().incarnation = incarnation;
    }

    /// Fires the watches on what has changed, and those whose read may be of another incarnation.
    pub fn answered(&self, asked: &Asked, incarnation: u64, changed: &[usize]) {
        let mut state = self.state.lock();
        state.incarnation = incarnation;
        let changed: BTreeSet<_> = changed.iter().collect();
        for (position, (what, ids)) in asked.watches.iter().enumerate() {
            let Some(watches) = state.watches.get_mut(what) else { continue };
            for id in ids {
                let fires = |armed: &Armed| changed.contains(&position) || armed.incarnation != incarnation;
                if watches.get(id).is_some_and(fires)
                    && let Some(armed) = watches.remove(id)
                {
                    // Fails if nobody waits any more.
                    let _ = armed.fire.send(WatchEvent::Changed);
                }
            }
            if watches.is_empty() {
                state.watches.remove(what);
            }
        }
    }

    /// Returns the sessions that watches depend on, the nearest first of each watch.
    pub(crate) fn owners(&self) -> Vec<Vec<SessionId>> {
        let state = self.state.lock();
        let armed = state.watches.values().flat_map(BTreeMap::values);
        let owners: BTreeSet<_> =
            armed.map(|armed| &armed.owners).filter(|owners| !owners.is_empty()).collect();
        owners.into_iter().cloned().collect()
    }

    /// Returns the places of others that are waited for, each with its number, of which the sessions ahead are not known. With `again`,
    /// those of all.
    pub(crate) fn places(&self, again: bool) -> BTreeSet<(Scope, u64)> {
        let state = self.state.lock();
        let armed = state
            .watches
            .iter()
            .flat_map(|((scope, _), armed)| armed.values().map(move |armed| (scope, armed)));
        let places = armed.filter(|(_, armed)| again || !armed.knows_ahead);
        places.filter_map(|(scope, armed)| Some((scope.clone(), armed.place?))).collect()
    }

    /// Sets the sessions ahead of a place, the nearest one first.
    pub(crate) fn ahead(&self, scope: &Scope, number: u64, owners: &[SessionId]) {
        let mut state = self.state.lock();
        let in_scope = state.watches.iter_mut().filter(|((watched, _), _)| watched == scope);
        for armed in
            in_scope.flat_map(|(_, armed)| armed.values_mut()).filter(|armed| armed.place == Some(number))
        {
            (armed.owners, armed.knows_ahead) = (owners.to_vec(), true);
        }
    }

    /// Returns the scopes that are watched.
    pub(crate) fn scopes(&self) -> Vec<Scope> {
        let state = self.state.lock();
        let scopes: BTreeSet<_> = state.watches.keys().map(|(scope, _)| scope.clone()).collect();
        scopes.into_iter().take(64).collect()
    }
}

#[cfg(test)]
mod tests {
    use zlock_core::SessionId;

    use super::*;

    fn scope(path: &str) -> Scope {
        Scope { kind: Kind::Queue, path: path.into() }
    }

    fn entry(number: u64, owner: u64) -> Entry {
        let owner = Some(SessionId::new(owner));
        let (key, label, data) = (number.to_string(), Some(String::new()), Vec::new());
        Entry { key, created: number, changed: number, owner, label, writes: 0, time: None, data }
    }

    const OWN: SessionId = SessionId::new(1);

    /// Answers a poll that was asked now.
    fn poll(hub: &Hub, incarnation: u64, changed: &[usize]) -> usize {
        let asked = hub.asks();
        hub.answered(&asked, incarnation, changed);
        asked.marks.len()
    }

    #[tokio::test]
    async fn each_watch_compares_with_what_it_has_read() {
        let hub = Arc::new(Hub::default());
        hub.begin(7);
        let (one, two) = (hub.arm(&scope("/a"), None), hub.arm(&scope("/a"), None));
        assert_eq!(poll(&hub, 7, &[]), 0, "nothing was read yet");
        one.read(&[entry(1, 2)], OWN);
        two.read(&[entry(1, 2), entry(3, 2)], OWN);
        let marks = hub.asks().marks;
        let mark = |count, changed| Mark::Scope { scope: scope("/a"), count, changed };
        assert_eq!(marks, [mark(1, 1), mark(2, 3)]);
        assert_eq!(poll(&hub, 7, &[0]), 2);
        assert_eq!(one.fired().await, WatchEvent::Changed);
        assert_eq!(hub.len(), 1);
        drop(two);
        assert_eq!(hub.len(), 0);
    }

    #[tokio::test]
    async fn states_of_different_incarnations_are_not_compared() {
        let hub = Arc::new(Hub::default());
        hub.begin(7);
        let before = hub.arm(&scope("/a"), Some("1"));
        before.read(&[entry(1, 2)], OWN);
        poll(&hub, 8, &[]);
        before.fired().await;
        let after = hub.arm(&scope("/a"), Some("1"));
        after.read(&[entry(1, 2)], OWN);
        poll(&hub, 8, &[]);
        assert_eq!(hub.len(), 1, "it has not fired");
        // Also a read that was answered before the poll and is recorded after it.
        let late = hub.arm(&scope("/b"), None);
        poll(&hub, 9, &[]);
        late.read(&[], OWN);
        poll(&hub, 9, &[]);
        late.fired().await;
        drop(after);
    }

    #[tokio::test]
    async fn a_hint_fires_what_is_armed_even_before_the_read() {
        let hub = Arc::new(Hub::default());
        let (key, all, other) =
            (hub.arm(&scope("/a"), Some("1")), hub.arm(&scope("/a"), None), hub.arm(&scope("/b"), Some("1")));
        hub.hint(Some((scope("/a"), "1".into())));
        key.fired().await;
        all.fired().await;
        assert_eq!(hub.len(), 1);
        assert!(!hub.is_hinted());
        hub.hint(None);
        assert!(hub.is_hinted() && hub.take_due() && !hub.take_due());
        drop(other);
    }

    #[test]
    fn the_sessions_ahead_are_those_before_the_own_place_or_around_a_member() {
        let hub = Arc::new(Hub::default());
        let entries = [entry(1, 4), entry(2, 3), entry(3, 1), entry(4, 5)];
        let ids = |ids: &[u64]| ids.iter().copied().map(SessionId::new).collect::<Vec<_>>();
        let queue = hub.arm(&scope("/a"), None);
        queue.read(&entries, OWN);
        assert_eq!(hub.owners(), [ids(&[3, 4])]);
        drop(queue);
        let group = hub.arm(&Scope { kind: Kind::Group, path: "/g".into() }, None);
        group.read(&entries, OWN);
        assert_eq!(hub.owners(), [ids(&[3, 4, 5])]);
        drop(group);
        let place = hub.arm(&scope("/a"), Some("4"));
        place.read(&[entry(4, 5)], OWN);
        assert!(hub.places(true).is_empty(), "it is only watched");
        place.waits_behind(4);
        assert_eq!(hub.places(false), BTreeSet::from([(scope("/a"), 4)]));
        hub.ahead(&scope("/a"), 4, &ids(&[5, 3]));
        assert_eq!(hub.owners(), [ids(&[5, 3])]);
        assert!(hub.places(false).is_empty());
        assert_eq!(hub.places(true).len(), 1);
    }
}
