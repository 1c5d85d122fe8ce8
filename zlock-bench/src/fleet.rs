//! Measures the cost of many sessions for the servers, by their own counters. The sessions are at rest or hold one lock each.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};
use zlock::Client;

use crate::report::scaled;
use crate::store::Store;

const SESSIONS: usize = 200;

/// The number of session timeouts during which requests are counted.
const TIMEOUTS: u32 = 3;

/// Prints a line for sessions at rest and one for sessions that hold.
pub(crate) async fn run(store: &Store) {
    if store.hosts().is_empty() {
        eprintln!("fleet: {} has no server that counts", store.name());
        return;
    }
    let (sessions, path) = (scaled(SESSIONS), store.path("fleet"));
    let mut clients = Vec::new();
    for _ in 0..sessions {
        clients.push(Client::new(store.connect().await));
    }
    // The first keep-alives are those of a new session.
    sleep(store.session_timeout()).await;
    count(store, "fleet-idle", sessions).await;
    let mut held = Vec::new();
    for (number, client) in clients.iter().enumerate() {
        let lock = client.mutex(format!("{path}/{number}")).expect("a path");
        held.push(lock.acquire().await.expect("acquire"));
    }
    sleep(store.session_timeout()).await;
    count(store, "fleet-holding", sessions).await;
    assert!(held.iter().all(|guard| guard.is_held()), "a session was lost");
}

async fn count(store: &Store, workload: &str, sessions: usize) {
    let (before, began) = (requests(store).await, Instant::now());
    sleep(store.session_timeout() * TIMEOUTS).await;
    // Reading the counters is one packet for each ZooKeeper server. etcd counts it separately.
    let (asked, seconds) = (requests(store).await - before, began.elapsed().as_secs_f64());
    let each = asked / seconds / sessions as f64;
    println!(
        "{{\"peer\":\"zlock\",\"server\":\"{}\",\"workload\":\"{workload}\",\"clients\":{sessions},\
         \"seconds\":{seconds:.1},\"requests_per_sec\":{:.1},\"requests_per_sec_each\":{each:.3},\
         \"requests_per_timeout_each\":{:.2}}}",
        store.name(),
        asked / seconds,
        each * store.session_timeout().as_secs_f64(),
    );
}

/// Returns the number of requests that clients have sent to all servers of the store.
async fn requests(store: &Store) -> f64 {
    let mut sum = 0.0;
    for host in store.hosts() {
        let (question, counter) = match store.name() {
            "zk" => ("mntr".to_owned(), "zk_packets_received"),
            _ => {
                (format!("GET /metrics HTTP/1.0\r\nHost: {host}\r\n\r\n"), "grpc_server_msg_received_total{")
            }
        };
        let answer = ask(host, &question).await.expect("the server's counters");
        let counts = answer.lines().filter(|line| line.starts_with(counter));
        sum += counts.filter_map(|line| line.split_whitespace().last()?.parse::<f64>().ok()).sum::<f64>();
    }
    sum
}

async fn ask(host: &str, question: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(host).await?;
    stream.write_all(question.as_bytes()).await?;
    let mut answer = String::new();
    tokio::time::timeout(Duration::from_secs(10), stream.read_to_string(&mut answer)).await??;
    Ok(answer)
}
