//! Whether a server may be behind.

use std::sync::atomic::{AtomicU64, Ordering};

/// Tracks whether the connected server may lag behind what this client has already seen.
#[derive(Debug)]
pub(crate) struct Staleness {
    /// The number of interruptions and of answers from other servers, plus one if the session is not the backend's
    /// first.
    suspicions: AtomicU64,
    /// The number of suspicions before the last `sync` that was answered.
    synced: AtomicU64,
}

impl Staleness {
    pub(crate) fn new(is_first_session: bool) -> Self {
        Staleness { suspicions: u64::from(!is_first_session).into(), synced: AtomicU64::new(0) }
    }

    /// Records that the server may be behind from now on, until a `sync` that is sent later is answered.
    pub(crate) fn suspect(&self) {
        self.suspicions.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of suspicions so far.
    pub(crate) fn suspicions(&self) -> u64 {
        self.suspicions.load(Ordering::Relaxed)
    }

    /// Returns `true` if the server may be behind.
    pub(crate) fn is_suspected(&self) -> bool {
        self.synced.load(Ordering::Relaxed) < self.suspicions()
    }

    /// Records that a `sync` was answered which was sent after this number of suspicions.
    pub(crate) fn synced(&self, suspicions: u64) {
        self.synced.fetch_max(suspicions, Ordering::Relaxed);
    }
}
