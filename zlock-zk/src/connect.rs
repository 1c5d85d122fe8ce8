//! Establishing a new session.

use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use zlock_core::probe::Probe;
use zlock_core::{Error, ErrorKind, Result};
use zookeeper_client as zk;
use zookeeper_client::{Client, Connector};

use crate::config::ZkOptions;
use crate::error::classify;
use crate::heartbeat::ping;
use crate::home::at_home;
use crate::session::Shared;

/// How often a single host is passed to the client library, which tries its list in rounds, in random order. Its pause after
/// each round begins with 0.1 s and doubles without a limit. A round of this length takes some seconds, with pauses of less
/// than a second between attempts, so a server is found soon after it is back. Several hosts are passed once each, because
/// two attempts in a row at the same silent host would waste time.
const TRIES: usize = 12;

/// The pause between two lookups of the servers in DNS.
const LOOK_UP_AGAIN: Duration = Duration::from_secs(1);

/// A new session that has answered its first request.
pub(crate) struct Established {
    pub(crate) client: Client,
    /// The leader began the session at this instant or later.
    pub(crate) begun: Instant,
    /// When the first request was sent.
    pub(crate) sent: Instant,
}

/// Establishes the first session, within the connect timeout. Fails early if waiting is pointless.
pub(crate) async fn connect(shared: &Arc<Shared>) -> Result<Established> {
    let until = Instant::now() + shared.options.kit.connect_timeout;
    if shared.options.has_files() {
        let options = shared.options.clone();
        shared.options.kit.check_files(until, move || options.check_contents()).await?;
    }
    let servers = loop {
        match timeout_at(until, servers(&shared.options)).await {
            Ok(Ok(servers)) => break servers,
            // A name server may be reachable a little later, like any other server.
            Ok(Err(error)) if Instant::now() + LOOK_UP_AGAIN >= until => return Err(error),
            Ok(Err(_)) => sleep(LOOK_UP_AGAIN).await,
            Err(_) => {
                let error = shared.options.kit.connect_error(ErrorKind::Unavailable);
                return Err(error.with_message("no name server answers"));
            }
        }
    };
    let probe = shared.options.probe(servers.iter().flatten());
    establish(shared, &servers, until, &probe, probe.hopeless()).await
}

/// Establishes a session in the background, within the connect timeout. The cause of a failure may be corrected, so it does
/// not fail earlier, but calls `hopeless` as soon as waiting seems pointless.
pub(crate) async fn reconnect(shared: &Arc<Shared>, hopeless: impl Fn(Error)) -> Result<Established> {
    let until = Instant::now() + shared.options.kit.connect_timeout;
    let servers = servers(&shared.options).await?;
    let probe = shared.options.probe(servers.iter().flatten());
    let watch = async {
        probe.hopeless().await;
        let error = shared.options.kit.connect_error(ErrorKind::Unavailable);
        hopeless(error.with_message(probe.causes()));
        match probe.watch().await {}
    };
    establish(shared, &servers, until, &probe, watch).await
}

/// For the command `zlock`, which asks servers for what a lock does not need.
impl ZkOptions {
    /// Connects a client of the client library with these options, in a session of its own, below the chroot. Fails after the
    /// connect timeout.
    ///
    /// # Errors
    /// Those of [`ZkBackend::connect`](crate::ZkBackend::connect).
    #[doc(hidden)]
    pub async fn connect_client(&self) -> Result<Client> {
        let unavailable = |why: String| self.kit.connect_error(ErrorKind::Unavailable).with_message(why);
        let connect = async {
            let groups = servers(self).await?;
            let mut failure = unavailable("no server answers".into());
            for group in &groups {
                let connector = connector(self).await.map_err(unavailable)?;
                let dialing = dial(connector, self, group);
                match timeout(turn(self.kit.connect_timeout, groups.len()), dialing).await {
                    Ok(Ok(client)) => {
                        let Some(chroot) = &self.chroot else { return Ok(client) };
                        return client.chroot(chroot.as_str()).map_err(|_| unavailable("bad chroot".into()));
                    }
                    Ok(Err(error)) => {
                        failure = self.kit.connect_error(classify(&error).kind).with_source(error);
                    }
                    Err(_) => {}
                }
            }
            Err(failure)
        };
        let silent = |_| Err(unavailable("no server answers".into()));
        timeout(self.kit.connect_timeout, connect).await.unwrap_or_else(silent)
    }

    /// Makes the connect timeout this short, unless it is shorter.
    #[doc(hidden)]
    #[must_use]
    pub fn with_connect_timeout_within(mut self, limit: Duration) -> Self {
        self.kit.connect_timeout = self.kit.connect_timeout.min(limit);
        self
    }

    /// Returns the servers of now, each with its port.
    ///
    /// # Errors
    /// The servers are not found in DNS.
    #[doc(hidden)]
    pub async fn server_addresses(&self) -> Result<Vec<String>> {
        Ok(servers(self).await?.concat())
    }

