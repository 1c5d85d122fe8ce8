//! What the store keeps, and the log by which commits are undone.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use zlock_core::SessionId;

use crate::{Entry, Range, Read, Scope, Wire};

#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// The incarnation in which it began or was last swept.
    pub(crate) swept: u64,
    pub(crate) beat: u64,
    pub(crate) timeout: Duration,
    /// The timeout while it owns something.
    pub(crate) owning: Duration,
    /// For how long clients have watched this heartbeat without another one.
    pub(crate) watched: Duration,
    pub(crate) lanes: BTreeMap<Wire, u64>,
}

/// What a write has left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receipt {
    pub(crate) write: u64,
    /// The number of the transaction.
    pub(crate) number: u64,
}

/// A row, and what it contains. `None` if it does not exist.
#[derive(Debug)]
pub(crate) enum Row {
    Entry(Scope, String, Option<Entry>),
    Session(SessionId, Option<Session>),
    Receipt((SessionId, u32), Option<Receipt>),
    /// For how long clients have watched the incarnations since this one.
    Watched(u64, Option<Duration>),
    /// The last number that was given out.
    Number(u64),
}

/// The entries of one scope.
#[derive(Debug, Default)]
struct Entries {
    by_number: BTreeMap<u64, Entry>,
    numbers: BTreeMap<String, u64>,
}

impl Entries {
    fn find(&self, key: &str) -> Option<&Entry> {
        self.numbers.get(key).and_then(|number| self.by_number.get(number))
    }

    fn set(&mut self, key: &str, entry: Option<Entry>) -> Option<Entry> {
        let before = self.numbers.remove(key).and_then(|number| self.by_number.remove(&number));
        if let Some(entry) = entry {
            self.numbers.insert(key.to_owned(), entry.created);
            self.by_number.insert(entry.created, entry);
        }
        before
    }
}

#[derive(Debug, Default)]
pub(crate) struct Tables {
    entries: BTreeMap<Scope, Entries>,
    sessions: BTreeMap<SessionId, Session>,
    receipts: BTreeMap<(SessionId, u32), Receipt>,
    watched: BTreeMap<u64, Duration>,
    number: u64,
    /// What the transaction in progress has overwritten.
    open: Vec<Row>,
    /// What each of the last commits has overwritten.
    log: VecDeque<Vec<Row>>,
    /// How many of these, at the end, would be undone by a crash.
    volatile: usize,
    commits: u64,
    flushes: u64,
}

fn set<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) -> Option<V> {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    }
}

/// Reads.
impl Tables {
    pub(crate) fn scopes(&self) -> impl Iterator<Item = &Scope> {
        self.entries.keys()
    }

    pub(crate) fn entry(&self, scope: &Scope, key: &str) -> Option<&Entry> {
        self.entries.get(scope)?.find(key)
    }

    /// Returns the entries of a scope from this number on, in the order of their creates.
    pub(crate) fn entries(&self, scope: &Scope, from: u64) -> impl DoubleEndedIterator<Item = &Entry> {
        let entries = self.entries.get(scope).map(|entries| entries.by_number.range(from..));
        entries.into_iter().flatten().map(|(_, entry)| entry)
    }

    /// Returns the scopes and keys of what a session owns.
    pub(crate) fn owned(&self, session: SessionId) -> impl Iterator<Item = (&Scope, &str)> {
        let all = self.entries.iter();
        let all =
            all.flat_map(|(scope, entries)| entries.by_number.values().map(move |entry| (scope, entry)));
        let own = all.filter(move |(_, entry)| entry.owner == Some(session));
        own.map(|(scope, entry)| (scope, entry.key.as_str()))
    }

    /// Reads entries. `own` is the number of the entry that the transaction has appended or found.
    pub(crate) fn read(&self, read: &Read, own: Option<u64>) -> Vec<Entry> {
        let mut found: Vec<Entry> = match &read.range {
            Range::Key(key) => self.entry(&read.scope, key).cloned().into_iter().collect(),
            Range::All => self.entries(&read.scope, read.floor).cloned().collect(),
            Range::Last { up_to, limit } => {
                let up_to = up_to.or(own).unwrap_or_default();
                let entries = self.entries(&read.scope, read.floor).rev();
                let last = entries.skip_while(|entry| entry.created > up_to).take(*limit as usize);
                let mut last: Vec<_> = last.cloned().collect();
                last.reverse();
                last
            }
        };
        if !read.data {
            found.iter_mut().for_each(|entry| entry.data.clear());
        }
        found
    }

