//! The connection options that all remote stores share.

mod builders;
pub(crate) mod files;
pub(crate) mod srv;
pub(crate) mod tls;

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::error::excerpt::Excerpt;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::{Files, Srv, Tls};
use crate::nodes::path::LockPath;
use crate::probe::{Probe, Protocol};
use crate::retry::RetryPolicy;
use crate::settings::environment::Environment;
use crate::settings::text_or_file::TextOrFile;
use crate::settings::url::{ConnectUrl, Host};

/// The longest wait for one server's answer before another server is asked.
const MAX_ANSWER_TIME: Duration = Duration::from_secs(2);

/// The longest wait for a connection before another one is tried.
const MAX_CONNECTION_TIME: Duration = Duration::from_secs(5);

/// The options that the backends of all remote stores share.
#[derive(Clone, Debug)]
pub struct Options {
    /// The servers, each `host:port` or `host`. Empty if [`srv`](Self::srv) is set.
    pub hosts: Vec<String>,
    /// The domain that names the servers.
    pub srv: Option<Srv>,
    /// The path that precedes every lock's path in the store. Defaults to none.
    pub prefix: Option<LockPath>,
    /// How long the store keeps the session of a silent client. Defaults to 10 seconds.
    pub session_timeout: Duration,
    /// The time limit of the connect, and of each later attempt at a session. Defaults to 15 seconds.
    pub connect_timeout: Duration,
    /// The time limit of one operation, including its retries and its wait for a session. Defaults to 15 seconds.
    pub operation_timeout: Duration,
    /// The retries of one operation. Defaults to 30, with random delays that increase from 20 ms to 1 s.
    pub retry: RetryPolicy,
    /// The certificates of the connections. `None` without TLS.
    pub tls: Option<Tls>,
    /// Reads the files that options name.
    pub files: Files,
}

impl Options {
    /// Creates options for these servers, with defaults for everything else.
    #[must_use]
    pub fn new(hosts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Options {
            hosts: hosts.into_iter().map(Into::into).collect(),
            srv: None,
            prefix: None,
            session_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(15),
            operation_timeout: Duration::from_secs(15),
            retry: RetryPolicy::bounded_exponential(Duration::from_millis(20), Duration::from_secs(1), 30),
            tls: None,
            files: Files::default(),
        }
    }

    /// Creates options for the servers that this domain names, with defaults for everything else.
    #[must_use]
    pub fn srv(domain: impl Into<String>) -> Self {
        let srv = Srv { domain: domain.into(), nameservers: Vec::new() };
        Options { srv: Some(srv), ..Options::new(Vec::<String>::new()) }
    }

    /// Creates options from a URL of this scheme: its hosts, or its domain if the scheme is followed by `+srv`, its path as the
    /// prefix, and the [timeouts](Self::read_timeouts).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`] for another scheme, for a timeout that is not a duration, and if there is no host. With
    /// `+srv`, also if there are several or a port.
    pub fn from_url(url: &ConnectUrl, scheme: &str, default_port: u16) -> Result<Self> {
        let hosts = match url.scheme().strip_prefix(scheme) {
            Some("") => Options::new(url.authorities(default_port)?),
            Some("+srv") => match url.hosts() {
                [domain] if domain.port().is_none() => Options::srv(domain.name()),
                _ => return Err(url.refuse(format!("{}:// takes one domain without a port", url.scheme()))),
            },
            _ => {
                let found = Excerpt::of(url.scheme());
                return Err(url.refuse(format!("the scheme is {found:?}, expected {scheme:?}")));
            }
        };
        let mut options = Options { prefix: url.path().cloned(), ..hosts };
        options.read_timeouts(|name| url.duration(name))?;
        Ok(options)
    }

    /// Returns the current servers, each `host:port` or `host`, in groups, the preferred group first.
    ///
    /// # Errors
    /// The reason why the lookup in DNS failed.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time and I/O enabled, if they are looked up in DNS.
    pub async fn servers(&self, service: &str) -> Result<Vec<Vec<String>>, String> {
        match &self.srv {
            None => Ok(vec![self.hosts.clone()]),
            Some(srv) => srv.servers(service).await,
        }
    }

