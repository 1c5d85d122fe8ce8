//! Connection URLs.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv6Addr;
use std::time::Duration;

use crate::error::excerpt::Excerpt;
use crate::error::{Error, ErrorKind, Result};
use crate::nodes::path::LockPath;

/// A parsed connection URL, whose meaning is up to the backend of its scheme.
///
/// ```text
/// mem://
/// mem://name
/// zk://h1:2181,h2:2181,[::1]:2181/chroot?session_timeout=10s
/// etcd://h1:2379,h2:2379/prefix?ttl=10s
/// etcd+srv://example.com/prefix
/// ```
///
/// Nothing is percent-decoded. User info is refused, so a URL contains no `@`: credentials are set through a backend's
/// options, where no log shows them. Errors do not show parameter values, except for durations.
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectUrl {
    scheme: String,
    hosts: Vec<Host>,
    path: Option<LockPath>,
    params: BTreeMap<String, String>,
}

/// A host of a [`ConnectUrl`], with or without a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    name: String,
    port: Option<u16>,
}

impl Host {
    /// Parses `name` or `name:port`, with an IPv6 address in brackets.
    ///
    /// # Errors
    /// The reason why it cannot be parsed, worded to follow "host 1".
    pub fn parse(host: &str) -> Result<Self, String> {
        if host.contains('@') {
            // Not shown, because it may be a password.
            return Err("has user info ('@'): set credentials in the backend's options".into());
        }
        let shown = Excerpt::of(host);
        let (name, port) = if let Some(rest) = host.strip_prefix('[') {
            let Some((address, port)) = rest.split_once(']') else {
                return Err(format!("({shown:?}) has no ']'"));
            };
            if address.parse::<Ipv6Addr>().is_err() {
                return Err(format!("({shown:?}) is not an IPv6 address"));
            }
            match port.strip_prefix(':') {
                None if port.is_empty() => (address, None),
                None => return Err(format!("({shown:?}) has {:?} after the ']'", Excerpt::of(port))),
                some => (address, some),
            }
        } else {
            match host.split_once(':') {
                Some((_, port)) if port.contains(':') => {
                    return Err(format!("({shown:?}) has two ':'; an IPv6 address goes in brackets"));
                }
                Some((name, port)) => (name, Some(port)),
                None => (host, None),
            }
        };
        if name.is_empty() {
            return Err("is empty".into());
        }
        let ok = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if let Some(c) = name.chars().find(|&c| !ok(c) && !host.starts_with('[')) {
            return Err(format!("({shown:?}) has the character {c:?}"));
        }
        let port = port.map(parse_port).transpose().map_err(|why| format!("({shown:?}) {why}"))?;
        Ok(Host { name: name.to_owned(), port })
    }

    /// Returns the name or address, without the brackets of an IPv6 address.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the port, if one is given.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Returns `name:port`, with an IPv6 address in brackets.
    #[must_use]
    pub fn authority(&self, default_port: u16) -> String {
        let (name, port) = (&self.name, self.port.unwrap_or(default_port));
        if name.contains(':') { format!("[{name}]:{port}") } else { format!("{name}:{port}") }
    }
}

