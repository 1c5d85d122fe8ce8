//! Connection settings in environment variables.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::excerpt::Excerpt;
use crate::error::{Error, ErrorKind, Result};
use crate::settings::text_or_file::TextOrFile;
use crate::settings::url::ConnectUrl;

const URL: &str = "ZLOCK_URL";
const NAME: &str = "ZLOCK_NAME";
const USER: &str = "ZLOCK_USER";
const PASSWORD: &str = "ZLOCK_PASSWORD";
const PASSWORD_FILE: &str = "ZLOCK_PASSWORD_FILE";
const AUTH: &str = "ZLOCK_AUTH";
const CA_FILE: &str = "ZLOCK_CA_FILE";
const CERT_FILE: &str = "ZLOCK_CERT_FILE";
const KEY_FILE: &str = "ZLOCK_KEY_FILE";
const PASSFILE: &str = "PGPASSFILE";

/// The most bytes of a client's name.
const MAX_NAME: usize = 200;

/// The connection settings in environment variables.
///
/// | variable | meaning |
/// |---|---|
/// | `ZLOCK_URL` | the store's URL |
/// | `ZLOCK_NAME` | the client's [name](Environment::with_name) |
/// | `ZLOCK_USER` | the user to authenticate as |
/// | `ZLOCK_PASSWORD` | the user's password |
/// | `ZLOCK_PASSWORD_FILE` | a file with the password, which is read for each new connection; trailing line endings are ignored |
/// | `ZLOCK_AUTH` | ZooKeeper only: `digest` (the default) or `sasl` |
/// | `ZLOCK_CA_FILE` | a PEM file with the certificates to trust; enables TLS |
/// | `ZLOCK_CERT_FILE`, `ZLOCK_KEY_FILE` | PEM files with the client's own certificate and key |
/// | `PGPASSFILE` | PostgreSQL only: a file with passwords, in the format of PostgreSQL's own clients |
///
/// An empty variable counts as not set. The files are read again for each new connection, on ZooKeeper for each new session.
///
/// # Examples
/// ```
/// use zlock::Environment;
///
/// # fn main() -> zlock::Result<()> {
/// let environment = Environment::read(|name| (name == "ZLOCK_URL").then(|| "mem://orders".into()))?;
/// assert_eq!(environment.url()?, "mem://orders");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Environment {
    url: Option<String>,
    name: Option<String>,
    user: Option<(String, TextOrFile)>,
    auth: Option<String>,
    ca: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
    passfile: Option<PathBuf>,
}

impl Environment {
    /// Reads the environment of this process.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`], with the variable, if it needs another one that is not set, contradicts another one, or is not
    /// UTF-8. No
    /// error shows a password. Files are not read here, but when a connection is made.
    pub fn of_process() -> Result<Self> {
        Self::read(|name| std::env::var_os(name))
    }

