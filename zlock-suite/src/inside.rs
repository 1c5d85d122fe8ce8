//! A witness of mutual exclusion.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Detects two visitors inside at once, and counts the visits.
#[derive(Clone, Debug, Default)]
pub struct Inside(Arc<State>);

#[derive(Debug, Default)]
struct State {
    busy: AtomicBool,
    visits: AtomicUsize,
}

impl Inside {
    /// Goes in, lets other tasks run, and comes out.
    ///
    /// # Panics
    /// Panics if another visitor is inside.
    pub async fn visit(&self) {
        let alone = self.0.busy.compare_exchange(false, true, Ordering::SeqCst, Ordering::SeqCst);
        assert!(alone.is_ok(), "two are inside");
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        self.0.visits.fetch_add(1, Ordering::SeqCst);
        self.0.busy.store(false, Ordering::SeqCst);
    }

    /// Returns the number of completed visits.
    #[must_use]
    pub fn visits(&self) -> usize {
        self.0.visits.load(Ordering::SeqCst)
    }
}