impl ConnectUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`], with what is wrong and where.
    pub fn parse(url: &str) -> Result<Self> {
        let bad = |why: String| Err(invalid(&ConnectUrl::excerpt(url), why));
        if url.contains('@') {
            // Not examined any further: the end of a password cannot be determined with certainty.
            return bad(
                "user info ('@') is not accepted: set ZLOCK_USER for Connect::from_env or the command, \
                 or credentials in the backend's options"
                    .into(),
            );
        }
        let Some((scheme, rest)) = url.split_once("://") else {
            return bad("no scheme: expected one as in mem:// or zk://host".into());
        };
        if !is_scheme(scheme) {
            return bad(format!("{:?} is not a scheme", Excerpt::of(scheme)));
        }
        let (rest, params) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let parsed = (|| {
            Ok(ConnectUrl {
                scheme: scheme.to_ascii_lowercase(),
                hosts: parse_hosts(hosts)?,
                path: parse_path(path)?,
                params: parse_params(params)?,
            })
        })();
        parsed.or_else(bad)
    }

    /// Returns a URL for messages, even if it cannot be parsed: in quotes and without parameters. If the URL may contain a
    /// password, `***` replaces everything after the scheme.
    ///
    /// # Examples
    /// ```
    /// use zlock_core::ConnectUrl;
    ///
    /// assert_eq!(ConnectUrl::excerpt("zk://h1:2181/app?token=x"), "\"zk://h1:2181/app\"");
    /// assert_eq!(ConnectUrl::excerpt("zk://me:SECRET@h1:2181"), "\"zk://***\"");
    /// ```
    #[must_use]
    pub fn excerpt(url: &str) -> String {
        let head = url.split('?').next().unwrap_or_default();
        match url.split_once("://") {
            _ if !url.contains('@') => format!("{:?}", Excerpt::of(head)),
            Some((scheme, _)) if is_scheme(scheme) => format!("\"{}://***\"", Excerpt::of(scheme)),
            _ => "\"***\"".into(),
        }
    }

    /// Returns the scheme, in lower case.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Returns the hosts in the order given. The list may be empty.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Returns each host as `name:port`, for a backend that needs at least one.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`] if there is none.
    pub fn authorities(&self, default_port: u16) -> Result<Vec<String>> {
        if self.hosts.is_empty() {
            return Err(self.refuse("no host is given"));
        }
        Ok(self.hosts.iter().map(|host| host.authority(default_port)).collect())
    }

    /// Returns the path, which is a chroot or a prefix, without one trailing slash. Returns `None` if it is absent or
    /// `/`.
    #[must_use]
    pub fn path(&self) -> Option<&LockPath> {
        self.path.as_ref()
    }

    /// Returns the value of a parameter.
    #[must_use]
    pub fn param(&self, name: &str) -> Option<&str> {
        self.params.get(name).map(String::as_str)
    }

    /// Returns the value of a parameter that is a duration: a whole number above 0 and `ms`, `s`, `m` or `h`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`] with the parameter, its value and what is wrong with it.
    pub fn duration(&self, name: &str) -> Result<Option<Duration>> {
        let Some(value) = self.param(name) else { return Ok(None) };
        match parse_duration(value) {
            Ok(duration) => Ok(Some(duration)),
            Err(why) => Err(self.refuse(format!("parameter {name}={}: {why}", Excerpt::of(value)))),
        }
    }

    /// Refuses parameters that are not among `known`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`] with the first name that is not known, and the known ones.
    pub fn refuse_params_but(&self, known: &[&str]) -> Result<()> {
        match self.params.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) if known.is_empty() => {
                let (name, scheme) = (Excerpt::of(name), Excerpt::of(&self.scheme));
                Err(self.refuse(format!("unknown parameter {name:?}: {scheme}:// takes none")))
            }
            Some(name) => Err(self.refuse(format!(
                "unknown parameter {:?}: {}:// takes {}",
                Excerpt::of(name),
                Excerpt::of(&self.scheme),
                known.join(", ")
            ))),
        }
    }

    /// Returns the error of a backend that refuses this URL.
    pub fn refuse(&self, why: impl Into<String>) -> Error {
        invalid(&Excerpt::of(&self.to_string()).to_string(), why)
    }
}

fn invalid(url: &str, why: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidUrl, "connect").with_path(url).with_message(why)
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+')
}

fn parse_hosts(list: &str) -> Result<Vec<Host>, String> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let host = |(i, host)| Host::parse(host).map_err(|why| format!("host {} {why}", i + 1));
    list.split(',').enumerate().map(host).collect()
}

fn parse_port(text: &str) -> Result<u16, String> {
    match text.parse::<u16>() {
        Ok(port) if port > 0 && text.bytes().all(|b| b.is_ascii_digit()) => Ok(port),
        _ => Err(format!("has the port {:?}; expected 1 to 65535", Excerpt::of(text))),
    }
}

fn parse_path(path: &str) -> Result<Option<LockPath>, String> {
    match path.strip_suffix('/').unwrap_or(path) {
        "" => Ok(None),
        path => LockPath::new(path).map(Some).map_err(|e| e.to_string()),
    }
}

fn parse_params(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut params = BTreeMap::new();
    for (i, param) in text.split('&').filter(|_| !text.is_empty()).enumerate() {
        // Shown without its value, and not at all without a `=`, because it may be a secret.
        let Some((name, value)) = param.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(format!("parameter {} is not name=value", i + 1));
        };
        if params.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(format!("parameter {:?} is given twice", Excerpt::of(name)));
        }
    }
    Ok(params)
}

fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit_ms: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err("expected a whole number and ms, s, m or h, as in 10s"),
    };
    match number.parse::<u64>() {
        Ok(0) => Err("must be above 0"),
        Ok(n) => n.checked_mul(unit_ms).map(Duration::from_millis).ok_or("is too long"),
        Err(_) if number.is_empty() => Err("expected a whole number and ms, s, m or h, as in 10s"),
        Err(_) => Err("is too long"),
    }
}

/// Writes the URL without the parameters.
impl fmt::Display for ConnectUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme)?;
        for (i, Host { name, port }) in self.hosts.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            let (open, close) = if name.contains(':') { ("[", "]") } else { ("", "") };
            write!(f, "{comma}{open}{name}{close}")?;
            if let Some(port) = port {
                write!(f, ":{port}")?;
            }
        }
        self.path.iter().try_for_each(|path| write!(f, "{path}"))
    }
}

/// Shows the names of the parameters without their values.
impl fmt::Debug for ConnectUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let params: Vec<_> = self.params.keys().collect();
        f.debug_struct("ConnectUrl").field("url", &self.to_string()).field("params", &params).finish()
    }
}

impl std::str::FromStr for ConnectUrl {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        ConnectUrl::parse(url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_should() {
        for (url, scheme, hosts, path) in [
            ("mem://", "mem", "", None),
            ("mem:///", "mem", "", None),
            ("mem://name", "mem", "name:9", None),
            ("MEM://", "mem", "", None),
            ("zk://h1:2181,h2:2182/a/b", "zk", "h1:2181 h2:2182", Some("/a/b")),
            ("zk://h1:2181,h2/a/", "zk", "h1:2181 h2:9", Some("/a")),
            ("zk+srv://example.com/a", "zk+srv", "example.com:9", Some("/a")),
            ("zk://h1/", "zk", "h1:9", None),
            ("zk://h1?x=1", "zk", "h1:9", None),
            ("zk://[::1]:2181,[fe80::2]/%20 ä", "zk", "[::1]:2181 [fe80::2]:9", Some("/%20 ä")),
            ("etcd://127.0.0.1:2379/p?ttl=10s", "etcd", "127.0.0.1:2379", Some("/p")),
        ] {
            let parsed = ConnectUrl::parse(url).unwrap();
            assert_eq!(parsed.scheme(), scheme, "{url}");
            let authorities: Vec<_> = parsed.hosts().iter().map(|h| h.authority(9)).collect();
            assert_eq!(authorities.join(" "), hosts, "{url}");
            assert_eq!(parsed.path().map(LockPath::as_str), path, "{url}");
        }
    }

    #[test]
    fn refuses_and_says_where() {
        for (url, part) in [
            ("", "no scheme"),
            ("localhost:2181", "no scheme"),
            ("://h", "\"\" is not a scheme"),
            ("z k://h", "\"z k\" is not a scheme"),
            ("zk://h1,,h2", "host 2 is empty"),
            ("zk://,", "host 1 is empty"),
            ("zk://:2181", "host 1 is empty"),
            ("zk://h1:", "host 1 (\"h1:\") has the port \"\""),
            ("zk://h1,h2:0", "host 2 (\"h2:0\") has the port \"0\""),
            ("zk://h:65536", "the port \"65536\""),
            ("zk://h:+1", "the port \"+1\""),
            ("zk://h:21x", "the port \"21x\""),
            ("zk://h 1", "has the character ' '"),
            ("zk://::1:2181", "goes in brackets"),
            ("zk://[::1", "has no ']'"),
            ("zk://[h]", "is not an IPv6 address"),
            ("zk://[::1]2181", "has \"2181\" after the ']'"),
            ("zk://h//a", "segment 1 is empty"),
            ("zk://h/a/../b", "segment 2 is \"..\""),
            ("zk://h?a=1&a=2", "parameter \"a\" is given twice"),
            ("zk://h?a=1&b", "parameter 2 is not name=value"),
            ("zk://h?=b", "parameter 1 is not name=value"),
        ] {
            let e = ConnectUrl::parse(url).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidUrl, "{url}");
            assert!(e.to_string().contains(part), "{url}: {e}");
        }
    }

