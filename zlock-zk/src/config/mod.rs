//! The options of the ZooKeeper backend.

mod credentials;
#[cfg(feature = "tls")]
pub(crate) mod tls;

use std::sync::Arc;
use std::time::Duration;

use zlock_core::kit::{self, Tls, check_duration};
use zlock_core::{ConnectUrl, Environment, LockPath, NodeName, Result, TextOrFile};
use zookeeper_client::{Acl, Acls};

use crate::config::credentials::Credentials;

/// ZooKeeper's own client port.
pub(crate) const DEFAULT_PORT: u16 = 2181;

/// The longest time for any option: ZooKeeper's protocol encodes milliseconds in 31 bits.
const MAX_TIME: Duration = Duration::from_millis(i32::MAX as u64);

/// The shortest session timeout that makes sense: two ticks of 50 ms, which is far below any server's.
const MIN_SESSION_TIMEOUT: Duration = Duration::from_millis(100);

/// The options of a [`ZkBackend`](crate::ZkBackend): the ensemble's hosts, timeouts and credentials.
///
/// [`ZkBackend::connect`](crate::ZkBackend::connect) checks them before it sends anything.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use zlock::zk::{Acl, AuthId, Permission, ZkOptions};
///
/// # fn main() -> zlock::Result<()> {
/// let by_url = ZkOptions::from_url("zk://zk1:2181,zk2:2181,zk3:2181/production?session_timeout=10s")?;
/// let secured = ZkOptions::new(["zk1:2181", "zk2:2181"])
///     .with_session_timeout(Duration::from_secs(10))
///     .with_auth("digest", "orders:secret")
///     .with_acls([Acl::new(Permission::ALL, AuthId::authed())]);
/// # let _ = (by_url, secured);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ZkOptions {
    pub(crate) kit: kit::Options,
    pub(crate) acls: Arc<[Acl]>,
    pub(crate) auth: Vec<(String, Credentials)>,
    pub(crate) server_tick: Option<Duration>,
    #[cfg(feature = "sasl")]
    pub(crate) sasl: Option<(String, TextOrFile)>,
}

impl ZkOptions {
    kit::builders! {
        /// Creates options for an ensemble of these hosts, each `host:port` or `host` (port 2181), with an IPv6 address in
        /// brackets. Everything else has the default of its `with_` method.
        new;
        /// Creates options for the ensemble that a domain names by SRV records of `_zookeeper._tcp`. Everything else has the
        /// default of its `with_` method. Needs the feature `srv`.
        ///
        /// DNS is queried for each new session. While no name server answers, the servers of the last answer are used. A
        /// session uses the servers of one priority, which the client library tries in random order. If none of them answers,
        /// those of the next priority are tried.
        srv;
        with_nameservers;
        /// Sets how long [`ZkBackend::connect`](crate::ZkBackend::connect), and each later attempt at a new session, waits for a
        /// server. Defaults to 15 seconds.
        with_connect_timeout;
        /// With a limit much shorter than the session timeout, operations fail during outages that the session survives.
        ///
        /// If a path has run out of sequence numbers, a create waits until the path is empty. Each response of the server
        /// then restarts the limit.
        with_operation_timeout;
        /// Sets how a failed request is retried within the operation timeout. Defaults to 30 retries, with random delays
        /// that increase from 20 milliseconds to 1 second. Waiting for a session or for the connection is not a retry.
        with_retry;
        /// A string is the certificates as PEM; a path is a file that is read for each new session. A session that reconnects
        /// uses the text that was read when the session began, because the client library allows nothing else. So keep both the
        /// old and the new authority in the file for some time before the servers change.
        ///
        /// Uses the process's rustls `CryptoProvider`, or aws-lc if none is installed.
        with_tls;
        /// Sets the client's certificate, with its chain, and its private key, for servers that request them: each as PEM, or as
        /// a file that is read for each new session.
        with_tls_identity;
    }

    fn with_kit(kit: kit::Options) -> Self {
        ZkOptions {
            kit,
            acls: Arc::from(&*Acls::anyone_all()),
            auth: Vec::new(),
            server_tick: None,
            #[cfg(feature = "sasl")]
            sasl: None,
        }
    }

