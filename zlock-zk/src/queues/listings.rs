//! Listings that several deletes of one path share.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use tokio::sync::{Mutex as AsyncMutex, watch};
use zlock_core::kit::SessionKey;
use zlock_core::{Mutex, Queue};

/// The listings that deletes wait for, by path.
#[derive(Debug, Default)]
pub(crate) struct Listings(Mutex<BTreeMap<String, Weak<Path>>>);

#[derive(Debug, Default)]
pub(crate) struct Path {
    /// Held during a listing.
    pub(crate) turn: AsyncMutex<()>,
    /// The next listing to be sent, and its session.
    next: Mutex<Option<(SessionKey, Listed)>>,
}

/// `None` until there is an answer. `Some(None)` if the listing failed.
pub(crate) type Listed = watch::Receiver<Option<Option<Arc<Queue>>>>;

impl Listings {
    pub(crate) fn of(&self, path: &str) -> Arc<Path> {
        let mut all = self.0.lock();
        if let Some(path) = all.get(path).and_then(Weak::upgrade) {
            return path;
        }
        all.retain(|_, path| path.strong_count() > 0);
        let new = Arc::<Path>::default();
        all.insert(path.to_owned(), Arc::downgrade(&new));
        new
    }
}

impl Path {
    /// Joins the next listing to be sent. Calls `begin` if there is none in this session.
    pub(crate) fn join_next(&self, session: SessionKey, begin: impl FnOnce() -> Listed) -> Listed {
        let mut next = self.next.lock();
        match &*next {
            Some((of, listed)) if *of == session => listed.clone(),
            _ => next.insert((session, begin())).1.clone(),
        }
    }

    /// Records that the next listing is about to be sent: callers from now on need a later one.
    pub(crate) fn take_next(&self, session: SessionKey) {
        self.next.lock().take_if(|(of, _)| *of == session);
    }
}
