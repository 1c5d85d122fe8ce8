//! Users and TLS, against real servers.

use std::path::Path;
use std::time::Duration;

use zlock_core::{
    CloseReason, CoordinationBackend, Environment, ErrorKind, Label, LockPath, Needs, SessionState, Target,
    TextOrFile,
};
use zlock_etcd::{EtcdBackend, EtcdOptions};
use zlock_recipes::Client;
use zlock_testkit::etcd::{self, create, options, path, suspended};
use zlock_testkit::{Etcd, Process, have_etcd, limit_if, until};

async fn etcdctl(server: &Etcd, args: &[&str]) {
    let command = server.etcdctl(args);
    let ended = Process::spawn(&command[0], &command[1..], &[("ETCDCTL_API", "3")]).wait().await;
    assert_eq!(ended, 0, "{args:?}");
}

/// A server with a user `orders`, who has access to `/prod/` and nothing else.
async fn server_with_users() -> Etcd {
    with_users(Etcd::start().await).await
}

async fn with_users(server: Etcd) -> Etcd {
    for args in [
        &["user", "add", "root:toor"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "orders:secret"],
        &["role", "add", "prod"],
        &["role", "grant-permission", "prod", "--prefix=true", "readwrite", "/prod/"],
        &["user", "grant-role", "orders", "prod"],
        &["auth", "enable"],
    ] {
        etcdctl(&server, args).await;
    }
    server
}

/// The options of a user whose locks are below `/prod`.
fn prod(server: &Etcd, user: &str, password: impl Into<TextOrFile>) -> EtcdOptions {
    let prod = LockPath::new("/prod").unwrap();
    options(&server.connect_string()).with_user(user, password).with_prefix(prod)
}

#[tokio::test]
async fn a_user_works_where_it_may() {
    limit_if(have_etcd(), async {
        let server = server_with_users().await;
        let orders = || options(&server.connect_string()).with_user("orders", "secret");
        let prod = orders().with_prefix(LockPath::new("/prod").unwrap());
        let (backend, path) = (EtcdBackend::connect(prod).await.unwrap(), path("users"));
        let made = create(&backend, &path, Label::Write).await;
        let watch = etcd::watch(&backend, &path, &made.node).await;
        let made = backend.relabel(&path, &made.node, Label::Read).await.unwrap();
        watch.await;
        backend.delete(&path, &Target::Id(made.id), None).await.unwrap();
        // The fence is also below the prefix.
        etcd::give_up(&backend, &path).await;
        assert!(backend.children(&path, None).await.unwrap().is_empty());
        backend.close().await.unwrap();

        // Enough for a session, but not for a lock.
        grant(&server, "//fence/").await;
        let backend = EtcdBackend::connect(orders()).await.unwrap();
        let error = backend
            .create_ephemeral_sequential(&path, Label::Lock, &etcd::token(), b"", Needs::Queue)
            .await
            .unwrap_err();
        assert_eq!((error.kind(), error.is_ambiguous()), (ErrorKind::NotAuthorized, false), "{error}");
        let error = backend.children_with_watch(&path).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotAuthorized, "{error}");
        // A refused create does not use up a name.
        grant(&server, &format!("{path}/")).await;
        let made = create(&backend, &path, Label::Lock).await;
        assert_eq!(Some(made.node.name.to_string()), made.node.session.map(|id| format!("{:x}", id.get())));
    })
    .await;
}

async fn grant(server: &Etcd, prefix: &str) {
    let args = ["--user=root:toor", "role", "grant-permission", "prod", "--prefix=true", "readwrite", prefix];
    etcdctl(server, &args).await;
}

/// A restarted server no longer knows the tokens that it has issued.
#[tokio::test]
async fn a_token_that_is_forgotten_is_asked_for_again() {
    limit_if(have_etcd(), async {
        let server = server_with_users().await;
        let prod = prod(&server, "orders", "secret")
            // A busy machine may need more than the other tests' TTL to start a server.
            .with_ttl(Duration::from_secs(30));
        let (backend, path) = (EtcdBackend::connect(prod).await.unwrap(), path("token"));
        let made = create(&backend, &path, Label::Write).await;
        let second = create(&backend, &path, Label::Write).await;
        server.restart().await;
        let mut armed = Vec::new();
        for node in [&made.node, &second.node, &made.node] {
            armed.push(etcd::watch(&backend, &path, node).await);
        }
        etcdctl(&server, &["--user=root:toor", "auth", "disable"]).await;
        etcdctl(&server, &["auth", "enable"]).await;
        armed.push(etcd::watch(&backend, &path, &second.node).await);
        backend.delete(&path, &Target::Node(made.node), None).await.unwrap();
        backend.delete(&path, &Target::Node(second.node), None).await.unwrap();
        for watch in armed {
            watch.await;
        }
        assert_eq!(backend.session_events().current().epoch, 1);
    })
    .await;
}

