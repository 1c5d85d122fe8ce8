//! URLs of PostgreSQL, on servers that have what the URL says.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;
use zlock::postgres::PostgresFence as _;
use zlock::{ErrorKind, Release};
use zlock_testkit::postgres::observer;
use zlock_testkit::{
    FaultProxy, PgBouncer, Port, PostgresServer, have_pgbouncer, have_postgres, limit, limit_if,
    postgres_or_skip,
};

/// Connects by the URL, and acquires and releases a lock twice.
async fn works(url: &str) -> zlock::Result<()> {
    let client = zlock::connect(url).await?;
    for _ in 0..2 {
        let guard = client.mutex("/urls/lock")?.acquire().await?;
        assert!(guard.is_held());
        assert_eq!(guard.release().await?, Release::Released);
    }
    client.close().await?;
    Ok(())
}

#[tokio::test]
async fn a_url_is_enough() {
    let Some(server) = postgres_or_skip().await else { return };
    limit(async {
        let url = format!("{}?create_schema=true&session_timeout=5s", server.url());
        works(&url).await.unwrap();
        works(&url.replace("postgres://", "postgresql://")).await.unwrap();
        let socket = server.socket_folder().display();
        let port = server.addr().port();
        works(&format!("postgres:///zlock?host={socket}&port={port}&user=zlock")).await.unwrap();
        // The first host does not answer.
        let nobody = Port::reserve();
        works(&format!("postgres://zlock@{},{}/zlock", nobody.addr(), server.addr())).await.unwrap();
    })
    .await;
}

/// As a machine without power is: a refused connection would be over at once.
#[tokio::test]
async fn a_silent_first_host_is_passed_over() {
    let Some(server) = postgres_or_skip().await else { return };
    limit(async {
        let silent = FaultProxy::start(server.addr()).await;
        silent.freeze().await;
        let hosts = format!("{},{}", silent.addr(), server.addr());
        let url = format!("postgres://zlock@{hosts}/zlock?session_timeout=4s");
        works(&format!("{}?create_schema=true", server.url())).await.unwrap();
        works(&url).await.unwrap();
        let options = zlock::postgres::PostgresOptions::from_url(&url).unwrap();
        options.connect_client().await.unwrap();

        // A client whose server falls silent goes to the next one, and keeps its session.
        let first = FaultProxy::start(server.addr()).await;
        let url = format!("postgres://zlock@{},{}/zlock?session_timeout=6s", first.addr(), server.addr());
        let client = zlock::connect(&url).await.unwrap();
        let guard = client.mutex("/urls/silent").unwrap().acquire().await.unwrap();
        first.freeze().await;
        sleep(Duration::from_secs(10)).await;
        assert!(guard.is_held());
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    })
    .await;
}

/// Each host is named with what is wrong there.
#[tokio::test]
async fn no_host_of_several_can_be_used() {
    let Some(server) = postgres_or_skip().await else { return };
    limit(async {
        let (nobody, silent) = (Port::reserve(), FaultProxy::start(server.addr()).await);
        silent.freeze().await;
        let url = format!(
            "postgres://zlock@{},{}/zlock?session_timeout=2s&connect_timeout=2s",
            nobody.addr(),
            silent.addr()
        );
        let error = works(&url).await.unwrap_err();
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{text}");
        assert!(text.contains(&format!("{}: error connecting to server", nobody.addr())), "{text}");
        assert!(text.contains(&format!("{}: no response", silent.addr())), "{text}");
    })
    .await;
}

/// A client uses no more connections than it may, also while users' transactions keep its releases waiting.
#[tokio::test]
async fn a_role_with_few_connections_is_enough() {
    limit_if(have_postgres(), async {
        let server = PostgresServer::start().await;
        works(&format!("{}?create_schema=true", server.url())).await.unwrap();
        server.sql("ALTER ROLE zlock CONNECTION LIMIT 4").await;
        let url = format!("{}?max_connections=2", server.url());
        let clients = [zlock::connect(&url).await.unwrap(), zlock::connect(&url).await.unwrap()];
        let mut users = [observer(&server).await, observer(&server).await];
        let work = clients.iter().zip(&mut users).enumerate().map(async |(n, (client, users))| {
            let fenced = client.mutex(format!("/few/fenced{n}")).unwrap().acquire().await.unwrap();
            let (fence, transaction) = (fenced.postgres_fence().unwrap(), users.transaction().await.unwrap());
            transaction.query_typed(fence.sql(), &fence.params()).await.unwrap();
            let released = async { assert_eq!(fenced.release().await.unwrap(), Release::Released) };
            let others = join_all((0..20).map(async |n| {
                let mutex = client.mutex(format!("/few/{}", n % 10)).unwrap();
                for _ in 0..3 {
                    assert_eq!(mutex.acquire().await.unwrap().release().await.unwrap(), Release::Released);
                }
            }));
            let most = async {
                let mut most = 0;
                for _ in 0..10 {
                    let open = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'zlock'";
                    most = most.max(server.sql(open).await.trim().parse::<u32>().unwrap());
                    sleep(Duration::from_millis(50)).await;
                }
                transaction.commit().await.unwrap();
                most
            };
            let (most, (), _) = tokio::join!(most, released, others);
            assert!(most <= 4, "{most} connections");
        });
        join_all(work).await;
    })
    .await;
}

#[tokio::test]
async fn the_replica_of_two_hosts_is_not_used() {
    limit_if(have_postgres(), async {
        let primary = PostgresServer::start().await;
        works(&format!("{}?create_schema=true", primary.url())).await.unwrap();
        let replica = primary.replica().await;
        let hosts = format!("{},{}", replica.addr(), primary.addr());
        works(&format!("postgres://zlock@{hosts}/zlock")).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn passwords_come_from_the_url_or_a_file() {
    limit_if(have_postgres(), async {
        let server = PostgresServer::builder().password("se/cret").start().await;
        let addr = server.addr();
        works(&format!("postgres://zlock:se%2Fcret@{addr}/zlock?create_schema=true")).await.unwrap();
        let passfile = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(passfile.path(), "127.0.0.1:*:zlock:zlock:se/cret\n").unwrap();
        works(&format!("postgres://zlock@{addr}/zlock?passfile={}", passfile.path().display()))
            .await
            .unwrap();
        let error = works(&format!("postgres://zlock:WRONG@{addr}/zlock")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotAuthorized, "{error}");
        assert!(!format!("{error} {error:?}").contains("WRONG"), "{error:?}");
    })
    .await;
}

#[cfg(feature = "postgres-tls")]
#[tokio::test]
async fn tls_is_used_as_the_url_says() {
    limit_if(have_postgres(), async {
        let server = PostgresServer::builder().tls().start().await;
        let root = server.folder().join("root.crt");
        std::fs::write(&root, server.certificate()).unwrap();
        let url = |params: &str| format!("{}?create_schema=true&{params}", server.url());
        works(&url(&format!("sslmode=verify-full&sslrootcert={}", root.display()))).await.unwrap();
        works(&url("sslmode=require")).await.unwrap();
        let error = works(&url("sslmode=disable")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotAuthorized, "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_pooler_in_transaction_mode_is_enough() {
    limit_if(have_pgbouncer(), async {
        let server = PostgresServer::start().await;
        works(&format!("{}?create_schema=true", server.url())).await.unwrap();
        let pooler = PgBouncer::start(&server).await;
        let url = format!("{}?pooler=true&listen=off", pooler.url());
        // Clients side by side have several server processes in turn: what one has prepared is not there for the next.
        for done in join_all([&url; 4].map(|url| works(url))).await {
            done.unwrap();
        }
    })
    .await;
}
