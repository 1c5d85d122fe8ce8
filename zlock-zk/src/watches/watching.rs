//! An armed watch.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use zookeeper_client::{EventType, OneshotWatcher, WatchedEvent};

use crate::watches::gate::Gate;
use crate::watches::staleness::Staleness;
use crate::watches::watchers::Reservation;

/// An armed watch. Resolves once: with its event, or with `None` when the client library is gone.
pub(crate) struct Watching {
    /// Dropped before the reservation, so that the watch is gone by then, or its removal is sent before the next request that
    /// uses the room.
    changed: Pin<Box<dyn Future<Output = WatchedEvent> + Send>>,
    _reservation: Reservation,
    gate: Arc<Gate>,
    /// For a watch connection: its server may be ahead of the session's own.
    ahead: Option<Arc<Staleness>>,
}

impl Watching {
    /// Creates a watch in the room that was reserved for it. `ahead` is `None` on the session's own connection.
    pub(crate) fn new(
        watcher: OneshotWatcher,
        reservation: Reservation,
        gate: Arc<Gate>,
        ahead: Option<Arc<Staleness>>,
    ) -> Self {
        Watching { changed: Box::pin(watcher.changed()), _reservation: reservation, gate, ahead }
    }
}

impl Future for Watching {
    type Output = Option<EventType>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Watching { changed, gate, ahead, .. } = &mut *self;
        let event = ready!(gate.poll(|| changed.as_mut().poll(cx)));
        if let Some(staleness) = ahead {
            staleness.suspect();
        }
        Poll::Ready(event.map(|event| event.event_type))
    }
}
