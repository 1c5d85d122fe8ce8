//! Whether a client is fit for work, for readiness probes.

use std::fmt;
use std::time::Duration;

use zlock_core::SessionState;

use crate::client::Client;

/// The part of the longest time to the deadline that a client needs to be ready. Between two heartbeats on time a session
/// keeps more than half of it.
const REQUIRED_PART: u32 = 4;

/// A snapshot of a client's fitness for work. Returned by [`Client::health`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// The state of the session.
    pub state: SessionState,
    /// The time left until the session's deadline, at which all locks are lost unless the store answers before. Zero if the
    /// session is over. `None` while the session owns no node: then there is no deadline.
    pub slack: Option<Duration>,
    /// The slack below which the client is not ready: a quarter of the longest that the session has had.
    pub required_slack: Duration,
    /// Whether [`Client::shutdown`] was called.
    pub is_shutting_down: bool,
}

impl Health {
    /// Returns `true` if the client can be expected to acquire and to keep locks: its session is connected, has at least
    /// [`required_slack`](Self::required_slack) left, and the client is not shutting down.
    ///
    /// So a client stops being ready *before* its locks are lost, even if the runtime of its heartbeats stands still. With a
    /// session timeout of 10 seconds that is about 2 seconds before, and earlier if the store is known not to answer.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let health = client.health();
    /// let status = if health.is_ready() { 200 } else { 503 };
    /// println!("{status} {health}");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let has_time = self.slack.is_none_or(|slack| slack >= self.required_slack);
        self.state == SessionState::Connected && has_time && !self.is_shutting_down
    }
}

/// For display only, such as `ready: Connected, 7.1s to the deadline`.
impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ready = if self.is_ready() { "ready" } else { "not ready" };
        write!(f, "{ready}: {:?}", self.state)?;
        match self.slack {
            Some(slack) => write!(f, ", {:.1}s to the deadline", slack.as_secs_f64())?,
            None => f.write_str(", at rest")?,
        }
        f.write_str(if self.is_shutting_down { ", shutting down" } else { "" })
    }
}

impl Client {
    /// Returns whether the client is fit for work: for the readiness probe of a service. Performs no I/O, and may be called
    /// from any thread.
    ///
    /// A client that is not ready may become so again by itself. So this is no reason to restart a process: a liveness
    /// probe should not use it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let guard = client.mutex("/app/orders/42")?.acquire().await?;
    /// assert!(client.health().is_ready());
    /// guard.release().await?;
    /// client.close().await?;
    /// assert!(!client.health().is_ready());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn health(&self) -> Health {
        let client = self.inner();
        let session = client.session.current();
        Health {
            state: session.state,
            slack: session.slack(),
            required_slack: client.session.longest_slack() / REQUIRED_PART,
            is_shutting_down: client.shutdown.has_begun(),
        }
    }
}
