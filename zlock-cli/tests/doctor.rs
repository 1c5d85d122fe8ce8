//! `zlock doctor`, on real servers; completions and the man page.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use zlock::postgres::{PostgresFence as _, PostgresOptions};
use zlock_testkit::mysql::sql;
use zlock_testkit::{
    Ensemble, Etcd, MariaDb, PgBouncer, Port, PostgresServer, ZooKeeper, etcdctl, have_etcd, have_mariadb,
    have_pgbouncer, have_postgres, have_zookeeper, limit, limit_if, zk_op,
};
use zookeeper_client::{Acls, CreateMode};

use crate::support::{outcome, zlock};

/// What only the advice for this kind of store may mention.
const WORDS: [(&str, &[&str]); 4] = [
    ("zk", &["ZooKeeper", "ZLOCK_AUTH", "minSessionTimeout", "ensemble", "leader"]),
    ("etcd", &["etcd", "--election-timeout", "--quota-backend-bytes", "cluster", "leader"]),
    ("postgres", &["pg_hba.conf", "GRANT zlock_user", "primary"]),
    ("mysql", &["GRANT EXECUTE", "a replica ever"]),
];

/// Runs the doctor. Returns its exit code and its findings. Their advice fits the store.
async fn doctor(url: &str, prefix: &[&str]) -> (i32, Vec<Value>) {
    let (code, stdout, stderr) = outcome(zlock(&["doctor", "--json", "--url", url]).args(prefix)).await;
    let all: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}{stderr}"));
    assert_eq!(all["ok"], code == 0, "{all}");
    let (scheme, _) = url.split_once("://").unwrap();
    let own = WORDS.iter().find(|(store, _)| scheme.starts_with(store)).unwrap().1;
    for word in WORDS.iter().flat_map(|(_, words)| *words).filter(|word| !own.contains(word)) {
        let names = |finding: &Value| finding["remedy"].as_str().is_some_and(|remedy| remedy.contains(word));
        assert!(!all["findings"].as_array().unwrap().iter().any(names), "{word}: {all}");
    }
    (code, all["findings"].as_array().unwrap().clone())
}

/// Returns the bad findings, as `check: message`.
fn bad(findings: &[Value]) -> Vec<String> {
    let bad = findings.iter().filter(|finding| finding["ok"] == false);
    bad.map(|finding| {
        assert!(!finding["remedy"].as_str().unwrap().is_empty(), "{finding}");
        format!("{}: {}", finding["check"].as_str().unwrap(), finding["message"].as_str().unwrap())
    })
    .collect()
}

fn message(findings: &[Value], check: &str) -> String {
    let found = findings.iter().find(|finding| finding["check"] == check).unwrap();
    found["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn zookeeper() {
    limit_if(have_zookeeper(), async {
        let server = ZooKeeper::start().await;
        let url = format!("zk://{}", server.addr());
        let (code, findings) = doctor(&url, &["app"]).await;
        assert_eq!((code, bad(&findings)), (0, Vec::new()));
        let version = server.version();
        let number = version.split('-').next().unwrap();
        assert_eq!(
            message(&findings, "server"),
            format!("{}: ZooKeeper {number}, standalone", server.addr())
        );
        assert!(message(&findings, "round trip").ends_with("of 20"));
        assert_eq!(message(&findings, "session timeout"), "10s, as requested");

        let raw = zookeeper_client::Client::connect(&server.connect_string()).await.unwrap();
        let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
        for (path, data) in [("/app/lock", ""), ("/app/lock/lock-0000000007", ""), ("/app/lock/config", "x")]
        {
            raw.create(path, data.as_bytes(), &persistent).await.unwrap();
        }
        // A lock below another lock is not foreign.
        raw.create("/app/lock/below", b"", &persistent).await.unwrap();
        let (code, findings) = doctor(&format!("{url}/?session_timeout=500ms"), &["app"]).await;
        assert_eq!(code, 1);
        assert_eq!(
            bad(&findings),
            [
                "session timeout: 1s instead of 500ms",
                "ownerless nodes: 1: /app/lock/lock-0000000007",
                "foreign nodes: 1: /app/lock/config",
            ]
        );
    })
    .await;
}

/// A relay to a server that makes it look like 3.4: it does not know container nodes.
async fn without_containers(server: SocketAddr) -> SocketAddr {
    /// A kind of request that no server knows.
    const UNKNOWN: [u8; 4] = 99_i32.to_be_bytes();

    async fn relay(client: TcpStream, server: TcpStream) -> std::io::Result<()> {
        let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
            (client.into_split(), server.into_split());
        let requests = async {
            let mut frame = vec![0; 4];
            while from_client.read_exact(&mut frame).await.is_ok() {
                if frame != b"srvr"[..] {
                    let length = u32::from_be_bytes(frame[..].try_into().unwrap()) as usize;
                    frame.resize(4 + length, 0);
                    from_client.read_exact(&mut frame[4..]).await?;
                }
                if frame.get(8..12) == Some(&zk_op::CREATE_CONTAINER.to_be_bytes()) {
                    frame[8..12].copy_from_slice(&UNKNOWN);
                }
                to_server.write_all(&frame).await?;
                frame.truncate(4);
            }
            std::io::Result::Ok(())
        };
        let answers = async {
            loop {
                let mut bytes = vec![0; 4096];
                let length = from_server.read(&mut bytes).await?;
                if length == 0 {
                    return to_client.shutdown().await;
                }
                bytes.truncate(length);
                if bytes.starts_with(b"Zookeeper version: 3.") {
                    bytes[21..24].copy_from_slice(b"4.9");
                }
                to_client.write_all(&bytes).await?;
            }
        };
        tokio::try_join!(requests, answers).map(drop)
    }

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            let server = TcpStream::connect(server).await.unwrap();
            tokio::spawn(relay(client, server));
        }
    });
    addr
}

