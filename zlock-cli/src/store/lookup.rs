//! The queues of locks that were found, some of which are requested.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::task::JoinHandle;
use zlock::LockPath;
use zlock::backend::{CoordinationBackend, Queue};

use super::Row;
use crate::exit::Failure;

/// The number of locks whose queues are requested at the same time.
const IN_FLIGHT: usize = 256;

/// Locks that were found, in their order.
pub(super) struct Lookups<'a, F> {
    backend: &'a Arc<dyn CoordinationBackend>,
    row: F,
    found: VecDeque<Found>,
}

/// A lock that was found, and the request for its queue.
struct Found {
    path: LockPath,
    /// `None` for a lock with a single node, which holds it.
    queue: Option<JoinHandle<zlock::Result<Queue>>>,
}

impl<'a, F: FnMut(Row) -> Result<(), Failure>> Lookups<'a, F> {
    pub(super) fn new(backend: &'a Arc<dyn CoordinationBackend>, row: F) -> Self {
        Lookups { backend, row, found: VecDeque::new() }
    }

    /// Adds a lock, whose queue is requested unless its only node holds it. Shows the first one if many are in flight.
    pub(super) async fn add(&mut self, path: LockPath, is_requested: bool) -> Result<(), Failure> {
        let (backend, of) = (self.backend.clone(), path.clone());
        let queue = is_requested.then(|| tokio::spawn(async move { backend.children(&of, None).await }));
        self.found.push_back(Found { path, queue });
        if self.found.len() < IN_FLIGHT { Ok(()) } else { self.show().await }
    }

    pub(super) async fn finish(mut self) -> Result<(), Failure> {
        while !self.found.is_empty() {
            self.show().await?;
        }
        Ok(())
    }

    async fn show(&mut self) -> Result<(), Failure> {
        let Some(Found { path, queue }) = self.found.pop_front() else { return Ok(()) };
        let Some(queue) = queue else { return (self.row)(Row { path, holders: 1, waiters: 0 }) };
        let queue = queue.await.map_err(|error| Failure::failed(error.to_string()))??;
        // It may have been released meanwhile.
        if queue.is_empty() { Ok(()) } else { (self.row)(Row::of(path, &queue)) }
    }
}