/// A JSON web token names the revision of the users and roles, and is refused once any of them has changed.
#[tokio::test]
async fn a_token_of_an_older_revision_is_replaced() {
    limit_if(have_etcd(), async {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("key");
        std::fs::write(&key, [7; 32]).unwrap();
        let tokens = format!("--auth-token=jwt,sign-method=HS256,priv-key={},ttl=1h", key.display());
        let server = with_users(Etcd::start_with(vec![&*tokens.leak()].leak()).await).await;
        let prod = prod(&server, "orders", "secret");
        let (backend, path) = (EtcdBackend::connect(prod).await.unwrap(), path("revision"));
        let made = create(&backend, &path, Label::Lock).await;
        etcdctl(&server, &["--user=root:toor", "user", "add", "other:x"]).await;
        let before = backend.session_events().current().deadline;
        until("the deadline moves", async || backend.session_events().current().deadline > before).await;
        assert_eq!(backend.session_events().current().epoch, 1);
        backend.delete(&path, &Target::Node(made.node), None).await.unwrap();
    })
    .await;
}

/// A client with a configured user loses nothing when authentication is enabled later.
#[tokio::test]
async fn authentication_is_switched_on_while_a_node_is_there() {
    limit_if(have_etcd(), async {
        let server = server_with_users().await;
        etcdctl(&server, &["--user=root:toor", "auth", "disable"]).await;
        let prod = prod(&server, "orders", "secret");
        let (backend, path) = (EtcdBackend::connect(prod).await.unwrap(), path("switched"));
        let made = create(&backend, &path, Label::Write).await;
        let second = create(&backend, &path, Label::Write).await;
        etcdctl(&server, &["auth", "enable"]).await;
        let before = backend.session_events().current().deadline;
        drop(etcd::watch(&backend, &path, &second.node).await);
        assert_eq!(backend.children(&path, None).await.unwrap().len(), 2);
        backend.delete(&path, &Target::Node(made.node), None).await.unwrap();
        // The lease is also kept alive.
        until("the deadline moves", async || backend.session_events().current().deadline > before).await;
        let session = backend.session_events().current();
        assert_eq!((session.epoch, session.is_live()), (1, true));
    })
    .await;
}

/// When a permission is revoked, holders and waiters fail with that reason, not as if the server were unavailable.
#[tokio::test]
async fn a_revoked_permission_ends_holder_and_waiter() {
    limit_if(have_etcd(), async {
        for revoke in [
            &["--user=root:toor", "role", "revoke-permission", "--prefix=true", "prod", "/prod/"][..],
            &["--user=root:toor", "user", "revoke-role", "orders", "prod"],
            &["--user=root:toor", "user", "delete", "orders"],
        ] {
            let server = server_with_users().await;
            let connect = async |user, password| {
                let client = Client::new(EtcdBackend::connect(prod(&server, user, password)).await.unwrap());
                (client.mutex("/revoked").unwrap(), client)
            };
            let (root, _root) = connect("root", "toor").await;
            let (waiting, client) = connect("orders", "secret").await;
            let other = client.mutex("/held").unwrap();
            let (_guard, held) = (root.acquire().await.unwrap(), other.acquire().await.unwrap());
            let waiter = tokio::spawn(async move { waiting.acquire().await.map(drop) });
            until("somebody waits", async || root.participants().await.unwrap().len() == 2).await;
            etcdctl(&server, revoke).await;
            let error = waiter.await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotAuthorized, "waiter, {revoke:?}: {error}");
            assert!(error.is_lock_lost(), "waiter, {revoke:?}: {error}");
            let error = held.lost().await;
            assert_eq!(error.kind(), ErrorKind::NotAuthorized, "holder, {revoke:?}: {error}");
            assert!(error.is_lock_lost(), "holder, {revoke:?}: {error}");
            let state = client.session_events().current().state;
            assert_eq!(state, SessionState::Closed(CloseReason::AuthFailed));
        }
    })
    .await;
}

