//! A pooler in front of a server.

use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::sync::Arc;

use zlock_suite::proxy::Port;

use super::super::daemon::{Daemon, Kind, Look, retry_taken_ports};
use super::super::programs::Programs;
use super::layout::USER;
use super::server::PostgresServer;
use super::template;

const KIND: Kind = Kind {
    name: "PgBouncer",
    version: "process up: PgBouncer ",
    port_taken: "Address already in use",
    is_parent: false,
};

/// A real PgBouncer in transaction mode on a free loopback port.
///
/// The process is killed when the last handle is dropped, and when the test process ends in any way.
#[derive(Clone, Debug)]
pub struct PgBouncer(Arc<Pooler>);

#[derive(Debug)]
struct Pooler {
    daemon: Daemon,
    port: Port,
    server: PostgresServer,
}

impl Deref for PgBouncer {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.0.daemon
    }
}

impl PgBouncer {
    /// Starts a pooler with few connections to this server, which must not require a password or TLS.
    ///
    /// # Panics
    /// If it does not start: with its log.
    pub async fn start(server: &PostgresServer) -> Self {
        let server = server.clone();
        let start = move || {
            retry_taken_ports(|| {
                let pooler = Self::launch(&server);
                pooler.wait_until_ready().map(|()| pooler)
            })
        };
        tokio::task::spawn_blocking(start).await.expect("a start")
    }

    fn launch(server: &PostgresServer) -> Self {
        let (folder, port) = (Daemon::make_folder(&KIND), Port::reserve());
        template::give_to_server(folder.path());
        let config = format!(
            "[databases]\n{USER} = host=127.0.0.1 port={} user={USER}\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = transaction\ndefault_pool_size = 4\nmax_client_conn = 500\n",
            server.addr().port(),
            port.number(),
        );
        let file = folder.path().join("pgbouncer.ini");
        std::fs::write(&file, config).expect("the pooler's configuration");
        let addr = port.addr();
        let log = folder.path().join("log");
        // Another program may listen on the port, so the log must say that this one does.
        let look = move || {
            let is_up = std::fs::read_to_string(&log).is_ok_and(|log| log.contains(KIND.version));
            if is_up && TcpStream::connect(addr).is_ok() { Look::Ready } else { Look::NotYet }
        };
        let daemon = Daemon::new(&KIND, folder, look);
        daemon.launch(|| template::as_server([Programs::PGBOUNCER.into(), file.into()]));
        PgBouncer(Arc::new(Pooler { daemon, port, server: server.clone() }))
    }

    /// Returns the address for clients.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.0.port.addr()
    }

    /// Returns the URL of the database through the pooler.
    #[must_use]
    pub fn url(&self) -> String {
        self.0.server.url_at(self.addr())
    }
}
