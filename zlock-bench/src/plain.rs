//! What services use in PostgreSQL without a lock library: a row that a transaction locks, and an advisory lock of the session.
//! Each waiter has a connection, and neither has a session with a deadline, or a token.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Barrier;
use tokio::time::Instant;
use tokio_postgres::{Client, NoTls, Statement};

use crate::drive::{Measured, Sample};
use crate::report::{Row, print, scaled, snap};

/// A way to exclude others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plain {
    /// `BEGIN; SELECT .. FOR UPDATE; COMMIT`.
    Row,
    /// `SELECT pg_advisory_lock(1); SELECT pg_advisory_unlock(1)`.
    Advisory,
}

impl Plain {
    fn name(self) -> &'static str {
        match self {
            Plain::Row => "select-for-update",
            Plain::Advisory => "pg_advisory_lock",
        }
    }
}

/// Runs the workloads that these can do, each with as many connections as the workload has tasks.
pub(crate) async fn run(url: &str, named: &[String]) {
    for (workload, tasks, operations) in
        [("w1", 1, 2000), ("w2-8", 8, 4000), ("w2-32", 32, 4000), ("w3", 64, 4000)]
    {
        if !named.is_empty() && !named.iter().any(|name| name == workload) {
            continue;
        }
        for plain in [Plain::Row, Plain::Advisory] {
            let mut connections = Vec::new();
            for _ in 0..tasks {
                connections.push(Connection::new(url, plain).await);
            }
            let operations = scaled(operations).max(tasks);
            let connections = drive(connections, (operations / 4).max(tasks)).await.0;
            let before = snap("postgres");
            let measured = drive(connections, operations).await.1;
            let row = Row { peer: plain.name(), store: "postgres", workload };
            print(row, &measured, &before, &snap("postgres"));
        }
    }
}

/// A connection with its prepared statements.
struct Connection {
    client: Client,
    plain: Plain,
    acquire: Statement,
    release: Statement,
}

/// Connects to a database. The parameters of the URL are those of zlock.
async fn connect(url: &str) -> Client {
    let url = url.split('?').next().unwrap_or_default();
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection to PostgreSQL");
    tokio::spawn(connection);
    client
}

/// Returns the only row of a query, over a connection of its own.
pub(crate) async fn query(url: &str, query: &str) -> tokio_postgres::Row {
    connect(url).await.query_one(query, &[]).await.expect("a row")
}

impl Connection {
    async fn new(url: &str, plain: Plain) -> Self {
        let client = connect(url).await;
        let table = "SELECT pg_advisory_lock(0); CREATE TABLE IF NOT EXISTS zlock_bench (id int PRIMARY KEY);
            INSERT INTO zlock_bench VALUES (1) ON CONFLICT DO NOTHING; SELECT pg_advisory_unlock(0)";
        client.batch_execute(table).await.expect("a table");
        let (acquire, release) = match plain {
            Plain::Row => ("SELECT id FROM zlock_bench WHERE id = 1 FOR UPDATE", "COMMIT"),
            Plain::Advisory => ("SELECT pg_advisory_lock(1)", "SELECT pg_advisory_unlock(1)"),
        };
        let acquire = client.prepare(acquire).await.expect("a statement");
        let release = client.prepare(release).await.expect("a statement");
        Connection { client, plain, acquire, release }
    }

    async fn acquire(&self) {
        let acquire = self.client.execute(&self.acquire, &[]);
        let begun = async {
            if self.plain == Plain::Row {
                self.client.batch_execute("BEGIN").await.expect("a transaction");
            }
        };
        // Sent together.
        let ((), acquired) = tokio::join!(biased; begun, acquire);
        acquired.expect("a lock");
    }

    async fn release(&self) {
        self.client.execute(&self.release, &[]).await.expect("a release");
    }
}

async fn drive(connections: Vec<Connection>, operations: usize) -> (Vec<Connection>, Measured) {
    let (next, inside, violations) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let gate = Arc::new(Barrier::new(connections.len() + 1));
    let mut tasks = Vec::new();
    for connection in connections {
        let (next, inside, violations, gate) =
            (next.clone(), inside.clone(), violations.clone(), gate.clone());
        tasks.push(tokio::spawn(async move {
            let mut samples = Vec::new();
            gate.wait().await;
            while next.fetch_add(1, Ordering::Relaxed) < operations {
                let began = Instant::now();
                connection.acquire().await;
                let acquired = Instant::now();
                violations.fetch_add(u64::from(inside.fetch_add(1, Ordering::SeqCst) > 0), Ordering::SeqCst);
                inside.fetch_sub(1, Ordering::SeqCst);
                let releasing = Instant::now();
                connection.release().await;
                let nanoseconds =
                    |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                samples.push(Sample {
                    acquire: nanoseconds(acquired - began),
                    release: nanoseconds(releasing.elapsed()),
                });
            }
            (connection, samples)
        }));
    }
    gate.wait().await;
    let began = Instant::now();
    let (mut connections, mut samples, mut per_client) = (Vec::new(), Vec::new(), Vec::new());
    for task in tasks {
        let (connection, mine) = task.await.expect("a task");
        connections.push(connection);
        per_client.push(mine.len());
        samples.extend(mine);
    }
    let seconds = began.elapsed().as_secs_f64();
    (connections, Measured { samples, seconds, per_client, violations: violations.load(Ordering::SeqCst) })
}
