use tokio::time::{Instant, sleep, timeout};
use zlock_core::Mutex;

use super::super::{Fate, MemFault, MemLink, Operation};
use super::*;

type Hints = Arc<Mutex<Vec<Option<(Scope, String)>>>>;

fn hints() -> (Hints, OnHint) {
    let hints = Hints::default();
    let on_hint = hints.clone();
    (hints, Arc::new(move |hint| on_hint.lock().push(hint)))
}

fn delayed(link: &MemLink) {
    link.delay(millis(10), millis(20));
}

#[tokio::test(start_paused = true)]
async fn requests_and_answers_take_time() {
    let store = MemStore::default();
    let client = Client::new(&store, ONE).await;
    let began = Instant::now();
    delayed(&client.ledger.link());
    client.calm.nodes(ONE).await.unwrap();
    assert_eq!(began.elapsed(), millis(30));
    client.ledger.link().slow_down(millis(5));
    client.calm.nodes(ONE).await.unwrap();
    assert_eq!(began.elapsed(), millis(65));
}

/// Runs clients that want one scope, under faults, and returns all that arrives at the store, each with its time.
fn run(seed: u64) -> Vec<String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let settings = Settings { jitter: millis(20), seed, class: Class::OneServer, ..Settings::default() };
        let store = MemStore::new(settings);
        let (trace, began) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
        let seen = trace.clone();
        store.on_request(move |store, arrival| {
            let entries = store.entries(&queue());
            seen.lock().push(format!("{:?} {arrival:?} {:?}", began.elapsed(), keys(&entries)));
            Fate::Pass
        });
        let work = |number| {
            let store = store.clone();
            tokio::spawn(async move {
                let client = Client::new(&store, SessionId::new(number)).await;
                for round in 0..10 {
                    client.ledger.link().slow_down(millis(number));
                    if round == number {
                        client.ledger.link().reset();
                    }
                    let wire = if round % 2 == 0 { Wire::Fast } else { Wire::Patient };
                    let Ok(lane) = client.ledger.lane(client.session, wire).await else { continue };
                    let key = format!("{number}-{round}");
                    let (one, two) = ([tx(vec![append(&key)])], [tx(vec![delete(&key)])]);
                    let _ = tokio::join!(lane.transact(&one), lane.transact(&two));
                }
            })
        };
        let works: Vec<_> = (1..5).map(work).collect();
        sleep(millis(300)).await;
        store.restart();
        for work in works {
            work.await.unwrap();
        }
        std::mem::take(&mut *trace.lock())
    })
}

#[test]
fn a_run_repeats() {
    let first = run(7);
    assert!(first.len() > 100, "{}", first.len());
    assert_eq!(first, run(7));
    assert_ne!(first, run(8));
}

