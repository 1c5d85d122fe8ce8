//! One-shot watches.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The reason why a watch fired. It is only a reason to read again: an event by itself never grants a lock.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WatchEvent {
    /// The node was deleted. Never reported for a node that was only relabelled.
    Deleted,
    /// The node was relabelled.
    Relabelled,
    /// Something changed, or the watch ended with its session.
    Changed,
}

/// A one-shot watch, which resolves when what it watches has changed. Dropping it removes it from the server.
#[must_use = "a watch that is dropped is removed"]
pub struct Watch(Pin<Box<dyn Future<Output = WatchEvent> + Send>>);

impl Watch {
    /// Creates a watch that fires when `event` resolves, and is removed when `event` is dropped.
    pub fn new(event: impl Future<Output = WatchEvent> + Send + 'static) -> Self {
        Watch(Box::pin(event))
    }
}

impl Future for Watch {
    type Output = WatchEvent;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<WatchEvent> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}