    /// Returns whether connections are made by TLS.
    #[doc(hidden)]
    #[must_use]
    pub fn is_secured(&self) -> bool {
        self.uses_tls()
    }
}

async fn servers(options: &ZkOptions) -> Result<Vec<Vec<String>>> {
    let unknown = |why| options.kit.connect_error(ErrorKind::Unavailable).with_message(why);
    options.servers().await.map_err(unknown)
}

/// Establishes a session, unless that turns out to be hopeless. The groups of servers take turns.
async fn establish(
    shared: &Arc<Shared>,
    servers: &[Vec<String>],
    until: Instant,
    probe: &Probe,
    hopeless: impl Future<Output = ()>,
) -> Result<Established> {
    let options = &shared.options;
    let failed = |kind| options.kit.connect_error(kind);
    let refused = |error: zk::Error| failed(classify(&error).kind).with_source(error);
    let attempt = async {
        // The library itself gives up after a session timeout.
        for group in servers.iter().cycle() {
            let connector =
                connector(options).await.map_err(|why| failed(ErrorKind::Unavailable).with_message(why))?;
            let dialed = Instant::now();
            let dialing = at_home(shared, dial(connector, options, group));
            match timeout(turn(options.kit.connect_timeout, servers.len()), dialing).await {
                Err(_) => {}
                Ok(Err(error)) if classify(&error).retryable => {}
                Ok(Err(error)) => return Err(refused(error)),
                Ok(Ok(client)) => {
                    let sent = Instant::now();
                    match ping(&client).await {
                        Ok(()) => {
                            let begun = begun(client.session_timeout(), dialed, sent);
                            return Ok(Established { client, begun, sent });
                        }
                        Err(error) if classify(&error).retryable => {}
                        Err(error) => return Err(refused(error)),
                    }
                }
            }
            sleep(Duration::from_millis(100)).await;
        }
        pending().await
    };
    tokio::select! {
        biased;
        established = attempt => established,
        () = hopeless => Err(failed(ErrorKind::Unavailable).with_message(probe.causes())),
        () = sleep_until(until) => {
            Err(failed(ErrorKind::Unavailable).with_message(probe.no_session_within(options.kit.connect_timeout)))
        }
    }
}

/// How long one group of servers is tried before the next one.
fn turn(connect_timeout: Duration, groups: usize) -> Duration {
    connect_timeout / u32::try_from(groups).unwrap_or(u32::MAX).max(1)
}

/// Returns the earliest instant at which the leader can have begun or resumed a session whose connection did not exist at
/// `before`, and exists at `now`.
///
/// A connection may take long if some hosts do not answer, but the leader only takes part in its last phase. That phase, up
/// to our notice of it, is assumed to take less than a fifth of the session timeout.
pub(crate) fn begun(session_timeout: Duration, before: Instant, now: Instant) -> Instant {
    now.checked_sub(session_timeout / 5).map_or(before, |earliest| earliest.max(before))
}

/// How long to wait for a silent connection, or for an attempt at one. The library's own limit is two fifths of the session
/// timeout. With that, one unreachable server would cost a session that another server could have kept.
fn patience(session_timeout: Duration) -> Duration {
    (session_timeout / 5).max(Duration::from_millis(500)).min(session_timeout * 2 / 5)
}

async fn dial(connector: Connector, options: &ZkOptions, hosts: &[String]) -> Result<Client, zk::Error> {
    let hosts = match hosts {
        [host] => [&**host; TRIES].join(","),
        hosts => hosts.join(","),
    };
    #[cfg(not(feature = "tls"))]
    let _ = options;
    #[cfg(feature = "tls")]
    if options.uses_tls() {
        return connector.secure_connect(&hosts).await;
    }
    connector.connect(&hosts).await
}

/// Returns the options of a new session, with the current contents of the files. The error names the file that cannot be
/// used.
async fn connector(options: &ZkOptions) -> Result<Connector, String> {
    if !options.has_files() {
        return read(options);
    }
    let of = options.clone();
    options.kit.files.read(move || read(&of)).await
}

fn read(options: &ZkOptions) -> Result<Connector, String> {
    let mut connector = Client::connector()
        .with_session_timeout(options.session_timeout)
        .with_connection_timeout(patience(options.session_timeout));
    for (scheme, credentials) in &options.auth {
        connector = connector.with_auth(scheme, &credentials.read()?);
    }
    #[cfg(feature = "sasl")]
    if let Some((user, password)) = &options.sasl {
        let sasl = zk::SaslOptions::digest_md5(user.clone(), password.read_secret()?);
        connector = connector.with_sasl(sasl);
    }
    #[cfg(feature = "tls")]
    if let Some(tls) = &options.tls {
        crate::tls::choose_provider();
        connector = connector.with_tls(tls.options()?);
    }
    Ok(connector)
}
