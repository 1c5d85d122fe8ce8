//! The environment variables that say which store to use and how to be let in, as in the library. On real servers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::path::Path;

use tokio::process::Command;
use zlock_testkit::{Etcd, ZooKeeper, have_etcd, have_zookeeper, limit};
use zookeeper_client::{AuthId, CreateMode, Permission};

use crate::support::{folder, outcome, zlock};

type Variables<'a> = &'a [(&'a str, &'a str)];

fn with(variables: Variables<'_>, args: &[&str]) -> Command {
    let mut command = zlock(args);
    command.envs(variables.iter().copied());
    command
}

/// Everything works with the variables, and nothing without them.
async fn all_subcommands(variables: Variables<'_>) {
    let (code, stdout, stderr) = outcome(&mut with(variables, &["run", "jobs/a", "--", "echo", "ran"])).await;
    assert_eq!((code, &*stdout, &*stderr), (0, "ran\n", ""));
    for args in [&["ls", "--json"][..], &["who", "--json", "jobs/a"], &["doctor", "jobs"]] {
        let (code, stdout, stderr) = outcome(&mut with(variables, args)).await;
        assert_eq!((code, &*stderr), (0, ""), "{args:?}: {stdout}");
    }
    let url = [variables[0], ("ZLOCK_PASSWORD", "")];
    let (code, stdout, stderr) = outcome(&mut with(&url, &["run", "other/a", "--", "echo", "ran"])).await;
    assert_eq!((code, &*stdout, stderr.lines().count()), (125, "", 1), "{stderr}");
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_user_of_etcd() {
    limit(async {
        if !have_etcd() {
            return;
        }
        let server = Etcd::start().await;
        for args in [
            &["user", "add", "root:s3cret"][..],
            &["user", "grant-role", "root", "root"],
            &["auth", "enable"],
        ] {
            let command = server.etcdctl(args);
            let done = Command::new(&command[0]).args(&command[1..]).env("ETCDCTL_API", "3").output().await;
            assert!(done.unwrap().status.success(), "{args:?}");
        }
        let (folder, url) = (folder(), format!("etcd://{}/app?connect_timeout=5s", server.addr()));
        let file = write(folder.path(), "password", "s3cret\n");
        all_subcommands(&[("ZLOCK_URL", &url), ("ZLOCK_USER", "root"), ("ZLOCK_PASSWORD_FILE", &file)]).await;
    })
    .await;
}

#[cfg(feature = "etcd-tls")]
#[tokio::test]
async fn etcd_over_tls() {
    limit(async {
        if !have_etcd() {
            return;
        }
        let (folder, server) = (folder(), Etcd::start_tls().await);
        let ca = write(folder.path(), "ca.pem", &server.certificate());
        let url = format!("etcd://{}?connect_timeout=5s", server.addr());
        all_subcommands(&[("ZLOCK_URL", &url), ("ZLOCK_CA_FILE", &ca)]).await;
    })
    .await;
}

/// The nodes below the chroot are for one user.
#[tokio::test]
async fn a_user_of_zookeeper() {
    limit(async {
        if !have_zookeeper() {
            return;
        }
        let server = ZooKeeper::start().await;
        let raw = zookeeper_client::Client::connector().with_auth("digest", b"orders:s3cret");
        let raw = raw.connect(&server.connect_string()).await.unwrap();
        let acl = [zookeeper_client::Acl::new(Permission::ALL, AuthId::authed())];
        let mode = CreateMode::Persistent.with_acls(zookeeper_client::Acls::new(&acl));
        raw.create("/app", b"", &mode).await.unwrap();
        let url = format!("zk://{}/app", server.addr());
        all_subcommands(&[("ZLOCK_URL", &url), ("ZLOCK_USER", "orders"), ("ZLOCK_PASSWORD", "s3cret")]).await;
    })
    .await;
}

#[cfg(feature = "zk-tls")]
#[tokio::test]
async fn zookeeper_over_tls() {
    limit(async {
        if !have_zookeeper() {
            return;
        }
        let (folder, server) = (folder(), ZooKeeper::builder().tls().start().await);
        let (addr, tls) = server.tls();
        let ca = write(folder.path(), "ca.pem", tls.certificate());
        let url = format!("zk://{addr}?connect_timeout=5s");
        all_subcommands(&[("ZLOCK_URL", &url), ("ZLOCK_CA_FILE", &ca)]).await;
    })
    .await;
}

#[tokio::test]
async fn a_bad_value_is_one_line_that_names_the_variable_or_the_file() {
    limit(async {
        let mem = ("ZLOCK_URL", "mem://t");
        for (variables, says) in [
            (&[][..], "ZLOCK_URL"),
            (&[("ZLOCK_URL", "")], "ZLOCK_URL"),
            (
                &[("ZLOCK_URL", "zk://h"), ("ZLOCK_USER", "me")],
                "ZLOCK_USER: invalid argument: needs ZLOCK_PASSWORD",
            ),
            (
                &[("ZLOCK_URL", "zk://h"), ("ZLOCK_PASSWORD", "s3cret")],
                "ZLOCK_PASSWORD: invalid argument: needs",
            ),
            (
                &[("ZLOCK_URL", "zk://h"), ("ZLOCK_USER", "me"), ("ZLOCK_PASSWORD_FILE", "/no/file")],
                "invalid argument: /no/file: No such file",
            ),
            (
                &[("ZLOCK_URL", "zk://h"), ("ZLOCK_CA_FILE", "/no/file")],
                "invalid argument: /no/file: No such file",
            ),
            (
                &[
                    ("ZLOCK_URL", "etcd://h"),
                    ("ZLOCK_USER", "me"),
                    ("ZLOCK_PASSWORD", "s3cret"),
                    ("ZLOCK_AUTH", "sasl"),
                ],
                "ZLOCK_AUTH",
            ),
            (
                &[mem, ("ZLOCK_USER", "me"), ("ZLOCK_PASSWORD", "s3cret")],
                "ZLOCK_USER: invalid argument: is set, and mem",
            ),
        ] {
            let (code, stdout, stderr) = outcome(&mut with(variables, &["run", "a", "--", "echo"])).await;
            assert_eq!((code, &*stdout), (125, ""), "{variables:?}: {stderr}");
            assert!(stderr.starts_with("zlock: ") && stderr.contains(says), "{variables:?}: {stderr}");
            assert!(stderr.lines().count() == 1 && !stderr.contains("s3cret"), "{stderr}");
        }
        // A flag comes first.
        let wrong = [("ZLOCK_URL", "zk://h?x=y")];
        let (code, ..) = outcome(&mut with(&wrong, &["run", "--url", "mem://t", "a", "--", "true"])).await;
        assert_eq!(code, 0);
        let (_, help, _) = outcome(&mut zlock(&["--help"])).await;
        let (_, page, _) = outcome(&mut zlock(&["man"])).await;
        for name in ["URL", "USER", "PASSWORD", "PASSWORD_FILE", "AUTH", "CA_FILE", "CERT_FILE", "KEY_FILE"] {
            let name = format!("ZLOCK_{name}");
            assert!(help.contains(&name) && page.contains(&name), "{name}");
        }
    })
    .await;
}

/// The domain does not exist, or no name server can be reached.
#[cfg(feature = "srv")]
#[tokio::test]
async fn servers_are_looked_up_in_dns() {
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
