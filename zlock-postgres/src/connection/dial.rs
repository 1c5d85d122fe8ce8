//! Making a connection.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};
use tokio_postgres::config::Host;
use tokio_postgres::{Client, Config, NoTls};
use zlock_core::kit::{Failure as _, authority};
use zlock_core::{Error, Result};

use crate::config::PostgresOptions;
use crate::connection::link::{Link, OnNotification};
use crate::error::Failure;

/// Connects with the first host that accepts writes. Also returns its name. One to be avoided is tried last.
pub(crate) async fn dial(
    options: &PostgresOptions,
    runtime: &Handle,
    limit: Duration,
    on_notification: Option<OnNotification>,
    avoided: Option<&str>,
) -> Result<(Link, String), Failure> {
    let connect = |config: Config| {
        let on_notification = on_notification.clone();
        async move {
            let (pooled, server) = (options.pooled, name(&config));
            #[cfg(feature = "tls")]
            if let Some(connector) = options.connector().await.map_err(Failure::NoWay)? {
                let (client, connection) = config.connect(connector).await.map_err(Failure::Connect)?;
                return Ok((Link::start(client, connection, pooled, runtime, on_notification), server));
            }
            let (client, connection) = config.connect(NoTls).await.map_err(Failure::Connect)?;
            Ok((Link::start(client, connection, pooled, runtime, on_notification), server))
        }
    };
    // The engine waits no longer than the limit, and does not know which server did not answer.
    first_of_all(options, limit * 9 / 10, avoided, connect).await
}

/// Tries one server after another. Each gets its share of the time that is left, so that one that does not answer leaves some to the
/// others.
async fn first_of_all<T, F>(
    options: &PostgresOptions,
    limit: Duration,
    avoided: Option<&str>,
    connect: impl Fn(Config) -> F,
) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let until = Instant::now() + limit;
    let configs = timeout(limit, options.writer_configs())
        .await
        .unwrap_or(Err("a file of the options cannot be read in time".into()));
    let mut configs = configs.map_err(Failure::NoWay)?;
    configs.sort_by_key(|config| avoided == Some(&*name(config)));
    let mut configs = configs.into_iter();
    let mut failures = Vec::new();
    while let Some(config) = configs.next() {
        let servers = u32::try_from(configs.len()).unwrap_or(u32::MAX).saturating_add(1);
        let share = until.saturating_duration_since(Instant::now()) / servers;
        let server = name(&config);
        match timeout(share, connect(config)).await.unwrap_or(Err(Failure::Silent)) {
            Ok(connected) => return Ok(connected),
            Err(failure) => failures.push((server, failure)),
        }
    }
    Err(Failure::of_each(failures))
}

/// Returns the name of the server.
fn name(config: &Config) -> String {
    let (host, port) = (config.get_hosts().first(), config.get_ports().first().copied().unwrap_or(5432));
    match host {
        Some(Host::Tcp(host)) => authority(&format!("{host}:{port}"), port),
        #[cfg(unix)]
        Some(Host::Unix(folder)) => folder.display().to_string(),
        None => String::new(),
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
        let (limit, connect) = (self.kit.connect_timeout, |config| self.connect_with(config));
        first_of_all(self, limit, None, connect).await.map_err(|failure| self.explain(failure))
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
            self.connect_with(config).await
        };
        timeout(limit, connected)
            .await
            .unwrap_or(Err(Failure::Silent))
            .map_err(|failure| self.explain(failure))
    }

    async fn connect_with(&self, config: Config) -> Result<Client, Failure> {
        #[cfg(feature = "tls")]
        if let Some(connector) = self.connector().await.map_err(Failure::NoWay)? {
            let (client, connection) = config.connect(connector).await.map_err(Failure::Connect)?;
            return Ok(run(client, connection));
        }
        let (client, connection) = config.connect(NoTls).await.map_err(Failure::Connect)?;
        Ok(run(client, connection))
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
