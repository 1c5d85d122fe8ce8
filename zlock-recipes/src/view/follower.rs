//! Follows something in the store: reads it with a watch, and again when the watch fires.

use std::fmt;
use std::future::Future;

use tokio::time::{Instant, sleep_until};
use zlock_core::{Error, ErrorKind, Result, Retry, SessionEvents, SessionState, Watch};

use super::freshness::Freshness;
use crate::place::pauses::PAUSES;

/// Something in the store that can be read and watched.
pub(crate) trait Source: fmt::Debug + Send {
    type Seen: Clone + PartialEq + fmt::Debug + Send;

    /// Reads the current state, and leaves a watch on its change. A state that is older than an earlier one is the error
    /// [`Unavailable`](ErrorKind::Unavailable), and is read again after a pause.
    ///
    /// The future may be dropped at any time.
    fn read(&mut self) -> impl Future<Output = Result<(Self::Seen, Watch)>> + Send;

    /// Called when changes may have been missed: nothing that was read before counts.
    fn doubt(&mut self) {}
}

/// A view of a source that coalesces changes, and survives reconnections and new sessions.
pub(crate) struct Follower<S: Source> {
    source: S,
    session: SessionEvents,
    /// The watch that was left by the last read. `None` if the source has to be read.
    armed: Option<Watch>,
    /// The state as it was read last. `None` before the first read.
    known: Option<S::Seen>,
    stale_since: Option<Instant>,
    /// The earliest time of the next read, after one that failed.
    read_at: Option<Instant>,
    pauses: Retry,
    /// What was returned last.
    shown: Option<(S::Seen, Freshness)>,
}

impl<S: Source> Follower<S> {
    pub(crate) fn new(source: S, session: SessionEvents) -> Self {
        Follower {
            source,
            session,
            armed: None,
            known: None,
            stale_since: None,
            read_at: None,
            pauses: PAUSES.start(),
            shown: None,
        }
    }

    /// Waits until the state or its freshness differs from what was returned last, and returns both. The first call returns
    /// the current state. Nothing is followed between two calls. While no server answers, the state is stale, which is not an
    /// error. Cancel safe: what was not returned is returned by the next call.
    pub(crate) async fn changed(&mut self) -> Result<(S::Seen, Freshness)> {
        loop {
            if let Some(seen) = self.seen().filter(|seen| self.shown.as_ref() != Some(seen)) {
                self.shown = Some(seen.clone());
                return Ok(seen);
            }
            self.step().await?;
        }
    }

    fn seen(&self) -> Option<(S::Seen, Freshness)> {
        let freshness = self.stale_since.map_or(Freshness::Fresh, Freshness::StaleSince);
        self.known.clone().map(|seen| (seen, freshness))
    }

    /// Waits for the next change of the source or of the session, or reads the source.
    async fn step(&mut self) -> Result<()> {
        match self.session.current().state {
            SessionState::Connected => {}
            SessionState::Suspended | SessionState::Lost if self.stale_since.is_none() => {
                self.doubt();
                return Ok(());
            }
            SessionState::Suspended | SessionState::Lost => {
                self.session.changed().await;
                return Ok(());
            }
            // The next read says why.
            _ => self.armed = None,
        }
        match &mut self.armed {
            // What was missed during an interruption may not be reported yet.
            Some(_) if self.stale_since.is_some() => self.armed = None,
            Some(watch) => tokio::select! {
                biased;
                _ = watch => self.armed = None,
                _ = self.session.changed() => {}
            },
            None => self.read().await?,
        }
        Ok(())
    }

    /// Reads the source unless the connection is in doubt by then.
    async fn read(&mut self) -> Result<()> {
        if let Some(time) = self.read_at {
            sleep_until(time).await;
            self.read_at = None;
        }
        let read = tokio::select! {
            biased;
            read = self.source.read() => read,
            () = in_doubt(&mut self.session) => return Ok(()),
        };
        match read {
            Ok((seen, watch)) => {
                (self.known, self.armed) = (Some(seen), Some(watch));
                (self.stale_since, self.pauses) = (None, PAUSES.start());
                Ok(())
            }
            Err(error) if !is_passing(&error) => Err(error),
            Err(error) => {
                tracing::debug!(source = ?self.source, %error, "a view could not be read yet");
                self.doubt();
                self.read_at = self.pauses.next_delay().map(|pause| Instant::now() + pause);
                Ok(())
            }
        }
    }

    fn doubt(&mut self) {
        self.source.doubt();
        self.stale_since.get_or_insert_with(Instant::now);
    }
}

/// Completes when the connection is interrupted or the session lost. A read of a closed one fails by itself.
async fn in_doubt(session: &mut SessionEvents) {
    session.until(|session| matches!(session.state, SessionState::Suspended | SessionState::Lost)).await;
}

fn is_passing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Settling | ErrorKind::SessionLost)
}

impl<S: Source> fmt::Debug for Follower<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower")
            .field("source", &self.source)
            .field("shown", &self.shown)
            .finish_non_exhaustive()
    }
}
