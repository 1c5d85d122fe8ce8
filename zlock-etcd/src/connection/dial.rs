//! Making a connection, with the current contents of the files.

use std::time::Duration;

use etcd_client::{Client, ConnectOptions};
use zlock_core::kit::Failure as _;
use zlock_core::{ErrorKind, Result as CoreResult};

use crate::config::EtcdOptions;
use crate::error::{Failure, is_refused, is_without_auth};

/// Longer than the servers' minimum time between two pings (5 s), because they close a connection that sends more. Only
/// needed for connections without a request in flight: a request has its own limit.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Creates a client. Nothing is sent yet, unless there is a user to authenticate.
pub(crate) async fn dial(options: EtcdOptions, server: String) -> Result<Client, Failure> {
    let settings = if options.has_files() {
        let files = options.kit.files.clone();
        files.read(move || Settings::read(&options)).await
    } else {
        Settings::read(&options)
    };
    let Settings { connect, user, scheme } = settings.map_err(Failure::NoWay)?;
    let url = format!("{scheme}://{server}");
    if let Some((name, password)) = user {
        let user = connect.clone().with_user(name, password).with_auto_token_refresh(true);
        match Client::connect([&url], Some(user)).await {
            // Like the Go client, so that the same settings work with authentication disabled.
            Err(error) if is_without_auth(&error) => {}
            Err(error) if is_refused(&error) => return Err(Failure::WrongCredentials(error)),
            connected => return connected.map_err(Failure::Etcd),
        }
    }
    Client::connect([&url], Some(connect)).await.map_err(Failure::Etcd)
}

/// For programs that also send requests of their own.
impl EtcdOptions {
    /// Connects a client of the crate `etcd-client` to one server with these options. Nothing is sent yet, unless there is a
    /// user to authenticate. Use it for requests that locks do not need, such as transactions that
    /// [check the lock's key](Self::node_key).
    ///
    /// `server` is one of the [addresses](Self::server_addresses). The [prefix](Self::prefix) is not added to keys.
    ///
    /// # Errors
    /// Those of [`EtcdBackend::connect`](crate::EtcdBackend::connect).
    ///
    /// # Cancel safety
    /// Safe: if the future is dropped, the connection is closed.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time and I/O enabled.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn f(options: zlock::etcd::EtcdOptions) -> Result<(), Box<dyn std::error::Error>> {
    /// for server in options.server_addresses().await? {
    ///     let mut etcd = options.connect_client(&server).await?;
    ///     println!("{server}: {}", etcd.status().await?.version());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect_client(&self, server: &str) -> CoreResult<Client> {
        let failed = |failure: Failure| {
            let error = self.kit.connect_error(failure.classify().kind);
            failure.explain(error)
        };
        dial(self.clone(), server.to_owned()).await.map_err(failed)
    }

    /// Returns the current servers, each `host:port`, the preferred ones first. Looks them up in DNS if a domain names them.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the servers cannot be found in DNS.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time and I/O enabled, if the servers are looked up.
    pub async fn server_addresses(&self) -> CoreResult<Vec<String>> {
        let unavailable = |why| self.kit.connect_error(ErrorKind::Unavailable).with_message(why);
        self.servers().await.map_err(unavailable)
    }
}

/// The settings of a connection: options, and the current contents of the files.
struct Settings {
    connect: ConnectOptions,
    user: Option<(String, String)>,
    scheme: &'static str,
}

impl Settings {
    /// Reads the files. The error names the file that cannot be used.
    fn read(options: &EtcdOptions) -> Result<Self, String> {
        let connect = ConnectOptions::new()
            .with_connect_timeout(options.kit.answer_time())
            .with_keep_alive(PING_INTERVAL, PING_TIMEOUT)
            .with_keep_alive_while_idle(false)
            .with_require_leader(true);
        let user = match &options.user {
            Some((name, password)) => Some((name.clone(), password.read_secret()?)),
            None => None,
        };
        let (connect, scheme) = secure(connect, options)?;
        Ok(Settings { connect, user, scheme })
    }
}

#[cfg(not(feature = "tls"))]
#[allow(clippy::unnecessary_wraps, reason = "the same signature with and without the feature")]
fn secure(connect: ConnectOptions, _: &EtcdOptions) -> Result<(ConnectOptions, &'static str), String> {
    Ok((connect, "http"))
}

#[cfg(feature = "tls")]
fn secure(connect: ConnectOptions, options: &EtcdOptions) -> Result<(ConnectOptions, &'static str), String> {
    match &options.kit.tls {
        None => Ok((connect, "http")),
        Some(tls) => Ok((connect.with_tls(crate::config::tls::options(tls)?), "https")),
    }
}
