//! Creates that were abandoned before they were answered.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The maximum number of abandoned creates that are not cleaned up. While there are more, no other create begins.
const MAX_ABANDONED: usize = 16;

/// The client's abandoned creates in its latest session whose nodes are not known to be deleted.
#[derive(Debug, Default)]
pub(crate) struct Abandoned {
    count: Mutex<Count>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Count {
    epoch: u64,
    creates: usize,
}

/// One abandoned create. Counts until it is dropped.
#[derive(Debug)]
pub(crate) struct AbandonedCreate {
    all: Arc<Abandoned>,
    epoch: u64,
}

impl Abandoned {
    fn count(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(self: &Arc<Self>, epoch: u64) -> AbandonedCreate {
        let mut count = self.count();
        if count.epoch < epoch {
            *count = Count { epoch, creates: 0 };
        }
        count.creates += usize::from(count.epoch == epoch);
        AbandonedCreate { all: self.clone(), epoch }
    }

    /// Returns `true` if there are too many for another create.
    pub(crate) fn are_many(&self, epoch: u64) -> bool {
        let count = self.count();
        count.epoch == epoch && count.creates > MAX_ABANDONED
    }

    /// Completes when the number may have become small enough.
    ///
    /// # Cancel safety
    /// Safe. What happens after the call is not missed.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> + '_ {
        self.changed.notified()
    }
}

impl Drop for AbandonedCreate {
    fn drop(&mut self) {
        let is_few = {
            let mut count = self.all.count();
            if count.epoch != self.epoch {
                return;
            }
            count.creates -= 1;
            count.creates == MAX_ABANDONED
        };
        if is_few {
            self.all.changed.notify_waiters();
        }
    }
}
