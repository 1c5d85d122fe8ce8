//! The cost of a lock on PostgreSQL, by the server's own counters. Each test has a separate server.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use zlock_core::{CoordinationBackend, Label, Target};
use zlock_postgres::PostgresBackend;
use zlock_recipes::{Client, InterProcessMutex};
use zlock_testkit::postgres::{backend, create, observer, options, path, release};
use zlock_testkit::{PostgresServer, have_postgres, limit, limit_if, report, until};

const PATH: &str = "/app/lock";

/// The statements of a server's clients, by the function that they call.
pub(super) type Sent = BTreeMap<String, u64>;

pub(super) async fn sent(server: &PostgresServer) -> Sent {
    let mut sent = Sent::new();
    for (statement, calls) in server.statements().await {
        let name = statement.split_once("zlock.").map_or(&*statement, |(_, call)| call);
        // With each LISTEN, a client notifies itself.
        let name = if statement.contains("pg_notify") { "notify" } else { name };
        let name = name.split(['(', ' ']).next().unwrap_or_default().to_owned();
        // Once, some minutes after it has connected, a client looks for sessions of the dead. A connection begins with settings.
        if !["v2_silent", "SHOW", "SET"].contains(&&*name) {
            *sent.entry(name).or_default() += calls;
        }
    }
    sent
}

/// What was sent between two looks.
pub(super) fn since(before: &Sent, after: &Sent) -> Sent {
    let more = after.iter().map(|(name, calls)| (name.clone(), calls - before.get(name).unwrap_or(&0)));
    more.filter(|(_, calls)| *calls > 0).collect()
}

/// What was sent between two looks for what the clients were asked to do: without what they send from time to time, which is polls,
/// looks at sessions and heartbeats, and without what listening takes.
pub(super) fn calls(before: &Sent, after: &Sent) -> Sent {
    let mut calls = since(before, after);
    let others = ["LISTEN", "notify", "UNLISTEN", "v2_beat", "v2_changed", "v2_look"];
    calls.retain(|name, _| !others.contains(&&**name));
    calls
}

/// Returns [`calls`] up to now, once there are this many notifications of their own, for which nobody waits.
pub(super) async fn calls_and_wakes(server: &PostgresServer, before: &Sent, wakes: u64) -> Sent {
    let look = async || calls(before, &sent(server).await);
    let awaited = async || look().await.get("v2_wake").copied().unwrap_or(0) >= wakes;
    until("those who wait are notified", awaited).await;
    look().await
}