    /// Reads settings from variables whose values `lookup` returns.
    ///
    /// # Errors
    /// Those of [`of_process`](Self::of_process).
    pub fn read(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self> {
        let value = |name| lookup(name).filter(|value| !value.is_empty());
        let text = |name| {
            let utf8 = |value: OsString| value.into_string().map_err(|_| invalid(name, "is not UTF-8"));
            value(name).map(utf8).transpose()
        };
        let file = |name| value(name).map(PathBuf::from);
        let password = match (text(PASSWORD)?, file(PASSWORD_FILE)) {
            (Some(_), Some(_)) => {
                return Err(invalid(PASSWORD, format!("{PASSWORD_FILE} is set, too: set one of them")));
            }
            (password, file) => password.map(TextOrFile::from).or(file.map(TextOrFile::from)),
        };
        let user = match (text(USER)?, password) {
            (Some(_), None) => return Err(invalid(USER, format!("needs {PASSWORD} or {PASSWORD_FILE}"))),
            (None, Some(password)) => {
                let name = if password.file().is_some() { PASSWORD_FILE } else { PASSWORD };
                return Err(invalid(name, format!("needs {USER}")));
            }
            (user, password) => user.zip(password),
        };
        let auth = text(AUTH)?;
        if auth.is_some() && user.is_none() {
            return Err(invalid(AUTH, format!("needs {USER}")));
        }
        let ca = file(CA_FILE);
        let identity = match (file(CERT_FILE), file(KEY_FILE)) {
            (Some(_), None) => return Err(invalid(CERT_FILE, format!("needs {KEY_FILE}"))),
            (None, Some(_)) => return Err(invalid(KEY_FILE, format!("needs {CERT_FILE}"))),
            (Some(_), Some(_)) if ca.is_none() => return Err(invalid(CERT_FILE, format!("needs {CA_FILE}"))),
            (certificate, key) => certificate.zip(key),
        };
        let (url, passfile) = (text(URL)?, file(PASSFILE));
        let read = Environment { url, name: None, user, auth, ca, identity, passfile };
        match text(NAME)? {
            Some(name) => read.with_name(name),
            None => Ok(read),
        }
    }

    /// Sets the client's name, which operators see beside what it holds and waits for. It need not be unique, and nothing relies on it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if it is empty, longer than 200 bytes, or has control characters.
    pub fn with_name(mut self, name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        let why = match name.len() {
            0 => "the client's name is empty".to_owned(),
            bytes if bytes > MAX_NAME => {
                format!("the client's name has {bytes} bytes; the limit is {MAX_NAME}")
            }
            _ if name.contains(char::is_control) => {
                format!("the client's name {:?} has control characters", Excerpt::of(&name))
            }
            _ => {
                self.name = Some(name);
                return Ok(self);
            }
        };
        Err(invalid(NAME, why))
    }

    /// Returns the client's name, if one was set.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the URL.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`] if `ZLOCK_URL` is not set.
    pub fn url(&self) -> Result<&str> {
        self.url.as_deref().ok_or_else(|| {
            let message = "is not set; expected a URL such as zk://zk1:2181,zk2:2181/app";
            Error::new(ErrorKind::InvalidUrl, "connect").with_path(URL).with_message(message)
        })
    }

    /// Returns the user and the password.
    #[must_use]
    pub fn user(&self) -> Option<(&str, &TextOrFile)> {
        self.user.as_ref().map(|(user, password)| (&**user, password))
    }

    /// Returns the value of `ZLOCK_AUTH`.
    #[must_use]
    pub fn auth(&self) -> Option<&str> {
        self.auth.as_deref()
    }

    /// Returns the file with the certificates to trust, if TLS is on.
    #[must_use]
    pub fn ca_file(&self) -> Option<&Path> {
        self.ca.as_deref()
    }

    /// Returns the files with the client's certificate and its key.
    #[must_use]
    pub fn identity_files(&self) -> Option<(&Path, &Path)> {
        self.identity.as_ref().map(|(certificate, key)| (&**certificate, &**key))
    }

    /// Returns the file in `PGPASSFILE`.
    #[must_use]
    pub fn passfile(&self) -> Option<&Path> {
        self.passfile.as_deref()
    }

    /// Refuses a user and TLS files, for a store that has no use for them.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] with the variable that is set.
    pub fn refuse_credentials(&self, scheme: &str) -> Result<()> {
        let set = [(USER, self.user.is_some()), (CA_FILE, self.ca.is_some())];
        match set.iter().find(|(_, is_set)| *is_set) {
            Some((name, _)) => Err(invalid(name, format!("is set, and {scheme}:// takes none"))),
            None => Ok(()),
        }
    }

    /// Returns the error of a store that does not support the value of `ZLOCK_AUTH`.
    #[must_use]
    pub fn refuse_auth(&self, expected: &str) -> Error {
        let auth = Excerpt::of(self.auth.as_deref().unwrap_or_default());
        invalid(AUTH, format!("{auth:?} is unknown; {expected}"))
    }

    /// Returns the error for a variable that needs a cargo feature of the crate `zlock`.
    #[must_use]
    pub fn feature_disabled(variable: &str, feature: &str) -> Error {
        let message = format!("enable the feature {feature:?} of the crate zlock");
        Error::new(ErrorKind::FeatureDisabled, "connect").with_path(variable).with_message(message)
    }
}

/// Shows no password, not even one in a URL, which no store accepts.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.url.as_deref().map(ConnectUrl::excerpt).unwrap_or_default();
        f.debug_struct("Environment")
            .field("url", &format_args!("{url}"))
            .field("name", &self.name)
            .field("user", &self.user)
            .field("auth", &self.auth)
            .field("ca", &self.ca)
            .field("identity", &self.identity)
            .field("passfile", &self.passfile)
            .finish()
    }
}

