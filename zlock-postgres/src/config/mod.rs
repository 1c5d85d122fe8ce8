//! The options of the PostgreSQL backend.

#[cfg_attr(not(test), allow(dead_code, reason = "for the connection"))]
mod library;
#[cfg_attr(not(test), allow(dead_code, reason = "for the connection"))]
mod passfile;
mod read;
#[cfg(feature = "tls")]
#[cfg_attr(not(test), allow(dead_code, reason = "for the connection"))]
pub(crate) mod tls;
mod url;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
#[cfg(unix)]
use tokio_postgres::config::Host as Server;
use zlock_core::kit;
use zlock_core::{Environment, Result, TextOrFile};

/// PostgreSQL's port.
pub(crate) const DEFAULT_PORT: u16 = 5432;

/// The longest time for any option.
const MAX_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The shortest session timeout.
const MIN_TTL: Duration = Duration::from_secs(1);

/// The options of a client on PostgreSQL: the server's hosts, the database, the user, and timeouts.
#[derive(Clone)]
pub struct PostgresOptions {
    pub(crate) kit: kit::Options,
    /// What the URL says: hosts as well, which `kit.hosts` has for messages.
    pub(crate) library: Config,
    pub(crate) passfile: Option<PathBuf>,
    pub(crate) verify: Verify,
    pub(crate) database: Option<String>,
    pub(crate) user: Option<(String, Option<TextOrFile>)>,
    pub(crate) create_schema: bool,
    /// `None` if any is fine.
    pub(crate) replication: Option<Replication>,
    pub(crate) pooled: bool,
    pub(crate) listen: bool,
    pub(crate) max_connections: usize,
    /// Where heartbeats, reads and notifications go, if not the same way as writes.
    pub(crate) listen_at: Option<Box<PostgresOptions>>,
}

/// What a client relies on after a restart or a failover. The store has a class, which is the same for all clients: see
/// [`Class`](zlock_core::Class).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Replication {
    /// The class is `lossy`: a restart or a failover may lose confirmed writes. Each ends all sessions, and no lock is granted for the
    /// longest session timeout that the store allows, 30 seconds by default.
    #[default]
    Async,
    /// The class is `sync`: no failover loses a confirmed write. Sessions survive it.
    Sync,
}

/// What is checked of a server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verify {
    /// Nothing: the connection is encrypted, but the server may be anyone.
    Nothing,
    /// That an authority has signed it.
    Authority,
    /// That an authority has signed it for this server's name.
    Full,
}

impl PostgresOptions {
    kit::builders! {
        /// Creates options for a server with these hosts, each `host:port` or `host` (port 5432), with an IPv6 address in
        /// brackets. The client uses the host that accepts writes. Everything else has the default of its `with_` method.
        new;
        /// Sets the path that is prepended to the path of every lock. Defaults to none.
        with_prefix;
        /// Sets the session timeout: how long the locks of a silent client are kept, at least 1 second and at most what the store
        /// allows, 30 seconds by default. Defaults to 10 seconds.
        /// A short timeout frees the locks of a dead process sooner, but a shorter outage costs a live process its locks.
        with_ttl;
        /// Sets how long a connect waits for a session. Defaults to 15 seconds.
        with_connect_timeout;
        with_operation_timeout;
        /// Sets how often and with which pauses an operation repeats what failed, within the operation timeout. Defaults to 30
        /// retries, with random pauses that increase from 20 ms to 1 s.
        with_retry;
        /// Sets the client's certificate, with its chain, and its private key, for servers that request them: each as PEM, or as
        /// a file that is read for each new connection.
        with_tls_identity;
    }

    fn with_kit(kit: kit::Options) -> Self {
        PostgresOptions {
            kit,
            library: Config::new(),
            passfile: None,
            verify: Verify::Full,
            database: None,
            user: None,
            create_schema: false,
            replication: None,
            pooled: false,
            listen: true,
            max_connections: 3,
            listen_at: None,
        }
    }

    /// Sets the name of the database. Defaults to the user's name.
    #[must_use]
    pub fn with_database(mut self, database: impl Into<String>) -> Self {
        self.database = Some(database.into());
        self
    }