    /// Parses `zk://host:port,host:port/chroot?name=value&name=value`, or `zk+srv://domain/chroot?name=value`, which finds
    /// the servers as [`srv`](Self::srv) does. The parameters are `session_timeout`, `connect_timeout`,
    /// `operation_timeout` and `server_tick`, each with a duration such as `10s` or `500ms`. Credentials are not accepted
    /// in a URL: use [`with_auth`](Self::with_auth).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`](zlock_core::ErrorKind::InvalidUrl), with what is wrong and where.
    pub fn from_url(url: &str) -> Result<Self> {
        Self::from_connect_url(&ConnectUrl::parse(url)?)
    }

    /// Creates the options from a parsed URL.
    ///
    /// # Errors
    /// Those of [`from_url`](Self::from_url).
    pub fn from_connect_url(url: &ConnectUrl) -> Result<Self> {
        let mut options = Self::with_kit(kit::Options::from_url(url, "zk", DEFAULT_PORT)?);
        options.server_tick = url.duration("server_tick")?;
        url.refuse_params_but(&["session_timeout", "connect_timeout", "operation_timeout", "server_tick"])?;
        options.check().map_err(|why| url.refuse(why))?;
        Ok(options)
    }

    /// Adds the user and the TLS files of an environment: digest credentials, or SASL if `ZLOCK_AUTH` says so.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) for an unknown `ZLOCK_AUTH`.
    /// - [`ErrorKind::FeatureDisabled`](zlock_core::ErrorKind::FeatureDisabled) for TLS or SASL without its feature.
    pub fn with_environment(mut self, environment: &Environment) -> Result<Self> {
        if let Some((user, password)) = environment.user() {
            self = match environment.auth() {
                None | Some("digest") => self.with_digest(user, password.clone()),
                #[cfg(feature = "sasl")]
                Some("sasl") => self.with_sasl_digest(user, password.clone()),
                #[cfg(not(feature = "sasl"))]
                Some("sasl") => return Err(Environment::feature_disabled("ZLOCK_AUTH", "zk-sasl")),
                Some(_) => return Err(environment.refuse_auth("zk:// takes digest and sasl")),
            };
        }
        self.kit.read_certificates(environment, "zk", cfg!(feature = "tls"))?;
        Ok(self)
    }

    /// Sets the path that is prepended to every lock path. It is created if it is missing. Defaults to none.
    #[must_use]
    pub fn with_chroot(mut self, chroot: LockPath) -> Self {
        self.kit.prefix = Some(chroot);
        self
    }

    /// Sets how long the server keeps the session of a silent client, and with it the client's locks. Defaults to 10
    /// seconds, and must be at least 100 milliseconds. The server may grant another timeout: by default 2 to 20 of its
    /// ticks, which is 4 s to 40 s with the default tick. A short timeout frees the locks of a dead process sooner, but
    /// a shorter outage costs a live process its locks.
    #[must_use]
    pub fn with_session_timeout(mut self, timeout: Duration) -> Self {
        self.kit.session_timeout = timeout;
        self
    }

    /// Sets the access list of every node that the client creates: the nodes in the queues, their parents and the
    /// chroot. Defaults to all permissions for everybody.
    #[must_use]
    pub fn with_acls(mut self, acls: impl IntoIterator<Item = Acl>) -> Self {
        self.acls = acls.into_iter().collect();
        self
    }

    /// Adds credentials, such as `"digest"` and `"user:password"`. It may be called more than once.
    #[must_use]
    pub fn with_auth(mut self, scheme: impl Into<String>, credentials: impl Into<Vec<u8>>) -> Self {
        self.auth.push((scheme.into(), Credentials::Given(credentials.into())));
        self
    }

    /// Adds credentials of the scheme `digest`. A password in a file is read for each new session.
    #[must_use]
    pub fn with_digest(mut self, user: impl Into<String>, password: impl Into<TextOrFile>) -> Self {
        let credentials = Credentials::User { name: user.into(), password: password.into() };
        self.auth.push(("digest".into(), credentials));
        self
    }

    /// Sets the servers' `tickTime`, which clients cannot query. A session's local deadline precedes the server's by a
    /// margin. It is half a tick, rounded up to full gaps between two heartbeats, plus one more gap, and at least three gaps
    /// while the session owns a node, plus 2 % of the session timeout for clock drift. Defaults to half the session timeout, the longest tick with which a server grants that
    /// timeout. Set it only if all servers have this tick.
    #[must_use]
    pub fn with_server_tick(mut self, tick: Duration) -> Self {
        self.server_tick = Some(tick);
        self
    }

