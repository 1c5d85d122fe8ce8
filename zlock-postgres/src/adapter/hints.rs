//! Hints that need no notification.

use zlock_core::{Mutex, SessionId};
use zlock_ledger::{OnHint, Scope};

/// The receiver of the hints that the answers of lanes imply.
#[derive(Default)]
pub(super) struct Hints(Mutex<Option<(SessionId, OnHint)>>);

impl Hints {
    pub(super) fn set(&self, session: SessionId, on_hint: OnHint) {
        *self.0.lock() = Some((session, on_hint));
    }

    pub(super) fn give(&self, session: SessionId, scope: &Scope, key: &str) {
        let current = self.0.lock().clone();
        if let Some((_, on_hint)) = current.filter(|(listener, _)| *listener == session) {
            on_hint(Some((scope.clone(), key.to_owned())));
        }
    }
}
