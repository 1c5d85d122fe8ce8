//! The environment variables that say which store to use and how to be let in, as in the library. On real servers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::path::Path;

use tokio::process::Command;
use zlock_testkit::{Etcd, Port, ZooKeeper, have_etcd, have_zookeeper, limit, limit_if};
use zookeeper_client::{AuthId, CreateMode, Permission};

use crate::support::{folder, outcome, zlock};

type Variables<'a> = &'a [(&'a str, &'a str)];

fn with(variables: Variables<'_>, args: &[&str]) -> Command {
    let mut command = zlock(args);
    command.envs(variables.iter().copied());
    command
}

/// Everything works with the variables, and nothing without them. Returns what zlock says without them.
async fn all_subcommands(variables: Variables<'_>) -> String {
    let (code, stdout, stderr) = outcome(&mut with(variables, &["run", "jobs/a", "--", "echo", "ran"])).await;
    assert_eq!((code, &*stdout, &*stderr), (0, "ran\n", ""));
    for args in [&["ls", "--json"][..], &["who", "--json", "jobs/a"], &["doctor", "jobs"]] {
        let (code, stdout, stderr) = outcome(&mut with(variables, args)).await;
        assert_eq!((code, &*stderr), (0, ""), "{args:?}: {stdout}");
    }
    let url = [variables[0], ("ZLOCK_PASSWORD", "")];
    refused(&url, &["run", "other/a", "--", "echo", "ran"]).await
}

/// zlock fails, and starts nothing. Returns what it says, on one line.
async fn refused(variables: Variables<'_>, args: &[&str]) -> String {
    let (code, stdout, stderr) = outcome(&mut with(variables, args)).await;
    assert_eq!((code, &*stdout, stderr.lines().count()), (125, "", 1), "{variables:?} {args:?}: {stderr}");
    assert!(stderr.starts_with("zlock: ") && !stderr.contains("s3cret"), "{stderr}");
    stderr
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The user may read and write nothing but the keys below the prefix.
#[tokio::test]
async fn a_user_of_etcd() {
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
        for args in [
            &["user", "add", "root:s3cret"][..],
            &["user", "grant-role", "root", "root"],
            &["role", "add", "orders"],
            &["role", "grant-permission", "--prefix=true", "orders", "readwrite", "/app/"],
            &["user", "add", "orders:s3cret"],
            &["user", "grant-role", "orders", "orders"],
            &["auth", "enable"],
        ] {
            let command = server.etcdctl(args);
            let done = Command::new(&command[0]).args(&command[1..]).env("ETCDCTL_API", "3").output().await;
            assert!(done.unwrap().status.success(), "{args:?}");
        }
        let (folder, url) = (folder(), format!("etcd://{}/app?connect_timeout=5s", server.addr()));
        let file = write(folder.path(), "password", "s3cret\n");
        let credentials = [("ZLOCK_USER", "orders"), ("ZLOCK_PASSWORD_FILE", &*file)];
        all_subcommands(&[("ZLOCK_URL", &url), credentials[0], credentials[1]]).await;
        // The user is authenticated by another server if the first one is not there.
        let down = Port::reserve();
        let url = format!("etcd://{},{}/app", down.addr(), server.addr());
        let variables = [("ZLOCK_URL", &*url), credentials[0], credentials[1]];
        let (code, stdout, stderr) = outcome(&mut with(&variables, &["ls", "--json"])).await;
        assert_eq!((code, &*stdout, &*stderr), (0, "{\"locks\":[],\"unreadable\":0}\n", ""));
        let (code, stdout, _) = outcome(&mut with(&variables, &["doctor", "jobs"])).await;
        let bad: Vec<_> = stdout.lines().filter(|line| line.starts_with("BAD")).collect();
        assert!(code == 1 && bad.len() == 1 && bad[0].contains(&down.addr().to_string()), "{stdout}");
    })
    .await;
}

#[cfg(feature = "etcd-tls")]
#[tokio::test]
async fn etcd_over_tls() {
    limit_if(have_etcd(), async {
        let (folder, server) = (folder(), Etcd::start_tls().await);
        let ca = write(folder.path(), "ca.pem", &server.certificate());
        let url = format!("etcd://{}?connect_timeout=5s", server.addr());
        let said = all_subcommands(&[("ZLOCK_URL", &url), ("ZLOCK_CA_FILE", &ca)]).await;
        assert!(said.contains("switch TLS on (`with_tls` or ZLOCK_CA_FILE)"), "{said}");
    })
    .await;
}

/// The nodes below the chroot are for one user.
#[tokio::test]
async fn a_user_of_zookeeper() {
    limit_if(have_zookeeper(), async {
        let server = ZooKeeper::start().await;
        let raw = zookeeper_client::Client::connector().with_auth("digest", b"orders:s3cret");
        let raw = raw.connect(&server.connect_string()).await.unwrap();
        let acl = [zookeeper_client::Acl::new(Permission::ALL, AuthId::authed())];
        let mode = CreateMode::Persistent.with_acls(zookeeper_client::Acls::new(&acl));
        raw.create("/app", b"", &mode).await.unwrap();
        let url = format!("zk://{}/app", server.addr());
        all_subcommands(&[("ZLOCK_URL", &url), ("ZLOCK_USER", "orders"), ("ZLOCK_PASSWORD", "s3cret")]).await;
        let stranger = [("ZLOCK_URL", &*url)];
        let said = refused(&stranger, &["ls"]).await;
        assert!(said.starts_with("zlock: /: ZooKeeper: "), "{said}");
    })
    .await;
}