pub(super) fn counts(counts: &[(&str, u64)]) -> Sent {
    counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// A client whose heartbeats are so far apart that none is due.
pub(super) async fn quiet(server: &PostgresServer) -> PostgresBackend {
    server.sql("UPDATE zlock.setting SET longest = '1 day'").await;
    let options = options(&server.addr().to_string()).with_ttl(Duration::from_secs(3600));
    PostgresBackend::connect(options).await.unwrap()
}

/// A server with the schema.
pub(super) async fn start() -> PostgresServer {
    let server = PostgresServer::start().await;
    drop(backend(&server).await);
    server
}

async fn mutex(server: &PostgresServer) -> InterProcessMutex {
    Client::new(quiet(server).await).mutex(PATH).unwrap()
}

#[tokio::test]
async fn an_uncontended_lock_is_two_statements_and_one_flush() {
    const ROUNDS: u64 = 100;
    // The delete is flushed with the next create, or by the server, which looks five times a second.
    const INTERVAL: Duration = Duration::from_millis(200);
    limit_if(have_postgres(), async {
        let server = start().await;
        let mut flushes = Vec::new();
        let mut looks = 0;
        // The server flushes by itself, too, most of all at its start: so without rounds once before and once after.
        for rounds in [0, ROUNDS, 0] {
            let start = server.flushes().await;
            let client = Client::new(quiet(&server).await);
            let mutex = client.mutex(PATH).unwrap();
            release(mutex.acquire().await.unwrap()).await;
            let before = sent(&server).await;
            let began = Instant::now();
            for _ in 0..rounds {
                release(mutex.acquire().await.unwrap()).await;
            }
            looks += began.elapsed().div_duration_f64(INTERVAL).ceil() as u64;
            let cost = since(&before, &sent(&server).await);
            let expected = [("v2_append", rounds), ("v2_delete", rounds)];
            assert_eq!(cost, counts(if rounds == 0 { &[] } else { &expected }));
            // A process of the server reports its flushes when its connection ends.
            client.close().await.unwrap();
            drop((client, mutex));
            let idle = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'zlock'";
            until("the connections end", async || server.sql(idle).await == "0\n").await;
            flushes.push(server.flushes().await - start);
        }
        let more = flushes[1].saturating_sub(flushes[0].min(flushes[2]));
        report(format!("{ROUNDS} acquisitions: {more} flushes more, {flushes:?}"));
        assert!((ROUNDS - 5..ROUNDS + 10 + looks).contains(&more), "{flushes:?}, {looks} looks");
    })
    .await;
}

/// Behind another client: create, a read of the node before it when the watch on that is armed, the delete, which notifies, and a listing
/// after the wake-up.
#[tokio::test]
async fn a_contended_lock_is_four_statements() {
    const ROUNDS: u64 = 20;
    limit_if(have_postgres(), async {
        let server = start().await;
        let mutexes = [mutex(&server).await, mutex(&server).await];
        let mut held = mutexes[0].acquire().await.unwrap();
        let observer = observer(&server).await;
        let waits = "SELECT count(*) FROM zlock.entry WHERE kind = 0";
        let (mut before, mut began) = (Sent::new(), Instant::now());
        for round in 0..=ROUNDS {
            // The first wait begins to listen.
            if round == 1 {
                (before, began) = (sent(&server).await, Instant::now());
            }
            let next = mutexes[(round % 2 == 0) as usize].clone();
            let waiting = tokio::spawn(async move { next.acquire().await.unwrap() });
            until("it waits", async || observer.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 2)
                .await;
            // Until the create's answer has arrived.
            sleep(Duration::from_millis(5)).await;
            release(held).await;
            held = waiting.await.unwrap();
        }
        let mut cost = since(&before, &sent(&server).await);
        report(format!("{ROUNDS} contended: {cost:?}"));
        let mut sometimes = |name| cost.remove(name).unwrap_or(0);
        let (polls, looks, reads) = (sometimes("v2_changed"), sometimes("v2_look"), sometimes("v2_read"));
        // Only the second client begins to listen here.
        assert_eq!(["UNLISTEN", "LISTEN", "notify"].map(sometimes), [1, 1, 1]);
        assert_eq!(cost, counts(&["v2_append", "v2_delete"].map(|name| (name, ROUNDS))));
        // Each client polls and looks at the session ahead once a second, and polls once when it begins to listen.
        let most = 2 * (began.elapsed().as_secs() + 2);
        assert!(polls <= most && looks <= most, "{polls} polls, {looks} looks");
        // A look also reads who else is ahead.
        assert!((2 * ROUNDS..=2 * ROUNDS + looks).contains(&reads), "{reads} reads, {looks} looks");
        release(held).await;
    })
    .await;
}

/// Create, hand-over, and a notification for other clients that wait behind the node that was deleted.
#[tokio::test]
async fn behind_the_same_client_it_is_three_statements() {
    const ROUNDS: u64 = 20;
    limit_if(have_postgres(), async {
        let server = start().await;
        let mutex = mutex(&server).await;
        let mut held = mutex.acquire().await.unwrap();
        let observer = observer(&server).await;
        let before = sent(&server).await;
        for _ in 0..ROUNDS {
            let next = mutex.clone();
            let waiting = tokio::spawn(async move { next.acquire().await.unwrap() });
            let waits = "SELECT count(*) FROM zlock.entry WHERE kind = 0";
            until("it waits", async || observer.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 2)
                .await;
            sleep(Duration::from_millis(5)).await;
            release(held).await;
            held = waiting.await.unwrap();
        }
        let cost = calls_and_wakes(&server, &before, ROUNDS).await;
        assert_eq!(cost, counts(&["v2_append", "v2_execute", "v2_wake"].map(|name| (name, ROUNDS))));
        release(held).await;
    })
    .await;
}

#[tokio::test]
async fn a_failed_try_is_one_read() {
    limit_if(have_postgres(), async {
        let server = start().await;
        let (holder, other) = (mutex(&server).await, mutex(&server).await);
        let held = holder.acquire().await.unwrap();
        assert!(other.try_acquire().await.unwrap().is_none());
        let before = sent(&server).await;
        for _ in 0..50 {
            assert!(other.try_acquire().await.unwrap().is_none());
        }
        assert_eq!(since(&before, &sent(&server).await), counts(&[("v2_read", 50)]));
        release(held).await;
    })
    .await;
}

/// Three heartbeats for each session timeout while a client holds a lock, and none while it does not.
#[tokio::test]
async fn only_a_holder_sends_heartbeats() {
    const TTL: Duration = Duration::from_millis(1200);
    limit_if(have_postgres(), async {
        let server = start().await;
        let mut clients = Vec::new();
        for _ in 0..5 {
            let options = options(&server.addr().to_string()).with_ttl(TTL);
            clients.push(PostgresBackend::connect(options).await.unwrap());
        }
        let beats = async |time: Duration| {
            let before = sent(&server).await;
            sleep(time).await;
            let cost = since(&before, &sent(&server).await);
            assert!(cost.keys().all(|name| name == "v2_beat"), "{cost:?}");
            cost.get("v2_beat").copied().unwrap_or(0)
        };
        assert_eq!(beats(TTL).await, 0, "idle clients");
        let (holder, lock) = (&clients[0], path("held"));
        let node = create(holder, &lock, Label::Lock).await.node;
        let sent = beats(2 * TTL).await;
        assert!((4..=7).contains(&sent), "{sent} heartbeats in two session timeouts");
        holder.delete(&lock, &Target::Node(node), None).await.unwrap();
        // The last one finds that nothing is owned any more.
        sleep(TTL / 2).await;
        assert_eq!(beats(TTL).await, 0, "it is idle again");
    })
    .await;
}

/// Clients that wait for nothing do not listen: each notification would wake them all.
#[tokio::test]
async fn only_a_waiter_listens() {
    limit_if(have_postgres(), async {
        let server = start().await;
        let (idle, other) = (mutex(&server).await, mutex(&server).await);
        for mutex in [&idle, &other] {
            release(mutex.acquire().await.unwrap()).await;
        }
        assert!(!sent(&server).await.contains_key("LISTEN"), "{:?}", sent(&server).await);
        let held = idle.acquire().await.unwrap();
        let waiting = tokio::spawn(async move { other.acquire().await.unwrap() });
        until("it listens", async || sent(&server).await.get("LISTEN") == Some(&1)).await;
        release(held).await;
        release(waiting.await.unwrap()).await;
    })
    .await;
}

/// While any old snapshot is open, the rows of released locks stay, and an acquisition must not look at them. Set
/// `ZLOCK_ACQUISITIONS=20000` for a longer run by hand, which also compares the rates.
#[tokio::test]
async fn rows_that_cannot_be_removed_cost_nothing() {
    if !have_postgres() {
        return;
    }
    let asked = std::env::var("ZLOCK_ACQUISITIONS").ok().map(|number| number.parse().unwrap());
    let rounds: usize = asked.unwrap_or(1000);
    limit(async {
        let server = start().await;
        let mut old = observer(&server).await;
        let snapshot =
            old.build_transaction().isolation_level(tokio_postgres::IsolationLevel::RepeatableRead);
        let snapshot = snapshot.start().await.unwrap();
        snapshot.query("SELECT 1", &[]).await.unwrap();
        let mutex = mutex(&server).await;
        let (mut pages, mut rates) = (Vec::new(), Vec::new());
        for _ in 0..10 {
            let (before, began) = (server.pages("v2_append").await, Instant::now());
            for _ in 0..rounds / 10 {
                release(mutex.acquire().await.unwrap()).await;
            }
            rates.push(rounds as f64 / 10.0 / began.elapsed().as_secs_f64());
            pages.push((server.pages("v2_append").await - before) as f64 / (rounds / 10) as f64);
        }
        snapshot.commit().await.unwrap();
        report(format!(
            "pages for each create, by tenths: {pages:.1?}; acquisitions in a second: {rates:.0?}"
        ));
        assert!(pages[4] > 0.0 && pages[9] < 1.15 * pages[4], "{pages:?}");
        assert!(asked.is_none() || rates[9] >= 0.8 * rates[0], "{rates:?}");
    })
    .await;
}

/// The same for heartbeats, which ask for the nodes of a session.
#[tokio::test]
async fn rows_that_cannot_be_removed_make_no_heartbeat_longer() {
    limit_if(have_postgres(), async {
        let server = start().await;
        let mut old = observer(&server).await;
        let snapshot =
            old.build_transaction().isolation_level(tokio_postgres::IsolationLevel::RepeatableRead);
        let snapshot = snapshot.start().await.unwrap();
        snapshot.query("SELECT 1", &[]).await.unwrap();
        let client = Client::new(backend(&server).await);
        let held = client.mutex("/cost/held").unwrap().acquire().await.unwrap();
        let beats = async || sent(&server).await["v2_beat"];
        // None comes between the two numbers.
        let look = async || loop {
            let (before, pages) = (beats().await, server.pages("v2_beat").await);
            if beats().await == before {
                return (before, pages);
            }
        };
        // One in thirty looks for replicas as well, and a plan that is made anew reads the catalog, so the least of some counts.
        let heartbeat = async |some| {
            let mut least = u64::MAX;
            for _ in 0..some {
                let (beats, pages) = look().await;
                until("there is a heartbeat", async || look().await.0 > beats).await;
                let (more_beats, more_pages) = look().await;
                least = least.min((more_pages - pages) / (more_beats - beats));
            }
            least
        };
        // The first ones also read the catalog.
        heartbeat(1).await;
        let before = heartbeat(3).await;
        let mutex = client.mutex("/cost/others").unwrap();
        for _ in 0..1000 {
            release(mutex.acquire().await.unwrap()).await;
        }
        let after = heartbeat(8).await;
        report(format!("pages for each heartbeat: {before}, then {after}"));
        assert!(after < before + 10, "{before} pages for a heartbeat, then {after}");
        release(held).await;
        snapshot.commit().await.unwrap();
    })
    .await;
}
