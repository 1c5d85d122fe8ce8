//! The URLs of MySQL.

use percent_encoding::percent_decode_str;
use zlock_core::kit;
use zlock_core::{ConnectUrl, Environment, Error, ErrorKind, Excerpt, LockPath, Result, TextOrFile};

use super::{DEFAULT_PORT, MysqlOptions, Verify};

const PARAMS: [&str; 10] = [
    "session_timeout",
    "connect_timeout",
    "operation_timeout",
    "prefix",
    "create_schema",
    "max_connections",
    "ssl_mode",
    "ssl_ca",
    "ssl_cert",
    "ssl_key",
];

impl MysqlOptions {
    /// Parses `mysql://user:password@host:port,host:port/database?name=value&name=value`. `mariadb://` means the same. In the user and the
    /// password, what is not a letter or a digit may be percent-encoded, and `@`, `:`, `/` and `?` must be.
    ///
    /// | parameter | value |
    /// |---|---|
    /// | `session_timeout`, `connect_timeout`, `operation_timeout` | a duration such as `10s` or `500ms` |
    /// | `prefix` | the path that is prepended to the path of every lock, such as `/production` |
    /// | `create_schema` | `true` or `false`: see [`with_create_schema`](Self::with_create_schema) |
    /// | `max_connections` | a number: see [`with_max_connections`](Self::with_max_connections) |
    /// | `ssl_mode` | `disabled`, the default; `required`; `verify_ca` or `verify_identity`, with `ssl_ca` |
    /// | `ssl_ca`, `ssl_cert`, `ssl_key` | files in PEM format, which are read for each new connection |
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidUrl`], with what is wrong and where.
    /// - [`ErrorKind::FeatureDisabled`] for TLS without its feature.
    pub fn from_url(url: &str) -> Result<Self> {
        let refuse = |why: String| {
            Error::new(ErrorKind::InvalidUrl, "connect").with_path(ConnectUrl::excerpt(url)).with_message(why)
        };
        let (user, rest) = user_info(url).map_err(refuse)?;
        let parsed = ConnectUrl::parse(&rest)?;
        let mut options = Self::from_connect_url(&parsed)?;
        options.user = user;
        Ok(options)
    }

    fn from_connect_url(url: &ConnectUrl) -> Result<Self> {
        let scheme = if url.scheme() == "mariadb" { "mariadb" } else { "mysql" };
        let mut options = Self::with_kit(kit::Options::from_url(url, scheme, DEFAULT_PORT)?);
        url.refuse_params_but(&PARAMS)?;
        options.kit.prefix = None;
        let decode = |name: &str, value: &str| {
            let text = percent_decode_str(value).decode_utf8();
            text.map(String::from).map_err(|_| url.refuse(format!("{name} is not UTF-8")))
        };
        if let Some(path) = url.path() {
            let database = path.as_str().trim_start_matches('/');
            if database.contains('/') {
                return Err(url.refuse("the path is more than the name of a database: see prefix=/.."));
            }
            options.database = Some(decode("the database", database)?);
        }
        if let Some(prefix) = url.param("prefix") {
            let prefix = decode("prefix", prefix)?;
            let prefix = if prefix.starts_with('/') { prefix } else { format!("/{prefix}") };
            options.kit.prefix =
                Some(LockPath::new(prefix).map_err(|why| url.refuse(format!("prefix: {why}")))?);
        }
        match url.param("create_schema") {
            None | Some("false") => {}
            Some("true") => options.create_schema = true,
            Some(other) => {
                return Err(url.refuse(format!(
                    "parameter create_schema={}: expected true or false",
                    Excerpt::of(other)
                )));
            }
        }
        if let Some(value) = url.param("max_connections") {
            let why =
                || url.refuse(format!("parameter max_connections={}: expected a number", Excerpt::of(value)));
            options.max_connections = value.parse().map_err(|_| why())?;
        }
        options.read_tls(url, decode)?;
        // The user may come from the environment.
        let complete =
            if options.user.is_none() { options.clone().with_user("x", None) } else { options.clone() };
        complete.check().map_err(|why| url.refuse(why))?;
        Ok(options)
    }

    fn read_tls(&mut self, url: &ConnectUrl, decode: impl Fn(&str, &str) -> Result<String>) -> Result<()> {
        let file = |name: &str| {
            let decoded = url.param(name).map(|value| decode(name, value)).transpose()?;
            Ok::<_, Error>(decoded.map(|file| TextOrFile::from(std::path::Path::new(&file))))
        };
        let (ca, certificate, key) = (file("ssl_ca")?, file("ssl_cert")?, file("ssl_key")?);
        self.verify =
            match url.param("ssl_mode") {
                None | Some("disabled") => {
                    let given =
                        ["ssl_ca", "ssl_cert", "ssl_key"].into_iter().find(|name| url.param(name).is_some());
                    return match given {
                        None => Ok(()),
                        Some(name) => Err(url
                            .refuse(format!("{name} needs ssl_mode=required, verify_ca or verify_identity"))),
                    };
                }
                Some("required") => Verify::Nothing,
                Some("verify_ca") => Verify::Authority,
                Some("verify_identity") => Verify::Full,
                Some(other) => {
                    let expected = "expected disabled or required or verify_ca or verify_identity";
                    return Err(url.refuse(format!("parameter ssl_mode={}: {expected}", Excerpt::of(other))));
                }
            };
        if !cfg!(feature = "tls") {
            return Err(Environment::feature_disabled("ssl_mode", "mysql-tls"));
        }
        if (self.verify == Verify::Nothing) == ca.is_some() {
            return Err(url.refuse("ssl_ca goes with ssl_mode=verify_ca or verify_identity, which need it"));
        }
        let tls = self.kit.tls.get_or_insert_default();
        tls.authorities = ca;
        tls.identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => return Err(url.refuse("ssl_cert needs ssl_key")),
            (None, Some(_)) => return Err(url.refuse("ssl_key needs ssl_cert")),
        };
        Ok(())
    }
}

/// The user, and the password if there is one.
type User = (String, Option<TextOrFile>);

/// Takes the user and the password out of a URL.
fn user_info(url: &str) -> Result<(Option<User>, String), String> {
    let Some((scheme, rest)) = url.split_once("://") else { return Ok((None, url.to_owned())) };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let Some((info, hosts)) = authority.rsplit_once('@') else { return Ok((None, url.to_owned())) };
    if info.contains('@') {
        return Err("'@' in a user or a password is written %40".into());
    }
    let (name, password) =
        info.split_once(':').map_or((info, None), |(name, password)| (name, Some(password)));
    let decode = |what: &str, text: &str| {
        let decoded =
            percent_decode_str(text).decode_utf8().map_err(|_| format!("the {what} is not UTF-8"))?;
        Ok::<_, String>(decoded.into_owned())
    };
    let password = password.map(|password| decode("password", password)).transpose()?;
    let user = (decode("user", name)?, password.as_deref().map(TextOrFile::from));
    Ok((Some(user), format!("{scheme}://{hosts}{tail}")))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn reads_what_it_should() {
        for (url, hosts, user, database) in [
            ("mysql://h/db", "h:3306", None, "db"),
            ("mariadb://me@h/db", "h:3306", Some("me"), "db"),
            ("mysql://me:pw@h1:1,h2,[::1]:3/db", "h1:1 h2:3306 [::1]:3", Some("me"), "db"),
            ("mysql://m%40e:p%2Fw@h/d%20b", "h:3306", Some("m@e"), "d b"),
        ] {
            let options = MysqlOptions::from_url(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(options.kit.hosts.join(" "), hosts, "{url}");
            assert_eq!(options.user.as_ref().map(|(name, _)| &**name), user, "{url}");
            assert_eq!(options.database.as_deref(), Some(database), "{url}");
        }
        let options = MysqlOptions::from_url(
            "mysql://h/db?session_timeout=3s&operation_timeout=900ms&prefix=%2Fprod/a&create_schema=true&max_connections=2",
        )
        .unwrap();
        assert_eq!(options.kit.session_timeout, Duration::from_secs(3));
        assert_eq!(options.kit.operation_timeout, Duration::from_millis(900));
        assert_eq!((options.prefix(), options.max_connections, options.create_schema), ("/prod/a", 2, true));
    }

    #[test]
    fn refuses_and_says_what() {
        for (url, part) in [
            ("h/db", "no scheme"),
            ("postgres://h/db", "the scheme is \"postgres\""),
            ("mysql:///db", "no host is given"),
            ("mysql://h", "no database is given"),
            ("mysql://h/", "no database is given"),
            ("mysql://h/a/b", "more than the name of a database"),
            ("mysql://h:0/db", "\"0\""),
            ("mysql://h 1/db", "has the character ' '"),
            ("mysql://h/db?x=1", "unknown parameter \"x\": mysql:// takes session_timeout"),
            ("mysql://h/db?session_timeout=1x", "session_timeout=1x"),
            ("mysql://h/db?session_timeout=999ms", "session timeout of 999ms"),
            ("mysql://h/db?prefix=a//b", "prefix"),
            ("mysql://h/db?create_schema=yes", "create_schema=yes: expected true or false"),
            ("mysql://h/db?max_connections=many", "max_connections=many: expected a number"),
            ("mysql://h/db?max_connections=1", "at least 2"),
            ("mysql://h/db?ssl_mode=on", "ssl_mode=on: expected disabled"),
            ("mysql://h/db?ssl_ca=/ca", "ssl_ca needs ssl_mode"),
            ("mysql://a@b@h/db", "is written %40"),
        ] {
            let Err(error) = MysqlOptions::from_url(url) else { panic!("{url} is taken") };
            assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{url}");
            assert!(error.to_string().contains(part), "{url}: {error}");
        }
    }

    #[test]
    fn no_credential_is_ever_shown() {
        for url in [
            "mysql://me:SECRET@h/db?x=1",
            "mysql://me:SECRET@h:x/db",
            "mysql://me:SEC/SECRET@h/db",
            "mysql://me:SEC?SECRET@h/db",
            "mysql://me:SEC@SECRET@h/db",
            "mysql://me:SECRET%FF@h,/db",
            "postgres://me:SECRET@h/db",
            "me:SECRET@h/db",
        ] {
            let error = MysqlOptions::from_url(url).map(|_| ()).unwrap_err();
            let all = format!("{error} {error:?}");
            assert!(!all.contains("SEC"), "{url}: {all}");
        }
        let options = MysqlOptions::from_url("mysql://me:SECRET@h/db").unwrap();
        assert!(!format!("{options:?}").contains("SECRET"));
    }
}
