//! The store, and what tests do to it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tokio::runtime::Handle;
use zlock_core::SessionId;

use super::fault::{Arrival, Fate, MemFault, Operation};
use super::ledger::MemLedger;
use super::link::Link;
use super::server::Server;
use super::settings::Settings;
use super::user::{Protection, ScopeLock};
use crate::{End, Ended, Entry, Fault, Scope};

/// A ledger in this process, which its clients share. Cheap to clone.
///
/// The [module](super) has an example.
#[derive(Clone)]
pub struct MemStore(pub(super) Arc<Server>);

impl MemStore {
    /// Creates an empty store.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        MemStore(Arc::new(Server::new(settings)))
    }

    /// Returns the access of one more client, whose messages travel on the current runtime.
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
    #[must_use]
    pub fn ledger(&self) -> MemLedger {
        let settings = &self.0.settings;
        let link = Link::new(self.0.next_number(), settings.seed, settings.jitter);
        MemLedger::new(self.0.clone(), link, Handle::current())
    }
}

impl Default for MemStore {
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

impl fmt::Debug for MemStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemStore").field("sessions", &self.sessions()).finish_non_exhaustive()
    }
}

/// Inspecting and changing what the store keeps.
impl MemStore {
    /// Returns the scopes that have entries.
    #[must_use]
    pub fn scopes(&self) -> Vec<Scope> {
        self.0.with(|state| state.tables.scopes().cloned().collect())
    }

    /// Returns the entries of a scope with their data, in the order of their [`created`](Entry::created).
    #[must_use]
    pub fn entries(&self, scope: &Scope) -> Vec<Entry> {
        self.0.with(|state| state.tables.entries(scope, 0).cloned().collect())
    }

    /// Returns the sessions that are not over.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionId> {
        self.0.with(|state| {
            let all = state.tables.sessions().map(|(id, _)| id);
            all.filter(|id| state.session(*id).is_ok()).collect()
        })
    }

    /// Returns the live incarnation.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.0.with(|state| state.live)
    }

    /// Returns `true` during quiet time.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.0.with(|state| state.watched_quiet().is_some())
    }

    /// Removes an entry, whichever session owns it, as an operator would. Returns `false` if there is none, or if a user's
    /// transaction protects it.
    pub fn remove(&self, scope: &Scope, key: &str) -> bool {
        self.0.with(|state| {
            let removed = !state.is_protected(scope, key) && state.delete(scope, key).is_some();
            state.commit(true);
            removed
        })
    }

    /// Ends a session, as an operator would. Returns `false` if it is over, or if a transaction of it is in flight.
    pub fn expire(&self, session: SessionId) -> bool {
        self.0.with(|state| {
            let live = state.session(session).is_ok();
            live && state.end(&[End { session, beat: None }], &[]) != [Ended::Busy]
        })
    }
}

/// Restarts and failovers. Each begins a new incarnation, breaks all connections, and undoes the transactions in flight, those of
/// users included.
impl MemStore {
    /// Stops the server, which refuses connections until one of the other methods starts it. Does nothing if it is stopped.
    pub fn stop(&self) {
        self.0.stop();
    }

    /// Restarts the server, which loses no commit.
    pub fn restart(&self) {
        self.crash(0);
    }

    /// Restarts the server after a crash. Of the commits that were not durable, and that no durable commit has followed, the last
    /// `undo` are undone. Returns how many these were.
    ///
    /// Not durable are batches that do nothing but delete nodes, and the time for which clients have watched sessions.
    pub fn crash(&self, undo: usize) -> usize {
        self.0.start(|state| state.restart(undo))
    }

    /// Replaces the server by a copy that lacks the last `lost` commits, durable or not. Returns how many these were. With
    /// [`Class::Sync`](zlock_core::Class::Sync), the copy lacks no durable one.
    pub fn failover(&self, lost: usize) -> usize {
        self.0.start(|state| state.fail_over(lost))
    }
}

/// Other clients of the server.
impl MemStore {
    /// Begins a user's transaction that protects a node, as a fence does: until it ends, the node cannot be deleted or relabelled,
    /// and survives its session. `None` if there is no such node.
    ///
    /// # Errors
    /// [`Fault::SessionOver`] if the owner's session is over; [`Fault::Unswept`] if it has to sweep first; [`Fault::Invalid`] for an
    /// entry without an owner.
    pub fn protect(&self, scope: &Scope, key: &str) -> Result<Option<Protection>, Fault> {
        Protection::begin(&self.0, scope, key)
    }

    /// Locks a scope, as a transaction of another client does. `None` if it is locked.
    #[must_use]
    pub fn lock_scope(&self, scope: &Scope) -> Option<ScopeLock> {
        ScopeLock::begin(&self.0, scope)
    }
}

/// Faults of single requests.
impl MemStore {
    /// Injects a fault that loses or refuses certain requests. If several faults apply, the first one injected decides.
    pub fn inject(&self, fault: MemFault) {
        self.0.faults.inject(fault);
    }

    /// Calls `hook` for every request to which no [`MemFault`] applies, when it arrives and before it takes effect. The hook may call
    /// the store, for instance to remove an entry, and those calls take effect before the request. Replaces the previous hook.
    pub fn on_request(&self, mut hook: impl FnMut(&MemStore, &Arrival) -> Fate + Send + 'static) {
        // Weak: the store keeps the hook.
        let store = Arc::downgrade(&self.0);
        self.0.faults.set_hook(move |arrival| {
            store.upgrade().map_or(Fate::Pass, |store| hook(&MemStore(store), arrival))
        });
    }

    /// Removes all faults and the hook.
    pub fn clear_faults(&self) {
        self.0.faults.clear();
    }
}

/// Costs.
impl MemStore {
    /// Returns the number of requests of this kind that have arrived since the last reset.
    #[must_use]
    pub fn requests(&self, operation: Operation) -> u64 {
        self.0.counts().get(&operation).copied().unwrap_or_default()
    }

    /// Returns the number of requests of each kind that have arrived since the last reset.
    #[must_use]
    pub fn request_counts(&self) -> BTreeMap<Operation, u64> {
        self.0.counts().clone()
    }

    /// Sets the number of requests to zero.
    pub fn reset_requests(&self) {
        self.0.counts().clear();
    }

    /// Returns the number of transactions in batches since the store was created.
    #[must_use]
    pub fn transactions(&self) -> u64 {
        self.0.with(|state| state.transactions)
    }

    /// Returns how often a commit had to be made durable since the store was created.
    #[must_use]
    pub fn flushes(&self) -> u64 {
        self.0.with(|state| state.tables.flushes())
    }
}