    /// Sets the timeouts that a URL has parameters for: `session_timeout`, `connect_timeout` and `operation_timeout`.
    ///
    /// # Errors
    /// Those of `param`, which returns the duration of the parameter with this name.
    pub fn read_timeouts(&mut self, param: impl Fn(&str) -> Result<Option<Duration>>) -> Result<()> {
        for (name, field) in [
            ("session_timeout", &mut self.session_timeout),
            ("connect_timeout", &mut self.connect_timeout),
            ("operation_timeout", &mut self.operation_timeout),
        ] {
            if let Some(duration) = param(name)? {
                *field = duration;
            }
        }
        Ok(())
    }

    /// Returns the user and the password of the environment, for a store whose users have nothing else.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the environment says how to authenticate.
    pub fn read_user(environment: &Environment, scheme: &str) -> Result<Option<(String, TextOrFile)>> {
        if environment.auth().is_some() {
            let expected = format!("{scheme}:// takes none, only a user and a password");
            return Err(environment.refuse_auth(&expected));
        }
        Ok(environment.user().map(|(user, password)| (user.to_owned(), password.clone())))
    }

    /// Takes the certificates of the environment, which turns TLS on. `has_tls` says whether the store has it, for which the crate
    /// `zlock` has the feature `<scheme>-tls`.
    ///
    /// # Errors
    /// [`ErrorKind::FeatureDisabled`] if there are certificates and no TLS.
    pub fn read_certificates(
        &mut self,
        environment: &Environment,
        scheme: &str,
        has_tls: bool,
    ) -> Result<()> {
        let Some(ca) = environment.ca_file() else { return Ok(()) };
        if !has_tls {
            return Err(Environment::feature_disabled("ZLOCK_CA_FILE", &format!("{scheme}-tls")));
        }
        let tls = self.tls.get_or_insert_default();
        tls.authorities = Some(ca.into());
        if let Some((certificate, key)) = environment.identity_files() {
            tls.identity = Some((certificate.into(), key.into()));
        }
        Ok(())
    }

    /// Returns a probe of these servers, which finds out why a connect to them does not succeed.
    #[must_use]
    pub fn probe(&self, protocol: Protocol, default_port: u16, servers: &[String]) -> Probe {
        let servers = servers.iter().map(|server| authority(server, default_port));
        Probe::new(protocol, self.tls.is_some(), servers)
    }

    /// Returns how long one server may take to answer a request before the next one is asked.
    #[must_use]
    pub fn answer_time(&self) -> Duration {
        (self.session_timeout / 4).min(MAX_ANSWER_TIME)
    }

    /// Returns how long one server may take to answer a heartbeat. Heartbeats are sent every third of the session timeout, and this
    /// is short enough to try three servers before the session ends.
    #[must_use]
    pub fn beat_time(&self) -> Duration {
        (self.session_timeout / 6).min(MAX_ANSWER_TIME)
    }

    /// Returns how long an attempt to connect and to authenticate may take. A long limit prevents a busy server from checking
    /// passwords in vain. A short one replaces an attempt that hangs soon enough for the session to survive it.
    #[must_use]
    pub fn connection_time(&self) -> Duration {
        (self.session_timeout / 3).min(MAX_CONNECTION_TIME)
    }

    /// Returns the prefix. Empty without one.
    #[must_use]
    pub fn prefix(&self) -> &str {
        self.prefix.as_ref().map_or("", LockPath::as_str)
    }

    /// Checks that there is at least one host and that each can be parsed.
    ///
    /// # Errors
    /// A message that says what is wrong, for [`invalid`](Self::invalid) or [`ConnectUrl::refuse`].
    pub fn check_hosts(&self) -> Result<(), String> {
        if let Some(Srv { domain, .. }) = &self.srv {
            if !cfg!(feature = "srv") {
                return Err("SRV records need the feature \"srv\" of the crate zlock".into());
            }
            return match Host::parse(domain) {
                Ok(host) if host.port().is_none() && !host.name().contains(':') => Ok(()),
                Ok(_) => Err(format!("the domain {:?} is none", Excerpt::of(domain))),
                Err(why) => Err(format!("the domain {why}")),
            };
        }
        if self.hosts.is_empty() {
            return Err("no host is given".into());
        }
        for (host, i) in self.hosts.iter().zip(1..) {
            Host::parse(host).map_err(|why| format!("host {i} {why}"))?;
        }
        Ok(())
    }

    /// Checks that the connect timeout and the operation timeout are between 1 ms and `max`.
    ///
    /// # Errors
    /// Same as [`check_hosts`](Self::check_hosts).
    pub fn check_timeouts(&self, max: Duration) -> Result<(), String> {
        check_duration("connect timeout", self.connect_timeout, max)?;
        check_duration("operation timeout", self.operation_timeout, max)
    }

