//! The health of a client, for readiness probes.

use std::fmt;
use std::time::Duration;

use zlock_core::SessionState;

use crate::client::Client;

/// A ready client has at least a quarter of the session's life left, which is the longest slack that it has had. While
/// heartbeats are on time, a session keeps more than half of it. The alert on low slack in `contrib` has the same limit.
const REQUIRED_PART: u32 = 4;

/// A snapshot of a client's health. Returned by [`Client::health`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// The state of the session.
    pub state: SessionState,
    /// The time left until the session's deadline. All locks are lost then, unless the store responds first. Zero if
    /// the session is over. `None` while the session is at rest: it owns no node and has no deadline.
    pub slack: Option<Duration>,
    /// The minimum slack of a ready client: a quarter of the session's life, which is its longest slack so far. `None` before
    /// the first session, when no client is ready.
    pub required_slack: Option<Duration>,
    /// `true` once [`Client::shutdown`] has begun.
    pub is_shutting_down: bool,
    /// The number of elections that the client leads.
    pub elections_led: usize,
}

impl Health {
    /// Returns `true` if the client is expected to acquire and keep locks. Its session must be connected and have at least
    /// [`required_slack`](Self::required_slack) left, and the client must not be shutting down.
    ///
    /// A client therefore stops being ready *before* its locks are lost, even if the runtime of its heartbeats is blocked.
    /// With a session timeout of 10 seconds, that is about 2 seconds before, and earlier if the connection is known to be
    /// interrupted.
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
        let has_time = self.slack.is_none_or(|slack| Some(slack) >= self.required_slack);
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
    /// Returns a snapshot of the client's health, for the readiness probe of a service. Performs no I/O, and may be called
    /// from any thread.
    ///
    /// A client may become ready again by itself. Do not use its health for a liveness probe, which restarts the process.
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
            required_slack: client.session.longest_slack().map(|life| life / REQUIRED_PART),
            is_shutting_down: client.shutdown.begun.is_raised(),
            elections_led: client.elections_led(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};
    use std::pin::pin;
    use std::task::Poll;

    use zlock_core::CloseReason;
    use zlock_mem::MemServer;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn each_part_counts() {
        let ready = Health {
            state: SessionState::Connected,
            slack: None,
            required_slack: Some(2 * SECOND),
            is_shutting_down: false,
            elections_led: 0,
        };
        for (health, is_ready, text) in [
            (ready, true, "ready: Connected, at rest"),
            (Health { slack: Some(2 * SECOND), ..ready }, true, "ready: Connected, 2.0s to the deadline"),
            (Health { slack: Some(SECOND), ..ready }, false, "not ready: Connected, 1.0s to the deadline"),
            (Health { state: SessionState::Suspended, ..ready }, false, "not ready: Suspended, at rest"),
            (Health { state: SessionState::Lost, ..ready }, false, "not ready: Lost, at rest"),
            (
                Health { state: SessionState::Closed(CloseReason::Requested), ..ready },
                false,
                "not ready: Closed(Requested), at rest",
            ),
            (
                Health { is_shutting_down: true, ..ready },
                false,
                "not ready: Connected, at rest, shutting down",
            ),
        ] {
            assert_eq!((health.is_ready(), &*health.to_string()), (is_ready, text));
        }
    }

    /// Moves the clock on while no task runs, as on a runtime that stands still.
    async fn stand_still(time: Duration) {
        let mut advance = pin!(tokio::time::advance(time));
        poll_fn(|cx| {
            // The clock moves with the first poll, and the tasks would run before the second.
            assert!(advance.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_runtime_that_stands_still_is_noticed_before_the_loss() {
        let client = Client::new(MemServer::new().connect());
        let guard = client.mutex("/a").unwrap().acquire().await.unwrap();
        let health = client.health();
        let (slack, required) = (health.slack.unwrap(), health.required_slack.unwrap());
        assert!(required > SECOND && required < slack / 2, "{health:?}");
        stand_still(slack - required).await;
        assert!(client.health().is_ready());
        stand_still(Duration::from_millis(1)).await;
        let health = client.health();
        assert!(!health.is_ready() && guard.is_held(), "{health}");
        assert_eq!(health.state, SessionState::Connected);
        stand_still(required).await;
        assert!(!guard.is_held());
        assert_eq!(client.health().slack, Some(Duration::ZERO));
    }
}
