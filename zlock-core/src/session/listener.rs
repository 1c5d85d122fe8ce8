//! A listener that returns session changes one by one.

use crate::session::events::SessionEvents;
use crate::session::{Session, SessionState};

impl SessionEvents {
    /// Returns a listener that misses no loss of a session that it has returned: if the next session has begun by then, it returns
    /// the `Lost` first. It skips a session that begins and ends between two calls.
    #[must_use]
    pub fn listen(&self) -> SessionListener {
        SessionListener { events: self.clone(), last: None, next: None }
    }
}

/// Returns the changes of a session one by one, with a `Lost` for each session that it has returned and that is over. Created by
/// [`SessionEvents::listen`].
#[derive(Debug)]
pub struct SessionListener {
    events: SessionEvents,
    last: Option<Session>,
    /// The session to return next, after a `Lost` that was skipped.
    next: Option<Session>,
}

impl SessionListener {
    /// Waits for the next change and returns the session. The first call returns the current state at once. Returns
    /// `None` after [`Closed`](SessionState::Closed).
    ///
    /// # Cancel safety
    /// Safe: nothing is skipped.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let mut sessions = client.session_events().listen();
    /// client.close().await?;
    /// while let Some(session) = sessions.next().await {
    ///     println!("{:?}", session.state);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn next(&mut self) -> Option<Session> {
        if let Some(session) = self.next.take() {
            self.last = Some(session);
            return Some(session);
        }
        let session = match self.last {
            None => {
                let session = self.events.current();
                self.events.seen = (session.epoch, session.state);
                session
            }
            Some(Session { state: SessionState::Closed(_), .. }) => return None,
            Some(_) => self.events.changed().await,
        };
        if let Some(last) = self.last
            && last.epoch < session.epoch
            && last.is_live()
        {
            let lost = Session { state: SessionState::Lost, ..last };
            (self.last, self.next) = (Some(lost), Some(session));
            return Some(lost);
        }
        self.last = Some(session);
        Some(session)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::kit::Sessions;
    use crate::session::{CloseReason, SessionId};

    const ID: SessionId = SessionId::new(7);

    fn after(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn a_listener_sees_every_loss() {
        let sessions = Sessions::new("refused");
        sessions.begin(ID, after(10), |_| ());
        let mut listener = sessions.events().listen();
        let mut told = Vec::new();
        let mut next = async || {
            let s = listener.next().await?;
            Some((s.epoch, s.state))
        };
        told.push(next().await);
        let (key, _) = sessions.begin(ID, after(10), |_| ()).unwrap();
        told.push(next().await);
        told.push(next().await);
        sessions.suspend(key);
        told.push(next().await);
        drop(sessions);
        told.push(next().await);
        told.push(next().await);
        use SessionState::*;
        assert_eq!(
            told,
            [
                Some((1, Connected)),
                Some((1, Lost)),
                Some((2, Connected)),
                Some((2, Suspended)),
                Some((2, Closed(CloseReason::Requested))),
                None
            ]
        );
    }
}
