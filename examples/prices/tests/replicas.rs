//! Replicas as processes on a real PostgreSQL server: they are killed, terminated, and blocked in the middle of a report.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::error::SqlState;
use zlock::postgres::{Fence, PostgresFence as _, PostgresOptions};
use zlock::{Client, Leadership};
use zlock_prices::{ADD_PRICE, LEADER, create_tables, explain, write};
use zlock_testkit::{FaultProxy, Flow, PostgresServer, Process, have_postgres, limit_to_if, until};

const LONG: Duration = Duration::from_secs(60);

/// How many inserts of a report wait for a lock of the table.
const BLOCKED: &str = "pg_locks WHERE relation = 'reports'::regclass AND NOT granted";

/// A server, and the test's own clients of it: of its locks, and of its tables.
struct World {
    server: PostgresServer,
    url: String,
    client: Client,
    sql: tokio_postgres::Client,
}

impl World {
    async fn new() -> Self {
        let server = PostgresServer::start().await;
        let url = format!("{}?session_timeout=8s&create_schema=true", server.url());
        let client = zlock::connect(&url).await.unwrap();
        let sql = connect(&url).await;
        World { server, url, client, sql }
    }

    fn replica(&self, name: &str, grace: &str) -> Process {
        let env = [("ZLOCK_URL", &*self.url), ("NAME", name), ("GRACE", grace)];
        Process::spawn::<&str>(env!("CARGO_BIN_EXE_zlock-prices"), &[], &env)
    }

    /// Returns the rows of a query, with `|` between columns. None if the tables are not there yet.
    async fn rows(&self, query: &str) -> Vec<String> {
        let messages = match self.sql.simple_query(query).await {
            Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Vec::new(),
            messages => messages.unwrap(),
        };
        let rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        rows.map(|row| (0..row.len()).map(|n| row.get(n).unwrap()).collect::<Vec<_>>().join("|")).collect()
    }

    /// Returns what a query counts. 0 if the tables are not there yet.
    async fn count(&self, what: &str) -> u64 {
        let rows = self.rows(&format!("SELECT count(*) FROM {what}")).await;
        rows.first().map_or(0, |row| row.parse().unwrap())
    }

    /// Waits until a replica that is none of `gone` leads, and has written a price. Returns its name.
    async fn next_leader(&self, gone: &[&str]) -> String {
        let (election, mut name) = (self.client.election(LEADER).unwrap(), String::new());
        until("another one leads", async || {
            let leader = election.leader().await.unwrap();
            name = leader.map(|leader| String::from_utf8(leader.value).unwrap()).unwrap_or_default();
            !name.is_empty() && !gone.contains(&&*name)
        })
        .await;
        let prices = format!("prices WHERE replica = '{name}'");
        until("it writes", async || self.count(&prices).await > 0).await;
        name
    }

    async fn wait_for_more_reports(&self) {
        let before = self.count("reports").await;
        until("reports are made", async || self.count("reports").await >= before + 2).await;
    }

    /// Checks that no process has left a candidate, a holder or a waiter.
    async fn nothing_is_left(&self) {
        let nodes =
            self.server.sql("SELECT convert_from(path, 'UTF8'), label FROM zlock.entry WHERE kind = 0").await;
        assert_eq!(nodes.trim(), "");
    }

    /// Checks that the terms in the table never go back, and that each is of one replica. Returns how many there were.
    async fn check_terms(&self) -> usize {
        let rows = self.rows("SELECT term, replica FROM prices ORDER BY id").await;
        let rows = rows.iter().map(|row| row.split_once('|').unwrap());
        let rows: Vec<(u64, &str)> = rows.map(|(term, replica)| (term.parse().unwrap(), replica)).collect();
        assert!(rows.is_sorted_by_key(|row| row.0), "a former leader has written: {rows:?}");
        let terms: BTreeMap<_, _> = rows.iter().copied().collect();
        assert!(rows.iter().all(|(term, replica)| terms[term] == *replica), "two leaders: {rows:?}");
        terms.len()
    }
}

