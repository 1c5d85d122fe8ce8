//! The state of the server: its tables, its incarnation and its locks. Each request takes effect in one call, without a clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use zlock_core::{Class, SessionId};

use super::settings::Settings;
use super::tables::{Session, Tables};
use crate::{Entry, Fault, History, Mark, Range, Read, Scope, Setup, Tx, Wire};

/// The number of a transaction that holds locks of scopes.
pub(crate) type Holder = u64;

/// A hint for a session: the entry that was deleted or relabelled.
pub(crate) type Hint = (SessionId, Scope, String);

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) settings: Settings,
    pub(crate) tables: Tables,
    /// The time since the store was created, as the server's clock shows it.
    pub(crate) clock: Duration,
    /// The hints that are to be sent.
    pub(crate) hints: Vec<Hint>,
    pub(crate) transactions: u64,
    incarnations: u64,
    pub(crate) live: u64,
    /// The incarnation that the last lossy change began.
    pub(crate) since: u64,
    /// The incarnations since then.
    lossless: BTreeSet<u64>,
    /// How many transactions of each lane the server has accepted and not finished.
    in_flight: BTreeMap<(SessionId, Wire), usize>,
    locked: BTreeMap<Scope, Holder>,
    holders: Holder,
    /// How many open transactions of users protect each entry.
    protected: BTreeMap<(Scope, String), usize>,
}

impl State {
    pub(crate) fn new(settings: Settings) -> Self {
        let mut state = State {
            settings,
            tables: Tables::default(),
            clock: Duration::ZERO,
            hints: Vec::new(),
            transactions: 0,
            incarnations: 0,
            live: 0,
            since: 0,
            lossless: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            locked: BTreeMap::new(),
            holders: 0,
            protected: BTreeMap::new(),
        };
        state.begin_incarnation(true);
        // Nothing was granted in this store before.
        state.tables.set_watched(state.since, state.quiet());
        state.commit(true);
        state
    }

    pub(crate) fn commit(&mut self, durable: bool) {
        self.tables.commit(durable, self.settings.log);
    }
}

/// Incarnations.
impl State {
    fn begin_incarnation(&mut self, lossy: bool) {
        self.incarnations += 1;
        // They are compared for equality only, so their order must not show.
        self.live = self.incarnations.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if lossy {
            self.since = self.live;
            self.lossless.clear();
        }
        self.lossless.insert(self.live);
        self.in_flight.clear();
        self.locked.clear();
        self.protected.clear();
    }

    /// Restarts the server, which undoes up to `undo` commits that are not durable. Returns how many.
    pub(crate) fn restart(&mut self, undo: usize) -> usize {
        let undone = self.tables.undo(undo.min(self.tables.volatile()));
        self.begin_incarnation(self.settings.class == Class::Lossy);
        undone
    }

    /// Replaces the server by a copy that lacks the last `lost` commits. Returns how many.
    pub(crate) fn fail_over(&mut self, lost: usize) -> usize {
        if self.settings.class == Class::Sync {
            return self.restart(lost);
        }
        let undone = self.tables.undo(lost);
        self.begin_incarnation(true);
        undone
    }

    pub(crate) fn setup(&self) -> Setup {
        let Settings { class, longest, overlap, .. } = self.settings;
        let is_lossy = class == Class::Lossy;
        Setup { class, is_lossy, reason: None, longest, overlap, history: self.history() }
    }

    /// Begins a new incarnation, as after a restart, if this one is the live one.
    pub(crate) fn restored(&mut self, incarnation: u64) {
        if incarnation == self.live {
            self.begin_incarnation(true);
        }
    }

    pub(crate) fn quiet(&self) -> Duration {
        self.settings.longest + self.settings.overlap
    }

    /// Returns for how long clients have watched, during quiet time.
    pub(crate) fn watched_quiet(&self) -> Option<Duration> {
        let watched = self.tables.watched(self.since).unwrap_or_default();
        Some(watched).filter(|watched| *watched < self.quiet())
    }

    pub(crate) fn history(&self) -> History {
        History {
            incarnation: self.live,
            watched: self.watched_quiet(),
            quiet: self.quiet(),
            number: self.tables.number(),
            position: self.tables.position(),
        }
    }
}

/// Sessions.
impl State {
    /// Returns a session that is not over.
    pub(crate) fn session(&self, session: SessionId) -> Result<&Session, Fault> {
        let session = self.tables.session(session);
        session.filter(|session| self.lossless.contains(&session.swept)).ok_or(Fault::SessionOver)
    }

    /// Returns a session that has seen the live incarnation.
    pub(crate) fn swept(&self, session: SessionId) -> Result<&Session, Fault> {
        let session = self.session(session)?;
        if session.swept == self.live { Ok(session) } else { Err(Fault::Unswept) }
    }
}