/// Changing a permission removes it for a moment.
#[tokio::test]
async fn a_permission_that_comes_back_in_time_costs_nothing() {
    limit_if(have_etcd(), async {
        let server = server_with_users().await;
        let prod = prod(&server, "orders", "secret");
        let (backend, path) = (EtcdBackend::connect(prod).await.unwrap(), path("back"));
        let made = create(&backend, &path, Label::Lock).await;
        etcdctl(&server, &["--user=root:toor", "user", "revoke-role", "orders", "prod"]).await;
        suspended(&backend).await;
        etcdctl(&server, &["--user=root:toor", "user", "grant-role", "orders", "prod"]).await;
        etcd::connected(&backend, 1).await;
        assert_eq!(backend.children(&path, None).await.unwrap().len(), 1);
        backend.delete(&path, &Target::Node(made.node), None).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn wrong_credentials_are_refused_at_once() {
    limit_if(have_etcd(), async {
        let server = server_with_users().await;
        let with = options(&server.connect_string()).with_user("orders", "wrong");
        let error = EtcdBackend::connect(with).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotAuthorized, "{error}");
        assert!(!error.to_string().contains("wrong"), "{error}");
        // Without a user, a client can create a lease but no key.
        let backend = EtcdBackend::connect(options(&server.connect_string())).await.unwrap();
        let error = backend.children(&path("nobody"), None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotAuthorized, "{error}");
    })
    .await;
}

/// The same settings work on a server without authentication.
#[tokio::test]
async fn a_user_where_there_are_none() {
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
        let with = options(&server.connect_string()).with_user("orders", "secret");
        let backend = EtcdBackend::connect(with).await.unwrap();
        create(&backend, &path("none"), Label::Lock).await;
    })
    .await;
}

