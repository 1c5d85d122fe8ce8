//! A DNS server: dnsmasq.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, OnceLock};
use zlock_suite::proxy::Port;

use super::daemon::{Daemon, Kind, Look, retry_taken_ports};

const KIND: Kind = Kind {
    name: "dnsmasq",
    version: "started, version ",
    port_taken: "Address already in use",
    is_parent: false,
};

const CONFIG: &str = "dnsmasq.conf";

/// Debian's program. `/usr/sbin` is not in the users' `PATH`.
const PROGRAM: &str = "/usr/sbin/dnsmasq";

/// Returns what is missing to run a DNS server, and how to install it.
pub(crate) fn missing() -> Option<String> {
    static MISSING: OnceLock<Option<String>> = OnceLock::new();
    let missing = || {
        let runs = Command::new(PROGRAM).arg("--version").output().is_ok_and(|out| out.status.success());
        (!runs)
            .then(|| "there is no dnsmasq (apt-get install --no-install-recommends dnsmasq-base)".to_owned())
    };
    MISSING.get_or_init(missing).clone()
}

/// A real DNS server on a free loopback port, for the domain `zlock.test` only.
#[derive(Clone, Debug)]
pub struct Dns(Arc<Server>);

#[derive(Debug)]
struct Server {
    daemon: Daemon,
    port: Port,
}

impl std::ops::Deref for Dns {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.0.daemon
    }
}

impl Dns {
    /// Starts a server whose domain has no records.
    ///
    /// # Panics
    /// If it does not start: with its log.
    pub async fn start() -> Self {
        let start = || {
            retry_taken_ports(|| {
                let (folder, port) = (Daemon::make_folder(&KIND), Port::reserve());
                let addr = port.addr();
                let log = folder.path().join("log");
                // The server responds before it has logged its version.
                let look = move || {
                    let has_logged =
                        std::fs::read_to_string(&log).is_ok_and(|log| log.contains(KIND.version));
                    if has_logged && TcpStream::connect(addr).is_ok() { Look::Ready } else { Look::NotYet }
                };
                let dns = Dns(Arc::new(Server { daemon: Daemon::new(&KIND, folder, look), port }));
                dns.write("", &[]);
                dns.launch(|| {
                    let mut config = OsString::from("--conf-file=");
                    config.push(dns.config());
                    vec![PROGRAM.into(), "--keep-in-foreground".into(), config]
                });
                dns.wait_until_ready().map(|()| dns)
            })
        };
        tokio::task::spawn_blocking(start).await.expect("a start")
    }

    /// Returns the server's address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.0.port.addr()
    }

    /// Sets the SRV records of a service of the domain: priority, weight, target, port. An empty target means that the domain
    /// does not offer the service.
    ///
    /// # Panics
    /// If the server does not start again.
    pub async fn serve(&self, service: &str, records: &[(u16, u16, &str, u16)]) {
        self.write(service, records);
        self.restart().await;
    }

    fn config(&self) -> PathBuf {
        self.folder().join(CONFIG)
    }

    fn write(&self, service: &str, records: &[(u16, u16, &str, u16)]) {
        let port = self.0.port.number();
        let mut config = format!(
            "port={port}\nlisten-address=127.0.0.1\nbind-interfaces\nno-resolv\nno-hosts\nlog-facility=-\n\
             pid-file=\nlocal=/zlock.test/\n"
        );
        for (priority, weight, target, port) in records {
            let record = if target.is_empty() {
                String::new()
            } else {
                format!(",{target},{port},{priority},{weight}")
            };
            let _ = writeln!(config, "srv-host={service}.zlock.test{record}");
        }
        std::fs::write(self.config(), config).expect("the server's configuration");
    }
}
