//! The URLs of PostgreSQL, as libpq has them, with parameters of our own.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::Host as Server;
use zlock_core::kit::Tls;
use zlock_core::{ConnectUrl, Environment, Error, ErrorKind, Excerpt, Host, LockPath, Result, TextOrFile};

use super::{DEFAULT_PORT, PostgresOptions, Replication, Verify};

/// Parameters of our own, and those of libpq that are not for the client library.
const OWN: [&str; 17] = [
    "session_timeout",
    "connect_timeout",
    "operation_timeout",
    "prefix",
    "create_schema",
    "replication",
    "pooler",
    "listen",
    "listen_url",
    "max_connections",
    "passfile",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "sslnegotiation",
    "target_session_attrs",
];

/// Those of libpq that the client library reads.
const LIBRARYS: [&str; 14] = [
    "host",
    "hostaddr",
    "port",
    "user",
    "password",
    "dbname",
    "options",
    "application_name",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "load_balance_hosts",
];

/// A URL, taken apart, with everything still percent-encoded.
struct Parts<'a> {
    /// For messages, without credentials.
    url: &'a str,
    /// Everything before the parameters.
    head: &'a str,
    params: Vec<(&'a str, &'a str)>,
}

impl PostgresOptions {
    /// Parses `postgres://user:password@host:port,host:port/database?name=value&name=value`, a URL as PostgreSQL's own clients
    /// take it, with the scheme `postgres` or `postgresql`. Everything but a host is optional. Special characters are
    /// percent-encoded, an `@` that does not follow the user always.
    ///
    /// libpq's parameters are `host` (a Unix socket's folder begins with a slash), `hostaddr`, `port`, `user`, `password`,
    /// `dbname`, `passfile` (only with a user), `sslmode`, `sslrootcert`, `sslcert`, `sslkey`, `sslnegotiation` (only `postgres`),
    /// `options`, `application_name`, `tcp_user_timeout`, `load_balance_hosts`, `keepalives` and its relatives.
    /// `target_session_attrs` may be `read-write` or `primary`, which always holds. `connect_timeout` without a unit is in seconds.
    /// A file that `passfile` names is read for each new connection; the file `.pgpass` is not read unless it is named.
    ///
    /// `sslmode` is `require` (the connection is encrypted, and with `sslrootcert` the server's authority is checked),
    /// `verify-ca`, `verify-full`, or `disable`, the default. `allow` and `prefer` promise no TLS, and so none is used. TLS
    /// is refused on a Unix socket, and with a `hostaddr` that has no host. The files, in PEM format, are read for each new
    /// connection.
    ///
    /// | own parameter | method |
    /// |---|---|
    /// | `session_timeout`, `connect_timeout`, `operation_timeout`: a duration such as `10s` or `500ms` | [`with_ttl`](Self::with_ttl), [`with_connect_timeout`](Self::with_connect_timeout), [`with_operation_timeout`](Self::with_operation_timeout) |
    /// | `prefix`: a path | [`with_prefix`](Self::with_prefix) |
    /// | `create_schema`: `true` or `false` | [`with_create_schema`](Self::with_create_schema) |
    /// | `replication`: `async` or `sync` | [`with_replication`](Self::with_replication) |
    /// | `pooler`: `true` or `false` | [`with_pooler`](Self::with_pooler) |
    /// | `listen`: `on` or `off` | [`with_listen`](Self::with_listen) |
    /// | `listen_url`: a URL, percent-encoded | [`with_listen_at`](Self::with_listen_at) |
    /// | `max_connections`: a number | [`with_max_connections`](Self::with_max_connections) |
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`], with the problem and its position, and without credentials.
    pub fn from_url(url: &str) -> Result<Self> {
        let parts = Parts::of(url)?;
        let library = parts.library().map_err(|why| parts.refuse(why))?;
        let servers = servers(&library).map_err(|why| parts.refuse(why))?;
        let mut options = PostgresOptions::new(servers);
        options.user = library.get_user().map(|user| (user.to_owned(), None));
        options.database = library.get_dbname().map(str::to_owned);
        options.library = library;
        parts.read_own(&mut options)?;
        options.check().map_err(|why| parts.refuse(why))?;
        Ok(options)
    }
}

impl<'a> Parts<'a> {
    fn of(url: &'a str) -> Result<Self> {
        let (head, params) = url.split_once('?').unwrap_or((url, ""));
        let parts = Parts { url, head, params: Vec::new() };
        let Some((scheme, rest)) = head.split_once("://") else {
            return Err(parts.refuse("no scheme: expected one as in postgres://host/database"));
        };
        if !["postgres", "postgresql"].contains(&scheme) {
            return Err(parts.refuse(format!(
                "the scheme is {:?}, expected \"postgres\" or \"postgresql\"",
                Excerpt::of(scheme)
            )));
        }
        let hosts = rest.split('/').next().unwrap_or_default();
        let users = hosts.matches('@').count();
        // Nothing is shown or examined: what precedes the last one may be a password.
        if users > 1 || users != url.matches('@').count() {
            return Err(parts.refuse("an '@' other than that after the user is written %40"));
        }
        let params = params.split('&').filter(|param| !param.is_empty()).zip(1..);
        let params = params.map(|(param, i)| match param.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok((name, value)),
            _ => Err(parts.refuse(format!("parameter {i} is not name=value"))),
        });
        let params = params.collect::<Result<_>>()?;
        Ok(Parts { params, ..parts })
    }

    fn refuse(&self, why: impl Into<String>) -> Error {
        let url = ConnectUrl::excerpt(self.url);
        Error::new(ErrorKind::InvalidUrl, "connect").with_path(url).with_message(why)
    }

    /// Has the client library parse what it can.
    fn library(&self) -> Result<Config, String> {
        let mut seen = BTreeSet::new();
        for (name, _) in &self.params {
            let shown = Excerpt::of(name);
            if !OWN.contains(name) && !LIBRARYS.contains(name) {
                let all = [&OWN[..], &LIBRARYS].concat().join(", ");
                return Err(format!("unknown parameter {shown:?}: postgres:// takes {all}"));
            }
            if !seen.insert(name) {
                return Err(format!("parameter {shown:?} is given twice"));
            }
        }
        let params = self.params.iter().filter(|(name, _)| LIBRARYS.contains(name));
        let params: Vec<_> = params.map(|(name, value)| format!("{name}={value}")).collect();
        let parsed = format!("{}?{}", self.head, params.join("&")).parse::<Config>();
        // The library's messages name the parameter, and show no value.
        parsed.map_err(|error| {
            std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string)
        })
    }

    /// Returns the value of a parameter.
    fn param(&self, name: &str) -> Option<&'a str> {
        self.params.iter().find(|(found, _)| *found == name).map(|(_, value)| *value)
    }

    /// Reads the parameters of TLS, with libpq's meaning.
    fn read_tls(&self, options: &mut PostgresOptions) -> Result<()> {
        let file = |name| -> Result<Option<TextOrFile>> {
            Ok(self.decoded(name)?.map(|path| TextOrFile::from(PathBuf::from(&*path))))
        };
        let authorities = file("sslrootcert")?;
        let modes = [
            ("disable", None),
            ("allow", None),
            ("prefer", None),
            ("require", Some(Verify::Nothing)),
            ("verify-ca", Some(Verify::Authority)),
            ("verify-full", Some(Verify::Full)),
        ];
        let verify = match (self.choice("sslmode", modes)?.flatten(), &authorities) {
            (Some(Verify::Nothing), Some(_)) => Verify::Authority,
            (Some(verify), _) => verify,
            (None, _) => {
                let unused =
                    ["sslrootcert", "sslcert", "sslkey"].iter().find(|name| self.param(name).is_some());
                return match unused {
                    Some(name) => {
                        Err(self.refuse(format!("parameter {name} needs sslmode=require or better")))
                    }
                    None => Ok(()),
                };
            }
        };
        if !cfg!(feature = "tls") {
            return Err(Environment::feature_disabled("sslmode", "postgres-tls"));
        }
        let identity = match (file("sslcert")?, file("sslkey")?) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (Some(_), None) => return Err(self.refuse("parameter sslcert needs sslkey")),
            (None, Some(_)) => return Err(self.refuse("parameter sslkey needs sslcert")),
        };
        if verify != Verify::Nothing && authorities.is_none() {
            return Err(self.refuse("parameter sslmode: checking the server's certificate needs sslrootcert"));
        }
        options.kit.tls = Some(Tls { authorities, identity });
        options.verify = verify;
        Ok(())
    }

    fn read_own(&self, options: &mut PostgresOptions) -> Result<()> {
        options.kit.read_timeouts(|name| self.duration(name))?;
        if let Some(prefix) = self.decoded("prefix")? {
            let path = LockPath::new(&*prefix).map_err(|error| self.refuse(format!("prefix: {error}")))?;
            options.kit.prefix = Some(path);
        }
        let flag = [("true", true), ("false", false)];
        options.create_schema = self.choice("create_schema", flag)?.unwrap_or(options.create_schema);
        options.pooled = self.choice("pooler", flag)?.unwrap_or(options.pooled);
        options.listen = self.choice("listen", [("on", true), ("off", false)])?.unwrap_or(options.listen);
        if let Some(url) = self.decoded("listen_url")? {
            let refuse = |why: &dyn std::fmt::Display| self.refuse(format!("parameter listen_url: {why}"));
            let at = PostgresOptions::from_url(&url).map_err(|error| refuse(&error))?;
            if at.listen_at.is_some() {
                return Err(refuse(&"it has a listen_url itself"));
            }
            options.listen_at = Some(Box::new(at));
        }
        if let Some(value) = self.param("max_connections") {
            options.max_connections = value.parse().map_err(|_| {
                self.refuse(format!("parameter max_connections={}: expected a number", Excerpt::of(value)))
            })?;
        }
        let replication = [("async", Replication::Async), ("sync", Replication::Sync)];
        options.replication = self.choice("replication", replication)?;
        self.read_tls(options)?;
        // A client only ever uses a server that takes writes.
        self.choice("target_session_attrs", [("read-write", ()), ("primary", ())])?;
        // A server that takes TLS directly requires ALPN, which the connector does not offer.
        self.choice("sslnegotiation", [("postgres", ())])?;
        options.passfile = self.decoded("passfile")?.map(|file| PathBuf::from(&*file));
        if options.passfile.is_some() && options.user.is_none() {
            return Err(self.refuse("parameter passfile needs a user, as in postgres://user@host"));
        }
        Ok(())
    }

    fn decoded(&self, name: &str) -> Result<Option<Cow<'a, str>>> {
        let decode = |value| percent_decode_str(value).decode_utf8();
        let decoded = self.param(name).map(decode).transpose();
        decoded.map_err(|_| self.refuse(format!("parameter {name} is not UTF-8")))
    }

    /// Returns the value of a parameter that is a duration. Without a unit it is in seconds, as in libpq.
    fn duration(&self, name: &str) -> Result<Option<Duration>> {
        let Some(value) = self.param(name) else { return Ok(None) };
        let unit = if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) { "s" } else { "" };
        let url = ConnectUrl::parse(&format!("postgres://?{name}={value}{unit}"))?;
        url.duration(name)
    }

    fn choice<T: Copy, const N: usize>(&self, name: &str, values: [(&str, T); N]) -> Result<Option<T>> {
        let Some(value) = self.param(name) else { return Ok(None) };
        match values.iter().find(|(known, _)| *known == value) {
            Some((_, meaning)) => Ok(Some(*meaning)),
            None => {
                let known: Vec<_> = values.iter().map(|(known, _)| *known).collect();
                let (value, known) = (Excerpt::of(value), known.join(" or "));
                Err(self.refuse(format!("parameter {name}={value}: expected {known}")))
            }
        }
    }
}

/// Returns the servers as messages show them. Refuses those that the library would only refuse when it connects.
fn servers(library: &Config) -> Result<Vec<String>, String> {
    let (hosts, addresses, ports) = (library.get_hosts(), library.get_hostaddrs(), library.get_ports());
    let count = hosts.len().max(addresses.len());
    for (what, given) in [("host", hosts.len()), ("hostaddr", addresses.len())] {
        if given != 0 && given != count {
            return Err(format!("{what} is given {given} times for {count} servers"));
        }
    }
    if ports.len() > 1 && ports.len() != count {
        return Err(format!("port is given {} times for {count} servers", ports.len()));
    }
    let server = |i: usize| {
        let port = ports.get(i).or(ports.first()).copied().unwrap_or(DEFAULT_PORT);
        if port == 0 {
            return Err(format!("host {} has the port 0", i + 1));
        }
        match hosts.get(i) {
            #[cfg(unix)]
            Some(Server::Unix(folder)) => Ok(format!("{}:{port}", folder.display())),
            Some(Server::Tcp(name)) => {
                let bracketed = if name.contains(':') { format!("[{name}]") } else { name.clone() };
                let host = Host::parse(&bracketed).map_err(|why| format!("host {} {why}", i + 1))?;
                Ok(host.authority(port))
            }
            _ => Ok(addresses
                .get(i)
                .map(|ip| std::net::SocketAddr::new(*ip, port).to_string())
                .unwrap_or_default()),
        }
    };
    (0..count).map(server).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_should() {
        for (url, hosts, user, database) in [
            ("postgres://h", "h:5432", None, None),
            ("postgresql://h/", "h:5432", None, None),
            ("postgres://me@h/db", "h:5432", Some("me"), Some("db")),
            ("postgres://me:pw@h1:1,h2,[::1]:3/db", "h1:1 h2:5432 [::1]:3", Some("me"), Some("db")),
            ("postgres://m%40e:p%2Fw@h/d%20b", "h:5432", Some("m@e"), Some("d b")),
            ("postgres://%2Frun%2Fpostgresql/db", "/run/postgresql:5432", None, Some("db")),
            ("postgres:///db?host=/run/pg&port=6000&user=me", "/run/pg:6000", Some("me"), Some("db")),
            ("postgres://?host=h&dbname=x&password=secret", "h:5432", None, Some("x")),
            ("postgres://h?hostaddr=10.0.0.1&keepalives_idle=30", "h:5432", None, None),
            ("postgres://?hostaddr=10.0.0.1,10.0.0.2", "10.0.0.1:5432 10.0.0.2:5432", None, None),
            ("postgres://h?target_session_attrs=read-write&sslmode=prefer", "h:5432", None, None),
        ] {
            let options = PostgresOptions::from_url(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(options.kit.hosts.join(" "), hosts, "{url}");
            assert_eq!(options.user.as_ref().map(|(name, _)| &**name), user, "{url}");
            assert_eq!(options.database.as_deref(), database, "{url}");
        }
    }

    #[test]
    fn reads_parameters_of_its_own() {
        let options = PostgresOptions::from_url(
            "postgres://h/db?session_timeout=3s&connect_timeout=7&operation_timeout=900ms&prefix=%2Fprod/a\
             &create_schema=true&replication=sync&pooler=true&listen=off&user=me&passfile=%2Frun%2Fpass",
        )
        .unwrap();
        assert_eq!(options.kit.session_timeout, Duration::from_secs(3));
        assert_eq!(options.kit.connect_timeout, Duration::from_secs(7));
        assert_eq!(options.kit.operation_timeout, Duration::from_millis(900));
        assert_eq!(options.prefix(), "/prod/a");
        assert!(options.create_schema && options.pooled && !options.listen);
        assert_eq!(options.replication, Some(Replication::Sync));
        assert!(options.listen_at.is_none());
        let direct =
            "postgres://h/db?pooler=true&session_timeout=3s&listen_url=postgres%3A%2F%2Fme%40direct%2Fdb";
        let direct = PostgresOptions::from_url(direct).unwrap();
        let heart = direct.heart();
        assert_eq!(
            (heart.kit.hosts, heart.kit.session_timeout),
            (vec!["direct:5432".to_owned()], direct.kit.session_timeout)
        );
        assert!(direct.pooled && !heart.pooled && heart.listen);
        assert_eq!(options.passfile, Some(PathBuf::from("/run/pass")));

        let defaults = PostgresOptions::from_url("postgres://h").unwrap();
        assert_eq!(defaults.kit.session_timeout, Duration::from_secs(10));
        assert!(!defaults.create_schema && !defaults.pooled && defaults.listen);
        assert_eq!(defaults.replication, None);
    }

    #[test]
    fn refuses_and_says_what() {
        for (url, part) in [
            ("h/db", "no scheme"),
            ("mysql://h", "the scheme is \"mysql\""),
            ("postgres://", "no host is given"),
            ("postgres:///db", "no host is given"),
            ("postgres://h1,,h2", "host 2 is empty"),
            ("postgres://h:0", "host 1 has the port 0"),
            ("postgres://h:x", "port"),
            ("postgres://h 1", "has the character ' '"),
            ("postgres://[::1", "host"),
            ("postgres://h?host=h1&port=1,2,3", "port is given"),
            ("postgres://h1,h2?hostaddr=10.0.0.1", "hostaddr is given 1 times for 2 servers"),
            ("postgres://h?hostaddr=x", "hostaddr"),
            ("postgres://h?x=1", "unknown parameter \"x\": postgres:// takes session_timeout"),
            ("postgres://h?service=x", "unknown parameter \"service\""),
            ("postgres://h?user=a&user=b", "parameter \"user\" is given twice"),
            ("postgres://h?user", "parameter 1 is not name=value"),
            ("postgres://h?application_name=a&=b", "parameter 2 is not name=value"),
            ("postgres://h?application_name=a@b", "is written %40"),
            ("postgres://h?session_timeout=1x", "parameter session_timeout=1x"),
            ("postgres://h?session_timeout=999ms", "session timeout of 999ms"),
            ("postgres://h?session_timeout=0", "must be above 0"),
            ("postgres://h?prefix=a//b", "prefix"),
            ("postgres://h?prefix=%FF", "prefix is not UTF-8"),
            ("postgres://h?create_schema=yes", "create_schema=yes: expected true or false"),
            ("postgres://h?replication=database", "replication=database: expected async or sync"),
            ("postgres://h?listen=true", "listen=true: expected on or off"),
            ("postgres://h?max_connections=many", "max_connections=many: expected a number"),
            ("postgres://h?max_connections=1", "at least 2"),
            ("postgres://h?pooler=1", "pooler=1: expected true or false"),
            ("postgres://h?target_session_attrs=any", "expected read-write or primary"),
            ("postgres://h?sslnegotiation=direct", "parameter sslnegotiation=direct: expected postgres"),
            ("postgres://h/me?passfile=/run/pgpass", "parameter passfile needs a user"),
            ("postgres://me@h?listen_url=postgres://h?passfile=/p", "listen_url: "),
            ("postgres://h?sslmode=on", "sslmode=on: expected disable or allow or prefer or require"),
            ("postgres://h?sslrootcert=/ca", "sslrootcert needs sslmode"),
            ("postgres://h?sslmode=prefer&sslcert=/c", "sslcert needs sslmode"),
            ("postgres://h?keepalives=x", "keepalives"),
            ("postgres://h?listen_url=h", "listen_url: "),
            ("postgres://h?listen_url=postgres://h?listen_url=postgres://h", "listen_url"),
            ("postgres://h?listen_url=postgres://me@h", "is written %40"),
        ] {
            let Err(error) = PostgresOptions::from_url(url) else { panic!("{url} is taken") };
            assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{url}");
            assert!(error.to_string().contains(part), "{url}: {error}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn reads_tls_as_libpq_means_it() {
        for (params, verify, authorities) in [
            ("sslmode=require", Verify::Nothing, None),
            ("sslmode=require&sslrootcert=%2Fca", Verify::Authority, Some("/ca")),
            ("sslmode=verify-ca&sslrootcert=/ca", Verify::Authority, Some("/ca")),
            ("sslmode=verify-full&sslrootcert=/ca", Verify::Full, Some("/ca")),
        ] {
            let url = format!("postgres://h?{params}&sslcert=/c&sslkey=/k");
            let options = PostgresOptions::from_url(&url).unwrap();
            let tls = options.kit.tls.unwrap();
            assert_eq!(options.verify, verify, "{params}");
            let found = tls.authorities.as_ref().and_then(TextOrFile::file);
            assert_eq!(found, authorities.map(std::path::Path::new), "{params}");
            let (certificate, key) = tls.identity.unwrap();
            let files = [certificate.file(), key.file()];
            assert_eq!(files, ["/c", "/k"].map(|file| Some(std::path::Path::new(file))));
        }
        for (url, part) in [
            ("postgres://h?sslmode=verify-full", "needs sslrootcert"),
            ("postgres://h?sslmode=verify-ca", "needs sslrootcert"),
            ("postgres://h?sslmode=require&sslcert=/c", "sslcert needs sslkey"),
            ("postgres://h?sslmode=require&sslkey=/k", "sslkey needs sslcert"),
            ("postgres://h1,%2Frun%2Fpg?sslmode=require", "TLS (sslmode, "),
            ("postgres:///db?host=/run/pg&sslmode=require", "Unix socket in /run/pg"),
            ("postgres://?hostaddr=10.0.0.1&sslmode=require", "host for the hostaddr 10.0.0.1"),
            ("postgres://h?listen_url=postgres://?hostaddr=10.0.0.1%26sslmode=require", "listen_url: "),
        ] {
            let error = PostgresOptions::from_url(url).map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{url}");
            assert!(error.to_string().contains(part), "{url}: {error}");
        }
        PostgresOptions::from_url("postgres://h?hostaddr=10.0.0.1&sslmode=require").unwrap();
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn tls_needs_its_feature() {
        let error = PostgresOptions::from_url("postgres://h?sslmode=require").map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FeatureDisabled);
        assert!(
            error.to_string().contains("sslmode") && error.to_string().contains("postgres-tls"),
            "{error}"
        );
    }

    #[test]
    fn no_credential_is_ever_shown() {
        for url in [
            "postgres://me:SECRET@h?x=1",
            "postgres://me:SECRET@h:x",
            "postgres://me:SEC/SECRET@h",
            "postgres://me:SEC?SECRET@h",
            "postgres://me:SEC@SECRET@h",
            "postgres://me:SECRET%FF@h,",
            "postgres://SECRET%FF@h",
            "mysql://me:SECRET@h",
            "me:SECRET@h",
            "postgres://h?password=SECRET&x=1",
            "postgres://h?password=SECRET&password=SECRET",
            "postgres://h?password=SECRET%FF",
            "postgres://h?SECRET",
            "postgres://h?listen_url=postgres%3A%2F%2Fme%3ASECRET%40h%3Ax",
        ] {
            let error = PostgresOptions::from_url(url).map(|_| ()).unwrap_err();
            let all = format!("{error} {error:?}");
            assert!(!all.contains("SEC"), "{url}: {all}");
        }
        let options = PostgresOptions::from_url("postgres://me:SECRET@h?application_name=x").unwrap();
        assert!(!format!("{options:?}").contains("SECRET"));
    }

    #[test]
    fn errors_stay_short() {
        let long = "x".repeat(1_000_000);
        for bad in [
            long.clone(),
            format!("{long}://h"),
            format!("postgres://h 1{long}"),
            format!("postgres://h:{long}"),
            format!("postgres://{}", "h1,".repeat(100_000)),
            format!("postgres://h?{long}=1"),
            format!("postgres://h?{long}"),
            format!("postgres://h?listen={long}"),
            format!("postgres://h?session_timeout={long}"),
            format!("postgres://h?prefix=//{long}"),
            format!("postgres://h?keepalives={long}"),
        ] {
            let error = PostgresOptions::from_url(&bad).map(|_| ()).unwrap_err();
            assert!(format!("{error} {error:?}").len() < 10_000, "{} bytes", error.to_string().len());
        }
    }
}
