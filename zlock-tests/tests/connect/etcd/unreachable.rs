//! A connect that cannot succeed. The error states the reason for each host, and comes early where waiting does not help.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use tokio::time::sleep;
use zlock_core::{Error, ErrorKind};
use zlock_etcd::{EtcdBackend, EtcdOptions};
use zlock_testkit::etcd::options;
use zlock_testkit::{Etcd, Port, ZooKeeper, have_etcd, have_zookeeper, limit};

/// Far beyond the time limit of a test: a connect with this timeout that fails has not waited for it.
const HOUR: Duration = Duration::from_secs(3600);

/// Long enough to probe each host.
const SHORT: Duration = Duration::from_secs(3);

/// Its first label is too long for a name, so that no name server is asked: its answer may take longer than a test.
const NO_NAME: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.invalid:2379";

async fn refused(options: EtcdOptions) -> Error {
    let error = EtcdBackend::connect(options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    eprintln!("{error}");
    error
}

fn assert_says(error: &Error, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

#[tokio::test]
async fn a_host_that_may_come_up_is_waited_for_and_named() {
    limit(async {
        let (port, silent) = (Port::reserve(), TcpListener::bind("127.0.0.1:0").unwrap());
        let silent = silent.local_addr().unwrap();
        let hosts = format!("{},{silent},{NO_NAME}", port.addr());
        let error = refused(options(&hosts).with_connect_timeout(SHORT)).await;
        assert_says(
            &error,
            &[
                &format!("no session within {SHORT:?}: "),
                &format!("{}: connection refused", port.addr()),
                &format!("{silent}: accepts connections but does not respond"),
                &format!("{NO_NAME}: the name does not resolve"),
            ],
        );
    })
    .await;
}

#[tokio::test]
async fn a_name_that_does_not_resolve_ends_the_connect() {
    limit(async {
        // One failed lookup is not enough, since it may be temporary.
        let error = refused(options(NO_NAME).with_connect_timeout(SHORT)).await;
        assert_says(&error, &["no session within", NO_NAME, "the name does not resolve"]);
        let error = refused(options(NO_NAME).with_connect_timeout(HOUR)).await;
        assert_says(&error, &[NO_NAME, "the name does not resolve"]);
    })
    .await;
}

/// The host may be a server that the probe does not recognize.
#[tokio::test]
async fn an_unknown_answer_is_waited_for_and_reported() {
    limit(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ =
                    stream.read(&mut [0; 256]).and_then(|_| stream.write_all(b"a greeting of no known kind"));
            }
        });
        let error = refused(options(&host.to_string()).with_connect_timeout(SHORT)).await;
        assert_says(&error, &["no session within", &format!("{host}: sends an unknown response")]);
    })
    .await;
}

#[tokio::test]
async fn a_tls_port_is_refused_at_once() {
    limit(async {
        if !have_etcd() {
            return;
        }
        let (plain, tls) = tokio::join!(Etcd::start(), Etcd::start_tls());
        let secure = tls.connect_string();
        let error = refused(options(&secure).with_connect_timeout(HOUR)).await;
        assert_says(&error, &[&format!("{secure}: answers with TLS, but this client speaks plain text")]);
        // A name that does not resolve does not help either, but a working server does.
        let error = refused(options(&format!("{secure},{NO_NAME}")).with_connect_timeout(HOUR)).await;
        assert_says(&error, &[&format!("{secure}: answers with TLS"), "the name does not resolve"]);
        let hosts = format!("{secure},{NO_NAME},{}", plain.addr());
        EtcdBackend::connect(options(&hosts).with_connect_timeout(HOUR)).await.unwrap();
    })
    .await;
}

#[cfg(feature = "etcd-tls")]
#[tokio::test]
async fn a_plain_port_is_refused_at_once_by_a_client_with_tls() {
    limit(async {
        if !have_etcd() {
            return;
        }
        let (plain, tls) = tokio::join!(Etcd::start(), Etcd::start_tls());
        let host = plain.connect_string();
        let error = refused(options(&host).with_tls(tls.certificate()).with_connect_timeout(HOUR)).await;
        assert_says(&error, &[&format!("{host}: answers in plain text, but this client speaks TLS")]);
        // The right port, with a wrong certificate.
        let other = Etcd::start_tls().await.certificate();
        let secure = tls.connect_string();
        let error = refused(options(&secure).with_tls(other).with_connect_timeout(SHORT)).await;
        assert_says(&error, &[&format!("{secure}: answers with TLS"), "do the certificates match?"]);
    })
    .await;
}

#[tokio::test]
async fn the_ports_of_zookeeper_are_refused_at_once() {
    limit(async {
        if !have_zookeeper() {
            return;
        }
        let server = ZooKeeper::builder().tls().start().await;
        let error = refused(options(&server.connect_string()).with_connect_timeout(HOUR)).await;
        assert_says(
            &error,
            &[&format!("{}: answers with ZooKeeper's text, which is not etcd", server.addr())],
        );
        let secure = server.tls().0;
        let error = refused(options(&secure.to_string()).with_connect_timeout(HOUR)).await;
        assert_says(&error, &[&format!("{secure}: answers with TLS")]);
    })
    .await;
}

#[tokio::test]
async fn a_frozen_server_is_named() {
    limit(async {
        if !have_etcd() {
            return;
        }
        let server = Etcd::start().await;
        server.pause();
        let error = refused(options(&server.connect_string()).with_connect_timeout(SHORT)).await;
        assert_says(&error, &["accepts connections but does not respond"]);
        server.resume();
    })
    .await;
}

/// The connect keeps waiting while one of the hosts may still come up.
#[tokio::test]
async fn a_server_that_comes_up_is_found() {
    limit(async {
        if !have_etcd() {
            return;
        }
        let server = Etcd::start().await;
        server.stop();
        let hosts = format!("{NO_NAME},{}", server.addr());
        let connecting = tokio::spawn(EtcdBackend::connect(options(&hosts).with_connect_timeout(HOUR)));
        // Long enough to probe both.
        sleep(SHORT).await;
        assert!(!connecting.is_finished());
        server.restart().await;
        connecting.await.unwrap().unwrap();
    })
    .await;
}