    pub(crate) fn sessions(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.sessions.iter().map(|(id, session)| (*id, session))
    }

    pub(crate) fn session(&self, session: SessionId) -> Option<&Session> {
        self.sessions.get(&session)
    }

    pub(crate) fn receipt(&self, session: SessionId, slot: u32) -> Option<Receipt> {
        self.receipts.get(&(session, slot)).copied()
    }

    /// Returns the same for the last incarnation that has begun.
    pub(crate) fn last_watched(&self) -> Option<Duration> {
        self.watched.last_key_value().map(|(_, watched)| *watched)
    }

    pub(crate) fn watched(&self, since: u64) -> Option<Duration> {
        self.watched.get(&since).copied()
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

/// Writes. They can be undone once they are committed.
impl Tables {
    pub(crate) fn put(&mut self, scope: &Scope, entry: Entry) {
        self.write(Row::Entry(scope.clone(), entry.key.clone(), Some(entry)));
    }

    pub(crate) fn remove(&mut self, scope: &Scope, key: &str) -> Option<Entry> {
        let entry = self.entry(scope, key)?.clone();
        self.write(Row::Entry(scope.clone(), key.to_owned(), None));
        Some(entry)
    }

    pub(crate) fn set_session(&mut self, id: SessionId, session: Session) {
        self.write(Row::Session(id, Some(session)));
    }

    /// Removes the row of a session, and its receipts.
    pub(crate) fn remove_session(&mut self, id: SessionId) {
        if self.sessions.contains_key(&id) {
            self.write(Row::Session(id, None));
        }
        let receipts: Vec<_> = self.receipts.range((id, 0)..=(id, u32::MAX)).map(|(key, _)| *key).collect();
        receipts.into_iter().for_each(|key| self.write(Row::Receipt(key, None)));
    }

    pub(crate) fn set_receipt(&mut self, session: SessionId, slot: u32, receipt: Receipt) {
        self.write(Row::Receipt((session, slot), Some(receipt)));
    }

    pub(crate) fn set_watched(&mut self, since: u64, watched: Duration) {
        self.write(Row::Watched(since, Some(watched)));
    }

    pub(crate) fn set_number(&mut self, number: u64) {
        self.write(Row::Number(number));
    }

    fn write(&mut self, row: Row) {
        let before = self.swap(row);
        self.open.push(before);
    }

    /// Writes a row, and returns it as it was.
    fn swap(&mut self, row: Row) -> Row {
        match row {
            Row::Entry(scope, key, entry) => {
                let entries = self.entries.entry(scope.clone()).or_default();
                let before = entries.set(&key, entry);
                if entries.numbers.is_empty() {
                    self.entries.remove(&scope);
                }
                Row::Entry(scope, key, before)
            }
            Row::Session(id, session) => Row::Session(id, set(&mut self.sessions, id, session)),
            Row::Receipt(key, receipt) => Row::Receipt(key, set(&mut self.receipts, key, receipt)),
            Row::Watched(since, watched) => Row::Watched(since, set(&mut self.watched, since, watched)),
            Row::Number(number) => Row::Number(std::mem::replace(&mut self.number, number)),
        }
    }
}

/// Commits.
impl Tables {
    /// Commits what was written. If it is durable, so is everything before it. Of the log, the last `keep` commits are kept.
    pub(crate) fn commit(&mut self, durable: bool, keep: usize) {
        let open = std::mem::take(&mut self.open);
        if !open.is_empty() {
            self.log.push_back(open);
            self.commits += 1;
            self.volatile += 1;
        }
        if durable && self.volatile > 0 {
            self.volatile = 0;
            self.flushes += 1;
        }
        if self.log.len() > keep {
            self.log.pop_front();
            self.volatile = self.volatile.min(keep);
        }
    }

    /// Returns how many of the last commits a crash would undo.
    pub(crate) fn volatile(&self) -> usize {
        self.volatile
    }

    /// Undoes the last commits, and returns how many these were. Those that are left are durable.
    pub(crate) fn undo(&mut self, commits: usize) -> usize {
        let undone = commits.min(self.log.len());
        for commit in self.log.split_off(self.log.len() - undone).into_iter().rev() {
            for row in commit.into_iter().rev() {
                self.swap(row);
            }
        }
        self.commits -= undone as u64;
        self.volatile = 0;
        undone
    }

    /// Returns how many commits are certainly durable.
    pub(crate) fn position(&self) -> u64 {
        self.commits - self.volatile as u64
    }

    /// Returns how often a commit was made durable.
    pub(crate) fn flushes(&self) -> u64 {
        self.flushes
    }
}
