//! The revisions that answers and events tell.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use etcd_client::ResponseHeader;

/// The revision that an answer tells.
pub(crate) fn of(header: Option<&ResponseHeader>) -> i64 {
    header.map_or(0, ResponseHeader::revision)
}

/// The newest revision that a backend was told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Newest(Arc<AtomicI64>);

impl Newest {
    /// Records a revision, before anybody is told what it is about.
    pub(crate) fn told(&self, revision: i64) {
        self.0.fetch_max(revision, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}
