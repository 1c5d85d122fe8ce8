//! The revisions in answers and events.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use etcd_client::ResponseHeader;

/// Returns the revision of an answer; 0 if it has none.
pub(crate) fn of(header: Option<&ResponseHeader>) -> i64 {
    header.map_or(0, ResponseHeader::revision)
}

/// The newest revision that a backend has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Newest(Arc<AtomicI64>);

impl Newest {
    /// Records a revision. Call it before the answer or the event is passed on.
    pub(crate) fn saw(&self, revision: i64) {
        self.0.fetch_max(revision, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}