/// Opens a connection for statements of the test itself.
async fn connect(url: &str) -> tokio_postgres::Client {
    PostgresOptions::from_url(url).unwrap().connect_client().await.unwrap()
}

/// Waits for the end of a replica. Returns its exit code and its output.
async fn end_of(mut replica: Process) -> (i32, Vec<String>) {
    let mut lines = Vec::new();
    let ended = async {
        while let Some(line) = replica.line().await {
            lines.push(line);
        }
        replica.wait().await
    };
    let code = timeout(LONG, ended).await.expect("the replica ends");
    (code, lines)
}

/// Checks that no tick was run twice. `lines` are those of all replicas.
fn check_runs(lines: &[String]) {
    let mut ticks: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (replica, run) in lines.iter().filter_map(|line| line.split_once(" makes the report of ")) {
        ticks.entry(run.split_once(", attempt ").unwrap().0).or_default().push(replica);
    }
    assert!(!ticks.is_empty() && ticks.values().all(|replicas| replicas.len() == 1), "{ticks:?}");
}

#[tokio::test]
async fn one_leads_and_each_tick_runs_once_while_replicas_come_and_go() {
    limit_to_if(4 * LONG, have_postgres(), async {
        let world = World::new().await;
        let mut replicas: BTreeMap<String, Process> =
            ["a", "b", "c"].map(|name| (name.to_owned(), world.replica(name, "60"))).into();
        world.wait_for_more_reports().await;

        let first = world.next_leader(&[]).await;
        let killed = replicas.remove(&first).unwrap();
        killed.kill();
        let (code, mut lines) = end_of(killed).await;
        assert_eq!(code, 128 + 9);
        let second = world.next_leader(&[&first]).await;
        world.wait_for_more_reports().await;

        let terminated = replicas.remove(&second).unwrap();
        terminated.terminate();
        let (code, more) = end_of(terminated).await;
        assert_eq!(code, 0, "{more:?}");
        lines.extend(more);
        let third = world.next_leader(&[&first, &second]).await;
        world.wait_for_more_reports().await;

        let last = replicas.remove(&third).unwrap();
        last.terminate();
        let (code, more) = end_of(last).await;
        assert_eq!(code, 0, "{more:?}");
        lines.extend(more);
        world.nothing_is_left().await;
        assert!(world.check_terms().await >= 3);
        check_runs(&lines);
    })
    .await;
}

/// Its report takes long: it steps down without waiting for that, and the other one leads while it is still at work.
#[tokio::test]
async fn a_terminated_replica_steps_down_at_once_and_finishes_its_report() {
    limit_to_if(3 * LONG, have_postgres(), async {
        let world = World::new().await;
        let busy = world.replica("busy", "60");
        assert_eq!(world.next_leader(&[]).await, "busy");
        world.wait_for_more_reports().await;
        let mut sql = connect(&world.url).await;
        let blocker = sql.transaction().await.unwrap();
        blocker.execute("LOCK TABLE reports IN SHARE MODE", &[]).await.unwrap();
        until("a report is blocked", async || world.count(BLOCKED).await == 1).await;
        let other = world.replica("other", "60");
        let election = world.client.election(LEADER).unwrap();
        until("both are candidates", async || election.candidates().await.unwrap().len() == 2).await;

        busy.terminate();
        assert_eq!(world.next_leader(&["busy"]).await, "other");
        assert!(busy.is_running() && world.count(BLOCKED).await == 1, "it is still at work");
        blocker.commit().await.unwrap();
        let (code, lines) = end_of(busy).await;
        assert_eq!(code, 0, "{lines:?}");
        let (_, run) = lines.iter().rev().find_map(|line| line.split_once("the report of ")).unwrap();
        let tick = run.split_once(',').unwrap().0;
        let made = format!("reports WHERE tick = '{tick}' AND replica = 'busy'");
        assert_eq!(world.count(&made).await, 1, "{lines:?}");

        other.terminate();
        assert_eq!(end_of(other).await.0, 0);
        world.nothing_is_left().await;
        world.check_terms().await;
    })
    .await;
}