    /// Sets the user. The password may be a file that is read for each new connection. Without one, the server must trust
    /// the client.
    #[must_use]
    pub fn with_user(mut self, name: impl Into<String>, password: Option<TextOrFile>) -> Self {
        self.user = Some((name.into(), password));
        self
    }

    /// Sets whether the client creates the tables and functions that it needs, if they are missing. Defaults to `false`:
    /// then they must exist.
    #[must_use]
    pub fn with_create_schema(mut self, create: bool) -> Self {
        self.create_schema = create;
        self
    }

    /// Sets what the client relies on. It is refused with [`InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) if the store's
    /// class is another one. By default, any class will do.
    #[must_use]
    pub fn with_replication(mut self, replication: Replication) -> Self {
        self.replication = Some(replication);
        self
    }

    /// Sets whether a pooler such as PgBouncer is between the client and the server. Then neither prepared statements nor
    /// notifications are used on this way. Defaults to `false`.
    #[must_use]
    pub fn with_pooler(mut self, pooled: bool) -> Self {
        self.pooled = pooled;
        self
    }

    /// Sets whether waiters receive notifications with LISTEN. Without them, waiters look once a second. Defaults to `true`.
    #[must_use]
    pub fn with_listen(mut self, listen: bool) -> Self {
        self.listen = listen;
        self
    }

    /// Sets the most connections that a client has at a time, at least 2: one for heartbeats and reads, and the others for writes.
    /// Defaults to 3. With 2, an operation that waits for another client's transaction repeats its request, and may wait for
    /// longer.
    #[must_use]
    pub fn with_max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections;
        self
    }

    /// How long the server may take to answer a request. An operation can then try another connection.
    pub(crate) fn answer_time(&self) -> Duration {
        self.kit.answer_time().min(self.kit.operation_timeout / 2)
    }

    /// Sets another way to the same database, for heartbeats, reads and notifications: to the server itself if writes go through a
    /// pooler. Of these options, only the hosts, the database, the user, TLS and [`with_pooler`](Self::with_pooler) are used.
    /// Defaults to the same way.
    #[must_use]
    pub fn with_listen_at(mut self, options: PostgresOptions) -> Self {
        self.listen_at = Some(Box::new(options));
        self
    }

    /// Enables TLS. A server is trusted if its certificate is signed by one of these authorities and is valid for its
    /// name.
    ///
    /// A string is the certificates as PEM. A path is a file that is read for each new connection.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_tls(mut self, ca_pem: impl Into<TextOrFile>) -> Self {
        self.kit.tls.get_or_insert_default().authorities = Some(ca_pem.into());
        self.verify = Verify::Full;
        self
    }

    /// Enables TLS without checking who the server is, as `sslmode=require` does. A machine in between can pretend to be the
    /// server: it can read the password, and answer that a lock is free.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_unverified_tls(mut self) -> Self {
        self.kit.tls.get_or_insert_default().authorities = None;
        self.verify = Verify::Nothing;
        self
    }

    /// Adds the user and the TLS files of an environment. If the environment has `PGPASSFILE` and the URL no `passfile`, that
    /// file is read for each new connection.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) if `ZLOCK_AUTH` is set.
    /// - [`ErrorKind::FeatureDisabled`](zlock_core::ErrorKind::FeatureDisabled) for TLS without its feature.
    pub fn with_environment(mut self, environment: &Environment) -> Result<Self> {
        if let Some((user, password)) = kit::Options::read_user(environment, "postgres")? {
            self = self.with_user(user, Some(password));
        }
        self.kit.read_certificates(environment, "postgres", cfg!(feature = "tls"))?;
        if environment.ca_file().is_some() {
            self.verify = Verify::Full;
        }
        if let Some(at) = self.listen_at {
            self.listen_at = Some(Box::new(at.with_environment(environment)?));
        }
        self.passfile = self.passfile.or_else(|| environment.passfile().map(PathBuf::from));
        if let (None, Some(name)) = (self.library.get_application_name(), environment.name()) {
            self.library.application_name(name);
        }
        Ok(self)
    }

    /// Checks everything that can be checked without I/O.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) with what is wrong.
    pub fn validate(&self) -> Result<()> {
        self.check().map_err(|why| self.kit.invalid(why))
    }

    fn check(&self) -> Result<(), String> {
        let has_hosts = !self.library.get_hosts().is_empty() || !self.library.get_hostaddrs().is_empty();
        if !has_hosts {
            self.kit.check_hosts()?;
        }
        if let (Some(tls), Verify::Authority | Verify::Full) = (&self.kit.tls, self.verify) {
            tls.authorities()?;
        }
        if self.kit.tls.is_some() {
            self.check_tls_hosts()?;
        }
        let ttl = self.kit.session_timeout;
        if ttl < MIN_TTL || ttl > MAX_TIME || !ttl.subsec_nanos().is_multiple_of(1_000_000) {
            return Err(format!(
                "the session timeout of {ttl:?} is not a number of whole milliseconds between {MIN_TTL:?} and {MAX_TIME:?}"
            ));
        }
        if self.max_connections < 2 {
            return Err(format!("{} connections: at least 2 are needed", self.max_connections));
        }
        if let Some(at) = &self.listen_at {
            at.check().map_err(|why| format!("for notifications: {why}"))?;
        }
        self.kit.check_timeouts(MAX_TIME)
    }

    /// The client library makes a TLS connection only with a server that has a name.
    fn check_tls_hosts(&self) -> Result<(), String> {
        let tls = "TLS (sslmode, ZLOCK_CA_FILE or with_tls)";
        #[cfg(unix)]
        for host in self.library.get_hosts() {
            if let Server::Unix(folder) = host {
                return Err(format!("{tls} is not possible on the Unix socket in {}", folder.display()));
            }
        }
        match self.library.get_hostaddrs().first() {
            Some(address) if self.library.get_hosts().is_empty() => {
                Err(format!("{tls} needs a host for the hostaddr {address}"))
            }
            _ => Ok(()),
        }
    }
}