#[tokio::test]
async fn a_zookeeper_that_is_too_old_is_named() {
    limit_if(have_zookeeper(), async {
        let server = ZooKeeper::start().await;
        let url = format!("zk://{}", without_containers(server.addr()).await);
        let (code, _, stderr) = outcome(&mut zlock(&["run", "--url", &url, "a/b", "--", "true"])).await;
        assert!(code == 125 && stderr.contains("ZooKeeper 3.5.3 or later is needed"), "{code}: {stderr}");
        let (code, findings) = doctor(&url, &[]).await;
        let bad = bad(&findings);
        assert_eq!((code, bad.len()), (1, 2), "{findings:?}");
        assert!(bad[0].starts_with("permission: ") && bad[0].contains("3.5.3 or later is needed"), "{bad:?}");
        assert!(bad[1].contains(": ZooKeeper 3.4.9, standalone"), "{bad:?}");

        // The paths of the doctor's lock exist.
        let raw = zookeeper_client::Client::connect(&server.connect_string()).await.unwrap();
        let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
        raw.create("/zlock-doctor", b"", &persistent).await.unwrap();
        let (code, findings) = doctor(&url, &[]).await;
        let bad = self::bad(&findings);
        assert!(code == 1 && bad.len() == 1 && bad[0].starts_with("server: "), "{bad:?}");
    })
    .await;
}

/// Locks work, but one server has lost the others.
#[tokio::test]
async fn a_server_that_is_cut_off_is_a_finding() {
    limit_if(have_zookeeper(), async {
        let ensemble = Ensemble::start_linked(3, ZooKeeper::builder()).await;
        let follower = ensemble.followers().await[0];
        let member = &ensemble.members()[follower];
        ensemble.cut_off(follower);
        let is_alone = async || {
            let answer = member.four_letter_word("srvr").await.unwrap_or_default();
            answer.contains("not currently serving requests")
        };
        while !is_alone().await {
            tokio::time::sleep(support::POLL).await;
        }
        let (_, findings) = doctor(&format!("zk://{}", ensemble.connect_string()), &[]).await;
        let text = "This ZooKeeper instance is not currently serving requests";
        let expected = format!("server: {}: {text}", member.addr());
        assert!(bad(&findings).contains(&expected), "{findings:?}");
    })
    .await;
}

