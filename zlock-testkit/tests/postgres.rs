//! Real PostgreSQL servers.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::time::Duration;

use zlock_testkit::{
    PgBouncer, PostgresServer, Process, have_faketime, have_pgbouncer, have_postgres, have_strace, limit,
    limit_if, postgres_or_skip, until,
};

const POLL: Duration = Duration::from_millis(20);
const COUNT: &str = "SELECT count(*) FROM t";

fn exists(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

/// Returns the processes of a server.
fn family(server: &PostgresServer) -> Vec<u32> {
    let parent = server.pid();
    let stat = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let is_its = |pid: &u32| {
        stat(*pid)
            .rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.split(' ').nth(1) == Some(&parent.to_string()))
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let children = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_its);
    // One that has ended may not have been waited for.
    let children = children.filter(|pid| exists(*pid));
    children.chain([parent]).collect()
}

fn state(pid: u32) -> Option<char> {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?.rsplit_once(") ")?.1.chars().next()
}

#[tokio::test]
async fn starts_stops_restarts_and_freezes() {
    limit_if(have_postgres(), async {
        let server = PostgresServer::builder().parameter("work_mem", "1234kB").start().await;
        assert_eq!(server.sql("SHOW work_mem").await, "1234kB\n");
        assert_eq!(server.sql("SHOW fsync").await, "on\n");
        server.sql("CREATE TABLE t(n int); INSERT INTO t VALUES (1)").await;
        let (addr, all) = (server.addr(), family(&server));
        assert!(all.len() > 3, "{all:?}");
        server.stop();
        assert!(!all.iter().any(|pid| exists(*pid)), "{all:?}");
        assert!(server.try_sql(COUNT).await.is_err());
        server.restart().await;
        assert_eq!(server.addr(), addr);
        assert_eq!(server.sql(COUNT).await, "1\n");

        server.pause();
        let all = family(&server);
        assert!(all.iter().all(|pid| state(*pid) == Some('T')), "{all:?}");
        server.resume();
        assert_eq!(server.sql(COUNT).await, "1\n");
        let folder = server.folder().to_owned();
        server.pause();
        drop(server);
        assert!(!folder.exists() && !all.iter().any(|pid| exists(*pid)), "{all:?}");
    })
    .await;
}

#[tokio::test]
async fn a_connection_freezes_with_its_server() {
    limit_if(have_postgres(), async {
        let server = PostgresServer::start().await;
        server.sql("CREATE TABLE t(n int)").await;
        let sleeper = tokio::spawn({
            let server = server.clone();
            async move { server.sql("SELECT pg_sleep(0.3); INSERT INTO t VALUES (1)").await }
        });
        let query = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'";
        until("the statement runs", async || server.sql(query).await == "1\n").await;
        server.pause();
        tokio::time::sleep(Duration::from_millis(600)).await;
        assert!(!sleeper.is_finished());
        server.resume();
        sleeper.await.unwrap();
        assert_eq!(server.sql(COUNT).await, "1\n");
    })
    .await;
}

#[tokio::test]
async fn a_stopped_server_has_what_it_has_confirmed() {
    limit_if(have_postgres(), async {
        let server = PostgresServer::start().await;
        server.sql("CREATE TABLE t(n int)").await;
        server.sql("BEGIN; INSERT INTO t VALUES (1); COMMIT").await;
        server.sql("BEGIN; INSERT INTO t VALUES (2); ROLLBACK").await;
        server.stop();
        server.restart().await;
        assert_eq!(server.sql("SELECT n FROM t").await, "1\n");
        assert!(server.log().contains("was not properly shut down"), "{}", server.log());
    })
    .await;
}

#[tokio::test]
async fn counts_statements_of_users_and_flushes() {
    limit_if(have_postgres(), async {
        let server = PostgresServer::start().await;
        server.sql("CREATE TABLE t(n int); GRANT ALL ON t TO zlock").await;
        let before = server.flushes().await;
        let psql = |text: &'static str| {
            let port = server.addr().port().to_string();
            let args = ["-h", "127.0.0.1", "-p", &port, "-U", "zlock", "-c", text];
            Process::spawn("psql", &args, &[])
        };
        for _ in 0..3 {
            assert_eq!(psql("INSERT INTO t VALUES (7)").wait().await, 0);
        }
        assert_eq!(psql("NOTIFY a").wait().await, 0);
        let statements = server.statements().await;
        assert_eq!(statements["INSERT INTO t VALUES ($1)"], 3, "{statements:?}");
        assert_eq!(statements["NOTIFY a"], 1, "{statements:?}");
        assert!(!statements.keys().any(|statement| statement.contains("CREATE")), "{statements:?}");
        until("three flushes", async || server.flushes().await >= before + 3).await;
    })
    .await;
}

