//! PostgreSQL's part of the session loop of `zlock_core::kit`: a session is a row that heartbeats renew.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use zlock_core::kit::{Beat, Beats, Begun, Options, Over, SessionKey, SessionStore, Sessions, keep_alive};
use zlock_core::{Close, SessionId};

use crate::error::Failure;
use crate::session::begin::{self, REST};
use crate::session::poller::poll_forever;
use crate::session::shared::{Live, Shared};

/// The sessions of a backend, for the loop that keeps them.
pub(crate) struct Rows(pub(crate) Arc<Shared>);

impl SessionStore for Rows {
    type Granted = begin::Begun;
    type Kept = begin::Begun;
    type Live = Live;
    type Failure = Failure;

    fn sessions(&self) -> &Sessions<Live> {
        &self.0.sessions
    }

    fn options(&self) -> &Options {
        &self.0.options.kit
    }

    fn patience(&self) -> (Duration, Duration) {
        (self.0.options.answer_time() * 2, self.options().connect_timeout)
    }

    async fn begin(
        &self,
        old: Option<SessionId>,
        patience: Duration,
    ) -> Result<Begun<begin::Begun>, Failure> {
        if let Some(old) = old {
            match begin::end(&self.0, old.get().cast_signed(), patience).await {
                // The others remove it when the user's transaction has ended.
                Ok(()) | Err(Failure::Fenced) => {}
                Err(failure) => return Err(failure),
            }
        }
        let (options, granted) = (&self.0.options, begin::begin(&self.0, patience).await?);
        let (id, deadline) = (SessionId::new(granted.id.cast_unsigned()), granted.sent + options.life());
        Ok(Begun { id, timeout: options.kit.session_timeout, deadline, granted })
    }

    fn publish(&self, _: SessionKey, granted: begin::Begun) -> (Live, begin::Begun) {
        (Live::default(), granted)
    }

    async fn keep(&self, session: SessionKey, begun: &mut begin::Begun) -> Over {
        let (shared, options) = (&self.0, &self.0.options);
        // It owns nothing yet.
        shared.sessions.rest(session);
        let beats = Beats::new(begun.sent, options.life(), options.kit.session_timeout / 3).resting(REST / 3);
        let mut heartbeats = Heartbeats { shared, session };
        tokio::select! {
            biased;
            over = keep_alive(&shared.sessions, session, beats, &mut heartbeats) => over,
            never = poll_forever(shared, session) => match never {},
        }
    }

    async fn end(&self, id: SessionId, _: Option<&mut begin::Begun>) -> Result<Close, Failure> {
        begin::end(&self.0, id.get().cast_signed(), self.0.options.answer_time()).await?;
        Ok(Close::Ended)
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        self.0.heart.close();
        self.0.pool.close();
    }
}

struct Heartbeats<'a> {
    shared: &'a Shared,
    session: SessionKey,
}

impl Beat for Heartbeats<'_> {
    type Failure = Failure;

    async fn beat(&mut self, at_rest: bool, _: Instant) -> Result<Option<bool>, Failure> {
        begin::beat(self.shared, self.session, at_rest).await
    }

    async fn doubted(&mut self) {
        tokio::select! {
            biased;
            () = self.shared.heart.broken() => {}
            () = self.shared.doubt.notified() => {}
        }
    }

    fn servers(&self) -> usize {
        1
    }
}
