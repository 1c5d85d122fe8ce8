//! An idle session: its cost, and whether its first node can be trusted.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use zlock_core::{CoordinationBackend, Label, SessionState, Target};
use zlock_testkit::zk::{
    self, Linked, SESSION, connected, create, linked, lost_and_gone, names, observer, path, record_states,
};
use zlock_testkit::{
    Cut, Ensemble, FaultProxy, Flow, ZooKeeper, end_zookeeper_session, have_zookeeper, limit, limit_if,
    limit_to_if, until, zookeeper_or_skip,
};
use zlock_zk::{ZkBackend, ZkOptions};
use zookeeper_client::Client;

/// Returns the number of packets that a server receives within this number of session timeouts.
async fn packets(server: &ZooKeeper, timeouts: u32) -> f64 {
    let count = async || server.mntr().await["packets_received"];
    let before = count().await;
    sleep(SESSION * timeouts).await;
    // The request for the counter is itself a packet.
    count().await - before - 1.0
}

/// Over a whole number of session timeouts. We add at most a quarter to the client library's pings, since each of our requests
/// replaces a ping.
#[tokio::test]
async fn an_idle_session_costs_little_more_than_the_librarys_pings() {
    const TIMEOUTS: u32 = 3;
    limit_if(have_zookeeper(), async {
        let server = ZooKeeper::start().await;
        let bare = Client::connector()
            .with_session_timeout(SESSION)
            .with_connection_timeout(SESSION / 5)
            .connect(&server.connect_string())
            .await
            .unwrap();
        let pings = packets(&server, TIMEOUTS).await;
        drop(bare);
        let backend = zk::backend(&server.connect_string()).await;
        let idle = packets(&server, TIMEOUTS).await;
        let _made = create(&backend, &path("cost"), Label::Lock).await;
        let holding = packets(&server, TIMEOUTS).await;
        println!("packets in {TIMEOUTS} session timeouts: pings {pings}, idle {idle}, holding {holding}");
        assert!(idle <= pings * 5.0 / 4.0);
        assert!(holding <= idle * 2.0);
    })
    .await;
}

#[tokio::test]
async fn a_client_that_idles_keeps_its_session() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let l = linked(server).await;
        let events = l.backend.session_events();
        let path = path("idle");
        for _ in 0..2 {
            sleep(SESSION * 5 / 2).await;
            let session = events.current();
            assert!(session.epoch == 1 && session.is_live());
            let made = create(&l.backend, &path, Label::Lock).await;
            let deadline = events.current().deadline.expect("it has one");
            assert!(deadline > Instant::now() && deadline < Instant::now() + SESSION);
            until("the deadline moves", async || events.current().deadline > Some(deadline)).await;
            l.backend.delete(&path, &Target::Node(made.node), None).await.unwrap();
        }
    })
    .await;
}

/// A client that acquires and releases all the time keeps its session by heartbeats, which its acquisitions do not disturb.
#[tokio::test]
async fn a_client_with_very_short_holds_keeps_its_session() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let l = linked(server).await;
        let path = path("short");
        let began = Instant::now();
        while began.elapsed() < SESSION * 3 {
            let made = create(&l.backend, &path, Label::Lock).await;
            l.backend.delete(&path, &Target::Node(made.node), None).await.unwrap();
            assert_eq!(made.epoch, 1);
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
    sleep(SESSION * 3 / 2).await;
    assert!(l.backend.session_events().is_live(2) && !made.deletion.is_deleted());
}

/// The link is silent until the server has ended the session, which the client library still takes for live.
#[tokio::test]
async fn a_session_that_ended_in_silence_grants_nothing() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        for flow in [Flow::Swallow, Flow::Hold] {
            let l = linked(server).await;
            sleep(SESSION * 3 / 2).await;
            let id = format!("{:#x}", l.backend.session_events().current().id.get());
            // New connections are silent, too.
            l.proxy.freeze().await;
            l.proxy.both(flow);
            let dump = async || server.four_letter_word("dump").await.unwrap();
            until("the server has ended it", async || !dump().await.contains(&id)).await;
            l.proxy.heal().await;
            is_made_in_the_next_session(&l).await;
        }
    })
    .await;
}

/// Another client takes over the session with its password and closes it, which is the only way to end a session by hand.
#[tokio::test]
async fn a_session_that_was_ended_by_hand_grants_nothing() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let l = linked(server).await;
        sleep(SESSION * 3 / 2).await;
        // The client cannot learn of it before its create.
        l.proxy.to_client(Flow::Hold);
        let (addr, id) = (server.addr(), l.backend.session_events().current().id.get());
        let ended = tokio::task::spawn_blocking(move || end_zookeeper_session(addr, id));
        assert!(ended.await.unwrap().unwrap());
        let (l, proxy) = (&l, &l.proxy);
        tokio::join!(is_made_in_the_next_session(l), proxy.heal());
    })
    .await;
}

#[tokio::test]
async fn an_idle_session_that_hears_nothing_is_lost() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let l = linked(server).await;
        let states = record_states(&l.backend.session_events(), (1, SessionState::Lost)).await;
        sleep(SESSION).await;
        l.proxy.refuse().await;
        l.proxy.cut(Cut::Fin);
        assert_eq!(states.await.unwrap(), [(1, SessionState::Suspended), (1, SessionState::Lost)]);
        l.proxy.heal().await;
        connected(&l.backend, 2).await;
    })
    .await;
}

/// A follower that dies right after it has forwarded the first create has reported neither the create nor the requests shortly
/// before it to the leader. Here it has received nothing for a while before the create, since the link was frozen. So the
/// leader counts the session timeout from an even earlier request.
#[tokio::test]
async fn the_first_deadline_holds_when_the_follower_dies_right_after_the_create() {
    const TICK: Duration = Duration::from_millis(200);
    const LONG: Duration = Duration::from_secs(6);
    limit_to_if(Duration::from_secs(120), have_zookeeper(), async {
        let kind = ZooKeeper::builder().tick(TICK).session_timeouts(TICK, LONG);
        let ensemble = Ensemble::start_with(3, kind).await;
        let [follower, other] = ensemble.followers().await[..] else { panic!("two followers") };
        let observer = observer(&ensemble.members()[other].connect_string()).await;
        for server_tick in [TICK, TICK, LONG / 2] {
            let proxy = FaultProxy::start_zookeeper(ensemble.members()[follower].addr()).await;
            let options = ZkOptions::new([proxy.connect_string()]);
            let options = options.with_session_timeout(LONG).with_server_tick(server_tick);
            let backend = ZkBackend::connect(options).await.unwrap();
            let (events, path) = (backend.session_events(), path("follower"));
            sleep(LONG * 3 / 2).await;
            assert!(events.is_live(1));
            proxy.to_server(Flow::Hold);
            // Too short for the library to consider the link dead.
            sleep(LONG / 6).await;
            proxy.to_server(Flow::Pass);
            let sent = Instant::now();
            let made = create(&backend, &path, Label::Lock).await;
            // A frozen server looks as dead as a killed one, and freezing takes effect at once.
            ensemble.members()[follower].pause();
            let took = sent.elapsed();
            assert_eq!(made.epoch, 1);
            let is_gone = async || names(&observer, &path).await.is_empty();
            let (lost, gone) = lost_and_gone(&backend, is_gone).await;
            println!(
                "tick {server_tick:?}: created in {took:?}, lost after {:?}, gone after {:?}",
                lost - sent,
                gone - sent
            );
            assert!(lost < gone);
            ensemble.members()[follower].resume();
        }
    })
    .await;
}
