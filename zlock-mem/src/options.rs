//! The options of a client.

use std::time::Duration;

use zlock_core::RetryPolicy;
use zlock_core::kit::Options;

/// The maximum of every duration: the clock cannot represent arbitrary instants.
pub(crate) const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// The options of one client of a [`MemServer`](crate::MemServer).
///
/// The defaults are a session timeout of 10 seconds, a margin of a quarter of it, and an operation timeout of 15 seconds. A
/// failed request is retried up to 30 times, after 20 milliseconds to 1 second. These delays are the same in every run.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use zlock::Client;
/// use zlock::mem::{MemOptions, MemServer};
///
/// let options = MemOptions::default().with_session_timeout(Duration::from_secs(2));
/// let client = Client::new(MemServer::new().connect_with(options));
/// ```
#[derive(Clone, Debug)]
pub struct MemOptions {
    pub(crate) margin: Option<Duration>,
    pub(crate) kit: Options,
}

impl Default for MemOptions {
    fn default() -> Self {
        let mut kit = Options::new(["mem"]);
        kit.retry = kit.retry.with_seed(0);
        MemOptions { margin: None, kit }
    }
}

impl MemOptions {
    /// Sets how long the server keeps the session of a silent client: at least 1 millisecond, at most a year. Defaults to
    /// 10 seconds.
    #[must_use]
    pub fn with_session_timeout(mut self, timeout: Duration) -> Self {
        self.kit.session_timeout = timeout.clamp(Duration::from_millis(1), LONGEST);
        self
    }

    /// Sets the margin by which the client's deadline precedes the end of the session at the server. Defaults to a
    /// quarter of the session timeout, and is at most half of it.
    #[must_use]
    pub fn with_margin(mut self, margin: Duration) -> Self {
        self.margin = Some(margin);
        self
    }

    /// Sets the time limit of one operation, including its retries and its wait for a session: at most a year. Defaults to 15
    /// seconds.
    #[must_use]
    pub fn with_operation_timeout(mut self, timeout: Duration) -> Self {
        self.kit.operation_timeout = timeout.min(LONGEST);
        self
    }

    /// Sets how an operation retries a request that got no response. The delays of a policy without a
    /// [seed](RetryPolicy::with_seed) differ from run to run.
    #[must_use]
    pub fn with_retry(mut self, retry: RetryPolicy) -> Self {
        self.kit.retry = retry;
        self
    }

    /// Returns how long the session is certain to live after an answered request of the session task was sent.
    pub(crate) fn certain(&self) -> Duration {
        let margin = self.margin.unwrap_or(self.kit.session_timeout / 4).min(self.kit.session_timeout / 2);
        self.kit.session_timeout - margin
    }

    /// Returns the time between heartbeats, which is also the silence after which a connection is given up.
    pub(crate) fn interval(&self) -> Duration {
        self.kit.session_timeout / 3
    }
}

#[cfg(test)]
mod tests {
    use zlock_core::{CoordinationBackend, LockPath};

    use super::*;
    use crate::MemServer;

    #[tokio::test(start_paused = true)]
    async fn no_duration_is_too_long() {
        let forever =
            MemOptions::default().with_session_timeout(Duration::MAX).with_operation_timeout(Duration::MAX);
        let backend = MemServer::new().connect_with(forever.with_margin(Duration::MAX));
        assert!(backend.children(&LockPath::new("/a").unwrap(), None).await.unwrap().is_empty());
        assert!(backend.session_events().current().is_live());
    }
}
