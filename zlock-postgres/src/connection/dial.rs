//! Making a connection.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};
use tokio_postgres::{Client, Config, NoTls};
use zlock_core::kit::Failure as _;
use zlock_core::{Error, Result};

use crate::config::PostgresOptions;
use crate::connection::link::{Link, OnNotification};
use crate::error::Failure;

/// Connects with the first host that accepts writes.
pub(crate) async fn dial(
    options: &PostgresOptions,
    runtime: &Handle,
    limit: Duration,
    on_notification: Option<OnNotification>,
) -> Result<Link, Failure> {
    let mut attempts = Attempts::new(options, limit).await?;
    while let Some((config, share)) = attempts.next() {
        let on_notification = on_notification.clone();
        let dialled = async {
            let pooled = options.pooled;
            #[cfg(feature = "tls")]
            if let Some(connector) = options.connector().await.map_err(Failure::NoWay)? {
                let (client, connection) = config.connect(connector).await.map_err(Failure::Connect)?;
                return Ok(Link::start(client, connection, pooled, runtime, on_notification));
            }
            let (client, connection) = config.connect(NoTls).await.map_err(Failure::Connect)?;
            Ok(Link::start(client, connection, pooled, runtime, on_notification))
        };
        match timeout(share, dialled).await.unwrap_or(Err(Failure::Silent)) {
            Ok(link) => return Ok(link),
            Err(failure) => attempts.failure = failure,
        }
    }
    Err(attempts.failure)
}

/// The attempts at a connection with one server after another. Each gets its share of the time that is left, so that one that does
/// not answer leaves some to the others.
struct Attempts {
    left: std::vec::IntoIter<Config>,
    until: Instant,
    /// The failure of the last attempt.
    failure: Failure,
}

impl Attempts {
    async fn new(options: &PostgresOptions, limit: Duration) -> Result<Self, Failure> {
        let until = Instant::now() + limit;
        let configs = timeout(limit, options.writer_configs()).await.unwrap_or(Ok(Vec::new()));
        let configs = configs.map_err(Failure::NoWay)?;
        Ok(Attempts { left: configs.into_iter(), until, failure: Failure::Silent })
    }

    fn next(&mut self) -> Option<(Config, Duration)> {
        let servers = u32::try_from(self.left.len()).unwrap_or(u32::MAX).max(1);
        let share = self.until.saturating_duration_since(Instant::now()) / servers;
        self.left.next().map(|config| (config, share))
    }
}

impl PostgresOptions {
    /// Connects the client library to the server that accepts writes, with the same settings: for statements of your own, such
    /// as a transaction with a [`Fence`](crate::Fence). The connection runs on the current runtime, and ends with the client.
    ///
    /// # Errors
    /// - `NotAuthorized` if the server refuses the user or the password.
    /// - `Unavailable` if no server responds within the connect timeout, or a file cannot be read.
    /// - `InvalidArgument` for invalid options, or if there is no such database.
    ///
    /// # Cancel safety
    /// Safe: the connection is closed.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time and I/O enabled.
    pub async fn connect_client(&self) -> Result<Client> {
        self.validate()?;
        let connected = async {
            let mut attempts = Attempts::new(self, self.kit.connect_timeout).await?;
            while let Some((config, share)) = attempts.next() {
                match self.connect_with(config, share).await {
                    Ok(client) => return Ok(client),
                    Err(failure) => attempts.failure = failure,
                }
            }
            Err(attempts.failure)
        };
        connected.await.map_err(|failure| self.explain(failure))
    }

    /// Like [`connect_client`](Self::connect_client), with one of [`servers`](Self::servers), whatever its role.
    ///
    /// # Errors
    /// Those of [`connect_client`](Self::connect_client).
    ///
    /// # Cancel safety
    /// Safe: the connection is closed.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time and I/O enabled.
    pub async fn connect_client_to(&self, server: usize) -> Result<Client> {
        self.validate()?;
        let limit = self.kit.connect_timeout;
        let connected = async {
            let config = self.server_config(server).await.map_err(Failure::NoWay)?;
            self.connect_with(config, limit).await
        };
        timeout(limit, connected)
            .await
            .unwrap_or(Err(Failure::Silent))
            .map_err(|failure| self.explain(failure))
    }

    async fn connect_with(&self, config: Config, limit: Duration) -> Result<Client, Failure> {
        let dialled = async {
            #[cfg(feature = "tls")]
            if let Some(connector) = self.connector().await.map_err(Failure::NoWay)? {
                let (client, connection) = config.connect(connector).await.map_err(Failure::Connect)?;
                return Ok(run(client, connection));
            }
            let (client, connection) = config.connect(NoTls).await.map_err(Failure::Connect)?;
            Ok(run(client, connection))
        };
        timeout(limit, dialled).await.unwrap_or(Err(Failure::Silent))
    }

    fn explain(&self, failure: Failure) -> Error {
        let error = self.kit.connect_error(failure.classify().kind);
        failure.explain(error)
    }
}

/// Runs a connection until its client is dropped.
fn run<C>(client: Client, connection: C) -> Client
where
    C: Future<Output = Result<(), tokio_postgres::Error>> + Send + 'static,
{
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection of the user has ended");
        }
    });
    client
}
