//! A connect that cannot succeed. The error states the reason for each host, and comes early where waiting does not help.

use std::time::Duration;

use tokio::time::sleep;
use zlock_core::Result;
use zlock_etcd::EtcdBackend;
use zlock_testkit::etcd::options;
use zlock_testkit::{Etcd, Port, ZooKeeper, have_etcd, have_zookeeper, limit, limit_if};

use crate::unreachable::{
    HOUR, NO_NAME, SHORT, a_host_that_may_come_up, a_name_that_does_not_resolve, an_unknown_answer,
    assert_says, refused,
};

async fn connect(hosts: String, timeout: Duration) -> Result<EtcdBackend> {
    EtcdBackend::connect(options(&hosts).with_connect_timeout(timeout)).await
}

#[tokio::test]
async fn a_host_that_may_come_up_is_waited_for_and_named() {
    a_host_that_may_come_up(connect).await;
}

/// The end of the error's text is the reason, without the layers of the client library.
#[tokio::test]
async fn the_cause_is_short() {
    limit(async {
        let port = Port::reserve();
        let error = refused(connect(port.addr().to_string(), Duration::from_secs(1)).await);
        let cause = error.cause().unwrap().to_string();
        assert_eq!(cause, "Unavailable: tcp connect error: Connection refused (os error 111)");
    })
    .await;
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
    limit_if(have_etcd(), async {
        let (plain, tls) = tokio::join!(Etcd::start(), Etcd::start_tls());
        let secure = tls.connect_string();
        let error = refused(connect(secure.clone(), HOUR).await);
        assert_says(&error, &[&format!("{secure}: answers with TLS, but this client speaks plain text")]);
        // A name that does not resolve does not help either, but a working server does.
        let error = refused(connect(format!("{secure},{NO_NAME}"), HOUR).await);
        assert_says(&error, &[&format!("{secure}: answers with TLS"), "the name does not resolve"]);
        let hosts = format!("{secure},{NO_NAME},{}", plain.addr());
        connect(hosts, HOUR).await.unwrap();
    })
    .await;
}

#[cfg(feature = "etcd-tls")]
#[tokio::test]
async fn a_plain_port_is_refused_at_once_by_a_client_with_tls() {
    limit_if(have_etcd(), async {
        let (plain, tls) = tokio::join!(Etcd::start(), Etcd::start_tls());
        let host = plain.connect_string();
        let error = refused(
            EtcdBackend::connect(options(&host).with_tls(tls.certificate()).with_connect_timeout(HOUR)).await,
        );
        assert_says(&error, &[&format!("{host}: answers in plain text, but this client speaks TLS")]);
        // The right port, with a wrong certificate.
        let other = Etcd::start_tls().await.certificate();
        let secure = tls.connect_string();
        let error =
            refused(EtcdBackend::connect(options(&secure).with_tls(other).with_connect_timeout(SHORT)).await);
        assert_says(&error, &[&format!("{secure}: answers with TLS"), "do the certificates match?"]);
    })
    .await;
}

#[tokio::test]
async fn the_ports_of_zookeeper_are_refused_at_once() {
    limit_if(have_zookeeper(), async {
        let server = ZooKeeper::builder().tls().start().await;
        let error = refused(connect(server.connect_string(), HOUR).await);
        assert_says(
            &error,
            &[&format!("{}: answers with ZooKeeper's text, which is not etcd", server.addr())],
        );
        let secure = server.tls().0;
        let error = refused(connect(secure.to_string(), HOUR).await);
        assert_says(&error, &[&format!("{secure}: answers with TLS")]);
    })
    .await;
}

#[tokio::test]
async fn a_frozen_server_is_named() {
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
        server.pause();
        let error = refused(connect(server.connect_string(), SHORT).await);
        assert_says(&error, &["accepts connections but does not respond"]);
        server.resume();
    })
    .await;
}

/// The connect keeps waiting while one of the hosts may still come up.
#[tokio::test]
async fn a_server_that_comes_up_is_found() {
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
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
