//! A session without nodes: its cost, and whether its first node can be trusted.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use zlock_core::{CoordinationBackend, Label, SessionState, Target};
use zlock_etcd::EtcdBackend;
use zlock_testkit::etcd::{
    self, Linked, TTL, connected, create, linked, names, observer, options, path, record_states,
};
use zlock_testkit::{
    Cut, Etcd, EtcdCluster, Flow, etcd_or_skip, have_etcd, have_strace, limit, limit_if, limit_to_if, until,
};

async fn at_rest(backend: &EtcdBackend) {
    until("it is at rest", async || backend.session_events().current().deadline.is_none()).await;
}

/// Returns the messages that clients have sent to a server since `before`, by method.
async fn sent_since(server: &Etcd, before: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let after = server.metrics().await.messages().into_iter();
    let since = after.map(|(method, count)| {
        let before = before.get(&method).unwrap_or(&0);
        (method, count - before)
    });
    since.filter(|(_, count)| *count > 0).collect()
}

async fn sent_in(server: &Etcd, time: Duration) -> BTreeMap<String, u64> {
    let before = server.metrics().await.messages();
    sleep(time).await;
    sent_since(server, &before).await
}

/// Like Go's client, a session sends one keep-alive for each third of the TTL.
#[tokio::test]
async fn a_session_at_rest_is_one_message_for_each_third_of_its_ttl() {
    const TTLS: u32 = 3;
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
        let backend = etcd::backend(&server.connect_string()).await;
        at_rest(&backend).await;
        let resting = sent_in(&server, TTL * TTLS).await;
        let _made = create(&backend, &path("cost"), Label::Lock).await;
        sleep(TTL / 6).await;
        let holding = sent_in(&server, TTL * TTLS).await;
        println!("in {TTLS} TTLs: at rest {resting:?}, holding {holding:?}");
        assert_eq!(resting.keys().collect::<Vec<_>>(), ["LeaseKeepAlive"]);
        assert!(resting["LeaseKeepAlive"] <= 3 * u64::from(TTLS));
        assert!(holding.values().sum::<u64>() <= 2 * 3 * u64::from(TTLS), "{holding:?}");
    })
    .await;
}

/// Keep-alives are sent by the clock, not for each acquisition.
#[tokio::test]
async fn short_holds_cost_no_keep_alive_each() {
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
        let backend = etcd::backend(&server.connect_string()).await;
        at_rest(&backend).await;
        let (path, before) = (path("short"), server.metrics().await.messages());
        let (began, mut holds) = (Instant::now(), 0);
        while began.elapsed() < TTL * 2 {
            let made = create(&backend, &path, Label::Lock).await;
            backend.delete(&path, &Target::Node(made.node), None).await.unwrap();
            assert_eq!(made.epoch, 1);
            holds += 1;
        }
        let sent = sent_since(&server, &before).await["LeaseKeepAlive"];
        println!("{sent} keep-alives in two TTLs with {holds} holds");
        assert!(sent <= 4 * 3 * 2 && holds > 100);
    })
    .await;
}

#[tokio::test]
async fn a_client_that_idles_keeps_its_session_and_no_deadline() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let l = linked(server).await;
        let events = l.backend.session_events();
        let path = path("idle");
        for _ in 0..2 {
            sleep(TTL * 5 / 2).await;
            assert_eq!((events.epoch(), events.current().deadline), (1, None));
            let made = create(&l.backend, &path, Label::Lock).await;
            let deadline = events.current().deadline.expect("it owns a node");
            assert!(deadline > Instant::now() && deadline < Instant::now() + TTL);
            until("the deadline moves", async || events.current().deadline > Some(deadline)).await;
            l.backend.delete(&path, &Target::Node(made.node), None).await.unwrap();
            assert!(events.current().deadline.is_some(), "until the next keep-alive");
        }
    })
    .await;
}

/// Expects that the first node belongs to the next session, and that no create reports a node of the session that is over.
async fn is_made_in_the_next_session(l: &Linked) {
    let path = path("dead");
    let made = create(&l.backend, &path, Label::Lock).await;
    let session = l.backend.session_events().current();
    assert_eq!((made.epoch, made.node.session), (2, Some(session.id)));
    assert!(session.deadline.is_some() && l.backend.session_events().is_live(2));
    assert_eq!(names(&l.observer, &path).await, [made.node.name.to_string()]);
    sleep(TTL * 3 / 2).await;
    assert!(l.backend.session_events().is_live(2) && !made.deletion.is_deleted());
}

