//! The client's end of a watch.

use std::sync::Arc;

use tokio::sync::oneshot;
use zlock_core::kit::SessionKey;
use zlock_core::{Watch, WatchEvent};

use crate::request::Watcher;
use crate::server::Server;
use crate::session::Shared;

/// A watch that is being armed, once for each attempt. Dropping it removes the watch at the server.
#[derive(Debug, Default)]
pub(crate) struct Arming(Option<Armed>);

impl Arming {
    /// Creates a new watch that replaces the previous one.
    pub(crate) fn renew(&mut self, server: &Arc<Server>) -> Watcher {
        let (to, event) = oneshot::channel();
        let id = server.next_watch();
        self.0 = Some(Armed { server: server.clone(), id, event });
        Watcher { id, to }
    }

    /// Returns the watch that was armed last, in this session.
    pub(crate) fn watch(self, shared: &Shared, session: SessionKey) -> Watch {
        let (armed, mut events) = (self.0, shared.sessions.events());
        Watch::new(async move {
            if let Some(mut armed) = armed {
                tokio::select! {
                    biased;
                    event = &mut armed.event => if let Ok(event) = event {
                        return event;
                    },
                    _ = events.ended(session.epoch) => {}
                }
            }
            // Without an event, the session has ended at the server.
            events.ended(session.epoch).await;
            WatchEvent::Changed
        })
    }
}

#[derive(Debug)]
struct Armed {
    server: Arc<Server>,
    id: u64,
    event: oneshot::Receiver<WatchEvent>,
}

impl Drop for Armed {
    fn drop(&mut self) {
        // First, so that a watch whose request is still in flight is not armed at the server.
        self.event.close();
        self.server.with(|state, _| state.remove_watch(self.id));
    }
}
