//! TLS and SASL, on a real server.
#![cfg(any(feature = "tls", feature = "sasl"))]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use common::{create, path};
use zlock_core::{CoordinationBackend, ErrorKind, Label, Target};
use zlock_testkit::{ZooKeeper, have_zookeeper, limit};
use zlock_zk::ZkBackend;

async fn lock_and_unlock(backend: &ZkBackend) {
    let path = path("secure");
    let made = create(backend, &path, Label::Lock).await;
    backend.delete(&path, &Target::Node(made.node)).await.unwrap();
    assert!(backend.children(&path).await.unwrap().is_empty());
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn tls_trusts_the_right_server_only() {
    limit(async {
        if !have_zookeeper() {
            return;
        }
        let server = ZooKeeper::builder().tls().start().await;
        let (addr, tls) = server.tls();
        let backend =
            ZkBackend::connect(common::options(&addr.to_string()).with_tls(tls.certificate())).await.unwrap();
        lock_and_unlock(&backend).await;

        let other = ZooKeeper::builder().tls().start().await;
        let short = std::time::Duration::from_secs(1);
        let wrong = common::options(&addr.to_string()).with_tls(other.tls().1.certificate());
        let plain = common::options(&addr.to_string());
        for options in [wrong, plain] {
            let error = ZkBackend::connect(options.with_connect_timeout(short)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
    })
    .await;
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn bad_certificates_are_refused_before_a_packet_goes_out() {
    let options = || zlock_zk::ZkOptions::new(["127.0.0.1:1"]);
    for (options, part) in [
        (options().with_tls("no certificate"), "authorities"),
        (options().with_tls_identity("x", "y"), "authorities"),
    ] {
        let error = ZkBackend::connect(options).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[cfg(feature = "sasl")]
#[tokio::test]
async fn sasl_knows_its_users() {
    limit(async {
        if !have_zookeeper() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let jaas = folder.path().join("jaas.conf");
        let text =
            "Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_me=\"secret\"; };";
        std::fs::write(&jaas, text).unwrap();
        let server = ZooKeeper::builder()
            .property("java.security.auth.login.config", jaas.display())
            .property(
                "zookeeper.authProvider.1",
                "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            )
            .start()
            .await;
        let acl = [zlock_zk::Acl::new(zlock_zk::Permission::ALL, zlock_zk::AuthId::new("sasl", "me"))];
        let options = || common::options(&server.connect_string()).with_acls(acl.clone());
        let backend = ZkBackend::connect(options().with_sasl_digest("me", "secret")).await.unwrap();
        lock_and_unlock(&backend).await;
        let error = ZkBackend::connect(options().with_sasl_digest("me", "wrong")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotAuthorized, "{error}");
    })
    .await;
}