#[tokio::test]
async fn parameters_change_while_it_runs() {
    let Some(shared) = postgres_or_skip().await else { return };
    assert_eq!(postgres_or_skip().await.unwrap().addr(), shared.addr());
    limit(async {
        let server = PostgresServer::start().await;
        server.set("work_mem", "2MB").await;
        assert_eq!(server.sql("SHOW work_mem").await, "2MB\n");
        // A commit that hangs.
        server.sql("CREATE TABLE t(n int)").await;
        server.set("synchronous_standby_names", "*").await;
        let insert = tokio::spawn({
            let server = server.clone();
            async move { server.try_sql("INSERT INTO t VALUES (1)").await }
        });
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        until("the commit hangs", async || server.sql(waiting).await == "1\n").await;
        assert!(!insert.is_finished());
        server.set("synchronous_standby_names", "").await;
        insert.await.unwrap().unwrap();
    })
    .await;
}

#[tokio::test]
async fn shows_the_log_when_it_does_not_start() {
    limit_if(have_postgres(), async {
        let start = tokio::spawn(PostgresServer::builder().parameter("work_mem", "nonsense").start());
        let panic = start.await.unwrap_err().into_panic();
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.contains("nonsense"), "{text}");
    })
    .await;
}

#[tokio::test]
async fn lets_users_in_as_it_was_built() {
    limit_if(have_postgres(), async {
        let psql = async |url: String, ssl: &[(&str, &str)]| {
            Process::spawn("psql", &[&url, "-c", "SELECT 1"], ssl).wait().await == 0
        };
        let server = PostgresServer::builder().password("secret").start().await;
        assert!(psql(server.url(), &[]).await);
        let without = server.url().replace(":secret", "");
        assert!(!psql(without, &[("PGPASSWORD", "wrong")]).await);

        let server = PostgresServer::builder().tls().start().await;
        let root = server.folder().join("root.crt");
        std::fs::write(&root, server.certificate()).unwrap();
        let root = root.to_str().unwrap();
        assert!(psql(server.url(), &[("PGSSLMODE", "verify-full"), ("PGSSLROOTCERT", root)]).await);
        assert!(!psql(server.url(), &[("PGSSLMODE", "disable")]).await);

        let server = PostgresServer::builder().client_certificate().start().await;
        let (certificate, key) = server.client_certificate();
        let files = [certificate.to_str().unwrap(), key.to_str().unwrap()];
        assert!(psql(server.url(), &[("PGSSLCERT", files[0]), ("PGSSLKEY", files[1])]).await);
        assert!(!psql(server.url(), &[("PGSSLMODE", "require")]).await);
    })
    .await;
}

#[tokio::test]
async fn a_replica_that_was_cut_off_has_lost_commits_when_it_is_promoted() {
    limit_if(have_postgres(), async {
        let primary = PostgresServer::start().await;
        primary.sql("CREATE TABLE t(n int)").await;
        let replica = primary.replica().await;
        primary.sql("INSERT INTO t VALUES (1)").await;
        replica.catch_up(&primary).await;
        assert_eq!(replica.sql(COUNT).await, "1\n");
        assert!(replica.try_sql("INSERT INTO t VALUES (2)").await.unwrap_err().contains("read-only"));
        replica.cut_off().await;
        primary.sql("INSERT INTO t VALUES (2)").await;
        replica.promote().await;
        assert_eq!(replica.sql(COUNT).await, "1\n");
        let timeline = "SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)";
        assert_eq!(primary.sql(timeline).await, "00000001\n");
        assert_eq!(replica.sql(timeline).await, "00000002\n");
        drop(primary);
        replica.sql("INSERT INTO t VALUES (3)").await;
    })
    .await;
}

