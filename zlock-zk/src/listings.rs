//! Listings that several deletes of one path share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Mutex as AsyncMutex;
use zlock_core::Queue;
use zlock_core::kit::SessionKey;

/// The listings that deletes wait for, by path.
#[derive(Debug, Default)]
pub(crate) struct Listings {
    /// The number of times that somebody came for a listing or sent one.
    moments: AtomicU64,
    latest: Mutex<BTreeMap<String, Weak<AsyncMutex<Latest>>>>,
}

/// The latest listing of a path.
#[derive(Debug)]
pub(crate) struct Latest {
    pub(crate) session: SessionKey,
    /// The moment before it was sent.
    pub(crate) asked: u64,
    pub(crate) queue: Arc<Queue>,
}

impl Listings {
    pub(crate) fn moment(&self) -> u64 {
        self.moments.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn of(&self, path: String, session: SessionKey) -> Arc<AsyncMutex<Latest>> {
        let mut all = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(latest) = all.get(&path).and_then(Weak::upgrade) {
            return latest;
        }
        all.retain(|_, latest| latest.strong_count() > 0);
        let none = Latest { session, asked: 0, queue: Arc::default() };
        let latest = Arc::new(AsyncMutex::new(none));
        all.insert(path, Arc::downgrade(&latest));
        latest
    }
}