/// Without the parameters for the server, which may have secrets.
impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("kit", &self.kit)
            .field("database", &self.database)
            .field("user", &self.user.as_ref().map(|(name, _)| name))
            .field("passfile", &self.passfile)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use zlock_core::ErrorKind;

    use super::*;

    #[test]
    fn bad_options_are_refused_with_the_offending_part() {
        let good = || PostgresOptions::new(["h"]);
        good().validate().unwrap();
        for (options, part) in [
            (PostgresOptions::new(Vec::<String>::new()), "no host"),
            (PostgresOptions::new(["h:x"]), "\"h:x\""),
            (good().with_ttl(Duration::from_millis(999)), "session timeout of 999ms"),
            (good().with_ttl(Duration::from_micros(1_000_001)), "session timeout of 1.000001s"),
            (good().with_connect_timeout(Duration::MAX), "connect timeout"),
            (good().with_operation_timeout(Duration::ZERO), "operation timeout"),
            (good().with_max_connections(1), "1 connections"),
        ] {
            let error = options.validate().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(part), "{part}: {error}");
        }
    }

    /// As with a certificate for a whole fleet, and a URL with a socket.
    #[cfg(feature = "tls")]
    #[test]
    fn tls_of_other_settings_needs_a_name_too() {
        for (url, part) in [
            ("postgres:///db?host=/run/pg", "the Unix socket in /run/pg"),
            ("postgres://?hostaddr=10.0.0.1", "the hostaddr 10.0.0.1"),
        ] {
            let options = PostgresOptions::from_url(url).unwrap().with_tls("a certificate");
            let error = options.validate().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(
                error.to_string().contains(part) && error.to_string().contains("ZLOCK_CA_FILE"),
                "{error}"
            );
        }
    }

    #[test]
    fn credentials_are_not_shown() {
        let options = PostgresOptions::new(["h"]).with_user("me", Some(TextOrFile::from("secret")));
        let shown = format!("{options:?}");
        assert!(shown.contains("me") && !shown.contains("secret"), "{shown}");
    }
}