    /// Runs a check of the contents of files, outside the runtime.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidArgument`] with the problem that the check finds.
    /// - [`ErrorKind::Unavailable`] if the files cannot be read before `until`.
    ///
    /// # Cancel safety
    /// This method is cancel safe.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    pub async fn check_files(
        &self,
        until: Instant,
        check: impl FnOnce() -> Result<(), String> + Send + 'static,
    ) -> Result<()> {
        match timeout_at(until, self.files.read(check)).await {
            Ok(checked) => checked.map_err(|why| self.invalid(why)),
            Err(_) => {
                let error = self.connect_error(ErrorKind::Unavailable);
                Err(error.with_message("the files with credentials or certificates cannot be read in time"))
            }
        }
    }

    /// Returns the servers in the form that errors show: without what precedes an '@', which may be a password.
    #[must_use]
    pub fn hosts_text(&self) -> String {
        let shown = |host: &str| host.rsplit('@').next().unwrap_or_default().to_owned();
        let hosts = || self.hosts.iter().map(|host| shown(host)).collect::<Vec<_>>().join(",");
        let hosts = self.srv.as_ref().map_or_else(hosts, |srv| format!("{} (SRV)", shown(&srv.domain)));
        Excerpt::of(&hosts).to_string()
    }

    /// Returns an error of a connect to these servers.
    #[must_use]
    pub fn connect_error(&self, kind: ErrorKind) -> Error {
        Error::new(kind, "connect").with_path(self.hosts_text())
    }

    /// Returns the error for options that a check has found invalid.
    #[must_use]
    pub fn invalid(&self, why: impl Into<String>) -> Error {
        self.connect_error(ErrorKind::InvalidArgument).with_message(why)
    }
}

/// Returns a host with its port. Anything but a host is returned as it is.
#[must_use]
pub fn authority(host: &str, default_port: u16) -> String {
    Host::parse(host).map_or_else(|_| host.to_owned(), |host| host.authority(default_port))
}

/// Checks that the option `name` is between 1 ms and `max`.
///
/// # Errors
/// A message that says what is wrong, for [`Options::invalid`] or [`ConnectUrl::refuse`].
pub fn check_duration(name: &str, duration: Duration, max: Duration) -> Result<(), String> {
    if (Duration::from_millis(1)..=max).contains(&duration) {
        return Ok(());
    }
    Err(format!("the {name} of {duration:?} is not between 1ms and {max:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_secs(60);

    #[test]
    fn hosts_are_checked() {
        for (hosts, why) in
            [(&[][..], "no host is given"), (&["h", ""], "host 2 is empty"), (&["http://h"], "\"http://h\"")]
        {
            let options = Options::new(hosts.iter().copied());
            let found = options.check_hosts().unwrap_err();
            assert!(found.contains(why), "{found}");
        }
        Options::new(["h1:1", "[::1]"]).check_hosts().unwrap();
    }

    #[test]
    fn hosts_have_ports() {
        let hosts = ["a", "b:1", "[::1]", "no host"].map(|host| authority(host, 2379));
        assert_eq!(hosts, ["a:2379", "b:1", "[::1]:2379", "no host"]);
    }

    #[test]
    fn a_password_in_a_host_is_not_shown() {
        for (options, hosts) in
            [(Options::new(["me:SECRET@h1", "h2"]), "h1,h2"), (Options::srv("me:SECRET@h1"), "h1 (SRV)")]
        {
            let error = options.invalid(options.check_hosts().unwrap_err()).to_string();
            assert!(error.contains(hosts) && !error.contains("SECRET"), "{error}");
        }
    }

    #[test]
    fn timeouts_are_read_and_checked() {
        let mut options = Options::new(["h"]);
        options.check_timeouts(MAX).unwrap();
        let url = ConnectUrl::parse("x://h?connect_timeout=1m&operation_timeout=61s").unwrap();
        options.read_timeouts(|name| url.duration(name)).unwrap();
        assert_eq!(options.connect_timeout, MAX);
        let why = options.check_timeouts(MAX).unwrap_err();
        let text = "the operation timeout of 61s is not between 1ms and 60s";
        assert_eq!(options.invalid(why).to_string(), format!("connect h: invalid argument: {text}"));
        options.operation_timeout = MAX;
        options.connect_timeout = Duration::ZERO;
        let why = options.check_timeouts(MAX).unwrap_err();
        assert_eq!(why, "the connect timeout of 0ns is not between 1ms and 60s");
    }
}
