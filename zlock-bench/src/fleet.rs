//! Measures the cost of many sessions for the servers, by their own counters. The sessions are at rest, hold one lock each, are members of
//! one group that each of them watches, or wait at one semaphore.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use zlock::Client;

use crate::report::scaled;
use crate::store::{Counters, Store};

const SESSIONS: usize = 200;

/// The number of session timeouts during which requests are counted.
const TIMEOUTS: u32 = 3;

/// What a client on PostgreSQL keeps open although it does not need it any more is closed after this time.
const REST: Duration = Duration::from_secs(90);

/// Prints a line for each of the four.
pub(crate) async fn run(store: &Store) {
    if store.counters().is_none() {
        eprintln!("fleet: {} has no server that counts", store.name());
        return;
    }
    let (sessions, path) = (scaled(SESSIONS), store.path("fleet"));
    let mut clients = Vec::new();
    for _ in 0..sessions {
        clients.push(Client::new(store.connect().await));
    }
    // The first keep-alives are those of a new session.
    sleep(store.session_timeout().max(REST)).await;
    count(store, "fleet-idle", sessions).await;

    let mut held = Vec::new();
    for (number, client) in clients.iter().enumerate() {
        let lock = client.mutex(format!("{path}/{number}")).expect("a path");
        held.push(lock.acquire().await.expect("acquire"));
    }
    sleep(store.session_timeout()).await;
    count(store, "fleet-holding", sessions).await;
    assert!(held.iter().all(|guard| guard.is_held()), "a session was lost");
    drop(held);

    let (mut members, mut watches) = (Vec::new(), JoinSet::new());
    for (number, client) in clients.iter().enumerate() {
        let group = client.members(format!("{path}/group")).expect("a path");
        members.push(group.join(format!("m{number}"), "").await.expect("join"));
        let mut watch = group.watch();
        watches.spawn(async move { while watch.changed().await.is_ok() {} });
    }
    sleep(store.session_timeout()).await;
    count(store, "fleet-members", sessions).await;
    watches.shutdown().await;
    for member in members {
        member.leave().await.expect("leave");
    }

    let permits = |client: &Client| client.semaphore(format!("{path}/permits"), 1).expect("a path");
    let first = permits(&clients[0]).acquire(1).await.expect("acquire");
    let mut waiting = JoinSet::new();
    for client in &clients[1..] {
        let permits = permits(client);
        waiting.spawn(async move { permits.acquire(1).await.map(drop) });
    }
    sleep(store.session_timeout()).await;
    count(store, "fleet-waiting", sessions).await;
    assert!(waiting.try_join_next().is_none(), "a waiter did not wait");
    drop(first);
}

async fn count(store: &Store, workload: &str, sessions: usize) {
    let (before, began) = (Counts::of(store).await, Instant::now());
    sleep(store.session_timeout() * TIMEOUTS).await;
    // Reading the counters is one packet for each ZooKeeper server. etcd counts it separately.
    let (after, seconds) = (Counts::of(store).await, began.elapsed().as_secs_f64());
    let requests = (after.requests - before.requests) / seconds;
    let each = requests / sessions as f64;
    let on_postgres = after.connections.map_or_else(String::new, |connections| {
        format!(
            ",\"rows_per_sec\":{:.0},\"connections\":{connections:.0}",
            (after.rows - before.rows) / seconds
        )
    });
    println!(
        "{{\"peer\":\"zlock\",\"server\":\"{}\",\"workload\":\"{workload}\",\"clients\":{sessions},\
         \"seconds\":{seconds:.1},\"requests_per_sec\":{requests:.1},\"requests_per_sec_each\":{each:.3},\
         \"requests_per_timeout_each\":{:.2}{on_postgres}}}",
        store.name(),
        each * store.session_timeout().as_secs_f64(),
    );
}

#[derive(Default)]
struct Counts {
    /// The requests that clients have sent to all servers; on PostgreSQL, transactions.
    requests: f64,
    /// The rows of tables and indexes that PostgreSQL has read.
    rows: f64,
    /// The connections that there are on PostgreSQL now.
    connections: Option<f64>,
}

impl Counts {
    async fn of(store: &Store) -> Self {
        let mut counts = Counts::default();
        match store.counters() {
            None => {}
            Some(Counters::Ports(hosts)) => {
                for host in hosts {
                    let (question, counter) = match store.name() {
                        "zk" => ("mntr".to_owned(), "zk_packets_received"),
                        _ => (
                            format!("GET /metrics HTTP/1.0\r\nHost: {host}\r\n\r\n"),
                            "grpc_server_msg_received_total{",
                        ),
                    };
                    let answer = ask(host, &question).await.expect("the server's counters");
                    let lines = answer.lines().filter(|line| line.starts_with(counter));
                    let number = |line: &str| line.split_whitespace().last()?.parse::<f64>().ok();
                    counts.requests += lines.filter_map(number).sum::<f64>();
                }
            }
            #[cfg(feature = "postgres")]
            Some(Counters::Database(url)) => {
                let row = crate::plain::query(url, DATABASE).await;
                (counts.requests, counts.rows) = (row.get(0), row.get(1));
                counts.connections = Some(row.get(2));
            }
        }
        counts
    }
}

/// The transactions and rows of a database so far, and its connections.
#[cfg(feature = "postgres")]
const DATABASE: &str =
    "SELECT (d.xact_commit + d.xact_rollback)::float8, (d.tup_returned + d.tup_fetched)::float8,
    (SELECT count(*) - 1 FROM pg_stat_activity a WHERE a.datname = d.datname)::float8
    FROM pg_stat_database d WHERE d.datname = current_database()";

async fn ask(host: &str, question: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(host).await?;
    stream.write_all(question.as_bytes()).await?;
    let mut answer = String::new();
    tokio::time::timeout(Duration::from_secs(10), stream.read_to_string(&mut answer)).await??;
    Ok(answer)
}
