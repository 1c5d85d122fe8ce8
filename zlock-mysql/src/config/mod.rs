//! The options of the MySQL backend.

#[cfg(feature = "tls")]
mod tls;
mod url;

use std::time::Duration;

use mysql_async::{Opts, OptsBuilder};
use zlock_core::kit;
use zlock_core::{Environment, Host, Result, TextOrFile};

/// MySQL's port.
pub(crate) const DEFAULT_PORT: u16 = 3306;

/// The longest time for any option.
const MAX_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The shortest session timeout.
const MIN_TTL: Duration = Duration::from_secs(1);

/// The largest packet that the client sends: an entry of the largest size, with all that is around it. The server may have a lower limit.
const MAX_PACKET: usize = 16 << 20;

/// The options of a client on MySQL or MariaDB: the server's hosts, the database, the user, and timeouts.
#[derive(Clone, Debug)]
pub struct MysqlOptions {
    pub(crate) kit: kit::Options,
    pub(crate) database: Option<String>,
    pub(crate) user: Option<(String, Option<TextOrFile>)>,
    pub(crate) create_schema: bool,
    pub(crate) max_connections: usize,
    /// Whether the name in the server's certificate is compared, and whether it needs an authority.
    pub(crate) verify: Verify,
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

impl MysqlOptions {
    kit::builders! {
        /// Creates options for a server with these hosts, each `host:port` or `host` (port 3306), with an IPv6 address in
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
        /// A string is the certificates as PEM. A path is a file that is read for each new connection.
        with_tls;
        /// Sets the client's certificate, with its chain, and its private key, for servers that request them: each as PEM, or as
        /// a file that is read for each new connection.
        with_tls_identity;
    }

    fn with_kit(kit: kit::Options) -> Self {
        MysqlOptions {
            kit,
            database: None,
            user: None,
            create_schema: false,
            max_connections: 3,
            verify: Verify::Full,
        }
    }

    /// Sets the database in which the tables are. There is no default.
    #[must_use]
    pub fn with_database(mut self, database: impl Into<String>) -> Self {
        self.database = Some(database.into());
        self
    }

    /// Sets the user. The password may be a file that is read for each new connection.
    #[must_use]
    pub fn with_user(mut self, name: impl Into<String>, password: Option<TextOrFile>) -> Self {
        self.user = Some((name.into(), password));
        self
    }

    /// Sets whether the client creates the tables and procedures that it needs, if they are missing. Defaults to `false`:
    /// then they must exist.
    #[must_use]
    pub fn with_create_schema(mut self, create: bool) -> Self {
        self.create_schema = create;
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

    /// Enables TLS without checking who the server is, as `ssl-mode=REQUIRED` of the client `mysql` does. A machine in between can pretend
    /// to be the server: it can read the password, and answer that a lock is free.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_unverified_tls(mut self) -> Self {
        self.kit.tls.get_or_insert_default().authorities = None;
        self.verify = Verify::Nothing;
        self
    }

    /// Adds the user and the TLS files of an environment.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) if `ZLOCK_AUTH` is set.
    /// - [`ErrorKind::FeatureDisabled`](zlock_core::ErrorKind::FeatureDisabled) for TLS without its feature.
    pub fn with_environment(mut self, environment: &Environment) -> Result<Self> {
        if let Some((user, password)) = kit::Options::read_user(environment, "mysql")? {
            self = self.with_user(user, Some(password));
        }
        self.kit.read_certificates(environment, "mysql", cfg!(feature = "tls"))?;
        if environment.ca_file().is_some() {
            self.verify = Verify::Full;
        }
        Ok(self)
    }

    /// Returns the servers that the client may use, in their order.
    #[must_use]
    pub fn servers(&self) -> &[String] {
        &self.kit.hosts
    }

    /// Returns the prefix of all paths in the database, such as `/production`. Empty without one.
    #[must_use]
    pub fn prefix(&self) -> &str {
        self.kit.prefix()
    }

    /// How long the server may take to answer a request. An operation can then try another connection.
    pub(crate) fn answer_time(&self) -> Duration {
        self.kit.answer_time().min(self.kit.operation_timeout / 2)
    }

    /// Checks everything that can be checked without I/O.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) with what is wrong.
    pub fn validate(&self) -> Result<()> {
        self.check().map_err(|why| self.kit.invalid(why))
    }

    fn check(&self) -> Result<(), String> {
        self.kit.check_hosts()?;
        if let (Some(tls), Verify::Authority | Verify::Full) = (&self.kit.tls, self.verify) {
            tls.authorities()?;
        }
        if self.database.as_ref().is_none_or(String::is_empty) {
            return Err("no database is given: mysql://host/database".into());
        }
        if self.user.as_ref().is_none_or(|(name, _)| name.is_empty()) {
            return Err("no user is given: mysql://user@host/database, ZLOCK_USER or with_user".into());
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
        self.kit.check_timeouts(MAX_TIME)
    }

    /// Returns the options for a connection with each of the servers. Reads the files.
    ///
    /// # Errors
    /// The path of a file, and why it cannot be used; or the host that cannot be parsed.
    pub(crate) async fn library_opts(&self) -> Result<Vec<Opts>, String> {
        let mut password = None;
        if let Some((_, Some(text))) = &self.user {
            let text = text.clone();
            password = Some(self.kit.files.read(move || text.read_secret()).await?);
        }
        let base = OptsBuilder::default()
            .user(self.user.as_ref().map(|(name, _)| name))
            .pass(password)
            .db_name(self.database.as_ref())
            .prefer_socket(false)
            .tcp_nodelay(true)
            // Otherwise the library asks for these.
            .max_allowed_packet(Some(MAX_PACKET))
            .wait_timeout(Some(28800))
            .connect_attribute("program_name", "zlock");
        #[cfg(feature = "tls")]
        let base = base.ssl_opts(self.tls().await?);
        let opts = |host: &String| {
            let host = Host::parse(host)?;
            let port = host.port().unwrap_or(DEFAULT_PORT);
            Ok(base.clone().ip_or_hostname(host.name()).tcp_port(port).into())
        };
        self.kit.hosts.iter().map(opts).collect()
    }
}

#[cfg(test)]
mod tests {
    use zlock_core::ErrorKind;

    use super::*;

    #[test]
    fn bad_options_are_refused_with_the_offending_part() {
        let good = || MysqlOptions::new(["h"]).with_database("d").with_user("u", None);
        good().validate().unwrap();
        for (options, part) in [
            (MysqlOptions::new(Vec::<String>::new()), "no host"),
            (MysqlOptions::new(["h:x"]), "\"h:x\""),
            (MysqlOptions::new(["h"]).with_user("u", None), "no database"),
            (MysqlOptions::new(["h"]).with_database("d"), "no user"),
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

    #[test]
    fn credentials_are_not_shown() {
        let options = MysqlOptions::new(["h"]).with_user("me", Some(TextOrFile::from("secret")));
        let shown = format!("{options:?}");
        assert!(shown.contains("me") && !shown.contains("secret"), "{shown}");
    }
}
