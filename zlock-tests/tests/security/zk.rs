//! TLS and SASL, on a real server.

use std::time::Duration;

use zlock_core::{CoordinationBackend, ErrorKind, Label, Target};
use zlock_testkit::zk::{self, create, path};
use zlock_testkit::{ZooKeeper, have_zookeeper, limit_if, limit_to_if, until};
use zlock_zk::ZkBackend;

async fn lock_and_unlock(backend: &ZkBackend) {
    let path = path("secure");
    let made = create(backend, &path, Label::Lock).await;
    backend.delete(&path, &Target::Node(made.node), None).await.unwrap();
    assert!(backend.children(&path, None).await.unwrap().is_empty());
}

#[cfg(feature = "zk-tls")]
#[tokio::test]
async fn tls_trusts_the_right_server_only() {
    limit_if(have_zookeeper(), async {
        let server = ZooKeeper::builder().tls().start().await;
        let (addr, tls) = server.tls();
        let backend =
            ZkBackend::connect(zk::options(&addr.to_string()).with_tls(tls.certificate())).await.unwrap();
        lock_and_unlock(&backend).await;

        let other = ZooKeeper::builder().tls().start().await;
        let short = Duration::from_secs(1);
        let wrong = zk::options(&addr.to_string()).with_tls(other.tls().1.certificate());
        let plain = zk::options(&addr.to_string());
        for options in [wrong, plain] {
            let error = ZkBackend::connect(options.with_connect_timeout(short)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        let bad = zk::options(&addr.to_string()).with_tls(tls.certificate());
        let error = ZkBackend::connect(bad.with_tls_identity("x", file.path())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        let part = format!("invalid TLS certificate or key in {}: ", file.path().display());
        assert!(error.to_string().contains(&part), "{error}");
    })
    .await;
}

/// The client library keeps the certificate that a session began with. A certificate that is replaced without an overlap costs
/// the session.
#[cfg(feature = "zk-tls")]
#[tokio::test]
async fn a_new_certificate_is_read_for_the_next_session() {
    // The test starts a server twice, and waits for the end of a session.
    limit_to_if(Duration::from_secs(180), have_zookeeper(), async {
        let server = ZooKeeper::builder().tls().start().await;
        let (addr, tls) = server.tls();
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        std::fs::write(&ca, tls.certificate()).unwrap();
        let backend = ZkBackend::connect(
            zk::options(&addr.to_string()).with_tls(&*ca).with_connect_timeout(Duration::from_secs(10)),
        )
        .await
        .unwrap();
        let renewed = server.renew_certificate();
        server.restart().await;
        until("the old certificate is of no use", async || !backend.session_events().is_live(1)).await;
        std::fs::write(&ca, renewed).unwrap();
        zk::connected(&backend, 2).await;
        lock_and_unlock(&backend).await;
    })
    .await;
}

#[cfg(feature = "zk-tls")]
#[tokio::test]
async fn bad_certificates_are_refused_before_a_packet_goes_out() {
    let options = || zlock_zk::ZkOptions::new(["127.0.0.1:1"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.pem");
    std::fs::write(&file, "no certificate").unwrap();
    for (options, part) in [
        (options().with_tls("no certificate"), "invalid TLS authorities: ".to_owned()),
        (options().with_tls(&*file), format!("invalid TLS authorities in {}: ", file.display())),
        (options().with_tls_identity("x", "y"), "TLS needs the authorities".to_owned()),
    ] {
        let error = ZkBackend::connect(options).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(&part), "{error}");
    }
}

#[cfg(feature = "zk-sasl")]
mod sasl {
    use std::path::Path;
    use std::pin::pin;
    use std::sync::{Arc, Mutex};
    use std::task::{Context, Wake};

    use zlock_core::{CloseReason, Environment, SessionEvents, SessionState};
    use zlock_zk::{Acl, AuthId, Permission};

    use super::*;
    use zlock_testkit::zk::options;

    /// Writes the configuration file with the server's only user.
    fn write_jaas(file: &Path, password: &str) {
        let module = "org.apache.zookeeper.server.auth.DigestLoginModule";
        std::fs::write(file, format!("Server {{ {module} required user_me=\"{password}\"; }};")).unwrap();
    }

    async fn server_with_users(jaas: &Path) -> ZooKeeper {
        let provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider";
        ZooKeeper::builder()
            .property("java.security.auth.login.config", jaas.display())
            .property("zookeeper.authProvider.1", provider)
            .start()
            .await
    }

    #[tokio::test]
    async fn a_server_knows_its_users() {
        limit_if(have_zookeeper(), async {
            let folder = tempfile::tempdir().unwrap();
            let jaas = folder.path().join("jaas.conf");
            write_jaas(&jaas, "secret");
            let server = server_with_users(&jaas).await;
            let acl = [Acl::new(Permission::ALL, AuthId::new("sasl", "me"))];
            let with_acl = || options(&server.connect_string()).with_acls(acl.clone());
            let backend = ZkBackend::connect(with_acl().with_sasl_digest("me", "secret")).await.unwrap();
            lock_and_unlock(&backend).await;
            let error = ZkBackend::connect(with_acl().with_sasl_digest("me", "wrong")).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotAuthorized, "{error}");
        })
        .await;
    }

    #[tokio::test]
    async fn a_user_from_the_environment() {
        limit_if(have_zookeeper(), async {
            let folder = tempfile::tempdir().unwrap();
            let (jaas, file) = (folder.path().join("jaas.conf"), folder.path().join("password"));
            write_jaas(&jaas, "secret");
            std::fs::write(&file, "secret\n").unwrap();
            let server = server_with_users(&jaas).await;
            let acl = [Acl::new(Permission::ALL, AuthId::new("sasl", "me"))];
            let with = |variables: &[(&str, &str)]| {
                let environment = Environment::read(|name| {
                    variables.iter().find(|(set, _)| *set == name).map(|(_, value)| value.into())
                });
                options(&server.connect_string())
                    .with_acls(acl.clone())
                    .with_environment(&environment.unwrap())
            };
            let (user, sasl) = (("ZLOCK_USER", "me"), ("ZLOCK_AUTH", "sasl"));
            let from_file = with(&[user, sasl, ("ZLOCK_PASSWORD_FILE", file.to_str().unwrap())]).unwrap();
            lock_and_unlock(&ZkBackend::connect(from_file).await.unwrap()).await;
            // A wrong password is reported by an operation that waits for the first session.
            let wrong = with(&[user, sasl, ("ZLOCK_PASSWORD", "WRONG")]).unwrap();
            let error =
                ZkBackend::connect_lazy(wrong).unwrap().children(&path("refused"), None).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotAuthorized, "{error}");
            assert!(!format!("{error} {error:?}").contains("WRONG"), "{error}");
            let error = with(&[user, ("ZLOCK_PASSWORD", "x"), ("ZLOCK_AUTH", "kerberos")]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.to_string().contains("zk:// takes digest and sasl"), "{error}");
            // The digest scheme, which every server supports.
            let acl = [Acl::new(Permission::ALL, AuthId::authed())];
            let digest = with(&[user, ("ZLOCK_PASSWORD_FILE", file.to_str().unwrap())]).unwrap();
            lock_and_unlock(&ZkBackend::connect(digest.with_acls(acl)).await.unwrap()).await;
        })
        .await;
    }

    /// Reads the session's state whenever it is woken.
    struct Witness {
        events: SessionEvents,
        /// The states of the session after its end.
        seen: Mutex<Vec<SessionState>>,
    }

    impl Wake for Witness {
        fn wake(self: Arc<Self>) {
            let session = self.events.current();
            if !session.is_live() {
                self.seen.lock().unwrap().push(session.state);
            }
        }
    }

    /// The password is changed while the server restarts.
    #[tokio::test]
    async fn waiters_in_a_refused_session_get_the_reason() {
        limit_if(have_zookeeper(), async {
            let folder = tempfile::tempdir().unwrap();
            let jaas = folder.path().join("jaas.conf");
            write_jaas(&jaas, "secret");
            let server = server_with_users(&jaas).await;
            let options = options(&server.connect_string())
                .with_sasl_digest("me", "secret")
                // A busy machine may need more than the other tests' timeout to start a server.
                .with_session_timeout(Duration::from_secs(60));
            let backend = ZkBackend::connect(options).await.unwrap();
            let (mut events, path) = (backend.session_events(), path("refused"));
            server.stop();
            let witness = Arc::new(Witness { events: events.clone(), seen: Mutex::default() });
            let mut waiting = pin!(backend.children(&path, None));
            assert!(waiting.as_mut().poll(&mut Context::from_waker(&witness.clone().into())).is_pending());
            write_jaas(&jaas, "changed");
            server.restart().await;
            let refused = SessionState::Closed(CloseReason::AuthFailed);
            assert_eq!(events.ended(1).await.state, refused);
            let seen = witness.seen.lock().unwrap().clone();
            assert!(!seen.is_empty() && seen.iter().all(|state| *state == refused), "{seen:?}");
            let error = waiting.await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotAuthorized, "{error}");
        })
        .await;
    }

    /// A session does not survive a new password, but its client does if the password is in a file.
    #[tokio::test]
    async fn a_new_password_is_read_for_the_next_session() {
        limit_if(have_zookeeper(), async {
            let folder = tempfile::tempdir().unwrap();
            let (jaas, file) = (folder.path().join("jaas.conf"), folder.path().join("password"));
            write_jaas(&jaas, "secret");
            std::fs::write(&file, "secret\n").unwrap();
            let server = server_with_users(&jaas).await;
            let options = options(&server.connect_string())
                .with_sasl_digest("me", &*file)
                .with_session_timeout(Duration::from_secs(60));
            let backend = ZkBackend::connect(options).await.unwrap();
            let mut events = backend.session_events();
            server.stop();
            write_jaas(&jaas, "changed");
            std::fs::write(&file, "changed\n").unwrap();
            server.restart().await;
            let over = events.ended(1).await;
            assert!(over.epoch > 1 || over.state == SessionState::Lost, "{over:?}");
            while events.current().epoch < 2 {
                events.changed().await;
            }
            lock_and_unlock(&backend).await;
        })
        .await;
    }
}
