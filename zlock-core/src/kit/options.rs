//! The connection options that every server has.

use std::time::Duration;

use crate::excerpt::Excerpt;
use crate::retry::RetryPolicy;

/// The options that backends of all remote stores have, as a part of their own.
#[derive(Clone, Debug)]
pub struct Options {
    /// The servers, each `host:port` or `host`.
    pub hosts: Vec<String>,
    /// The time limit of the connect, and of each later attempt at a session. Defaults to 15 seconds.
    pub connect_timeout: Duration,
    /// The time limit of one operation, including its retries and its wait for a session. Defaults to 15 seconds.
    pub operation_timeout: Duration,
    /// The retries of one operation. By default up to 30, after random times that grow from 20 ms to 1 s.
    pub retry: RetryPolicy,
}

impl Options {
    /// Creates options for these servers, with defaults for everything else.
    #[must_use]
    pub fn new(hosts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Options {
            hosts: hosts.into_iter().map(Into::into).collect(),
            connect_timeout: Duration::from_secs(15),
            operation_timeout: Duration::from_secs(15),
            retry: RetryPolicy::bounded_exponential(Duration::from_millis(20), Duration::from_secs(1), 30),
        }
    }

    /// Returns the servers as errors show them.
    #[must_use]
    pub fn hosts_text(&self) -> String {
        Excerpt::of(&self.hosts.join(",")).to_string()
    }
}