#[cfg(feature = "zk-sasl")]
#[tokio::test]
async fn a_sasl_user_of_zookeeper() {
    limit_if(have_zookeeper(), async {
        let folder = folder();
        let module = "org.apache.zookeeper.server.auth.DigestLoginModule";
        let users = format!("Server {{ {module} required user_orders=\"s3cret\"; }};");
        let provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider";
        let server = ZooKeeper::builder()
            .property("java.security.auth.login.config", write(folder.path(), "jaas.conf", &users))
            .property("zookeeper.authProvider.1", provider)
            .start()
            .await;
        let sasl = zookeeper_client::SaslOptions::digest_md5("orders", "s3cret");
        let raw = zookeeper_client::Client::connector().with_sasl(sasl);
        let raw = raw.connect(&server.connect_string()).await.unwrap();
        let acl = [zookeeper_client::Acl::new(Permission::ALL, AuthId::new("sasl", "orders"))];
        let mode = CreateMode::Persistent.with_acls(zookeeper_client::Acls::new(&acl));
        raw.create("/app", b"", &mode).await.unwrap();
        let url = format!("zk://{}/app", server.addr());
        let user = [("ZLOCK_URL", &*url), ("ZLOCK_USER", "orders"), ("ZLOCK_AUTH", "sasl")];
        all_subcommands(&[user[0], user[1], user[2], ("ZLOCK_PASSWORD", "s3cret")]).await;
        // Without SASL, the user has another name.
        let digest = [user[0], user[1], ("ZLOCK_PASSWORD", "s3cret")];
        refused(&digest, &["run", "other/a", "--", "echo", "ran"]).await;
        let wrong = [user[0], user[1], user[2], ("ZLOCK_PASSWORD", "s3cret-not")];
        for args in [&["run", "jobs/a", "--", "echo", "ran"][..], &["ls"]] {
            let said = refused(&wrong, args).await;
            assert!(said.contains("not authorized"), "{said}");
        }
        let (code, stdout, _) = outcome(&mut with(&wrong, &["doctor"])).await;
        assert_eq!(code, 1);
        assert!(stdout.contains("check ZLOCK_USER") && !stdout.contains("s3cret"), "{stdout}");
    })
    .await;
}

#[cfg(feature = "zk-tls")]
#[tokio::test]
async fn zookeeper_over_tls() {
    limit_if(have_zookeeper(), async {
        let (folder, server) = (folder(), ZooKeeper::builder().tls().start().await);
        let (addr, tls) = server.tls();
        let ca = write(folder.path(), "ca.pem", tls.certificate());
        let url = format!("zk://{addr}?connect_timeout=5s");
        let said = all_subcommands(&[("ZLOCK_URL", &url), ("ZLOCK_CA_FILE", &ca)]).await;
        assert!(said.contains("switch TLS on (`with_tls` or ZLOCK_CA_FILE)"), "{said}");
        let down = Port::reserve();
        let url = format!("zk://{addr},{}", down.addr());
        let (code, stdout, _) =
            outcome(&mut with(&[("ZLOCK_URL", &url), ("ZLOCK_CA_FILE", &ca)], &["doctor"])).await;
        let bad: Vec<_> = stdout.lines().filter(|line| line.starts_with("BAD")).collect();
        let expected = format!("BAD  server: {} does not respond", down.addr());
        assert_eq!((code, bad), (1, vec![&*expected]), "{stdout}");
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
                &[("ZLOCK_URL", "zk://me:s3cret@h")],
                "\"zk://***\": invalid url: user info ('@') is not accepted: set ZLOCK_USER",
            ),
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
            for args in [&["run", "a", "--", "echo"][..], &["ls"], &["who", "a"], &["doctor"]] {
                let said = refused(variables, args).await;
                assert!(said.contains(says), "{variables:?} {args:?}: {said}");
            }
        }
        // A flag comes first.
        let wrong = [("ZLOCK_URL", "zk://h?x=y")];
        // As in the library, a scheme may be in capitals.
        for url in ["mem://t", "MEM://t"] {
            let args = ["run", "--url", url, "a", "--", "true"];
            assert_eq!(outcome(&mut with(&wrong, &args)).await, (0, String::new(), String::new()));
        }
        let (_, help, _) = outcome(&mut zlock(&["--help"])).await;
        let (_, page, _) = outcome(&mut zlock(&["man"])).await;
        for name in ["URL", "USER", "PASSWORD", "PASSWORD_FILE", "AUTH", "CA_FILE", "CERT_FILE", "KEY_FILE"] {
            let name = format!("ZLOCK_{name}");
            assert!(help.contains(&name) && page.contains(&name), "{name}");
        }
    })
    .await;
}

/// A pipe without a writer is a file that hangs.
#[tokio::test]
async fn a_file_that_cannot_be_read_in_time_ends_each_subcommand() {
    limit(async {
        let folder = folder();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().await.unwrap().success());
        for scheme in ["zk", "etcd"] {
            let url = format!("{scheme}://127.0.0.1:1?connect_timeout=200ms");
            let variables =
                [("ZLOCK_URL", &*url), ("ZLOCK_USER", "me"), ("ZLOCK_PASSWORD_FILE", pipe.to_str().unwrap())];
            for args in [&["run", "a", "--", "echo"][..], &["ls"], &["who", "a"]] {
                let said = refused(&variables, args).await;
                assert!(said.contains("cannot be read in time"), "{scheme} {args:?}: {said}");
            }
        }
    })
    .await;
}