    /// Authenticates with SASL and DIGEST-MD5. A password in a file is read for each new session.
    #[cfg(feature = "sasl")]
    #[must_use]
    pub fn with_sasl_digest(mut self, user: impl Into<String>, password: impl Into<TextOrFile>) -> Self {
        self.sasl = Some((user.into(), password.into()));
        self
    }

    /// Returns the full path of a lock's node at the server, including the chroot. The node exists as long as the lock
    /// is held. Check it in your own transactions, with any version. The server then refuses the writes of a holder
    /// that has not noticed the loss of the lock.
    ///
    /// # Examples
    /// With the `zookeeper-client` crate:
    /// ```no_run
    /// # async fn f(options: zlock::zk::ZkOptions, guard: zlock::Guard, zookeeper: zookeeper_client::Client)
    /// # -> Result<(), zookeeper_client::Error> {
    /// let node = options.node_path(guard.path(), &guard.node());
    /// let mut writes = zookeeper.new_check_writer(&node, None)?;
    /// writes.add_set_data("/app/prices", b"17", None)?;
    /// writes.commit().await?; // an error if the lock is not held: nothing was written
    /// # Ok(())
    /// # }
    /// ```
    /// With version 0 instead of none, a request for revocation would look like a loss, because it writes into the
    /// node.
    #[must_use]
    pub fn node_path(&self, lock: &LockPath, node: &NodeName) -> String {
        format!("{}/{node}", self.server_path(lock))
    }

    /// Returns the path at the server.
    pub(crate) fn server_path(&self, path: &LockPath) -> Arc<str> {
        [self.kit.prefix(), path.as_str()].concat().into()
    }

    /// Returns the current servers in groups, the preferred group first.
    pub(crate) async fn servers(&self) -> Result<Vec<Vec<String>>, String> {
        self.kit.servers("_zookeeper._tcp").await
    }

    /// Returns `true` if a file must be read before a connection is made.
    pub(crate) fn has_files(&self) -> bool {
        self.kit.tls.as_ref().is_some_and(Tls::has_files) || self.has_password_file()
    }

    /// Returns `true` if a password is in a file, which may have changed since the session began.
    pub(crate) fn has_password_file(&self) -> bool {
        #[cfg(feature = "sasl")]
        if self.sasl.as_ref().is_some_and(|(_, password)| password.file().is_some()) {
            return true;
        }
        self.auth.iter().any(|(_, credentials)| credentials.has_file())
    }

    /// Returns `true` if connections use TLS.
    #[must_use]
    pub fn uses_tls(&self) -> bool {
        self.kit.tls.is_some()
    }

    /// How often a server reports to the leader from which sessions it has received requests, for a session of this timeout.
    pub(crate) fn half_tick(&self, session_timeout: Duration) -> Duration {
        let tick = self.server_tick.unwrap_or(session_timeout / 2);
        (tick / 2).min(session_timeout * 12 / 25)
    }

    /// Checks everything that can be checked without I/O.
    pub(crate) fn validate(&self) -> Result<()> {
        self.check().map_err(|why| self.kit.invalid(why))
    }

    fn check(&self) -> Result<(), String> {
        self.kit.check_hosts()?;
        let session_timeout = self.kit.session_timeout;
        if session_timeout < MIN_SESSION_TIMEOUT {
            return Err(format!(
                "the session timeout of {session_timeout:?} is below {MIN_SESSION_TIMEOUT:?}: \
                 servers grant no less than two of their ticks"
            ));
        }
        check_duration("session timeout", session_timeout, MAX_TIME)?;
        self.kit.check_timeouts(MAX_TIME)?;
        if let Some(tick) = self.server_tick {
            check_duration("server tick", tick, MAX_TIME)?;
        }
        if self.acls.is_empty() {
            return Err("the access list is empty: nobody could use the nodes".into());
        }
        if let Some((scheme, _)) = self.auth.iter().find(|(scheme, _)| scheme.is_empty()) {
            return Err(format!("the scheme {scheme:?} of credentials is empty"));
        }
        #[cfg(feature = "sasl")]
        if self.sasl.as_ref().is_some_and(|(user, _)| user.is_empty()) {
            return Err("the SASL user is empty".into());
        }
        // Files are not read here, which may be on the runtime's thread.
        if self.has_files() { Ok(()) } else { self.check_contents() }
    }