#[tokio::test]
async fn a_lock_that_another_client_holds_shows_no_permission() {
    limit_if(have_zookeeper(), async {
        let server = ZooKeeper::start().await;
        let url = format!("zk://{}", server.addr());
        let client = zlock::connect(&url).await.unwrap();
        let guard = client.mutex("/app/zlock-doctor").unwrap().acquire().await.unwrap();
        let (code, findings) = doctor(&url, &["app"]).await;
        let bad = bad(&findings);
        assert!(code == 1 && bad.len() == 1 && bad[0].starts_with("permission: "), "{bad:?}");
        assert!(bad[0].contains("/app/zlock-doctor"), "{bad:?}");
        guard.release().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn etcd() {
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
        let url = format!("etcd://{}/app", server.addr());
        let (code, findings) = doctor(&url, &[]).await;
        assert_eq!((code, bad(&findings)), (0, Vec::new()));
        let expected = format!("{}: etcd {}, leader, ", server.addr(), server.version());
        assert!(message(&findings, "server").starts_with(&expected), "{findings:?}");
        assert!(message(&findings, "compaction").ends_with("never compacted"));

        let ctl = |args: &[&str]| {
            let mut ctl = Command::new(etcdctl());
            ctl.env("ETCDCTL_API", "3").args(["--endpoints", &server.connect_string()]).args(args);
            ctl.kill_on_drop(true);
            ctl
        };
        for key in ["/app/lock/694d8f0e2b3a4c05", "/app/free/config", "/app/held/config"] {
            assert_eq!(outcome(&mut ctl(&["put", key, "x"])).await.0, 0);
        }
        let run = ["run", "--url", &url, "held", "--", "sleep", "1000"];
        let holder = zlock(&run).spawn().unwrap();
        support::keeper_of(support::pid_of(&holder)).await;
        let revision = message(&findings, "compaction").split([' ', ',']).nth(1).unwrap().to_owned();
        assert_eq!(outcome(&mut ctl(&["compact", &revision])).await.0, 0);
        let (code, findings) = doctor(&url, &[]).await;
        assert_eq!(code, 1);
        assert_eq!(
            bad(&findings),
            ["ownerless keys: 1: /lock/694d8f0e2b3a4c05", "foreign keys: 1: /held/config"]
        );
        assert!(message(&findings, "compaction").ends_with(", compacted"), "{findings:?}");
    })
    .await;
}

#[tokio::test]
async fn an_etcd_that_grants_longer_sessions_only() {
    limit_if(have_etcd(), async {
        let server = Etcd::start_with(&["--election-timeout=4000", "--heartbeat-interval=400"]).await;
        let (code, findings) = doctor(&format!("etcd://{}?session_timeout=3s", server.addr()), &[]).await;
        assert_eq!((code, bad(&findings)), (1, vec!["session timeout: 6s instead of 3s".to_owned()]));
        let finding = findings.iter().find(|finding| finding["check"] == "session timeout").unwrap();
        assert!(finding["remedy"].as_str().unwrap().contains("--election-timeout"), "{finding}");
    })
    .await;
}

/// A database as an operator sets it up.
async fn set_up(server: &PostgresServer) {
    let sql = [&zlock::postgres::schema_sql(), "GRANT zlock_user TO zlock;"];
    server.sql(&sql.concat()).await;
}

#[tokio::test]
async fn a_forgotten_fenced_transaction_is_named() {
    limit_if(have_postgres(), async {
        let server = PostgresServer::start().await;
        set_up(&server).await;
        let client = zlock::connect(&server.url()).await.unwrap();
        let guard = client.mutex("/app/orders").unwrap().acquire().await.unwrap();
        let fence = guard.postgres_fence().unwrap();
        let shop = PostgresOptions::from_url(&server.url()).unwrap().connect_client().await.unwrap();
        shop.batch_execute("SET application_name = 'shop'; BEGIN").await.unwrap();
        shop.query_typed(fence.sql(), &fence.params()).await.unwrap();
        let pid: i32 = shop.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
        let findings = loop {
            let (code, findings) = doctor(&server.url(), &["app"]).await;
            if code != 0 {
                break bad(&findings);
            }
        };
        let named =
            format!("fenced transactions: open, so that the next holder has to wait: pid {pid} (shop) for ");
        assert!(findings.len() == 1 && findings[0].starts_with(&named), "{findings:?}");
        assert!(findings[0].ends_with(" s, idle in transaction"), "{findings:?}");
        shop.batch_execute("COMMIT").await.unwrap();
        let (code, findings) = doctor(&server.url(), &["app"]).await;
        assert_eq!((code, bad(&findings)), (0, Vec::new()));
        guard.release().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn mysql() {
    limit_if(have_mariadb(), async {
        let server = MariaDb::start(&["--log-bin"]).await;
        let url = format!("mysql://zlock@{}/zlock?create_schema=true", server.addr());
        let (code, findings) = doctor(&url, &["app"]).await;
        assert_eq!((code, bad(&findings)), (0, Vec::new()));
        assert!(message(&findings, "server").contains("MariaDB"), "{findings:?}");
        assert_eq!(message(&findings, "durability"), "each commit is flushed to the disk");
        let lossy = "auto, found to be lossy: the binary log is on, so there may be a replica";
        assert_eq!(message(&findings, "class"), lossy);

        sql::<u8>(&server, "UPDATE zlock_setting SET class = 'one-server', reason = NULL", ()).await;
        let (code, findings) = doctor(&url, &[]).await;
        assert_eq!(code, 1);
        assert!(bad(&findings)[0].starts_with("class: the store is of the class one-server"), "{findings:?}");
    })
    .await;
}

#[tokio::test]
async fn postgres() {
    limit_if(have_postgres(), async {
        let server = PostgresServer::start().await;
        let url = server.url();
        // Without the schema, there is no session, but the server is examined.
        let (code, findings) = doctor(&url, &[]).await;
        let bad_ones = bad(&findings);
        assert_eq!((code, bad_ones.len()), (1, 2), "{findings:?}");
        assert!(bad_ones[0].starts_with("reachable: ") && bad_ones[1].starts_with("schema: "), "{bad_ones:?}");
        let (_, text, _) = outcome(&mut zlock(&["doctor", "--url", &url])).await;
        assert!(text.contains("run the SQL that `zlock pg schema` prints"), "{text}");

        let (code, sql, _) = outcome(&mut zlock(&["pg", "schema"])).await;
        assert_eq!(code, 0);
        let (_, findings) = doctor(&url.replace("zlock@", "stranger@"), &[]).await;
        assert!(message(&findings, "reachable").contains("stranger"), "{findings:?}");
        server.sql(&[&sql, "GRANT zlock_user TO zlock;"].concat()).await;
        let (code, findings) = doctor(&url, &["app"]).await;
        assert_eq!((code, bad(&findings)), (0, Vec::new()));
        let number = server.version();
        let server_is = message(&findings, "server");
        assert!(server_is.starts_with(&format!("{}: PostgreSQL ", server.addr())), "{server_is} {number}");
        assert!(server_is.ends_with(", primary"), "{server_is}");
        assert_eq!(message(&findings, "isolation"), "read committed");
        assert_eq!(message(&findings, "session timeout"), "10s, as requested");
        assert_eq!(message(&findings, "connections"), "each has a server process of its own");

        server.sql("ALTER ROLE zlock SET synchronous_commit = off; ALTER ROLE zlock SET idle_session_timeout = '50s'").await;
        server.set("fsync", "off").await;
        // The class of the store is another one, so there is no session.
        let (code, findings) = doctor(&format!("{url}?replication=sync"), &[]).await;
        let bad_ones = bad(&findings);
        let parts = ["the class lossy", "durability: fsync is off", "replication: the URL says", "ended after 50s"];
        assert_eq!((code, bad_ones.len()), (1, parts.len()), "{bad_ones:?}");
        for (bad, part) in bad_ones.iter().zip(parts) {
            assert!(bad.contains(part), "{part}: {bad_ones:?}");
        }
        let (_, findings) = doctor(&format!("{url}?session_timeout=5"), &[]).await;
        assert_eq!(
            message(&findings, "replication"),
            "class auto, found to be lossy: the server has fsync or full_page_writes off"
        );
        let own = "synchronous_commit is off, but zlock's own commits are confirmed as with on, except for releases";
        assert!(findings.iter().any(|finding| finding["message"] == own), "{findings:?}");
        assert_eq!(message(&findings, "session timeout"), "5s, as requested");

        server.sql("ALTER ROLE zlock SET default_transaction_isolation = 'repeatable read'").await;
        let (code, findings) = doctor(&url, &[]).await;
        assert_eq!(code, 1);
        assert!(message(&findings, "reachable").contains("zlock needs read committed"), "{findings:?}");
        let isolation = findings.iter().find(|finding| finding["check"] == "isolation").unwrap();
        let remedy = "ALTER ROLE zlock SET default_transaction_isolation = 'read committed'";
        assert_eq!(isolation["remedy"], remedy, "{findings:?}");
    })
    .await;
}

#[tokio::test]
async fn a_replica_alone_is_no_store() {
    limit_if(have_postgres(), async {
        let primary = PostgresServer::start().await;
        set_up(&primary).await;
        let replica = primary.replica().await;
        let (code, findings) = doctor(&format!("{}?connect_timeout=1s", replica.url()), &[]).await;
        let bad_ones = bad(&findings);
        assert_eq!((code, bad_ones.len()), (1, 2), "{findings:?}");
        assert!(bad_ones[0].starts_with("reachable: "), "{bad_ones:?}");
        assert_eq!(bad_ones[1], "primary: no server of the URL accepts writes");
        assert!(message(&findings, "server").ends_with(", replica"), "{findings:?}");
        let both = format!("postgres://zlock@{},{}/zlock", replica.addr(), primary.addr());
        let (code, findings) = doctor(&both, &[]).await;
        assert_eq!((code, bad(&findings)), (0, Vec::new()));
    })
    .await;
}

#[tokio::test]
async fn a_pooler_in_transaction_mode_is_named() {
    limit_if(have_pgbouncer(), async {
        let server = PostgresServer::start().await;
        set_up(&server).await;
        let pooler = PgBouncer::start(&server).await;
        let (code, findings) = doctor(&format!("{}?connect_timeout=2s", pooler.url()), &[]).await;
        let all = bad(&findings);
        assert!(
            code == 1 && all.iter().any(|one| one.starts_with("connections: a pooler lends")),
            "{findings:?}"
        );
        let (code, findings) = doctor(&format!("{}?pooler=true&listen=off", pooler.url()), &[]).await;
        assert_eq!((code, bad(&findings)), (0, Vec::new()));
        assert_eq!(message(&findings, "connections"), "a pooler in transaction mode, as the URL says");
    })
    .await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_finding() {
    limit(async {
        for scheme in ["zk", "etcd", "postgres"] {
            let port = Port::reserve();
            let url = format!("{scheme}://{}?connect_timeout=300ms", port.addr());
            let (code, findings) = doctor(&url, &[]).await;
            assert_eq!((code, findings.len()), (1, 1));
            let why = message(&findings, "reachable").to_lowercase();
            assert!(why.contains("connection refused"), "{findings:?}");
        }
        // As text, with the remedy, and without colours in a pipe.
        let (code, stdout, _) =
            outcome(&mut zlock(&["doctor", "--url", "zk://127.0.0.1:1?connect_timeout=300ms"])).await;
        assert_eq!(code, 1);
        assert!(
            stdout.starts_with("BAD  reachable: ") && stdout.contains("\n     check the hosts"),
            "{stdout}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_bench_runs_only_with_consent() {
    limit_if(have_etcd(), async {
        let server = Etcd::shared().await;
        let url = format!("etcd://{}/bench", server.addr());
        let (code, stdout, stderr) = outcome(&mut zlock(&["bench", &url])).await;
        assert_eq!((code, &*stdout), (125, ""));
        assert!(stderr.contains("add --yes") && stderr.lines().count() == 1, "{stderr}");
        let (code, stdout, stderr) =
            outcome(&mut zlock(&["bench", "--yes", "--json", "--time", "100ms", &url])).await;
        assert_eq!(code, 0, "{stderr}");
        let result: Value = serde_json::from_str(&stdout).unwrap();
        let workloads = result["workloads"].as_array().unwrap();
        assert_eq!(workloads.len(), 3);
        assert!(workloads.iter().all(|one| one["acquisitions"].as_u64().unwrap() >= 1), "{result}");
    })
    .await;
}

#[tokio::test]
async fn completions_and_the_man_page_are_printed() {
    limit(async {
        for (args, part) in [
            (&["completions", "bash"][..], "complete -F _zlock"),
            (&["completions", "zsh"], "#compdef zlock"),
            (&["completions", "fish"], "complete -c zlock"),
            (&["man"], ".TH zlock"),
        ] {
            let (code, stdout, stderr) = outcome(&mut zlock(args)).await;
            assert_eq!((code, &*stderr), (0, ""), "{args:?}");
            assert!(stdout.contains(part), "{args:?}: {stdout}");
        }
        let (_, page, _) = outcome(&mut zlock(&["man"])).await;
        for part in ["run", "\\-\\-kill\\-after", "ZLOCK_URL", "ZLOCK_TOKEN", "128+N"] {
            assert!(page.contains(part), "{part}");
        }
    })
    .await;
}
