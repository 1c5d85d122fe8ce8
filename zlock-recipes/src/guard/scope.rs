//! Scopes: code that runs inside a held lock's scope may enter the lock again.

use std::future::Future;
use std::sync::{Arc, Weak};

use zlock_core::{Error, ErrorKind, Label, LockPath, Result};

use crate::client::hold_record::Entry;
use crate::client::inner::ClientInner;
use crate::hold::{Entered, Hold, REENTER};

tokio::task_local! {
    static SCOPE: Scope;
}

/// The held locks in whose scope the calling code runs.
///
/// In Curator a thread owns a lock. An async task cannot: two branches of one `join!` run in the same task and must still
/// exclude each other. So ownership is lexical. Code that runs *inside* a held lock's scope
/// ([`Guard::scope`](crate::Guard::scope), [`LockTemplate::execute`](crate::LockTemplate::execute)) enters that lock again
/// without waiting. All branches inside one scope enter again, because they are parts of one critical section.
///
/// `tokio::spawn` does not inherit the scope. Carry it over by hand:
///
/// ```
/// # async fn f() {
/// # use zlock::Scope;
/// let scope = Scope::current();
/// tokio::spawn(scope.scope(async {
///     // enters again the locks that the spawning code holds
/// }));
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// The innermost lock is last. Weak, so that a scope that outlives its locks does not keep a client alive.
    holds: Arc<[Weak<Hold>]>,
}

impl Scope {
    /// Returns the scope that the calling code runs in, which is empty outside of all locks.
    #[must_use]
    pub fn current() -> Self {
        SCOPE.try_with(Scope::clone).unwrap_or_default()
    }

    /// Runs a future in this scope.
    pub fn scope<F: Future>(self, future: F) -> impl Future<Output = F::Output> {
        SCOPE.scope(self, future)
    }

    /// Returns this scope with one more lock in it. Locks that were released are left out: a scope may be carried on from task to
    /// task without an end.
    pub(crate) fn and(self, hold: &Arc<Hold>) -> Self {
        let outer = self.holds.iter().filter(|hold| hold.strong_count() > 0).cloned();
        Scope { holds: outer.chain([Arc::downgrade(hold)]).collect() }
    }

    /// Returns a scope of these locks alone.
    pub(crate) fn of(holds: Vec<Weak<Hold>>) -> Self {
        Scope { holds: holds.into() }
    }

    /// Enters again the innermost hold of this lock if the calling code runs in its scope: same session, same path and same
    /// kind of lock, whatever handle it was acquired with. Returns `None` if there is no such hold.
    pub(crate) fn reenter(
        client: &ClientInner,
        path: &LockPath,
        label: Label,
    ) -> Option<Result<(Arc<Hold>, Entry)>> {
        for hold in Scope::current().holds.iter().rev().filter_map(Weak::upgrade) {
            if hold.path() != path || !hold.client().session.is_same(&client.session) {
                continue;
            }
            match hold.enter(label) {
                Entered::As(entry) => return Some(Ok((hold, entry))),
                Entered::Upgrade => return Some(Err(refused(&hold))),
                Entered::NotThis | Entered::TooLate => {}
            }
        }
        None
    }
}

/// The error for a writer inside a reader's scope.
fn refused(hold: &Hold) -> Error {
    let upgrade = || Error::new(ErrorKind::UpgradeRefused, "acquire").with_path(hold.path());
    hold.check(REENTER).err().unwrap_or_else(upgrade)
}
