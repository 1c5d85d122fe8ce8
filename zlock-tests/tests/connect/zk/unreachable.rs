//! A connect that cannot succeed. The error states the reason for each host, and comes early where waiting does not help.

use std::time::Duration;

use tokio::time::sleep;
use zlock_core::{CoordinationBackend, Result, SessionState};
use zlock_testkit::zk::{connected, options};
use zlock_testkit::{
    Cut, Ensemble, Etcd, FaultProxy, ZooKeeper, have_etcd, have_zookeeper, limit, limit_if, until,
    zookeeper_or_skip,
};
use zlock_zk::ZkBackend;

use crate::unreachable::{
    HOUR, NO_NAME, SHORT, a_host_that_may_come_up, a_name_that_does_not_resolve, an_unknown_answer,
    assert_says, refused,
};

/// Long enough for two probes. A server's first TLS handshake may be slow.
#[cfg(feature = "zk-tls")]
const LONGER: Duration = Duration::from_secs(15);

async fn connect(hosts: String, timeout: Duration) -> Result<ZkBackend> {
    ZkBackend::connect(options(&hosts).with_connect_timeout(timeout)).await
}

#[tokio::test]
async fn a_host_that_may_come_up_is_waited_for_and_named() {
    a_host_that_may_come_up(connect).await;
}

#[tokio::test]
async fn a_name_that_does_not_resolve_ends_the_connect() {
    a_name_that_does_not_resolve(connect).await;
}

#[tokio::test]
async fn an_unknown_answer_is_waited_for_and_reported() {
    an_unknown_answer(connect).await;
}

#[tokio::test]
async fn a_tls_port_is_refused_at_once() {
    limit_if(have_zookeeper(), async {
        let server = ZooKeeper::builder().tls().start().await;
        let secure = server.tls().0.to_string();
        let error = refused(connect(secure.clone(), HOUR).await);
        assert_says(&error, &[&format!("{secure}: answers with TLS, but this client speaks plain text")]);
        // A name that does not resolve does not help either, but a working server does.
        let error = refused(connect(format!("{secure},{NO_NAME}"), HOUR).await);
        assert_says(&error, &[&format!("{secure}: answers with TLS"), "the name does not resolve"]);
        let hosts = format!("{secure},{NO_NAME},{}", server.addr());
        connect(hosts, HOUR).await.unwrap();
    })
    .await;
}

#[cfg(feature = "zk-tls")]
#[tokio::test]
async fn a_plain_port_is_refused_at_once_by_a_client_with_tls() {
    limit_if(have_zookeeper(), async {
        let server = ZooKeeper::builder().tls().start().await;
        let certificate = server.tls().1.certificate();
        let plain = server.connect_string();
        let error = refused(
            ZkBackend::connect(options(&plain).with_tls(certificate).with_connect_timeout(HOUR)).await,
        );
        assert_says(&error, &[&format!("{plain}: answers in plain text, but this client speaks TLS")]);
        // The right port, with the right certificate and with a wrong one.
        let other = ZooKeeper::builder().tls().start().await;
        let secure = server.tls().0.to_string();
        ZkBackend::connect(options(&secure).with_tls(certificate)).await.unwrap();
        let wrong = options(&secure).with_tls(other.tls().1.certificate()).with_connect_timeout(LONGER);
        assert_says(
            &refused(ZkBackend::connect(wrong).await),
            &[&format!("{secure}: answers with TLS"), "do the certificates match?"],
        );
    })
    .await;
}

#[tokio::test]
async fn the_ports_of_etcd_are_refused_at_once() {
    limit_if(have_etcd(), async {
        let (plain, tls) = tokio::join!(Etcd::start(), Etcd::start_tls());
        let error = refused(connect(plain.connect_string(), HOUR).await);
        assert_says(&error, &[&format!("{}: answers with HTTP/2, which is not ZooKeeper", plain.addr())]);
        let error = refused(connect(tls.connect_string(), HOUR).await);
        assert_says(&error, &[&format!("{}: answers with TLS", tls.addr())]);
    })
    .await;
}

#[tokio::test]
async fn a_frozen_server_is_named() {
    limit_if(have_zookeeper(), async {
        let server = ZooKeeper::start().await;
        server.pause();
        let error = refused(connect(server.connect_string(), SHORT).await);
        assert_says(&error, &["accepts connections but does not respond"]);
        server.resume();
    })
    .await;
}

#[tokio::test]
async fn a_server_without_a_quorum_is_named() {
    limit_if(have_zookeeper(), async {
        let ensemble = Ensemble::start(3).await;
        let [last, others @ ..] = ensemble.members() else { panic!("three") };
        others.iter().for_each(|member| member.stop());
        until("no quorum", async || {
            let answer = last.four_letter_word("srvr").await.unwrap_or_default();
            answer.contains("not currently serving requests")
        })
        .await;
        let error = refused(connect(last.connect_string(), SHORT).await);
        assert_says(&error, &["does the ensemble have a quorum?"]);
    })
    .await;
}

/// The connect keeps waiting while one of the hosts may still come up.
#[tokio::test]
async fn a_server_that_comes_up_is_found() {
    limit_if(have_zookeeper(), async {
        let server = ZooKeeper::start().await;
        server.stop();
        let hosts = format!("{NO_NAME},{}", server.addr());
        let connecting = tokio::spawn(connect(hosts, HOUR));
        // Long enough to probe both.
        sleep(SHORT).await;
        assert!(!connecting.is_finished());
        server.restart().await;
        connecting.await.unwrap().unwrap();
    })
    .await;
}

/// After the first session, no such cause ends the backend.
#[tokio::test]
async fn a_backend_that_was_connected_never_gives_up() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        if !have_etcd() {
            return;
        }
        let (proxy, etcd) = (FaultProxy::start(server.addr()).await, Etcd::start().await);
        let backend = ZkBackend::connect(options(&proxy.connect_string())).await.unwrap();
        let mut events = backend.session_events();
        proxy.set_upstream(etcd.addr());
        proxy.cut(Cut::Fin);
        events.ended(1).await;
        // Long enough to notice the other server.
        sleep(SHORT).await;
        assert_eq!(events.current().state, SessionState::Lost);
        proxy.set_upstream(server.addr());
        proxy.cut(Cut::Fin);
        connected(&backend, 2).await;
    })
    .await;
}
