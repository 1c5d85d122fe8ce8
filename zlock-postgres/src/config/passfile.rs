//! Files with the passwords of several servers, as libpq reads them.

use std::path::Path;

use tokio_postgres::Config;
use tokio_postgres::config::Host;
use zlock_core::TextOrFile;

use super::DEFAULT_PORT;

/// What a line's first four fields are compared with.
#[derive(Debug)]
struct Login {
    host: String,
    port: String,
    database: String,
    user: String,
}

/// Returns the password in the file for the servers of `library`, or `None` if no line matches.
///
/// # Errors
/// The path of the file, and what is wrong: it cannot be read, others can read it, or it has several passwords for the servers.
pub(crate) fn password(file: &Path, library: &Config) -> Result<Option<String>, String> {
    check_mode(file)?;
    let text = TextOrFile::from(file).read()?;
    let mut passwords: Vec<_> =
        logins(library).iter().map(|login| find(&text, login).unwrap_or_default()).collect();
    passwords.dedup();
    match passwords.len() {
        0 | 1 => Ok(passwords.pop().filter(|password| !password.is_empty())),
        // The library takes one for all servers.
        _ => Err(format!("{}: the servers of the URL have different passwords", file.display())),
    }
}

/// libpq ignores a file that others can read.
#[cfg(unix)]
fn check_mode(file: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;

    let mode = std::fs::metadata(file).map_err(|error| format!("{}: {error}", file.display()))?.permissions();
    if mode.mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(format!("{}: others may read the file: chmod 600", file.display()))
}

#[cfg(not(unix))]
fn check_mode(_: &Path) -> Result<(), String> {
    Ok(())
}

fn logins(library: &Config) -> Vec<Login> {
    let count = library.get_hosts().len().max(library.get_hostaddrs().len());
    let user = library.get_user().unwrap_or_default();
    let login = |i: usize| {
        let host = match library.get_hosts().get(i) {
            Some(Host::Tcp(name)) => name.clone(),
            #[cfg(unix)]
            Some(Host::Unix(folder)) => folder.display().to_string(),
            None => library.get_hostaddrs().get(i).map(ToString::to_string).unwrap_or_default(),
        };
        let ports = library.get_ports();
        let port = ports.get(i).or(ports.first()).copied().unwrap_or(DEFAULT_PORT);
        let database = library.get_dbname().unwrap_or(user).to_owned();
        Login { host, port: port.to_string(), database, user: user.to_owned() }
    };
    (0..count).map(login).collect()
}

/// Returns the password of the first line that matches.
fn find(text: &str, login: &Login) -> Option<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(fields).find_map(|fields| {
        let [host, port, database, user, password] = fields.try_into().ok()?;
        let is = |field: &Field, value: &str| field.is_any || field.text == value;
        let all = is(&host, &login.host)
            && is(&port, &login.port)
            && is(&database, &login.database)
            && is(&user, &login.user);
        all.then_some(password.text)
    })
}

#[derive(Debug, Default)]
struct Field {
    text: String,
    /// An unescaped `*`.
    is_any: bool,
}

/// Splits a line at colons. A backslash makes the next character an ordinary one.
fn fields(line: &str) -> Vec<Field> {
    let mut fields = vec![Field::default()];
    let (mut chars, mut is_escaped) = (line.chars(), false);
    while let Some(c) = chars.next() {
        let Some(field) = fields.last_mut() else { continue };
        match c {
            ':' => {
                field.is_any = field.text == "*" && !is_escaped;
                is_escaped = false;
                fields.push(Field::default());
            }
            '\\' => {
                is_escaped = true;
                field.text.extend(chars.next());
            }
            c => field.text.push(c),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(text: &str, mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    fn config(url: &str) -> Config {
        url.parse().unwrap()
    }

    #[test]
    fn the_first_line_that_matches_counts() {
        let text = "# h:5432:db:me:comment\n\nh:5432:db:me:first\n*:*:*:me:any \nh:5432:db:me:never\n\
                    /run/pg:5432:*:me:socket\n10.0.0.1:*:*:*:address\nshort:5432:db\na\\:b:1:d\\\\b:\\*:p\\:w\n\
                    ::1:1:db:me:broken\n\\:\\:1:1:db:you:six\n";
        let file = file(text, 0o600);
        for (url, expected) in [
            ("postgres://me@h/db", Some("first")),
            ("postgres://me@h:5433/db", Some("any ")),
            ("postgres://you@h/db", None),
            ("postgres://you@[::1]:1/db", Some("six")),
            ("postgres://x@y?hostaddr=10.0.0.1", None),
            ("postgres://x@?hostaddr=10.0.0.1", Some("address")),
            ("postgres://%2A@a%3Ab:1/d%5Cb", Some("p:w")),
            ("postgres://star@a%3Ab:1/d%5Cb", None),
        ] {
            let found = password(file.path(), &config(url)).unwrap();
            assert_eq!(found.as_deref(), expected, "{url}");
        }
        let socket = password(file.path(), &config("postgres://me@%2Frun%2Fpg")).unwrap();
        assert_eq!(socket.as_deref(), Some("any "));
    }

    #[test]
    fn the_user_is_the_default_database() {
        let file = file("h:*:me:me:mine", 0o600);
        assert_eq!(password(file.path(), &config("postgres://me@h")).unwrap().as_deref(), Some("mine"));
        assert_eq!(password(file.path(), &config("postgres://me@h/other")).unwrap(), None);
    }

    #[test]
    fn bad_files_are_refused_without_their_text() {
        let two = file("h1:*:*:*:SECRET1\nh2:*:*:*:SECRET2", 0o600);
        let open = file("*:*:*:*:SECRET", 0o640);
        for (path, url, part) in [
            (two.path(), "postgres://me@h1,h2", "have different passwords"),
            (open.path(), "postgres://me@h1", "others may read the file"),
            (Path::new("/nonexistent/pgpass"), "postgres://me@h", "/nonexistent/pgpass: "),
        ] {
            let error = password(path, &config(url)).unwrap_err();
            assert!(error.contains(part) && !error.contains("SECRET"), "{error}");
        }
        assert_eq!(password(two.path(), &config("postgres://me@h2")).unwrap().as_deref(), Some("SECRET2"));
    }
}