    #[test]
    fn no_credential_is_ever_shown() {
        for url in [
            "zk://me:SECRET@h1:2181",
            "zk://SECRET@h1:2181/a",
            "zk://me:SEC/SECRET@h1",
            "zk://me:SEC?SECRET@h1",
            "me:SECRET@h1",
            "zk://h1,?password=SECRET",
            "zk://h1?SECRET",
            "zk://h1?p=SECRET&p=SECRET",
        ] {
            let e = ConnectUrl::parse(url).unwrap_err();
            let all = format!("{e} {e:?}");
            assert!(!all.contains("SEC"), "{url}: {all}");
        }
        let url = ConnectUrl::parse("zk://h1?password=SECRET").unwrap();
        let e = url.refuse_params_but(&["session_timeout"]).unwrap_err();
        let all = format!("{url} {url:?} {e} {e:?}");
        assert!(all.contains("password") && !all.contains("SECRET"), "{all}");
    }

    #[test]
    fn errors_stay_short() {
        let long = "x".repeat(10_000_000);
        let hosts = format!("{}h", "h1,".repeat(100_000));
        for bad in [
            long.clone(),
            format!("{long}://me@h"),
            format!("é{long}://h"),
            format!("zk://me@{long}"),
            format!("zk://{long} "),
            format!("zk://{long}:1:2"),
            format!("zk://[{long}"),
            format!("zk://[{long}]"),
            format!("zk://[::1]{long}"),
            format!("zk://h:{long}"),
            format!("zk://{hosts},"),
            format!("zk://h/{long}"),
            format!("zk://h/{long}/../x"),
            format!("zk://h?{long}"),
            format!("zk://h?{long}=1&{long}=2"),
        ] {
            // Not shown if it is accepted, because it is long.
            let Err(e) = ConnectUrl::parse(&bad) else { panic!("taken: {}", Excerpt::of(&bad)) };
            assert!(format!("{e} {e:?}").len() < 10_000, "{} bytes", e.to_string().len());
        }
        for bad in [
            format!("zk://{long}?t=1"),
            format!("zk://{hosts}?t=1"),
            format!("zk://h?t={long}"),
            format!("zk://h?{long}=1"),
            format!("{long}://h?t=1"),
        ] {
            let url = ConnectUrl::parse(&bad).unwrap();
            for e in [url.refuse_params_but(&[]).unwrap_err(), url.refuse_params_but(&["a"]).unwrap_err()] {
                assert!(format!("{e} {e:?}").len() < 10_000, "{} bytes", e.to_string().len());
            }
            let e = url.duration("t").err().unwrap_or_else(|| url.refuse("on purpose"));
            assert!(format!("{e} {e:?}").len() < 10_000, "{} bytes", e.to_string().len());
        }
    }

    #[test]
    fn durations() {
        let get = |value: &str| ConnectUrl::parse(&format!("zk://h?t={value}")).unwrap().duration("t");
        assert_eq!(ConnectUrl::parse("zk://h").unwrap().duration("t").unwrap(), None);
        for (value, ms) in [("500ms", 500), ("10s", 10_000), ("2m", 120_000), ("1h", 3_600_000)] {
            assert_eq!(get(value).unwrap(), Some(Duration::from_millis(ms)), "{value}");
        }
        for (value, part) in [
            ("", "expected a whole number"),
            ("10", "expected a whole number"),
            ("s", "expected a whole number"),
            ("1.5s", "expected a whole number"),
            ("-1s", "expected a whole number"),
            ("10 s", "expected a whole number"),
            ("10S", "expected a whole number"),
            ("0s", "must be above 0"),
            ("18446744073709551615h", "is too long"),
            ("18446744073709551616ms", "is too long"),
        ] {
            let e = get(value).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidUrl);
            assert!(e.to_string().contains(&format!("parameter t={value}: {part}")), "{e}");
        }
    }

    #[test]
    fn unknown_parameters_and_missing_hosts_are_refused_by_name() {
        let url = ConnectUrl::parse("zk://?b=1&a=2").unwrap();
        assert!(url.refuse_params_but(&["a", "b"]).is_ok());
        let e = url.refuse_params_but(&["a", "c"]).unwrap_err();
        assert!(e.to_string().ends_with("unknown parameter \"b\": zk:// takes a, c"), "{e}");
        assert!(url.refuse_params_but(&[]).unwrap_err().to_string().contains("\"a\": zk:// takes none"));
        assert!(url.authorities(1).unwrap_err().to_string().contains("no host is given"));
        let url = ConnectUrl::parse("zk://a:1,[::1]").unwrap();
        assert_eq!(url.authorities(2).unwrap(), ["a:1", "[::1]:2"]);
        assert_eq!(url.to_string(), "zk://a:1,[::1]");
    }
}
