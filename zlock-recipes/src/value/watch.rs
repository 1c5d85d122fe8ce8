//! A view of a value that follows its changes.

use std::fmt;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use zlock_core::{Error, ErrorKind, Result, SessionEvents, SessionState, Value, Watch};

use super::shared_value::SharedValue;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl SharedValue {
    /// Returns a view of the value that follows its changes. Performs no I/O.
    ///
    /// # Examples
    /// See [`ValueWatch`].
    #[must_use]
    pub fn watch(&self) -> ValueWatch {
        ValueWatch::new(self.clone(), self.client.session_events())
    }
}

/// A value as a [`ValueWatch`] sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueView {
    /// The value, or `None` if there is none.
    pub value: Option<Value>,
    /// Whether the value may have changed unnoticed.
    pub freshness: Freshness,
}

/// How current a view is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The store reports changes to this client. A server that is behind the others reports them late.
    Fresh,
    /// The connection has been in doubt since this instant. Changes since then may not be seen yet.
    StaleSince(Instant),
}

/// A view of a value that follows its changes. Created by [`SharedValue::watch`].
///
/// It shows the latest value and may skip earlier ones, but never goes back to one. It survives reconnections, new sessions,
/// and the deletion of the value by another program. Each change costs one read. On ZooKeeper, a read after an interruption
/// has to bring the server up to date first.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock::Result<()> {
/// # let client = zlock::connect("mem://").await?;
/// use zlock::Freshness;
///
/// let mode = client.shared_value("/app/mode")?;
/// let mut watch = mode.watch();
/// assert_eq!(watch.changed().await?.value, None);
/// mode.compare_and_set(None, b"read-only").await?;
/// let view = watch.changed().await?;
/// assert_eq!(view.value.unwrap().data, b"read-only");
/// assert_eq!(view.freshness, Freshness::Fresh);
/// # Ok(())
/// # }
/// ```
pub struct ValueWatch {
    value: SharedValue,
    session: SessionEvents,
    /// The watch that was left by the last read. `None` if the value has to be read.
    armed: Option<Watch>,
    /// The value as it was read last. `None` before the first read.
    known: Option<Option<Value>>,
    stale_since: Option<Instant>,
    /// The earliest time of the next read, after one that failed.
    read_at: Option<Instant>,
    pause: Duration,
    /// The last view that was returned.
    shown: Option<ValueView>,
}

impl ValueWatch {
    pub(crate) fn new(value: SharedValue, session: SessionEvents) -> Self {
        ValueWatch {
            value,
            session,
            armed: None,
            known: None,
            stale_since: None,
            read_at: None,
            pause: FIRST_PAUSE,
            shown: None,
        }
    }

    /// Waits until the view differs from the one that was returned last, and returns it. The first call returns the current
    /// value. The view changes when the value does, and when its [`Freshness`] does.
    ///
    /// Nothing is followed between two calls, so a view that was returned long ago may be out of date.
    ///
    /// # Errors
    /// [`Closed`](ErrorKind::Closed), [`NotAuthorized`](ErrorKind::NotAuthorized),
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if a lock uses the path, [`Unexpected`](ErrorKind::Unexpected). While no
    /// server answers, the view is stale, which is not an error.
    ///
    /// # Cancel safety
    /// Safe: a view that was not returned is returned by the next call.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// See [`ValueWatch`].
    pub async fn changed(&mut self) -> Result<ValueView> {
        loop {
            if let Some(view) = self.view().filter(|view| self.shown.as_ref() != Some(view)) {
                self.shown = Some(view.clone());
                return Ok(view);
            }
            self.step().await?;
        }
    }

    fn view(&self) -> Option<ValueView> {
        let freshness = self.stale_since.map_or(Freshness::Fresh, Freshness::StaleSince);
        self.known.clone().map(|value| ValueView { value, freshness })
    }

    /// Waits for the next change of the value or of the session, or reads the value.
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

    /// Reads the value unless the connection is in doubt by then.
    async fn read(&mut self) -> Result<()> {
        if let Some(time) = self.read_at {
            sleep_until(time).await;
            self.read_at = None;
        }
        let values = self.value.values("watch")?;
        let read = tokio::select! {
            biased;
            read = values.value_with_watch(self.value.path()) => read,
            () = in_doubt(&mut self.session) => return Ok(()),
        };
        match read {
            Ok((value, watch)) => {
                (self.known, self.armed) = (Some(value), Some(watch));
                (self.stale_since, self.pause) = (None, FIRST_PAUSE);
                Ok(())
            }
            Err(error) if !is_passing(&error) => Err(error),
            Err(error) => {
                tracing::debug!(path = %self.value.path(), %error, "a watched value could not be read yet");
                self.doubt();
                self.read_at = Some(Instant::now() + self.pause);
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                Ok(())
            }
        }
    }

    fn doubt(&mut self) {
        self.stale_since.get_or_insert_with(Instant::now);
    }
}

/// Completes when the session is not connected any more.
async fn in_doubt(session: &mut SessionEvents) {
    while session.current().state == SessionState::Connected {
        session.changed().await;
    }
}

fn is_passing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::SessionLost)
}

impl fmt::Debug for ValueWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueWatch")
            .field("path", self.value.path())
            .field("shown", &self.shown)
            .finish_non_exhaustive()
    }
}
