//! PostgreSQL: a primary and an asynchronous replica, which can take its place.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use zlock_testkit::{FaultProxy, PostgresServer, until};

/// The primary and its replica. Each has a place, whose address stays when another server takes it.
#[derive(Debug)]
pub(crate) struct Pair {
    servers: Mutex<[PostgresServer; 2]>,
    places: [FaultProxy; 2],
    primary: AtomicUsize,
    /// Whether the end of a server ends all sessions.
    pub(crate) is_lossy: bool,
}

/// Runs what tests do on a thread of its own: it is not `Send`.
async fn apart<F, T>(run: F) -> T
where
    F: AsyncFnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let runtime = Handle::current();
    spawn_blocking(move || runtime.block_on(run())).await.expect("an operator's work")
}

/// Returns the SQL that ends a session, and removes what it owns.
fn end(id: &str) -> String {
    let once = format!("SELECT * FROM zlock.v2_end(ARRAY[{id}]::bigint[], ARRAY[NULL]::bigint[], '{{}}');\n");
    // Each removes a limited number of entries.
    once.repeat(3)
}

impl Pair {
    /// Starts the servers, with the schema. Nothing is locked for the session timeout after commits may have been lost. What the servers
    /// may lose is found out from the replica, or an operator has said that they lose nothing.
    pub(crate) async fn start(session: Duration, is_lossy: bool) -> Self {
        let primary =
            PostgresServer::builder().own_clock().parameter("wal_writer_delay", "10s").start().await;
        let (class, longest) = (if is_lossy { "auto" } else { "one-server" }, session.as_millis());
        let limit = format!("UPDATE zlock.setting SET class = '{class}', longest = '{longest} ms';");
        let schema = [&zlock::postgres::schema_sql(), "GRANT zlock_user TO zlock;", &limit].concat();
        primary.sql(&schema).await;
        let replica = primary.replica().await;
        let replicas = "SELECT count(*) FROM pg_stat_replication";
        until("the replica streams", async || primary.sql(replicas).await.trim_end() == "1").await;
        let places = [FaultProxy::start(primary.addr()).await, FaultProxy::start(replica.addr()).await];
        Pair { servers: Mutex::new([primary, replica]), places, primary: AtomicUsize::new(0), is_lossy }
    }

    fn servers(&self) -> MutexGuard<'_, [PostgresServer; 2]> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn server(&self, place: usize) -> PostgresServer {
        self.servers()[place].clone()
    }

    /// Returns the addresses of both places.
    pub(crate) fn addrs(&self) -> Vec<SocketAddr> {
        self.places.iter().map(FaultProxy::addr).collect()
    }

    /// Returns the place of the primary.
    pub(crate) fn primary(&self) -> usize {
        self.primary.load(Ordering::Relaxed)
    }

    /// Lets the primary confirm what its replica never gets, for this time. Then the primary is killed for good, and the
    /// replica promoted, whose clock is set to some seconds after the real one. Another replica takes the other place. Returns the old
    /// primary, which is stopped.
    pub(crate) async fn promote(&self, lag: Duration, clock: i64) -> PostgresServer {
        let old = self.primary();
        let (primary, replica) = (self.server(old), self.server(1 - old));
        let stopped = primary.clone();
        apart(async move || {
            replica.cut_off().await;
            sleep(lag).await;
            primary.stop();
            replica.promote().await;
            replica.step_clock(clock);
        })
        .await;
        self.primary.store(1 - old, Ordering::Relaxed);
        self.renew_replica().await;
        stopped
    }

    /// Kills the primary for good, and starts one that was replaced before in its place, without anything that was committed since.
    pub(crate) async fn come_back(&self, old: PostgresServer) {
        self.server(self.primary()).stop();
        old.restart().await;
        self.put(self.primary(), old);
        self.renew_replica().await;
    }

    /// Lets the primary confirm what it loses after this time, when it is killed and started from a copy of its data.
    pub(crate) async fn restore(&self, lost: Duration) {
        let primary = self.server(self.primary());
        apart(async move || {
            primary.save();
            sleep(lost).await;
            primary.restore().await;
        })
        .await;
        self.renew_replica().await;
    }

    pub(crate) async fn crash_process(&self) {
        let primary = self.server(self.primary());
        apart(async move || primary.crash_process().await).await;
    }

    /// Starts another replica of the primary in the other place.
    async fn renew_replica(&self) {
        let primary = self.server(self.primary());
        self.put(1 - self.primary(), apart(async move || primary.replica().await).await);
    }

    fn put(&self, place: usize, server: PostgresServer) {
        self.places[place].set_upstream(server.addr());
        self.servers()[place] = server;
    }

    /// Makes all commits hang for this time: no replica of that name confirms them.
    pub(crate) async fn hang_commits(&self, time: Duration) {
        let primary = self.server(self.primary());
        apart(async move || {
            primary.set("synchronous_standby_names", "nobody").await;
            sleep(time).await;
            primary.set("synchronous_standby_names", "").await;
        })
        .await;
    }

    /// Ends a session at the primary. Returns `false` if it certainly did not exist.
    pub(crate) async fn end_session(&self, session: u64) -> bool {
        let id = session.cast_signed();
        let exists = format!("SELECT count(*) FROM zlock.session WHERE id = {id};\n");
        let all = format!("{exists}{}", end(&id.to_string()));
        let ended = self.server(self.primary()).try_sql(&all).await;
        // Without a response, it may still have taken effect.
        ended.map_or(true, |answer| answer.starts_with('1'))
    }

    /// Returns what former clients have left. Until then, ends the sessions of killed ones as a client does that finds them.
    pub(crate) async fn residue(&self, wait: Duration) -> Vec<String> {
        let primary = self.server(self.primary());
        let until = Instant::now() + wait;
        loop {
            let silent = primary.sql("SELECT zlock.v2_silent(1000)").await;
            for id in silent.lines() {
                primary.sql(&end(id)).await;
            }
            let mut left = Vec::new();
            for (what, table) in [
                ("nodes", "zlock.entry WHERE session IS NOT NULL"),
                ("connections", "pg_stat_activity WHERE usename = 'zlock'"),
                (
                    "receipts of no session",
                    "zlock.receipt r WHERE NOT EXISTS (SELECT 1 FROM zlock.session s WHERE s.id = r.session)",
                ),
            ] {
                let count = primary.sql(&format!("SELECT count(*) FROM {table}")).await;
                if count.trim() != "0" {
                    left.push(format!("{} {what}", count.trim()));
                }
            }
            if left.is_empty() || Instant::now() > until {
                return left;
            }
            sleep(Duration::from_millis(200)).await;
        }
    }
}
