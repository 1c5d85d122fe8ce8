//! The settings of a server.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::OnceLock;

use zlock_suite::proxy::Port;

use super::super::daemon::retry_taken_ports;
use super::super::tls::make_certificate;
use super::layout::{CERTIFICATE, CLIENT_CERTIFICATE, CLIENT_KEY, KEY, OPERATOR, USER, data};
use super::psql::psql;
use super::server::PostgresServer;
use super::template;

/// Small, because a test program may have several servers. Durability is the default: a flush costs nothing in memory.
const CONFIG: &str = "
shared_buffers = 16MB
max_connections = 300
min_wal_size = 2MB
max_wal_size = 64MB
wal_keep_size = 64MB
dynamic_shared_memory_type = mmap
shared_preload_libraries = 'pg_stat_statements'
log_line_prefix = '%m [%p] %a '
log_min_messages = warning
";

/// Whom the server lets in.
#[derive(Clone, Copy, Debug)]
enum Access {
    All,
    Tls,
    ClientCertificate,
}

/// The settings of a server. Created by [`PostgresServer::builder`].
#[derive(Clone, Debug)]
pub struct PostgresBuilder {
    parameters: Vec<(String, String)>,
    password: Option<&'static str>,
    access: Access,
    on_disk: bool,
    own_clock: bool,
}

impl PostgresBuilder {
    pub(super) fn new() -> Self {
        PostgresBuilder {
            parameters: Vec::new(),
            password: None,
            access: Access::All,
            on_disk: false,
            own_clock: false,
        }
    }

    /// Sets a parameter of the server.
    #[must_use]
    pub fn parameter(mut self, name: &str, value: impl ToString) -> Self {
        self.parameters.push((name.to_owned(), value.to_string()));
        self
    }

    /// Requires this password of the user of tests.
    #[must_use]
    pub fn password(mut self, password: &'static str) -> Self {
        self.password = Some(password);
        self
    }

    /// Requires TLS of the user of tests, with a certificate created for the server.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.access = Access::Tls;
        self
    }

    /// Requires TLS and a certificate of the user of tests, which is created too.
    #[must_use]
    pub fn client_certificate(mut self) -> Self {
        self.access = Access::ClientCertificate;
        self
    }

    /// Keeps the server's data in the folder for temporary files, which is on a disk on most machines.
    #[must_use]
    pub fn on_disk(mut self) -> Self {
        self.on_disk = true;
        self
    }

    /// Gives the server a clock of its own, for [`PostgresServer::step_clock`]. See [`have_faketime`](crate::have_faketime).
    #[must_use]
    pub fn own_clock(mut self) -> Self {
        self.own_clock = true;
        self
    }

    /// Starts the server. Returns when it responds.
    ///
    /// # Panics
    /// If it does not start: with its log.
    pub async fn start(self) -> PostgresServer {
        tokio::task::spawn_blocking(move || self.start_blocking()).await.expect("a start")
    }

    pub(super) fn start_blocking(self) -> PostgresServer {
        retry_taken_ports(|| {
            let server = self.launch();
            server.wait_until_ready()?;
            if let Some(password) = self.password {
                psql(server.addr(), OPERATOR, &format!("ALTER ROLE {USER} PASSWORD '{password}'"))
                    .unwrap_or_else(|error| panic!("{error}"));
            }
            Ok(server)
        })
    }

    fn launch(&self) -> PostgresServer {
        let folder = template::make_folder(self.on_disk);
        template::copy_to(&data(folder.path()), folder.path());
        self.write_config(folder.path());
        let server = PostgresServer::new(folder, Port::reserve(), self.password);
        if self.own_clock {
            server.set_clock(0);
        }
        server.launch(|| server.command(self.own_clock));
        server
    }

    fn write_config(&self, folder: &Path) {
        let data = data(folder);
        let mut config = CONFIG.to_owned();
        let connection = match self.access {
            Access::All => "host",
            Access::Tls | Access::ClientCertificate => {
                make_certificate(&data.join(CERTIFICATE), &data.join(KEY), "localhost");
                template::give_to_server(&data.join(CERTIFICATE));
                template::give_to_server(&data.join(KEY));
                config += &format!("ssl = on\nssl_cert_file = '{CERTIFICATE}'\nssl_key_file = '{KEY}'\n");
                "hostssl"
            }
        };
        let mut method = if self.password.is_some() { "scram-sha-256" } else { "trust" };
        if matches!(self.access, Access::ClientCertificate) {
            make_certificate(&folder.join(CLIENT_CERTIFICATE), &folder.join(CLIENT_KEY), USER);
            let authority = data.join("clients.crt");
            std::fs::copy(folder.join(CLIENT_CERTIFICATE), &authority).expect("a copy");
            template::give_to_server(&authority);
            config += "ssl_ca_file = 'clients.crt'\n";
            method = "cert";
        }
        for (name, value) in &self.parameters {
            let _ = writeln!(config, "{name} = '{value}'");
        }
        let socket = if self.password.is_some() { "scram-sha-256" } else { "trust" };
        let access = format!(
            "host all,replication {OPERATOR} 127.0.0.1/32 trust\nlocal all {USER} {socket}\n\
             {connection} all all 127.0.0.1/32 {method}\n"
        );
        // The files exist, so they stay the server's own.
        std::fs::write(data.join("postgresql.conf"), config).expect("the server's configuration");
        std::fs::write(data.join("pg_hba.conf"), access).expect("the server's configuration");
    }
}

impl PostgresServer {
    /// Starts a server.
    ///
    /// # Panics
    /// If it does not start: with its log.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// Returns a builder for a server.
    #[must_use]
    pub fn builder() -> PostgresBuilder {
        PostgresBuilder::new()
    }

    /// Returns the server that all tests of this process share. Use unique paths, and never stop it.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceLock<PostgresServer> = OnceLock::new();
        // Outside the runtime, which belongs to one test, while the server belongs to all.
        let start = || SHARED.get_or_init(|| PostgresServer::builder().start_blocking());
        tokio::task::spawn_blocking(start).await.expect("the shared server")
    }
}
