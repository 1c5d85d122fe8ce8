//! Open transactions of other clients of the server.

use std::fmt;
use std::sync::Arc;

use super::server::Server;
use super::state::Holder;
use crate::{Entry, Fault, Scope};

/// An open transaction of a user that protects a node. Dropping it rolls it back.
#[must_use = "dropping it ends the transaction"]
pub struct Protection {
    server: Arc<Server>,
    life: u64,
    scope: Scope,
    entry: Entry,
}

impl Protection {
    pub(super) fn begin(server: &Arc<Server>, scope: &Scope, key: &str) -> Result<Option<Self>, Fault> {
        server.with(|state| {
            let life = server.life.get();
            let entry = state.protect(scope, key)?;
            Ok(entry.map(|entry| Protection { server: server.clone(), life, scope: scope.clone(), entry }))
        })
    }

    /// Returns the node as it was when the transaction began.
    #[must_use]
    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    /// Commits the transaction. Returns `false` if the server has stopped since it began, which has rolled it back.
    #[must_use]
    pub fn commit(self) -> bool {
        self.server.life.get() == self.life
    }
}

impl Drop for Protection {
    fn drop(&mut self) {
        self.server.free(self.life, |state| state.unprotect(&self.scope, &self.entry.key));
    }
}

impl fmt::Debug for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Protection").field(&self.scope).field(&self.entry.key).finish()
    }
}

/// The lock of a scope that another client has taken. Dropping it frees the scope.
#[must_use = "dropping it frees the scope"]
pub struct ScopeLock {
    server: Arc<Server>,
    life: u64,
    holder: Holder,
}

impl ScopeLock {
    pub(super) fn begin(server: &Arc<Server>, scope: &Scope) -> Option<Self> {
        server.with(|state| {
            let (life, holder) = (server.life.get(), state.next_holder());
            state.lock_scope(holder, scope).then(|| ScopeLock { server: server.clone(), life, holder })
        })
    }
}

impl Drop for ScopeLock {
    fn drop(&mut self) {
        self.server.free(self.life, |state| state.unlock(self.holder));
    }
}

impl fmt::Debug for ScopeLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ScopeLock").field(&self.holder).finish()
    }
}
