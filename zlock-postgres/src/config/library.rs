//! The options as the client library takes them.

use tokio_postgres::Config;
use tokio_postgres::config::{Host as Server, LoadBalanceHosts, SslMode, TargetSessionAttrs};
use zlock_core::Host;

use super::{DEFAULT_PORT, PostgresOptions, passfile};

impl PostgresOptions {
    /// Returns the options for a connection. Reads the files with passwords.
    ///
    /// # Errors
    /// The path of a file, and why it cannot be used; or the host that cannot be parsed.
    pub(crate) async fn library_config(&self) -> Result<Config, String> {
        let mut config = self.library.clone();
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            for host in &self.kit.hosts {
                let host = Host::parse(host)?;
                config.host(host.name()).port(host.port().unwrap_or(DEFAULT_PORT));
            }
        }
        if let Some(database) = &self.database {
            config.dbname(database);
        }
        if let Some((user, _)) = &self.user {
            config.user(user);
        }
        if config.get_application_name().is_none() {
            config.application_name("zlock");
        }
        let ssl_mode = if self.kit.tls.is_some() { SslMode::Require } else { SslMode::Disable };
        config.ssl_mode(ssl_mode).target_session_attrs(TargetSessionAttrs::ReadWrite);
        if let Some(password) = self.user.as_ref().and_then(|(_, password)| password.clone()) {
            config.password(self.kit.files.read(move || password.read_secret()).await?);
        } else if let (None, Some(file)) = (config.get_password(), self.passfile.clone()) {
            let read = config.clone();
            if let Some(password) = self.kit.files.read(move || passfile::password(&file, &read)).await? {
                config.password(password);
            }
        }
        Ok(config)
    }

    /// Returns the options for a connection with one of the servers, whatever its role.
    ///
    /// # Errors
    /// Those of [`library_config`](Self::library_config).
    pub(crate) async fn server_config(&self, server: usize) -> Result<Config, String> {
        Ok(one_of(&self.library_config().await?, server))
    }

    /// Returns the options for a connection with each of the servers, in the order in which they are to be tried. Only one that
    /// accepts writes is used.
    ///
    /// # Errors
    /// Those of [`library_config`](Self::library_config).
    pub(crate) async fn writer_configs(&self) -> Result<Vec<Config>, String> {
        let all = self.library_config().await?;
        let mut each: Vec<_> = (0..self.kit.hosts.len()).map(|server| one_of(&all, server)).collect();
        for one in &mut each {
            one.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        if all.get_load_balance_hosts() == LoadBalanceHosts::Random {
            fastrand::shuffle(&mut each);
        }
        Ok(each)
    }

    /// Returns what makes the TLS half of a connection, or `None` without TLS. Reads the files with certificates.
    ///
    /// # Errors
    /// The path of a file, or the certificate, and what is wrong with it.
    #[cfg(feature = "tls")]
    pub(crate) async fn connector(&self) -> Result<Option<super::tls::Connector>, String> {
        let Some(tls) = self.kit.tls.clone() else { return Ok(None) };
        let verify = self.verify;
        self.kit.files.read(move || super::tls::Connector::new(&tls, verify)).await.map(Some)
    }
}