async fn is_gone(l: &Linked, id: i64) -> bool {
    l.observer.lease_client().time_to_live(id, None).await.unwrap().ttl() < 0
}

#[tokio::test]
async fn a_session_that_ended_in_silence_grants_nothing() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        for flow in [Flow::Swallow, Flow::Hold] {
            let l = linked(server).await;
            at_rest(&l.backend).await;
            let id = l.backend.session_events().current().id.get().cast_signed();
            l.proxy.freeze().await;
            l.proxy.both(flow);
            until("the server has ended it", async || is_gone(&l, id).await).await;
            l.proxy.cut(Cut::Reset);
            let (l, proxy) = (&l, &l.proxy);
            tokio::join!(is_made_in_the_next_session(l), proxy.heal());
        }
    })
    .await;
}

/// The client cannot learn of the end of its session before its create.
#[tokio::test]
async fn a_session_that_was_ended_by_hand_grants_nothing() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let l = linked(server).await;
        at_rest(&l.backend).await;
        etcd::revoke(&l.observer, &l.backend).await;
        assert!(l.backend.session_events().is_live(1));
        is_made_in_the_next_session(&l).await;
    })
    .await;
}

#[tokio::test]
async fn a_session_at_rest_that_hears_nothing_is_given_up() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let l = linked(server).await;
        let states = record_states(&l.backend.session_events(), (1, SessionState::Lost)).await;
        at_rest(&l.backend).await;
        l.proxy.refuse().await;
        l.proxy.cut(Cut::Fin);
        assert_eq!(states.await.unwrap(), [(1, SessionState::Suspended), (1, SessionState::Lost)]);
        l.proxy.heal().await;
        connected(&l.backend, 2).await;
    })
    .await;
}

/// A keep-alive from another term or another member proves nothing, so the client checks that the lease is live before the
/// create returns.
#[tokio::test]
async fn a_create_in_another_term_is_proved_by_itself() {
    limit_to_if(Duration::from_secs(120), have_etcd(), async {
        let cluster = EtcdCluster::start(3).await;
        let leader = cluster.leader().await;
        let server = &cluster.members()[(leader + 1) % 3];
        let backend = EtcdBackend::connect(options(&server.connect_string())).await.unwrap();
        let path = path("term");
        at_rest(&backend).await;
        // Wait for another keep-alive, whose answer names the member and the term.
        sleep(TTL / 2).await;
        let mut observer = observer(&server.connect_string()).await;
        for moves in [false, true] {
            if moves {
                let member = observer.status().await.unwrap().header().unwrap().member_id();
                let mut leads = etcd::observer(&cluster.members()[leader].connect_string()).await;
                leads.move_leader(member).await.unwrap();
            }
            let before = server.metrics().await.messages();
            let made = create(&backend, &path, Label::Lock).await;
            let deadline = backend.session_events().current().deadline.unwrap();
            let sent = sent_since(server, &before).await;
            println!("another term {moves}: {sent:?}");
            assert!(deadline > Instant::now() && deadline < Instant::now() + TTL);
            assert_eq!(made.epoch, 1);
            assert_eq!(sent.contains_key("Range"), moves, "{sent:?}");
            backend.delete(&path, &Target::Node(made.node), None).await.unwrap();
            at_rest(&backend).await;
            sleep(TTL / 2).await;
        }
    })
    .await;
}

/// A leader whose disk hangs continues to answer keep-alives of leases that the other members have ended.
#[tokio::test]
async fn a_leader_that_was_replaced_grants_nothing() {
    limit_to_if(Duration::from_secs(120), have_etcd() && have_strace(), async {
        let cluster = EtcdCluster::start(3).await;
        let leader = cluster.leader().await;
        let members = cluster.members();
        let backend = EtcdBackend::connect(options(&members[leader].connect_string())).await.unwrap();
        let other = observer(&members[(leader + 1) % 3].connect_string()).await;
        at_rest(&backend).await;
        let id = backend.session_events().current().id.get().cast_signed();
        let hung = members[leader].hang_disk();
        // The disk hangs at the next write.
        other.kv_client().put("written", "", None).await.unwrap();
        let ended = async || match other.lease_client().time_to_live(id, None).await {
            Ok(answer) => answer.ttl() < 0,
            Err(_) => false,
        };
        until("the others have ended it", ended).await;
        println!("the client believes in it: {}", backend.session_events().is_live(1));
        drop(hung);
        let path = path("replaced");
        let made = create(&backend, &path, Label::Lock).await;
        assert_eq!(made.epoch, 2);
        assert_eq!(names(&other, &path).await, [made.node.name.to_string()]);
    })
    .await;
}
