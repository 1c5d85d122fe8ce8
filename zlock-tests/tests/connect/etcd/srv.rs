//! Servers found by a domain's SRV records, on a real DNS server.

use std::time::Duration;

use zlock_core::{CoordinationBackend, ErrorKind, Label};
use zlock_etcd::{EtcdBackend, EtcdOptions};
use zlock_testkit::etcd::{self, create, path};
use zlock_testkit::{Dns, Etcd, EtcdCluster, Port, have_dns, have_etcd, limit_if};

const SERVICE: &str = "_etcd-client._tcp";
const SECOND: Duration = Duration::from_secs(1);

fn options(dns: &Dns) -> EtcdOptions {
    let options = EtcdOptions::from_url("etcd+srv://zlock.test?session_timeout=4s").unwrap();
    options.with_nameservers([dns.addr()])
}

/// A session survives when its server is replaced by another member of the cluster that the client did not know.
#[tokio::test]
async fn a_member_that_is_new_in_dns_is_found_within_the_session() {
    limit_if(have_etcd() && have_dns(), async {
        let (dns, cluster) = tokio::join!(Dns::start(), EtcdCluster::start(3));
        let leader = cluster.leader().await;
        let [old, new] = [1, 2].map(|i| &cluster.members()[(leader + i) % 3]);
        let port = |member: &Etcd| member.addr().port();
        dns.serve(SERVICE, &[(0, 0, "localhost", port(old))]).await;
        let options = options(&dns).with_ttl(Duration::from_secs(30));
        let (backend, path) = (EtcdBackend::connect(options).await.unwrap(), path("member"));
        let made = create(&backend, &path, Label::Lock).await;
        dns.serve(SERVICE, &[(0, 0, "localhost", port(new))]).await;
        old.stop();
        assert!(backend.children(&path, None).await.unwrap().find(&made.node.id).is_some());
        assert!(backend.session_events().is_live(1));
    })
    .await;
}

#[tokio::test]
async fn a_cluster_that_moves_is_found_again() {
    limit_if(have_etcd() && have_dns(), async {
        let (dns, one, two) = tokio::join!(Dns::start(), Etcd::start(), Etcd::start());
        dns.serve(SERVICE, &[(0, 0, "localhost", one.addr().port())]).await;
        let (backend, path) = (EtcdBackend::connect(options(&dns)).await.unwrap(), path("moved"));
        create(&backend, &path, Label::Lock).await;
        dns.serve(SERVICE, &[(0, 0, "localhost", two.addr().port())]).await;
        one.stop();
        let made = create(&backend, &path, Label::Lock).await;
        assert_eq!((made.epoch, backend.children(&path, None).await.unwrap().len()), (2, 1));
        assert_eq!(etcd::names(&etcd::observer(&two.connect_string()).await, &path).await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn the_next_priority_is_tried() {
    limit_if(have_etcd() && have_dns(), async {
        let (dns, server, closed) = (Dns::start().await, Etcd::start().await, Port::reserve());
        let second = (20, 0, "localhost", server.addr().port());
        dns.serve(SERVICE, &[second, (10, 0, "localhost", closed.number())]).await;
        let backend = EtcdBackend::connect(options(&dns)).await.unwrap();
        assert!(backend.children(&path("priority"), None).await.unwrap().is_empty());
    })
    .await;
}

#[cfg(feature = "etcd-tls")]
#[tokio::test]
async fn with_tls_there_is_another_service() {
    limit_if(have_etcd() && have_dns(), async {
        let (dns, server) = (Dns::start().await, Etcd::start_tls().await);
        dns.serve("_etcd-client-ssl._tcp", &[(0, 0, "localhost", server.addr().port())]).await;
        let backend = EtcdBackend::connect(options(&dns).with_tls(server.certificate())).await.unwrap();
        assert!(backend.children(&path("tls"), None).await.unwrap().is_empty());
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
            let error = EtcdBackend::connect(options(&dns).with_connect_timeout(SECOND)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            let text = error.to_string();
            let name =
                "zlock.test (SRV): no server available: SRV records of _etcd-client._tcp.zlock.test.: ";
            assert!(text.contains(name) && text.contains(part), "{text}");
        }
        dns.pause();
        let error = EtcdBackend::connect(options(&dns).with_connect_timeout(SECOND)).await.unwrap_err();
        assert!(error.to_string().contains("no name server answers"), "{error}");
        dns.resume();
    })
    .await;
}

/// Neither the name server nor the cluster needs to be available when a client is created.
#[tokio::test]
async fn a_client_waits_for_the_name_server() {
    limit_if(have_etcd() && have_dns(), async {
        let (dns, server) = (Dns::start().await, Etcd::start().await);
        dns.stop();
        let backend = EtcdBackend::connect_lazy(options(&dns).with_operation_timeout(SECOND)).unwrap();
        let error = backend.children(&path("waits"), None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        dns.serve(SERVICE, &[(0, 0, "localhost", server.addr().port())]).await;
        etcd::connected(&backend, 1).await;
    })
    .await;
}

#[tokio::test]
async fn a_lazy_client_says_what_is_wrong_with_each_host() {
    limit_if(have_etcd() && have_dns(), async {
        let (dns, server, reserved) = (Dns::start().await, Etcd::start_tls().await, Port::reserve());
        let (secure, closed) = (server.addr().port(), reserved.number());
        dns.serve(SERVICE, &[(0, 0, "localhost", secure), (1, 0, "localhost", closed)]).await;
        let backend = EtcdBackend::connect_lazy(options(&dns).with_operation_timeout(5 * SECOND)).unwrap();
        let error = backend.children(&path("wrong"), None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let text = error.to_string();
        assert!(text.contains(&format!("localhost:{secure}: answers with TLS")), "{text}");
        assert!(text.contains(&format!("localhost:{closed}: ")), "{text}");
    })
    .await;
}