#[cfg(feature = "etcd-tls")]
#[tokio::test]
async fn tls() {
    limit_if(have_etcd(), async {
        let server = Etcd::start_tls().await;
        let port = server.addr().port();
        for host in [format!("127.0.0.1:{port}"), format!("localhost:{port}")] {
            let secure = options(&host).with_tls(server.certificate());
            let (backend, path) = (EtcdBackend::connect(secure).await.unwrap(), path("tls"));
            let made = create(&backend, &path, Label::Lock).await;
            backend.delete(&path, &Target::Node(made.node), None).await.unwrap();
            backend.close().await.unwrap();
        }
        let second = Duration::from_secs(1);
        // Another server's certificate, and none at all.
        let stranger = Etcd::start_tls().await.certificate();
        let host = server.connect_string();
        for refused in [options(&host).with_tls(stranger), options(&host)] {
            let error = EtcdBackend::connect(refused.with_connect_timeout(second)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bad.pem");
        std::fs::write(&file, "x").unwrap();
        let (ca, name) = (server.certificate(), file.display());
        for (bad, part) in [
            (options(&host).with_tls("x"), "the TLS authorities: not in PEM format".to_owned()),
            (options(&host).with_tls(&*file), format!("the TLS authorities in {name}: not in PEM format")),
            (options(&host).with_tls_identity("x", "y"), "TLS needs the authorities".to_owned()),
            (
                options(&host).with_tls(ca.clone()).with_tls_identity(ca, &*file),
                format!("the TLS key in {name}: not in PEM format"),
            ),
        ] {
            let error = EtcdBackend::connect(bad).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.to_string().contains(&part), "{error}");
        }
    })
    .await;
}

/// Replacing a certificate, at the server and in the client's file, costs a connection but not the session.
#[cfg(feature = "etcd-tls")]
#[tokio::test]
async fn a_new_certificate_is_read_within_the_session() {
    use zlock_testkit::{Cut, FaultProxy};

    limit_if(have_etcd(), async {
        let server = Etcd::start_tls().await;
        let proxy = FaultProxy::start(server.addr()).await;
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        std::fs::write(&ca, server.certificate()).unwrap();
        let secure = options(&proxy.connect_string()).with_tls(&*ca).with_ttl(Duration::from_secs(60));
        let (backend, path) = (EtcdBackend::connect(secure).await.unwrap(), path("renewed"));
        let made = create(&backend, &path, Label::Lock).await;
        server.renew_certificate();
        proxy.cut(Cut::Fin);
        let state = || backend.session_events().current().state;
        until("the old certificate is of no use", async || state() == SessionState::Suspended).await;
        std::fs::write(&ca, server.certificate()).unwrap();
        etcd::connected(&backend, 1).await;
        assert!(backend.children(&path, None).await.unwrap().find(&made.node.id).is_some());
    })
    .await;
}

/// Connects as a user whose password is read from this file, which is written first.
async fn with_password_file(server: &Etcd, file: &Path) -> EtcdBackend {
    std::fs::write(file, "secret\n").unwrap();
    let prod = prod(server, "orders", file)
        // A busy machine may need more than the other tests' TTL to start the commands.
        .with_ttl(Duration::from_secs(30));
    EtcdBackend::connect(prod).await.unwrap()
}

/// Changes that user's password to `new`.
async fn change_password(server: &Etcd) {
    for args in [
        &["user", "delete", "orders"][..],
        &["user", "add", "orders:new"],
        &["user", "grant-role", "orders", "prod"],
    ] {
        etcdctl(server, &[&["--user=root:toor"][..], args].concat()).await;
    }
}

/// Replacing a password, at the server and in the client's file, costs a connection but not the session.
#[tokio::test]
async fn a_new_password_is_read_within_the_session() {
    limit_if(have_etcd(), async {
        let (server, folder) = (server_with_users().await, tempfile::tempdir().unwrap());
        let file = folder.path().join("password");
        let (backend, path) = (with_password_file(&server, &file).await, path("password"));
        let made = create(&backend, &path, Label::Lock).await;
        std::fs::write(&file, "new\n").unwrap();
        change_password(&server).await;
        let before = backend.session_events().current().deadline;
        assert!(backend.children(&path, None).await.unwrap().find(&made.node.id).is_some());
        // The lease is also kept alive.
        until("the deadline moves", async || backend.session_events().current().deadline > before).await;
        assert_eq!(backend.session_events().current().epoch, 1);
        backend.delete(&path, &Target::Node(made.node), None).await.unwrap();
    })
    .await;
}

/// The file may also be late, as long as the session has not reached its deadline.
#[tokio::test]
async fn a_new_password_may_reach_the_file_after_the_server() {
    limit_if(have_etcd(), async {
        let (server, folder) = (server_with_users().await, tempfile::tempdir().unwrap());
        let file = folder.path().join("password");
        let (backend, path) = (with_password_file(&server, &file).await, path("late"));
        let made = create(&backend, &path, Label::Lock).await;
        change_password(&server).await;
        suspended(&backend).await;
        // No path extends the deadline, or resumes the session, without the server.
        let suspended = backend.session_events().current();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let later = backend.session_events().current();
        assert_eq!((later.state, later.deadline), (SessionState::Suspended, suspended.deadline));
        std::fs::write(&file, "new\n").unwrap();
        etcd::connected(&backend, 1).await;
        assert!(backend.children(&path, None).await.unwrap().find(&made.node.id).is_some());
        backend.delete(&path, &Target::Node(made.node), None).await.unwrap();
    })
    .await;
}

/// Reads the environment from a list of variables.
fn environment(variables: &[(&str, &str)]) -> Environment {
    Environment::read(|name| variables.iter().find(|(set, _)| *set == name).map(|(_, value)| value.into()))
        .unwrap()
}

#[tokio::test]
async fn a_user_from_the_environment() {
    limit_if(have_etcd(), async {
        let (server, folder) = (server_with_users().await, tempfile::tempdir().unwrap());
        let file = folder.path().join("password");
        std::fs::write(&file, "secret\n").unwrap();
        let prod = |variables: &[(&str, &str)]| {
            let prod = options(&server.connect_string()).with_prefix(LockPath::new("/prod").unwrap());
            prod.with_environment(&environment(variables))
        };
        let user = ("ZLOCK_USER", "orders");
        let from_file = prod(&[user, ("ZLOCK_PASSWORD_FILE", file.to_str().unwrap())]).unwrap();
        let backend = EtcdBackend::connect(from_file).await.unwrap();
        create(&backend, &path("environment"), Label::Lock).await;
        // A wrong password is reported by an operation that waits for the first session.
        let wrong = prod(&[user, ("ZLOCK_PASSWORD", "WRONG")]).unwrap();
        let backend = EtcdBackend::connect_lazy(wrong).unwrap();
        let error = backend.children(&path("environment"), None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotAuthorized, "{error}");
        assert!(!format!("{error} {error:?}").contains("WRONG"), "{error}");
        let error = prod(&[user, ("ZLOCK_PASSWORD", "x"), ("ZLOCK_AUTH", "sasl")]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    })
    .await;
}
