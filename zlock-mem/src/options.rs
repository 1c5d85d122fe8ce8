//! How a client behaves.

use std::time::Duration;

use zlock_core::RetryPolicy;
use zlock_core::kit::Options;

/// The longest time that an option takes: the clock cannot tell any duration.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// How one client of a [`MemServer`](crate::MemServer) behaves.
///
/// The defaults are a session of 10 s, a margin of a quarter of it, 15 s an operation, and up to 30 retries
/// 20 ms to 1 s apart, whose delays are the same in every run.
#[derive(Clone, Debug)]
pub struct MemOptions {
    pub(crate) session_timeout: Duration,
    pub(crate) margin: Option<Duration>,
    pub(crate) kit: Options,
}

impl Default for MemOptions {
    fn default() -> Self {
        let mut kit = Options::new(["mem"]);
        kit.retry = kit.retry.with_seed(0);
        MemOptions { session_timeout: Duration::from_secs(10), margin: None, kit }
    }
}

impl MemOptions {
    /// Sets after how much silence the server ends the session; at least 1 ms, at most a year.
    #[must_use]
    pub fn with_session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout.clamp(Duration::from_millis(1), LONGEST);
        self
    }

    /// Sets how long before the server's end of the session the client counts it as lost. Defaults to a quarter of the
    /// session timeout, and is at most half of it.
    #[must_use]
    pub fn with_margin(mut self, margin: Duration) -> Self {
        self.margin = Some(margin);
        self
    }

    /// Sets the time that one operation may take with all its retries, waiting for a session included; at
    /// most a year.
    #[must_use]
    pub fn with_operation_timeout(mut self, timeout: Duration) -> Self {
        self.kit.operation_timeout = timeout.min(LONGEST);
        self
    }

    /// Sets how one operation tries its request again when no answer came.
    #[must_use]
    pub fn with_retry(mut self, retry: RetryPolicy) -> Self {
        self.kit.retry = retry;
        self
    }

    /// How long after its sending an answered request of the session task keeps the session certain.
    pub(crate) fn certain(&self) -> Duration {
        let margin = self.margin.unwrap_or(self.session_timeout / 4).min(self.session_timeout / 2);
        self.session_timeout - margin
    }

    /// The time between heartbeats, and the silence after which a connection is given up.
    pub(crate) fn interval(&self) -> Duration {
        self.session_timeout / 3
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
        assert!(backend.children(&LockPath::new("/a").unwrap()).await.unwrap().is_empty());
        assert!(backend.session_events().current().is_live());
    }
}
