//! Getting a new session.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use zlock_core::probe::Probe;
use zlock_core::{ErrorKind, Result};
use zookeeper_client as zk;
use zookeeper_client::{Client, Connector};

use crate::config::ZkOptions;
use crate::error::classify;
use crate::heartbeat::ping;
use crate::home::at_home;
use crate::session::Shared;

/// How often a single host is given to the client library. It tries its list in rounds, in random order, and
/// doubles its pause after each round without bound, beginning with 0.1 s. A round of this length takes some seconds, with
/// pauses of less than a second between its tries. So a server that was away is found soon after it is back. Several hosts are given once each: the same one twice in a row would be time lost
/// when it is silent.
const TRIES: usize = 12;

/// A new session that has answered its first request.
pub(crate) struct Established {
    pub(crate) client: Client,
    /// The leader began the session at this instant or later.
    pub(crate) begun: Instant,
    /// When the first request was sent.
    pub(crate) sent: Instant,
}

/// Gets the first session, within the connect timeout; gives up early where no wait helps.
pub(crate) async fn connect(shared: &Arc<Shared>) -> Result<Established> {
    let probe = shared.options.probe();
    establish(shared, &probe, probe.hopeless()).await
}

/// Gets a later session, within the connect timeout. There was a session, so whatever is wrong may be mended.
pub(crate) async fn reconnect(shared: &Arc<Shared>) -> Result<Established> {
    let probe = shared.options.probe();
    establish(shared, &probe, async { match probe.watch().await {} }).await
}

/// Gets a session, unless it turns out to be hopeless.
async fn establish(
    shared: &Arc<Shared>,
    probe: &Probe,
    hopeless: impl Future<Output = ()>,
) -> Result<Established> {
    let options = &shared.options;
    let until = Instant::now() + options.kit.connect_timeout;
    let attempt = async {
        // The library itself gives up after a session timeout.
        loop {
            let dialed = Instant::now();
            match at_home(shared, dial(options)).await {
                Err(error) if classify(&error).retryable => {}
                Err(error) => return Err(error),
                Ok(client) => {
                    let sent = Instant::now();
                    match ping(&client).await {
                        Ok(()) => {
                            let begun = begun(client.session_timeout(), dialed, sent);
                            return Ok(Established { client, begun, sent });
                        }
                        Err(error) if classify(&error).retryable => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let failed = |kind| options.kit.connect_error(kind);
    tokio::select! {
        biased;
        established = attempt => established.map_err(|error| failed(classify(&error).kind).with_source(error)),
        () = hopeless => Err(failed(ErrorKind::Unavailable).with_message(probe.causes())),
        () = sleep_until(until) => {
            Err(failed(ErrorKind::Unavailable).with_message(probe.no_session_within(options.kit.connect_timeout)))
        }
    }
}

/// The earliest instant at which the leader can have begun or resumed a session whose connection was not there
/// `before`, and is there `now`.
///
/// A connection may take long, if some hosts do not answer; the part of it that the leader takes part in is the last one.
/// That it took less than a fifth of the session timeout, from the leader's part to our notice, is taken for granted.
pub(crate) fn begun(session_timeout: Duration, before: Instant, now: Instant) -> Instant {
    now.checked_sub(session_timeout / 5).map_or(before, |earliest| earliest.max(before))
}

/// How long a silent connection, or an attempt at one, is borne with. By itself the library takes two fifths of the
/// session timeout: then one server that cannot be reached costs the session that another could have kept.
fn patience(session_timeout: Duration) -> Duration {
    (session_timeout / 5).max(Duration::from_millis(500)).min(session_timeout * 2 / 5)
}

async fn dial(options: &ZkOptions) -> Result<Client, zk::Error> {
    let hosts = match &options.kit.hosts[..] {
        [host] => [&**host; TRIES].join(","),
        hosts => hosts.join(","),
    };
    let mut connector = Client::connector()
        .with_session_timeout(options.session_timeout)
        .with_connection_timeout(patience(options.session_timeout));
    for (scheme, credentials) in &options.auth {
        connector = connector.with_auth(scheme, credentials);
    }
    secure(connector, options, &hosts).await
}

#[cfg(not(feature = "tls"))]
async fn secure(connector: Connector, options: &ZkOptions, hosts: &str) -> Result<Client, zk::Error> {
    sasl(connector, options).connect(hosts).await
}

#[cfg(feature = "tls")]
async fn secure(connector: Connector, options: &ZkOptions, hosts: &str) -> Result<Client, zk::Error> {
    let connector = sasl(connector, options);
    match &options.tls {
        None => connector.connect(hosts).await,
        Some(tls) => {
            let tls = tls.options().map_err(zk::Error::UnexpectedError)?;
            crate::tls::choose_provider();
            connector.with_tls(tls).secure_connect(hosts).await
        }
    }
}

#[cfg(not(feature = "sasl"))]
fn sasl(connector: Connector, _: &ZkOptions) -> Connector {
    connector
}

#[cfg(feature = "sasl")]
fn sasl(connector: Connector, options: &ZkOptions) -> Connector {
    match &options.sasl {
        None => connector,
        Some((user, password)) => {
            connector.with_sasl(zookeeper_client::SaslOptions::digest_md5(user.clone(), password.clone()))
        }
    }
}