    /// Checks credentials and certificates. Reads those that are in files.
    pub(crate) fn check_contents(&self) -> Result<(), String> {
        for (_, credentials) in &self.auth {
            credentials.read()?;
        }
        #[cfg(feature = "sasl")]
        if let Some((_, password)) = &self.sasl {
            password.read_secret()?;
        }
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.kit.tls {
            tls::options(tls)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use zlock_core::ErrorKind;

    use super::*;

    fn refused(options: ZkOptions) -> String {
        let error = options.validate().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.to_string()
    }

    #[test]
    fn a_url_says_it_all() {
        let options = ZkOptions::from_url(
            "zk://h1,[::1]:2182/app/x?session_timeout=4s&connect_timeout=1m&operation_timeout=500ms&server_tick=2s",
        )
        .unwrap();
        assert_eq!(options.kit.hosts, ["h1:2181", "[::1]:2182"]);
        assert_eq!(options.kit.prefix(), "/app/x");
        assert_eq!(options.kit.session_timeout, Duration::from_secs(4));
        assert_eq!(options.kit.connect_timeout, Duration::from_secs(60));
        assert_eq!(options.kit.operation_timeout, Duration::from_millis(500));
        assert_eq!(options.half_tick(Duration::from_secs(10)), Duration::from_secs(1));
        assert_eq!(options.half_tick(Duration::from_secs(2)), Duration::from_millis(960));
        let unknown = ZkOptions::from_url("zk://h").unwrap();
        assert_eq!(unknown.half_tick(Duration::from_secs(10)), Duration::from_millis(2500));
    }

    #[test]
    fn bad_urls_are_refused_with_the_offending_part() {
        for (url, part) in [
            ("etcd://h", "\"etcd\""),
            ("zk:///x", "no host"),
            ("zk://h?sesion_timeout=4s", "\"sesion_timeout\""),
            ("zk://h?session_timeout=4", "session_timeout=4"),
            ("zk://h?session_timeout=9999h", "session timeout of"),
            ("zk://h:0", "\"0\""),
            ("zk://h?session_timeout=1ms", "session timeout of 1ms is below 100ms"),
            ("zk://h?session_timeout=99ms", "session timeout of 99ms is below 100ms"),
        ] {
            let error = ZkOptions::from_url(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{url}");
            assert!(error.to_string().contains(part), "{url}: {error}");
        }
    }

    #[test]
    fn bad_options_are_refused_with_the_offending_part() {
        let good = || ZkOptions::new(["h:2181"]);
        good().validate().unwrap();
        for (options, part) in [
            (ZkOptions::new(Vec::<String>::new()), "no host"),
            (ZkOptions::new(["h:2181", "h:x"]), "\"h:x\""),
            (ZkOptions::new(["h1,h2"]), "\"h1,h2\""),
            (ZkOptions::new(["h/x"]), "\"h/x\""),
            (ZkOptions::new(["h?a=1"]), "\"h?a=1\""),
            (ZkOptions::new(["h", ""]), "host 2 is empty"),
            (good().with_session_timeout(Duration::ZERO), "session timeout of 0ns"),
            (good().with_session_timeout(Duration::from_millis(1)), "session timeout of 1ms is below 100ms"),
            (good().with_connect_timeout(Duration::MAX), "connect timeout"),
            (good().with_operation_timeout(Duration::ZERO), "operation timeout"),
            (good().with_server_tick(Duration::ZERO), "server tick"),
            (good().with_acls([]), "access list"),
            (good().with_auth("", "x"), "scheme \"\""),
        ] {
            let text = refused(options);
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[tokio::test]
    async fn bad_options_open_no_client() {
        for time in [Duration::ZERO, Duration::MAX] {
            let error = ZkOptions::new(["h:2181"]).with_session_timeout(time).connect_client().await;
            assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidArgument, "{time:?}");
        }
    }

    #[test]
    fn credentials_are_not_shown() {
        let shown = format!("{:?}", ZkOptions::new(["h"]).with_auth("digest", "me:secret"));
        assert!(shown.contains("digest") && !shown.contains("secret"), "{shown}");
    }
}