#[tokio::test]
async fn a_copy_of_its_data_is_put_back_and_a_process_of_it_crashes() {
    limit_if(have_postgres(), async {
        let server = PostgresServer::start().await;
        server
            .sql("CREATE TABLE t(n int); CREATE UNLOGGED TABLE u AS SELECT 1; INSERT INTO t VALUES (1)")
            .await;
        server.save();
        server.sql("INSERT INTO t VALUES (2)").await;
        server.crash_process().await;
        let started = "SELECT pg_postmaster_start_time()";
        let before = server.sql(started).await;
        assert_eq!(server.sql("SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM u)").await, "2|0\n");
        server.restore().await;
        assert_ne!(server.sql(started).await, before);
        assert_eq!(server.sql(COUNT).await, "1\n");
    })
    .await;
}

#[tokio::test]
async fn its_clock_steps() {
    limit_if(have_postgres() && have_faketime(), async {
        let server = PostgresServer::builder().own_clock().start().await;
        let hours = async || {
            let offset = "SELECT round(extract(epoch FROM clock_timestamp()) / 3600)";
            server.sql(offset).await.trim_end().parse::<i64>().unwrap()
        };
        let start = hours().await;
        server.step_clock(48 * 3600);
        assert!((47..=49).contains(&(hours().await - start)));
        server.step_clock(-48 * 3600);
        assert!((-49..=-47).contains(&(hours().await - start)));
        server.step_clock(0);
        server.restart().await;
        assert!((0..=1).contains(&(hours().await - start)));
    })
    .await;
}

#[tokio::test]
async fn its_disk_hangs() {
    limit_if(have_postgres() && have_strace(), async {
        let server = PostgresServer::start().await;
        server.sql("CREATE TABLE t(n int)").await;
        let hanging = server.hang_disk();
        let insert = tokio::spawn({
            let server = server.clone();
            async move { server.try_sql("INSERT INTO t VALUES (1)").await }
        });
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!insert.is_finished());
        assert_eq!(server.sql(COUNT).await, "0\n");
        drop(hanging);
        insert.await.unwrap().unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_pooler_shares_connections_between_transactions() {
    limit_if(have_pgbouncer(), async {
        let server = PostgresServer::start().await;
        let pooler = PgBouncer::start(&server).await;
        let psql = |text: &str| Process::spawn("psql", &["-At", &pooler.url(), "-c", text], &[]);
        let mut one = psql("SELECT pg_backend_pid()");
        let mut other = psql("SELECT pg_backend_pid()");
        let pids = [one.line().await.unwrap(), other.line().await.unwrap()];
        assert!(pids.iter().all(|pid| pid.parse::<u32>().is_ok()), "{pids:?}");
        // The connections stay when their clients have gone.
        let query = format!("SELECT count(*) FROM pg_stat_activity WHERE pid IN ({},{})", pids[0], pids[1]);
        assert_ne!(server.sql(&query).await, "0\n");
        assert_ne!(server.end_connections().await, 0);
        until("they are gone", async || server.sql(&query).await == "0\n").await;
    })
    .await;
}

/// Run by the next test, in a process that is killed.
#[tokio::test]
async fn server_of_a_killed_test() {
    if std::env::var("ZLOCK_CHILD").is_err() {
        return;
    }
    let own = PostgresServer::start().await;
    let shared = PostgresServer::shared().await;
    own.pause();
    for server in [&own, shared] {
        let all: Vec<_> = family(server).iter().map(u32::to_string).collect();
        println!("\nserver={} {}", all.join(","), server.folder().display());
    }
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn no_server_outlives_a_test_process_that_is_killed() {
    limit_if(have_postgres(), async {
        let mut test = Process::spawn_test("postgres::server_of_a_killed_test", &[("ZLOCK_CHILD", "1")]);
        let lines = [test.line_after("server=").await, test.line_after("server=").await];
        let servers = lines.iter().map(|line| line.split_once(' ').unwrap());
        let left = || {
            servers.clone().any(|(pids, folder)| {
                Path::new(folder).exists() || pids.split(',').any(|pid| exists(pid.parse().unwrap()))
            })
        };
        assert!(left());
        test.kill();
        while left() {
            tokio::time::sleep(POLL).await;
        }
    })
    .await;
}
