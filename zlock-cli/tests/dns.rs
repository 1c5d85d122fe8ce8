//! Servers that DNS names: `zk+srv://` and `etcd+srv://`, on a real DNS server.
#![cfg(feature = "srv")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::net::UdpSocket;
use tokio::process::Command;
use zlock_testkit::{Dns, Etcd, ZooKeeper, have, have_dns, have_etcd, have_zookeeper, limit, limit_if};

use crate::support::{at_a_prompt, folder, outcome, zlock};

/// The command has no setting for name servers: it reads `/etc/resolv.conf`, which names addresses without ports. So this is a
/// DNS server on the usual port, and a file that names it for the command only.
struct System {
    dns: Dns,
    resolv_conf: tempfile::TempDir,
}

impl System {
    async fn start() -> Option<Self> {
        let made = std::process::Command::new("unshare").args(["--mount", "true"]).output();
        let made = made.is_ok_and(|output| output.status.success());
        let missing = "mount namespaces cannot be made (apt-get install util-linux, and be root)";
        if !have((!made).then_some(missing)) || !have_dns() {
            return None;
        }
        let dns = Dns::start().await;
        let usual = relay(dns.addr()).await;
        let resolv_conf = folder();
        std::fs::write(resolv_conf.path().join("resolv.conf"), format!("nameserver {}\n", usual.ip()))
            .unwrap();
        Some(System { dns, resolv_conf })
    }

    /// A `zlock` command that sees the file.
    fn zlock(&self, url: &str, args: &[&str]) -> Command {
        let zlock = zlock(args);
        let zlock = zlock.as_std();
        let mut command = at_a_prompt("unshare");
        let mount = "mount --bind \"$0\" /etc/resolv.conf && exec \"$@\"";
        command.args(["--mount", "sh", "-c", mount]).arg(self.resolv_conf.path().join("resolv.conf"));
        command.arg(zlock.get_program()).args(zlock.get_args()).kill_on_drop(true);
        for (name, value) in zlock.get_envs() {
            assert_eq!(value, None);
            command.env_remove(name);
        }
        command.env("ZLOCK_URL", url);
        command
    }

    async fn all_subcommands(&self, url: &str) {
        let ran = outcome(&mut self.zlock(url, &["run", "jobs/a", "--", "echo", "ran"])).await;
        assert_eq!(ran, (0, "ran\n".into(), String::new()));
        for args in [&["ls", "--json"][..], &["who", "--json", "jobs/a"], &["doctor", "jobs"]] {
            let (code, stdout, stderr) = outcome(&mut self.zlock(url, args)).await;
            assert_eq!((code, &*stderr), (0, ""), "{args:?}: {stdout}");
        }
    }

    /// zlock fails, and starts nothing. Returns what it says, on one line.
    async fn refused(&self, url: &str, args: &[&str]) -> String {
        let (code, stdout, stderr) = outcome(&mut self.zlock(url, args)).await;
        assert_eq!((code, &*stdout, stderr.lines().count()), (125, "", 1), "{args:?}: {stderr}");
        stderr
    }
}

/// Passes queries to a DNS server, from port 53 of an address that no other test uses.
async fn relay(dns: SocketAddr) -> SocketAddr {
    // The server's port is reserved.
    let [a, b] = dns.port().to_be_bytes();
    let socket = Arc::new(UdpSocket::bind((Ipv4Addr::new(127, 53, a, b), 53)).await.unwrap());
    let usual = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut query = [0; 4096];
        loop {
            let (len, client) = socket.recv_from(&mut query).await.unwrap();
            let (socket, query) = (socket.clone(), query[..len].to_vec());
            tokio::spawn(async move {
                let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
                server.send_to(&query, dns).await.unwrap();
                let mut answer = [0; 4096];
                let len = server.recv(&mut answer).await.unwrap();
                socket.send_to(&answer[..len], client).await.unwrap();
            });
        }
    });
    usual
}

#[tokio::test]
async fn zookeeper() {
    limit_if(have_zookeeper(), async {
        let Some(system) = System::start().await else { return };
        let server = ZooKeeper::start().await;
        system.dns.serve("_zookeeper._tcp", &[(0, 0, "localhost", server.addr().port())]).await;
        system.all_subcommands("zk+srv://zlock.test/app").await;
    })
    .await;
}

#[tokio::test]
async fn etcd() {
    limit_if(have_etcd(), async {
        let Some(system) = System::start().await else { return };
        let server = Etcd::start().await;
        system.dns.serve("_etcd-client._tcp", &[(0, 0, "localhost", server.addr().port())]).await;
        system.all_subcommands("etcd+srv://zlock.test/app").await;
    })
    .await;
}

#[tokio::test]
async fn a_domain_without_servers_is_named() {
    limit(async {
        let Some(system) = System::start().await else { return };
        for (scheme, service) in [("zk", "_zookeeper._tcp"), ("etcd", "_etcd-client._tcp")] {
            let url = format!("{scheme}+srv://zlock.test?connect_timeout=1s");
            for (records, part) in
                [(&[][..], "there are none"), (&[(0, 0, "", 0)], "the domain does not offer this service")]
            {
                system.dns.serve(service, records).await;
                for args in [&["run", "a", "--", "echo"][..], &["ls"]] {
                    let said = system.refused(&url, args).await;
                    let name = format!("SRV records of {service}.zlock.test.: {part}");
                    assert!(said.contains("zlock.test (SRV)") && said.contains(&name), "{args:?}: {said}");
                }
            }
            system.dns.pause();
            for args in [&["run", "a", "--", "echo"][..], &["ls"]] {
                let said = system.refused(&url, args).await;
                assert!(said.contains("no name server answers"), "{args:?}: {said}");
            }
            system.dns.resume();
        }
    })
    .await;
}

/// On this machine, the domain does not exist or no name server can be reached.
#[tokio::test]
async fn a_domain_that_is_not_found_is_named() {
    limit(async {
        for scheme in ["zk", "etcd"] {
            let url = format!("{scheme}+srv://zlock.invalid/app?connect_timeout=200ms");
            for args in [&["run", "--url", &url, "a", "--", "echo"][..], &["ls", "--url", &url]] {
                let (code, stdout, stderr) = outcome(&mut zlock(args)).await;
                assert_eq!((code, &*stdout, stderr.lines().count()), (125, "", 1), "{stderr}");
                assert!(stderr.contains("zlock.invalid (SRV)"), "{stderr}");
            }
        }
    })
    .await;
}