#[tokio::test(start_paused = true)]
async fn a_connection_keeps_the_order() {
    let store = MemStore::default();
    let client = Client::new(&store, ONE).await;
    let lane = client.lane(Wire::Fast).await;
    delayed(&client.ledger.link());
    let slow = one(&lane, tx(vec![append("a")]));
    let fast = async {
        client.ledger.link().delay(Duration::ZERO, Duration::ZERO);
        one(&lane, tx(vec![append("b")])).await
    };
    let (a, b) = tokio::join!(slow, fast);
    assert!(
        a.unwrap().written[0].as_ref().unwrap().created < b.unwrap().written[0].as_ref().unwrap().created
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_arrives_after_its_future_was_dropped() {
    let store = MemStore::default();
    let client = Client::new(&store, ONE).await;
    let lane = client.lane(Wire::Fast).await;
    client.ledger.link().delay(millis(1000), Duration::ZERO);
    assert!(timeout(millis(10), one(&lane, tx(vec![append("a")]))).await.is_err());
    drop(lane);
    sleep(millis(980)).await;
    assert!(store.entries(&queue()).is_empty());
    sleep(millis(30)).await;
    assert_eq!(keys(&store.entries(&queue())), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_was_given_up_is_refused_after_a_raise() {
    let store = MemStore::default();
    let client = Client::new(&store, ONE).await;
    let lane = client.lane(Wire::Fast).await;
    client.ledger.link().delay(millis(1000), Duration::ZERO);
    let late = one(&lane, tx(vec![append("a")]));
    let raise = async {
        client.ledger.link().delay(Duration::ZERO, Duration::ZERO);
        client.lane(Wire::Fast).await
    };
    let (late, next) = tokio::join!(late, raise);
    assert_eq!(fault(late), "StaleLane");
    assert!(store.entries(&queue()).is_empty());
    assert!(one(&next, tx(vec![append("b")])).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_raise_waits_for_what_was_accepted() {
    let store = MemStore::default();
    let (client, other) = (Client::new(&store, ONE).await, Client::new(&store, TWO).await);
    let (lane, other) = (client.lane(Wire::Fast).await, other.lane(Wire::Fast).await);
    client.ledger.link().slow_down(millis(1000));
    let began = Instant::now();
    let accepted = one(&lane, tx(vec![append("a")]));
    let raise = async {
        sleep(millis(10)).await;
        // It has locked its scope, and its lane.
        assert_eq!(fault(one(&other, tx(vec![append("b")])).await), "Busy");
        assert!(!store.expire(ONE));
        client.lane(Wire::Fast).await;
        began.elapsed()
    };
    let (accepted, raised) = tokio::join!(accepted, raise);
    assert!(accepted.is_ok());
    assert_eq!(raised, millis(1000));
    assert!(one(&other, tx(vec![append("b")])).await.is_ok());
    assert!(store.expire(ONE));
}

#[tokio::test(start_paused = true)]
async fn a_broken_link_loses_what_has_not_arrived() {
    let store = MemStore::default();
    let client = Client::new(&store, ONE).await;
    let lane = client.lane(Wire::Fast).await;
    let link = client.ledger.link();
    link.delay(millis(10), millis(10));
    let append = one(&lane, tx(vec![append("a")]));
    let reset = async {
        sleep(millis(5)).await;
        link.reset();
    };
    assert_eq!(fault(tokio::join!(append, reset).0), "Unknown");
    sleep(millis(100)).await;
    assert!(store.entries(&queue()).is_empty());
    assert_eq!(fault(one(&lane, tx(vec![delete("a")])).await), "NotSent");
    drop(lane);
    client.lane(Wire::Fast).await;
    link.suspend();
    assert_eq!(fault(client.ledger.lane(ONE, Wire::Fast).await), "NotSent");
    link.heal();
    client.lane(Wire::Fast).await;
}

#[tokio::test(start_paused = true)]
async fn the_store_finishes_what_it_has_accepted_when_the_link_breaks() {
    let store = MemStore::default();
    let client = Client::new(&store, ONE).await;
    let lane = client.lane(Wire::Fast).await;
    client.ledger.link().slow_down(millis(10));
    let began = Instant::now();
    let append = one(&lane, tx(vec![append("a")]));
    let reset = async {
        sleep(millis(5)).await;
        client.ledger.link().reset();
    };
    assert_eq!(fault(tokio::join!(append, reset).0), "Unknown");
    assert_eq!(began.elapsed(), millis(5));
    assert!(store.entries(&queue()).is_empty());
    sleep(millis(10)).await;
    assert_eq!(keys(&store.entries(&queue())), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_restart_undoes_what_is_in_flight() {
    let store = MemStore::new(Settings { class: Class::OneServer, ..Settings::default() });
    let client = Client::new(&store, ONE).await;
    let lane = client.lane(Wire::Fast).await;
    client.ledger.link().slow_down(millis(10));
    let append = one(&lane, tx(vec![append("a")]));
    let restart = async {
        sleep(millis(5)).await;
        store.stop();
        assert_eq!(fault(client.ledger.lane(ONE, Wire::Fast).await), "NotSent");
        store.restart();
    };
    assert_eq!(fault(tokio::join!(append, restart).0), "Unknown");
    sleep(millis(100)).await;
    assert!(store.entries(&queue()).is_empty());
    assert_eq!(fault(client.calm.nodes(ONE).await), "NotSent");
    let expired = async { store.expire(ONE) };
    assert!(expired.await);
}

#[tokio::test(start_paused = true)]
async fn a_cut_link_delivers_later_and_a_mute_one_only_requests() {
    let store = MemStore::default();
    let client = Client::new(&store, ONE).await;
    let lane = client.lane(Wire::Fast).await;
    let link = client.ledger.link();
    link.cut();
    assert!(timeout(millis(10), one(&lane, tx(vec![append("a")]))).await.is_err());
    assert!(timeout(millis(10), client.ledger.lane(ONE, Wire::Fast)).await.is_err());
    drop(lane);
    sleep(millis(10)).await;
    assert!(store.entries(&queue()).is_empty());
    link.heal();
    sleep(millis(1)).await;
    assert_eq!(keys(&store.entries(&queue())), ["a"]);
    let lane = client.lane(Wire::Fast).await;
    link.mute();
    let append = one(&lane, tx(vec![append("b")]));
    let heal = async {
        sleep(millis(10)).await;
        assert_eq!(keys(&store.entries(&queue())), ["a", "b"]);
        link.heal();
    };
    assert_eq!(fault(tokio::join!(append, heal).0), "Unknown");
}

#[tokio::test(start_paused = true)]
async fn single_requests_are_lost_or_refused() {
    let store = MemStore::default();
    let (client, other) = (Client::new(&store, ONE).await, Client::new(&store, TWO).await);
    let link = client.ledger.link();
    let only = |fault: MemFault| store.inject(fault.only(&link));
    let (lane, other) = (client.lane(Wire::Fast).await, other.lane(Wire::Fast).await);
    only(MemFault::refuse(Operation::Transact).times(2));
    let append = |key| tx(vec![append(key)]);
    assert_eq!(fault(one(&lane, append("a")).await), "Refused");
    assert!(one(&other, append("b")).await.is_ok());
    assert_eq!(fault(one(&lane, append("a")).await), "Refused");
    assert!(one(&lane, append("c")).await.is_ok());
    only(MemFault::lose_request(Operation::Transact).after(1));
    assert!(one(&lane, append("d")).await.is_ok());
    assert_eq!(fault(one(&lane, append("e")).await), "Unknown");
    // Its connection has ended, and no other one.
    assert_eq!(fault(one(&lane, append("f")).await), "NotSent");
    assert!(client.calm.nodes(ONE).await.is_ok());
    only(MemFault::lose_answer(Operation::Transact));
    let lane = client.lane(Wire::Fast).await;
    let both = tokio::join!(one(&lane, append("g")), one(&lane, append("h")));
    assert_eq!((fault(both.0), fault(both.1)), ("Unknown".into(), "Unknown".into()));
    assert_eq!(keys(&store.entries(&queue())), ["b", "c", "d", "g"]);
    only(MemFault::lose_answer(Operation::Calm));
    drop(lane);
    assert_eq!(fault(client.ledger.calm(None, no_hints()).await), "NotSent");
    only(MemFault::lose_answer(Operation::Lane));
    assert_eq!(fault(client.ledger.lane(ONE, Wire::Fast).await), "Unknown");
}

#[tokio::test(start_paused = true)]
async fn a_hook_acts_before_the_request() {
    let store = MemStore::default();
    let client = Client::new(&store, ONE).await;
    let lane = client.lane(Wire::Fast).await;
    one(&lane, tx(vec![append("a")])).await.unwrap();
    store.on_request(|store, arrival| {
        assert_eq!((arrival.operation, arrival.session), (Operation::Transact, Some(ONE)));
        assert!(arrival.scopes.iter().all(|scope| *scope == queue()));
        store.remove(&queue(), "a");
        Fate::Pass
    });
    assert_eq!(one(&lane, tx(vec![delete("a")])).await.unwrap().written, [None]);
    store.clear_faults();
    assert!(client.calm.nodes(ONE).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn hints_arrive_while_connected() {
    let store = MemStore::default();
    let (client, other) = (Client::new(&store, ONE).await, Client::new(&store, TWO).await);
    let (lane, other_lane) = (client.lane(Wire::Fast).await, other.lane(Wire::Fast).await);
    one(&lane, tx(vec![append("a")])).await.unwrap();
    one(&other_lane, tx(vec![append("b")])).await.unwrap();
    let (own, on_hint) = hints();
    let own_calm = client.ledger.calm(Some(ONE), on_hint).await.unwrap();
    let (seen, on_hint) = hints();
    let listening = other.ledger.calm(Some(TWO), on_hint).await.unwrap();
    assert_eq!(seen.lock().split_off(0), [None]);
    other.ledger.link().delay(Duration::ZERO, millis(10));
    one(&lane, tx(vec![delete("a")])).await.unwrap();
    sleep(millis(9)).await;
    assert!(seen.lock().is_empty());
    sleep(millis(2)).await;
    assert_eq!(seen.lock().split_off(0), [Some((queue(), "a".into()))]);
    assert_eq!(*own.lock(), [None]);
    drop(listening);
    sleep(millis(1)).await;
    one(&lane, tx(vec![append("c")])).await.unwrap();
    assert!(store.remove(&queue(), "b"));
    sleep(millis(20)).await;
    assert!(seen.lock().is_empty());
    // Nobody but the test has the callback.
    assert_eq!(Arc::strong_count(&seen), 1);
    client.ledger.link().reset();
    drop(own_calm);
    sleep(millis(1)).await;
    assert_eq!(Arc::strong_count(&own), 1);
}

#[tokio::test(start_paused = true)]
async fn hints_can_be_switched_off() {
    let store = MemStore::new(Settings { hints: false, ..Settings::default() });
    let client = Client::new(&store, ONE).await;
    let lane = client.lane(Wire::Fast).await;
    let (seen, on_hint) = hints();
    let _listening = client.ledger.calm(Some(ONE), on_hint).await.unwrap();
    one(&lane, tx(vec![append("a")])).await.unwrap();
    one(&lane, tx(vec![append("b")])).await.unwrap();
    one(&lane, tx(vec![delete("a")])).await.unwrap();
    sleep(millis(1)).await;
    assert!(seen.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn costs_are_counted() {
    let store = MemStore::default();
    let client = Client::new(&store, ONE).await;
    let lane = client.lane(Wire::Fast).await;
    store.reset_requests();
    let flushes = store.flushes();
    lane.transact(&[tx(vec![append("a")]), tx(vec![append("b")])]).await.unwrap();
    lane.transact(&[tx(vec![delete("a")]), tx(vec![delete("b")])]).await.unwrap();
    client.calm.nodes(ONE).await.unwrap();
    assert_eq!(store.requests(Operation::Transact), 2);
    assert_eq!(store.request_counts().into_values().sum::<u64>(), 3);
    assert_eq!((store.transactions(), store.flushes()), (4, flushes + 1));
}

#[tokio::test(start_paused = true)]
async fn limits_are_enforced() {
    let store = MemStore::default();
    let client = Client::new(&store, ONE).await;
    let lane = client.lane(Wire::Fast).await;
    let txs = vec![tx(vec![append("a")]); client.ledger.limits().batch + 1];
    assert_eq!(fault(lane.transact(&txs).await), "Invalid");
    let third = client.lane(Wire::Patient).await;
    assert_eq!(fault(client.ledger.lane(ONE, Wire::Fast).await), "Unexpected");
    drop(third);
    client.lane(Wire::Patient).await;
}

#[tokio::test(start_paused = true)]
async fn a_link_knows_its_session() {
    let store = MemStore::default();
    let client = Client::new(&store, ONE).await;
    assert_eq!(client.ledger.link().session(), Some(ONE));
    assert_eq!(store.sessions(), [ONE]);
    store.failover(0);
    assert_eq!(client.ledger.link().session(), None);
    assert!(store.sessions().is_empty() && store.is_quiet());
}
