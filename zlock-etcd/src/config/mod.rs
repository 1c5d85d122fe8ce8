//! The options of the etcd backend.

#[cfg(feature = "tls")]
pub(crate) mod tls;

use std::time::Duration;

use zlock_core::kit::{self, Tls, authority};
use zlock_core::{ConnectUrl, Environment, LockPath, NodeName, Result, TextOrFile};

use crate::keys::key::Keys;

/// etcd's own client port.
pub(crate) const DEFAULT_PORT: u16 = 2379;

/// The shortest TTL that a server with default timings grants.
const MIN_TTL: Duration = Duration::from_secs(2);

/// The longest time for any option.
const MAX_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The options of an [`EtcdBackend`](crate::EtcdBackend): the cluster's hosts, timeouts and credentials.
///
/// [`EtcdBackend::connect`](crate::EtcdBackend::connect) checks them before it sends anything.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use zlock::etcd::EtcdOptions;
///
/// # fn main() -> zlock::Result<()> {
/// let by_url = EtcdOptions::from_url("etcd://h1:2379,h2:2379,h3:2379/production?session_timeout=10s")?;
/// let secured = EtcdOptions::new(["h1:2379", "h2:2379"])
///     .with_ttl(Duration::from_secs(10))
///     .with_user("orders", "secret");
/// # let _ = (by_url, secured);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    pub(crate) kit: kit::Options,
    pub(crate) user: Option<(String, TextOrFile)>,
    pub(crate) batching: bool,
}

impl EtcdOptions {
    /// Returns `true` if the servers may know who the client is, and restrict what it may do.
    pub(crate) fn has_identity(&self) -> bool {
        self.kit.tls.as_ref().is_some_and(|tls| tls.identity.is_some()) || self.user.is_some()
    }

    /// Returns the prefix of all keys, such as `/production`. Empty without one. [`node_key`](Self::node_key) includes it.
    #[must_use]
    pub fn prefix(&self) -> &str {
        self.kit.prefix()
    }

    kit::builders! {
        /// Creates options for a cluster of these hosts, each `host:port` or `host` (port 2379), with an IPv6 address in
        /// brackets. Everything else has the default of its `with_` method.
        new;
        /// Creates options for the cluster that a domain names by SRV records: those of `_etcd-client-ssl._tcp` with TLS,
        /// otherwise those of `_etcd-client._tcp`, like etcd's own clients. Everything else has the default of its `with_`
        /// method. Needs the feature `srv`.
        ///
        /// DNS is queried for the first session, and again whenever a server fails. The servers of one priority are tried in an
        /// order by weight, and then those of the next priority.
        srv;
        with_nameservers;
        /// Sets the path that is prepended to every key. Defaults to none.
        with_prefix;
        /// Sets the TTL of the session's lease: how long the cluster keeps the locks of a silent client, in whole
        /// seconds, at least 2. Defaults to 10 seconds. The server may grant more. A short TTL frees the locks of a dead
        /// process sooner, but a shorter outage costs a live process its locks.
        with_ttl;
        /// Sets how long [`EtcdBackend::connect`](crate::EtcdBackend::connect) waits for a session. Defaults to 15 seconds.
        with_connect_timeout;
        /// With a limit much shorter than the TTL, operations fail during outages that the session survives.
        with_operation_timeout;
        /// Sets how a failed request is retried at the next server, within the operation timeout. Defaults to 30 retries,
        /// with random delays that increase from 20 milliseconds to 1 second. Waiting for a session is not a retry.
        with_retry;
        /// A string is the certificates as PEM. A path is a file that is read for each new connection, even within a session.
        with_tls;
        /// Sets the client's certificate, with its chain, and its private key, for servers that request them: each as PEM, or as
        /// a file that is read for each new connection.
        with_tls_identity;
    }

    fn with_kit(kit: kit::Options) -> Self {
        EtcdOptions { kit, user: None, batching: true }
    }