fn invalid(variable: &str, why: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, "connect").with_path(variable).with_message(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Environment> {
        Environment::read(|name| {
            variables.iter().find(|(set, _)| *set == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn reads_what_is_set() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let file = folder.path().join(name);
            std::fs::write(&file, format!("the {name}\n")).unwrap();
            file.to_str().unwrap().to_owned()
        };
        let (password, ca, cert, key) = (file("password"), file("ca"), file("cert"), file("key"));
        let environment = read(&[
            (URL, "zk://h"),
            (USER, "orders"),
            (PASSWORD, ""),
            (PASSWORD_FILE, &password),
            (AUTH, "sasl"),
            (CA_FILE, &ca),
            (CERT_FILE, &cert),
            (KEY_FILE, &key),
        ])
        .unwrap();
        assert_eq!(environment.url().unwrap(), "zk://h");
        let (user, secret) = environment.user().unwrap();
        assert_eq!((user, &*secret.read_secret().unwrap()), ("orders", "the password"));
        assert_eq!(environment.auth(), Some("sasl"));
        assert_eq!(environment.ca_file(), Some(Path::new(&ca)));
        assert_eq!(environment.identity_files(), Some((Path::new(&cert), Path::new(&key))));
        let shown = format!("{environment:?}");
        assert!(!shown.contains("the password"), "{shown}");

        let given = read(&[(USER, "me"), (PASSWORD, "SECRET ")]).unwrap();
        assert_eq!(given.user().unwrap().1.read_secret().unwrap(), "SECRET ");
        assert!(!format!("{given:?}").contains("SECRET"));

        for url in ["zk://me:SECRET@h1", "me:SECRET@h1", "zk://h1?password=SECRET"] {
            let shown = format!("{:?}", read(&[(URL, url)]).unwrap());
            assert!(shown.contains("url: \"") && !shown.contains("SECRET"), "{shown}");
        }
    }

    #[test]
    fn refuses_and_names_the_variable() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "SECRET").unwrap();
        let file = file.to_str().unwrap();
        for (variables, start, part) in [
            (&[(PASSWORD, "SECRET")][..], "connect ZLOCK_PASSWORD:", "needs ZLOCK_USER"),
            (&[(PASSWORD_FILE, file)], "connect ZLOCK_PASSWORD_FILE:", "needs ZLOCK_USER"),
            (&[(USER, "me")], "connect ZLOCK_USER:", "needs ZLOCK_PASSWORD or ZLOCK_PASSWORD_FILE"),
            (
                &[(USER, "me"), (PASSWORD, "SECRET"), (PASSWORD_FILE, file)],
                "connect ZLOCK_PASSWORD:",
                "ZLOCK_PASSWORD_FILE is set, too",
            ),
            (&[(AUTH, "sasl")], "connect ZLOCK_AUTH:", "needs ZLOCK_USER"),
            (&[(CA_FILE, file), (CERT_FILE, file)], "connect ZLOCK_CERT_FILE:", "needs ZLOCK_KEY_FILE"),
            (&[(CA_FILE, file), (KEY_FILE, file)], "connect ZLOCK_KEY_FILE:", "needs ZLOCK_CERT_FILE"),
            (&[(CERT_FILE, file), (KEY_FILE, file)], "connect ZLOCK_CERT_FILE:", "needs ZLOCK_CA_FILE"),
        ] {
            let error = read(variables).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{variables:?}");
            let text = format!("{error} {error:?}");
            assert!(text.starts_with(start) && text.contains(part), "{text}");
            assert!(!text.contains("SECRET"), "{text}");
        }
        for variables in [&[][..], &[(URL, "")]] {
            let error = read(variables).unwrap().url().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidUrl);
            assert!(error.to_string().starts_with("connect ZLOCK_URL:"), "{error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_name_that_is_not_utf_8_is_refused() {
        use std::os::unix::ffi::OsStringExt;

        let error =
            Environment::read(|name| (name == URL).then(|| OsString::from_vec(vec![0xff]))).unwrap_err();
        assert_eq!(error.to_string(), "connect ZLOCK_URL: invalid argument: is not UTF-8");
    }
}
