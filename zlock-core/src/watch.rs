//! One-shot watches.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Why a watch fired. Only ever a reason to look again: an event by itself never grants a lock.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WatchEvent {
    /// The node is gone. Never said of a node that only got another label.
    Deleted,
    /// The node got another label.
    Relabelled,
    /// Something changed, or the watch ended with its session: look again.
    Changed,
}

/// A one-shot watch: resolves when what is watched has changed. Dropping it removes it.
#[must_use = "a watch that is dropped is removed"]
pub struct Watch(Pin<Box<dyn Future<Output = WatchEvent> + Send>>);

impl Watch {
    /// A watch that fires when `event` resolves, and is removed when `event` is dropped.
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