    /// Parses `etcd://host:port,host:port/prefix?name=value&name=value`, or `etcd+srv://domain/prefix?name=value`, which
    /// finds the servers as [`srv`](Self::srv) does. The parameters are `session_timeout` (or its synonym `ttl`),
    /// `connect_timeout` and `operation_timeout`, each with a duration such as `10s` or `500ms`. Credentials are not
    /// accepted in a URL: use [`with_user`](Self::with_user).
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
        let mut options = Self::with_kit(kit::Options::from_url(url, "etcd", DEFAULT_PORT)?);
        if let Some(ttl) = url.duration("ttl")? {
            if url.duration("session_timeout")?.is_some() {
                return Err(url.refuse("session_timeout and ttl are the same: give one of them"));
            }
            options.kit.session_timeout = ttl;
        }
        url.refuse_params_but(&["session_timeout", "ttl", "connect_timeout", "operation_timeout"])?;
        options.check().map_err(|why| url.refuse(why))?;
        Ok(options)
    }

    /// Adds the user and the TLS files of an environment.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) if `ZLOCK_AUTH` is set.
    /// - [`ErrorKind::FeatureDisabled`](zlock_core::ErrorKind::FeatureDisabled) for TLS without its feature.
    pub fn with_environment(mut self, environment: &Environment) -> Result<Self> {
        if let Some((user, password)) = kit::Options::read_user(environment, "etcd")? {
            self = self.with_user(user, password);
        }
        self.kit.read_certificates(environment, "etcd", cfg!(feature = "tls"))?;
        Ok(self)
    }

    /// Sets whether writes of different locks may leave together, as nested transactions of one. Defaults to `true`. Without
    /// it, each write is a request of its own.
    #[must_use]
    pub fn with_batching(mut self, batching: bool) -> Self {
        self.batching = batching;
        self
    }

    /// Authenticates as this user. A password in a file is read for each new connection. The user's role must permit reading
    /// and writing all keys that begin with the prefix and a slash; without a prefix, all keys that begin with a slash.
    #[must_use]
    pub fn with_user(mut self, name: impl Into<String>, password: impl Into<TextOrFile>) -> Self {
        self.user = Some((name.into(), password.into()));
        self
    }

    /// Returns the key of a lock's node, including the prefix. The key exists as long as the lock is held, and its
    /// create revision is the number of the fencing token. Compare it in your own transactions. The server then refuses
    /// the writes of a holder that has not noticed the loss of the lock.
    ///
    /// Checking only that the key exists is not enough: a later node of the same session may have the same key.
    ///
    /// # Examples
    /// With the `etcd-client` crate:
    /// ```no_run
    /// # use etcd_client::{Compare, CompareOp, Txn, TxnOp};
    /// # async fn f(options: zlock::etcd::EtcdOptions, guard: zlock::Guard, mut etcd: etcd_client::Client)
    /// # -> Result<bool, etcd_client::Error> {
    /// let key = options.node_key(guard.path(), &guard.node());
    /// let token = guard.fencing_token().number().cast_signed();
    /// let held = Compare::create_revision(key, CompareOp::Equal, token);
    /// let write = Txn::new().when([held]).and_then([TxnOp::put("prices", "17", None)]);
    /// let written = etcd.txn(write).await?.succeeded(); // false if the lock is not held: nothing was written
    /// # Ok(written)
    /// # }
    /// ```
    #[must_use]
    pub fn node_key(&self, lock: &LockPath, node: &NodeName) -> String {
        Keys::new(self.prefix(), lock).of(node)
    }

    /// Returns the current servers, each with its port, the preferred ones first.
    pub(crate) async fn servers(&self) -> Result<Vec<String>, String> {
        let service = if self.uses_tls() { "_etcd-client-ssl._tcp" } else { "_etcd-client._tcp" };
        let servers = self.kit.servers(service).await?;
        Ok(servers.iter().flatten().map(|host| authority(host, DEFAULT_PORT)).collect())
    }

    /// Returns `true` if a file must be read before a connection is made.
    pub(crate) fn has_files(&self) -> bool {
        self.kit.tls.as_ref().is_some_and(Tls::has_files)
            || self.user.as_ref().is_some_and(|(_, password)| password.file().is_some())
    }

    fn uses_tls(&self) -> bool {
        self.kit.tls.is_some()
    }

    /// Checks everything that can be checked without I/O.
    pub(crate) fn validate(&self) -> Result<()> {
        self.check().map_err(|why| self.kit.invalid(why))
    }

    fn check(&self) -> Result<(), String> {
        self.kit.check_hosts()?;
        let ttl = self.kit.session_timeout;
        if ttl < MIN_TTL || ttl > MAX_TIME || ttl.subsec_nanos() != 0 {
            return Err(format!(
                "the session timeout (ttl) of {ttl:?} is not a number of whole seconds between {MIN_TTL:?} and {MAX_TIME:?}"
            ));
        }
        self.kit.check_timeouts(MAX_TIME)?;
        if self.user.as_ref().is_some_and(|(name, _)| name.is_empty()) {
            return Err("the user is empty".into());
        }
        // Files are not read here, which may be on the runtime's thread.
        if self.has_files() { Ok(()) } else { self.check_contents() }
    }

    /// Checks credentials and certificates. Reads those that are in files.
    pub(crate) fn check_contents(&self) -> Result<(), String> {
        if let Some((_, password)) = &self.user {
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

    #[test]
    fn a_url_says_it_all() {
        let options = EtcdOptions::from_url(
            "etcd://h1,[::1]:2380/app/x?ttl=4s&connect_timeout=1m&operation_timeout=500ms",
        )
        .unwrap();
        assert_eq!(options.kit.hosts, ["h1:2379", "[::1]:2380"]);
        assert_eq!(options.prefix(), "/app/x");
        assert_eq!(options.kit.session_timeout, Duration::from_secs(4));
        let same = EtcdOptions::from_url("etcd://h?session_timeout=4s").unwrap();
        assert_eq!(same.kit.session_timeout, Duration::from_secs(4));
        assert_eq!(options.kit.connect_timeout, Duration::from_secs(60));
        assert_eq!(options.kit.operation_timeout, Duration::from_millis(500));
    }

    #[test]
    fn bad_urls_are_refused_with_the_offending_part() {
        for (url, part) in [
            ("zk://h", "\"zk\""),
            ("etcd:///x", "no host"),
            ("etcd://h?tttl=4s", "\"tttl\""),
            ("etcd://h?ttl=4", "ttl=4"),
            ("etcd://h?ttl=1s", "(ttl) of 1s is not a number of whole seconds between 2s"),
            ("etcd://h?ttl=2500ms", "(ttl) of 2.5s"),
            ("etcd://h?session_timeout=1ms", "session timeout (ttl) of 1ms"),
            ("etcd://h?session_timeout=4s&ttl=4s", "session_timeout and ttl are the same"),
            ("etcd://h:0", "\"0\""),
        ] {
            let error = EtcdOptions::from_url(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{url}");
            assert!(error.to_string().contains(part), "{url}: {error}");
        }
    }

    #[test]
    fn bad_options_are_refused_with_the_offending_part() {
        let good = || EtcdOptions::new(["h:2379"]);
        good().validate().unwrap();
        for (options, part) in [
            (EtcdOptions::new(Vec::<String>::new()), "no host"),
            (EtcdOptions::new(["h:2379", "h:x"]), "\"h:x\""),
            (EtcdOptions::new(["h1,h2"]), "\"h1,h2\""),
            (EtcdOptions::new(["http://h"]), "\"http://h\""),
            (EtcdOptions::new(["h?a=1"]), "\"h?a=1\""),
            (EtcdOptions::new(["h", ""]), "host 2 is empty"),
            (good().with_ttl(Duration::from_secs(1)), "(ttl) of 1s"),
            (good().with_ttl(Duration::from_millis(2001)), "(ttl) of 2.001s"),
            (good().with_ttl(Duration::MAX), "ttl"),
            (good().with_connect_timeout(Duration::MAX), "connect timeout"),
            (good().with_operation_timeout(Duration::ZERO), "operation timeout"),
            (good().with_user("", "x"), "user is empty"),
        ] {
            let error = options.validate().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn credentials_are_not_shown() {
        let shown = format!("{:?}", EtcdOptions::new(["h"]).with_user("me", "secret"));
        assert!(shown.contains("me") && !shown.contains("secret"), "{shown}");
    }
}
