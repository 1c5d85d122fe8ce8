//! Servers found by a domain's SRV records, on a real DNS server.

use std::time::Duration;

use zlock_core::{CoordinationBackend, ErrorKind, Label};
use zlock_testkit::zk::{self, create, path};
use zlock_testkit::{Dns, Port, ZooKeeper, end_zookeeper_session, have_dns, have_zookeeper, limit_if};
use zlock_zk::{ZkBackend, ZkOptions};

const SERVICE: &str = "_zookeeper._tcp";
const SECOND: Duration = Duration::from_secs(1);

fn options(dns: &Dns) -> ZkOptions {
    let options = ZkOptions::from_url("zk+srv://zlock.test?session_timeout=4s").unwrap();
    options.with_nameservers([dns.addr()])
}

#[tokio::test]
async fn an_ensemble_that_moves_is_found_again() {
    limit_if(have_zookeeper() && have_dns(), async {
        let (dns, one, two) = tokio::join!(Dns::start(), ZooKeeper::start(), ZooKeeper::start());
        dns.serve(SERVICE, &[(0, 0, "localhost", one.addr().port())]).await;
        let (backend, path) = (ZkBackend::connect(options(&dns)).await.unwrap(), path("moved"));
        let made = create(&backend, &path, Label::Lock).await;
        assert_eq!((made.epoch, backend.children(&path, None).await.unwrap().len()), (1, 1));
        dns.serve(SERVICE, &[(0, 0, "localhost", two.addr().port())]).await;
        one.stop();
        let made = create(&backend, &path, Label::Lock).await;
        assert_eq!((made.epoch, backend.children(&path, None).await.unwrap().len()), (2, 1));
        assert_eq!(zk::names(&zk::observer(&two.connect_string()).await, &path).await.len(), 1);
    })
    .await;
}

/// While no name server answers, or none is there, the servers of the last lookup are used.
#[tokio::test]
async fn the_last_known_servers_are_used_without_a_name_server() {
    limit_if(have_zookeeper() && have_dns(), async {
        for is_silent in [true, false] {
            let (dns, server) = tokio::join!(Dns::start(), ZooKeeper::start());
            dns.serve(SERVICE, &[(0, 0, "localhost", server.addr().port())]).await;
            let backend = ZkBackend::connect(options(&dns)).await.unwrap();
            if is_silent {
                dns.pause();
            } else {
                dns.stop();
            }
            let session = backend.session_events().current().id.get();
            assert!(end_zookeeper_session(server.addr(), session).unwrap());
            zk::connected(&backend, 2).await;
            if is_silent {
                dns.resume();
            }
        }
    })
    .await;
}

/// The preferred servers are tried first, and the others if those give no session.
#[tokio::test]
async fn the_next_priority_is_tried() {
    limit_if(have_zookeeper() && have_dns(), async {
        let (dns, server, closed) = (Dns::start().await, ZooKeeper::start().await, Port::reserve());
        let second = (20, 0, "localhost", server.addr().port());
        dns.serve(SERVICE, &[second, (10, 0, "localhost", closed.number())]).await;
        let backend = ZkBackend::connect(options(&dns).with_connect_timeout(4 * SECOND)).await.unwrap();
        assert!(backend.children(&path("priority"), None).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_domain_without_servers_is_named() {
    limit_if(have_dns(), async {
        let dns = Dns::start().await;
        for (records, part) in
            [(&[][..], "there are none"), (&[(0, 0, "", 0)], "the domain does not offer this service")]
        {
            dns.serve(SERVICE, records).await;
            let error = ZkBackend::connect(options(&dns).with_connect_timeout(SECOND)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            let text = error.to_string();
            let name = "zlock.test (SRV): no server available: SRV records of _zookeeper._tcp.zlock.test.: ";
            assert!(text.contains(name) && text.contains(part), "{text}");
        }
        dns.pause();
        let error = ZkBackend::connect(options(&dns).with_connect_timeout(SECOND)).await.unwrap_err();
        assert!(error.to_string().contains("no name server answers"), "{error}");
        dns.resume();
    })
    .await;
}

/// Neither the name server nor the ensemble needs to be available when a client is created.
#[tokio::test]
async fn a_client_waits_for_the_name_server() {
    limit_if(have_zookeeper() && have_dns(), async {
        let (dns, server) = (Dns::start().await, ZooKeeper::start().await);
        dns.stop();
        let backend = ZkBackend::connect_lazy(options(&dns).with_operation_timeout(SECOND)).unwrap();
        let error = backend.children(&path("waits"), None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        dns.serve(SERVICE, &[(0, 0, "localhost", server.addr().port())]).await;
        zk::connected(&backend, 1).await;
    })
    .await;
}