/// Returns the options of a connection with one server.
fn one_of(all: &Config, server: usize) -> Config {
    let mut one = Config::new();
    if let Some(host) = all.get_hosts().get(server) {
        match host {
            Server::Tcp(name) => one.host(name),
            #[cfg(unix)]
            Server::Unix(folder) => one.host_path(folder),
        };
    }
    if let Some(address) = all.get_hostaddrs().get(server) {
        one.hostaddr(*address);
    }
    if let Some(port) = all.get_ports().get(server).or(all.get_ports().first()) {
        one.port(*port);
    }
    if let Some(user) = all.get_user() {
        one.user(user);
    }
    if let Some(password) = all.get_password() {
        one.password(password);
    }
    if let Some(database) = all.get_dbname() {
        one.dbname(database);
    }
    if let Some(options) = all.get_options() {
        one.options(options);
    }
    if let Some(name) = all.get_application_name() {
        one.application_name(name);
    }
    one.ssl_mode(all.get_ssl_mode());
    one.keepalives(all.get_keepalives()).keepalives_idle(all.get_keepalives_idle());
    if let Some(interval) = all.get_keepalives_interval() {
        one.keepalives_interval(interval);
    }
    if let Some(retries) = all.get_keepalives_retries() {
        one.keepalives_retries(retries);
    }
    if let Some(time) = all.get_tcp_user_timeout() {
        one.tcp_user_timeout(*time);
    }
    one
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use zlock_core::TextOrFile;

    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
        file
    }

    fn password(config: &Config) -> &str {
        std::str::from_utf8(config.get_password().unwrap_or_default()).unwrap()
    }

    #[tokio::test]
    async fn hosts_of_either_way_are_the_librarys() {
        let by_hosts = PostgresOptions::new(["h1", "[::1]:7"]).with_database("db").with_user("me", None);
        let by_url = PostgresOptions::from_url("postgres://me@h1,[::1]:7/db").unwrap();
        let [one, other] = [by_hosts.library_config().await.unwrap(), by_url.library_config().await.unwrap()];
        assert_eq!(one, other);
        assert_eq!(one.get_ports(), [5432, 7]);
        assert_eq!(one.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        assert_eq!(one.get_application_name(), Some("zlock"));
        let named = PostgresOptions::from_url("postgres://h?application_name=shop").unwrap();
        assert_eq!(named.library_config().await.unwrap().get_application_name(), Some("shop"));
    }

    #[tokio::test]
    async fn one_server_has_what_all_have() {
        let url = "postgres://me:pw@h1,[::1]:7,h3:8/db?application_name=shop";
        let options = PostgresOptions::from_url(url).unwrap();
        for (n, (host, port)) in [("h1", 5432), ("::1", 7), ("h3", 8)].into_iter().enumerate() {
            let one = options.server_config(n).await.unwrap();
            let expected = format!("postgres://me:pw@{host}:{port}/db?application_name=shop");
            let expected = expected.replace("::1:", "[::1]:").parse::<Config>().unwrap();
            assert_eq!((one.get_hosts(), one.get_ports()), (expected.get_hosts(), expected.get_ports()));
            assert_eq!((one.get_user(), password(&one), one.get_dbname()), (Some("me"), "pw", Some("db")));
            assert_eq!(one.get_target_session_attrs(), TargetSessionAttrs::Any);
            assert_eq!(one.get_ssl_mode(), SslMode::Disable);
        }
        let one_port = PostgresOptions::from_url("postgres://?hostaddr=10.0.0.1,10.0.0.2&port=6").unwrap();
        assert_eq!(one_port.server_config(1).await.unwrap().get_ports(), [6]);
    }

    /// One server is tried with all that the URL says.
    #[tokio::test]
    async fn nothing_is_lost_for_one_server() {
        let url = "postgres://me:pw@h1:7/db?application_name=shop&options=-c%20geqo=off\
            &keepalives=0&keepalives_idle=7&keepalives_interval=8&keepalives_retries=3&tcp_user_timeout=9";
        let options = PostgresOptions::from_url(url).unwrap();
        let all = options.library_config().await.unwrap();
        assert_eq!(options.writer_configs().await.unwrap(), [all]);
    }

    #[tokio::test]
    async fn passwords_have_an_order() {
        let passfile = file("h:*:*:*:of the file");
        let with_file = |url: &str| format!("{url}?passfile={}", passfile.path().display());
        let of = async |options: PostgresOptions| options.library_config().await.unwrap();
        let options = PostgresOptions::from_url(&with_file("postgres://me@h")).unwrap();
        assert_eq!(password(&of(options.clone()).await), "of the file");
        std::fs::write(passfile.path(), "h:*:*:me:a new one").unwrap();
        assert_eq!(password(&of(options.clone()).await), "a new one");

        let in_url = PostgresOptions::from_url(&with_file("postgres://me:in%20url@h")).unwrap();
        assert_eq!(password(&of(in_url.clone()).await), "in url");
        let secret = file("by option\n");
        let by_option = in_url.with_user("me", Some(TextOrFile::from(secret.path())));
        assert_eq!(password(&of(by_option).await), "by option");

        let gone = options.with_user("me", Some(TextOrFile::from(std::path::Path::new("/nonexistent"))));
        assert!(gone.library_config().await.unwrap_err().starts_with("/nonexistent: "));
    }
}