#[tokio::test]
async fn a_report_that_takes_longer_than_the_grace_is_cancelled() {
    limit_to_if(2 * LONG, have_postgres(), async {
        let world = World::new().await;
        let replica = world.replica("slow", "1");
        world.wait_for_more_reports().await;
        let mut sql = connect(&world.url).await;
        let blocker = sql.transaction().await.unwrap();
        blocker.execute("LOCK TABLE reports IN SHARE MODE", &[]).await.unwrap();
        until("a report is blocked", async || world.count(BLOCKED).await == 1).await;
        let before = world.count("reports").await;
        replica.terminate();
        let (code, lines) = end_of(replica).await;
        assert_eq!((code, &**lines.last().unwrap()), (1, "ended: 1 locks still held, Ended"), "{lines:?}");
        world.nothing_is_left().await;

        // The server goes on with the statement, and does not commit.
        blocker.commit().await.unwrap();
        until("the statement has ended", async || world.count(BLOCKED).await == 0).await;
        let others = "pg_stat_activity WHERE query LIKE '%INTO reports%' AND pid <> pg_backend_pid()";
        until("its connection has ended", async || world.count(others).await == 0).await;
        assert_eq!(world.count("reports").await, before);
    })
    .await;
}

/// The first leader is cut off after it has asked for the price. Its other connection, for prices, still works.
#[tokio::test]
async fn the_price_of_a_former_leader_is_refused() {
    limit_to_if(LONG, have_postgres(), async {
        let world = World::new().await;
        create_tables(&PostgresOptions::from_url(&world.url).unwrap()).await.unwrap();
        let mut sql = connect(&world.url).await;
        let mut add = async |led: &Leadership, fence: &Fence, price: i64| {
            let term = led.term().number().cast_signed();
            write(&mut sql, fence, ADD_PRICE, &[&price, &term, &"a leader"]).await
        };
        let proxy = FaultProxy::start(world.server.addr()).await;
        let cut_off = format!("{}?session_timeout=8s", world.server.url_at(proxy.addr()));
        let cut_off = zlock::connect(&cut_off).await.unwrap();

        let former = cut_off.election(LEADER).unwrap().campaign().await.unwrap();
        let old = former.postgres_fence().unwrap();
        add(&former, &old, 1001).await.unwrap();
        proxy.freeze().await;
        let leader = world.client.election(LEADER).unwrap().campaign().await.unwrap();
        let fence = leader.postgres_fence().unwrap();
        add(&leader, &fence, 1002).await.unwrap();
        let refused = add(&former, &old, 1000).await.expect_err("refused");
        assert_eq!(refused.code().map(SqlState::code), Some(Fence::LOST));
        let message = explain(&refused.into());
        assert!(message.contains("the lock is not held any more"), "{message}");
        add(&leader, &fence, 1003).await.unwrap();

        assert_eq!(world.rows("SELECT price FROM prices ORDER BY id").await, ["1001", "1002", "1003"]);
        assert_eq!(world.check_terms().await, 2);
        leader.resign().await.unwrap();
        world.nothing_is_left().await;
    })
    .await;
}

/// The database does not answer.
#[tokio::test]
async fn a_signal_during_the_start_ends_it() {
    limit_to_if(LONG, have_postgres(), async {
        let server = PostgresServer::start().await;
        let proxy = FaultProxy::start(server.addr()).await;
        proxy.both(Flow::Hold);
        let url = server.url_at(proxy.addr());
        let replica =
            Process::spawn::<&str>(env!("CARGO_BIN_EXE_zlock-prices"), &[], &[("ZLOCK_URL", &*url)]);
        until("it connects", async || proxy.connections() > 0).await;
        replica.terminate();
        assert_eq!(end_of(replica).await.0, 0);
    })
    .await;
}

#[tokio::test]
async fn what_cannot_start_ends_with_2() {
    let replica =
        |url| Process::spawn::<&str>(env!("CARGO_BIN_EXE_zlock-prices"), &[], &[("ZLOCK_URL", url)]);
    assert_eq!(end_of(replica("mem://")).await.0, 2, "only PostgreSQL has fences for transactions");
    assert_eq!(end_of(replica("")).await.0, 2, "the variable is not set");
}
