//! Making a connection, with the current contents of the files.

use std::time::Duration;

use etcd_client::{Client, ConnectOptions};

use crate::config::EtcdOptions;
use crate::error::{Failure, is_without_auth};

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
            connected => return connected.map_err(Failure::Etcd),
        }
    }
    Client::connect([&url], Some(connect)).await.map_err(Failure::Etcd)
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
            .with_connect_timeout(options.answer_time())
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
    match &options.tls {
        None => Ok((connect, "http")),
        Some(tls) => Ok((connect.with_tls(tls.options()?), "https")),
    }
}
