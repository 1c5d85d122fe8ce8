//! Establishing a new session.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use zookeeper_client as zk;
use zookeeper_client::{Client, Connector};

use crate::config::ZkOptions;
use crate::session::Shared;
use crate::session::heartbeat::{check, interval};
use crate::session::home::at_home;
use crate::session::touches::Touches;

/// How often a single host is passed to the client library, for the resumptions of the session. The library tries its list in
/// rounds. Its pause after each round begins with 0.1 s and doubles without a limit. A round of this length takes some
/// seconds, with pauses of less than a second between attempts, so a server is found soon after it is back. Several hosts are
/// passed once each, because two attempts in a row at the same silent host would waste time.
const COPIES: usize = 12;

/// How long a lookup may take before the servers of the last one are used.
const LOOK_UP_TIME: Duration = Duration::from_secs(2);

/// A new session that has answered its first request.
pub(crate) struct Established {
    pub(crate) client: Client,
    pub(crate) touches: Touches,
    pub(crate) deadline: Instant,
    /// The time at which its last request was sent.
    pub(crate) sent: Instant,
}

impl Shared {
    /// Returns the current servers in groups, the preferred group first. Without an answer of a name server, these are the
    /// servers of the last lookup.
    pub(crate) async fn servers(&self) -> Result<Arc<[Vec<String>]>, String> {
        let known = self.known_servers();
        let found = match known.is_empty() {
            true => self.options.servers().await?,
            false => match timeout(LOOK_UP_TIME, self.options.servers()).await {
                Ok(Ok(found)) => found,
                unknown => {
                    tracing::debug!(?unknown, ?known, "the servers are not found in DNS");
                    return Ok(known);
                }
            },
        };
        let found: Arc<[_]> = found.into();
        *self.servers.lock() = found.clone();
        Ok(found)
    }

    /// Returns the servers that were found last.
    pub(crate) fn known_servers(&self) -> Arc<[Vec<String>]> {
        self.servers.lock().clone()
    }
}

/// Makes one attempt at a session with each of these servers, until there is one.
///
/// # Cancel safety
/// The attempt goes on, until the library gives it up. If it succeeds nevertheless, the session is closed at the server at
/// once, and not left for its timeout.
pub(crate) async fn see_through(
    shared: &Arc<Shared>,
    patience: Duration,
    connector: Connector,
    group: Vec<String>,
) -> Result<Established, zk::Error> {
    let at = shared.clone();
    let trying = shared.runtime.spawn(async move {
        let dialed = Instant::now();
        let client = at_home(&at, dial(&at.options, patience, connector, &group)).await?;
        let half_tick = at.options.half_tick(client.session_timeout());
        let mut touches = Touches::new(client.session_timeout(), half_tick, dialed);
        let (sent, deadline) = settle(&client, &mut touches).await?;
        Ok(Established { client, touches, deadline, sent })
    });
    match trying.await {
        Ok(tried) => tried,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime ends, and the backend with it.
            Err(_) => Err(zk::Error::ClientClosed),
        },
    }
}

/// Waits until a new session has answered, and has a deadline that is not about to pass. Returns when the last request was sent,
/// and the deadline.
///
/// The leader may have begun the session when the connect began, or at any time since: the process may have stood still. If
/// that was long ago, only requests in the session show that it lasts. So the first one already passes through the leader:
/// the sooner it is followed by others, the sooner the deadline moves on.
async fn settle(client: &Client, touches: &mut Touches) -> Result<(Instant, Instant), zk::Error> {
    let timeout = client.session_timeout();
    let mut sent = Instant::now();
    client.sync("/").await?;
    loop {
        let deadline = touches.deadline(sent);
        touches.answered(sent);
        // More requests to a server that answers late would not help.
        if deadline >= Instant::now() + timeout / 4 || sent.elapsed() >= timeout / 8 {
            return Ok((sent, deadline));
        }
        sleep(interval(timeout)).await;
        sent = Instant::now();
        check(client, "/").await?;
        touches.wrote(sent);
    }
}

/// How long one group of servers is tried before the next one.
pub(crate) fn turn(connect_timeout: Duration, groups: usize) -> Duration {
    connect_timeout / u32::try_from(groups).unwrap_or(u32::MAX).max(1)
}

/// How long to wait for a silent connection, and for the first attempt at a session. The library's own limit is two fifths of
/// the session timeout. With that, one unreachable server would cost a session that another server could have kept.
pub(crate) fn patience(session_timeout: Duration) -> Duration {
    (session_timeout / 4).max(Duration::from_millis(500)).min(session_timeout * 2 / 5)
}

/// The time of an attempt at a session that may take `time`. After a silent one, it is the longest that the library accepts, because a
/// server that answers late makes a session for each attempt.
///
/// The library has one limit for this and for silence later. So a session that was made late is also interrupted later: with
/// the shorter limit, a server that stays slow would interrupt it again and again.
pub(crate) fn time(options: &ZkOptions, time: Duration) -> Duration {
    let first = patience(options.kit.session_timeout);
    if time > first { longest(options.kit.session_timeout) } else { first }
}

/// The longest limit that the library accepts.
pub(crate) fn longest(session_timeout: Duration) -> Duration {
    session_timeout * 3 / 5
}

/// Tries each of these hosts once, in random order.
async fn dial(
    options: &ZkOptions,
    patience: Duration,
    connector: Connector,
    hosts: &[String],
) -> Result<Client, zk::Error> {
    let connector = connector.with_fail_eagerly();
    let [host] = hosts else { return connect_to(options, connector, &hosts.join(",")).await };
    // The library must not turn to the next copy of a silent host, which would make another session. The short limit has to do
    // for the two answers that it waits for, and ends well before its own, also on a busy machine; with the long one, it waits
    // that long for each.
    let limit = if patience < longest(options.kit.session_timeout) { patience * 4 / 5 } else { patience * 2 };
    let copies = [&**host; COPIES].join(",");
    timeout(limit, connect_to(options, connector, &copies)).await.unwrap_or(Err(zk::Error::Timeout))
}

async fn connect_to(options: &ZkOptions, connector: Connector, hosts: &str) -> Result<Client, zk::Error> {
    #[cfg(not(feature = "tls"))]
    let _ = options;
    #[cfg(feature = "tls")]
    if options.uses_tls() {
        return connector.secure_connect(hosts).await;
    }
    connector.connect(hosts).await
}

/// Returns the options of a new session, with the current contents of the files. The error names the file that cannot be
/// used.
pub(crate) async fn connector(options: &ZkOptions, patience: Duration) -> Result<Connector, String> {
    if !options.has_files() {
        return read(options, patience);
    }
    let of = options.clone();
    options.kit.files.read(move || read(&of, patience)).await
}

fn read(options: &ZkOptions, patience: Duration) -> Result<Connector, String> {
    let mut connector = Client::connector()
        .with_session_timeout(options.kit.session_timeout)
        .with_connection_timeout(patience);
    for (scheme, credentials) in &options.auth {
        connector = connector.with_auth(scheme, &credentials.read()?);
    }
    #[cfg(feature = "sasl")]
    if let Some((user, password)) = &options.sasl {
        let sasl = zk::SaslOptions::digest_md5(user.clone(), password.read_secret()?);
        connector = connector.with_sasl(sasl);
    }
    #[cfg(feature = "tls")]
    if let Some(tls) = &options.kit.tls {
        crate::config::tls::choose_provider();
        connector = connector.with_tls(crate::config::tls::options(tls)?);
    }
    Ok(connector)
}
