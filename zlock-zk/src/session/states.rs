//! The states of a session, as the client library reports them.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::time::Instant;
use zookeeper_client::{SessionState, StateWatcher};

/// One listener, from its beginning to its end.
///
/// The library's `changed` should rarely be dropped while it waits. In `asyncs-sync` 0.4.0, on which it is built, that writes
/// to freed memory if the state changes at the same moment. So the future is kept and polled again.
pub(crate) struct States {
    next: Pin<Box<dyn Future<Output = (StateWatcher, SessionState)> + Send>>,
    /// The last state that was returned.
    state: SessionState,
    connected: Option<Instant>,
}

async fn next(mut watcher: StateWatcher) -> (StateWatcher, SessionState) {
    let state = watcher.changed().await;
    (watcher, state)
}

impl States {
    pub(crate) fn new(watcher: StateWatcher) -> Self {
        let (now, state) = (Instant::now(), watcher.peek_state());
        let connected = (state == SessionState::SyncConnected).then_some(now);
        States { next: Box::pin(next(watcher)), state, connected }
    }

    /// Waits for the next change. A terminal state is the last one.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn changed(&mut self) -> SessionState {
        poll_fn(|cx| {
            let now = Instant::now();
            let Poll::Ready((watcher, state)) = self.next.as_mut().poll(cx) else {
                if self.state == SessionState::SyncConnected {
                    self.connected = Some(now);
                }
                return Poll::Pending;
            };
            (self.next, self.state) = (Box::pin(next(watcher)), state);
            Poll::Ready(state)
        })
        .await
    }

    /// Returns the last instant at which [`changed`](Self::changed) saw that there was a connection, and no change of it. Each
    /// later connection began after that. `None` if there was no connection yet.
    pub(crate) fn connected(&self) -> Option<Instant> {
        self.connected
    }

    /// Returns `true` if there was a change since the last one that was returned here. Does not register for a wake-up.
    fn has_changed(&mut self) -> bool {
        let polled = self.next.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready((watcher, _)) = polled else { return false };
        self.next = Box::pin(next(watcher));
        true
    }
}

/// Counts the changes of a session's state, for code that compares two moments.
pub(crate) struct Changes {
    states: States,
    count: u64,
}

impl Changes {
    pub(crate) fn new(watcher: StateWatcher) -> Self {
        Changes { states: States::new(watcher), count: 0 }
    }

    /// Returns the number of changes so far. If the connection was interrupted, the number has grown before any answer of the
    /// next connection arrives. Several changes may count as one.
    pub(crate) fn count(&mut self) -> u64 {
        while self.states.has_changed() {
            self.count += 1;
        }
        self.count
    }
}