/// Reads.
impl State {
    pub(crate) fn read(&self, session: SessionId, read: &Read) -> Result<Vec<Entry>, Fault> {
        self.session(session)?;
        if matches!(read.range, Range::Last { up_to: None, .. }) {
            return Err(Fault::Invalid("a read outside a transaction needs a number".into()));
        }
        Ok(self.tables.read(read, None))
    }

    pub(crate) fn changed(&self, session: SessionId, marks: &[Mark]) -> Result<(u64, Vec<usize>), Fault> {
        self.session(session)?;
        let differs = |mark: &Mark| match mark {
            Mark::Key { scope, key, changed } => {
                self.tables.entry(scope, key).map_or(0, |entry| entry.changed) != *changed
            }
            Mark::Scope { scope, count, changed } => {
                let entries = || self.tables.entries(scope, 0);
                let highest = entries().map(|entry| entry.changed).max().unwrap_or_default();
                (entries().count() as u64, highest) != (*count, *changed)
            }
        };
        let changed = marks.iter().enumerate().filter(|(_, mark)| differs(mark));
        Ok((self.live, changed.map(|(position, _)| position).collect()))
    }
}

/// Lanes and locks.
impl State {
    pub(crate) fn is_in_flight(&self, session: SessionId) -> bool {
        [Wire::Fast, Wire::Patient].iter().any(|wire| self.in_flight.contains_key(&(session, *wire)))
    }

    /// Raises the number of a lane, and returns it. `None` while the server has accepted something over the lane.
    pub(crate) fn raise(&mut self, id: SessionId, wire: Wire) -> Result<Option<u64>, Fault> {
        let mut session = self.session(id)?.clone();
        if self.in_flight.contains_key(&(id, wire)) {
            return Ok(None);
        }
        let lane = session.lanes.entry(wire).or_default();
        *lane += 1;
        let number = *lane;
        self.tables.set_session(id, session);
        self.commit(true);
        Ok(Some(number))
    }

    /// Accepts a request over a lane, which [`release`](Self::release) ends.
    pub(crate) fn accept(&mut self, session: SessionId, wire: Wire, lane: u64) -> Result<Holder, Fault> {
        if self.session(session)?.lanes.get(&wire) != Some(&lane) {
            return Err(Fault::StaleLane);
        }
        *self.in_flight.entry((session, wire)).or_default() += 1;
        Ok(self.next_holder())
    }

    pub(crate) fn release(&mut self, session: SessionId, wire: Wire, holder: Holder) {
        if let Some(count) = self.in_flight.get_mut(&(session, wire)) {
            *count -= 1;
        }
        self.in_flight.retain(|_, count| *count > 0);
        self.unlock(holder);
    }

    pub(crate) fn next_holder(&mut self) -> Holder {
        self.holders += 1;
        self.holders
    }

    /// Locks what is free of the scopes that the transactions need.
    pub(crate) fn lock(&mut self, holder: Holder, txs: &[Tx]) {
        for tx in txs.iter().filter(|tx| tx.takes_number()) {
            self.lock_scope(holder, &tx.scope);
        }
    }

    /// Locks a scope unless it is locked.
    pub(crate) fn lock_scope(&mut self, holder: Holder, scope: &Scope) -> bool {
        *self.locked.entry(scope.clone()).or_insert(holder) == holder
    }

    pub(crate) fn unlock(&mut self, holder: Holder) {
        self.locked.retain(|_, by| *by != holder);
    }

    /// Returns `true` if somebody else has locked the scope of a transaction.
    pub(crate) fn is_locked(&self, holder: Holder, tx: &Tx) -> bool {
        tx.takes_number() && self.locked.get(&tx.scope) != Some(&holder)
    }

    pub(crate) fn is_protected(&self, scope: &Scope, key: &str) -> bool {
        // The map is almost always empty.
        !self.protected.is_empty() && self.protected.contains_key(&(scope.clone(), key.to_owned()))
    }

    /// Does what a fence does, and returns the entry. `None` if it does not exist.
    pub(crate) fn protect(&mut self, scope: &Scope, key: &str) -> Result<Option<Entry>, Fault> {
        let Some(entry) = self.tables.entry(scope, key).cloned() else { return Ok(None) };
        let owner = entry.owner.ok_or_else(|| Fault::Invalid("a value has no owner".into()))?;
        self.swept(owner)?;
        *self.protected.entry((scope.clone(), key.to_owned())).or_default() += 1;
        Ok(Some(entry))
    }

    pub(crate) fn unprotect(&mut self, scope: &Scope, key: &str) {
        let entry = (scope.clone(), key.to_owned());
        if let Some(count) = self.protected.get_mut(&entry) {
            *count -= 1;
            if *count == 0 {
                self.protected.remove(&entry);
            }
        }
    }
}
