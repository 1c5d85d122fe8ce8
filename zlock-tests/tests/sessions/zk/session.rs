//! Sessions survive outages, and are replaced when they are lost.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use zlock_core::{CoordinationBackend, ErrorKind, Label, SessionState, Target, WatchEvent};
use zlock_testkit::zk::{
    Relay, SESSION, backend, connected, create, linked, linked_with, names, operation, path, record_states,
    watch,
};
use zlock_testkit::{
    Cut, Ensemble, FaultProxy, Flow, Lose, ZooKeeper, have_zookeeper, limit, limit_to_if, until, zk_op,
    zookeeper_or_skip, zookeeper_request,
};
use zlock_zk::{ZkBackend, ZkOptions};

/// The server that we are connected to falls silent, also on new connections. The session continues on another server,
/// whichever is tried first.
#[tokio::test]
async fn a_silent_member_costs_nothing() {
    limit_to_if(Duration::from_secs(120), have_zookeeper(), async {
        let ensemble = Ensemble::start(3).await;
        let mut proxies = Vec::new();
        for member in ensemble.members() {
            proxies.push(FaultProxy::start_zookeeper(member.addr()).await);
        }
        let hosts: Vec<_> = proxies.iter().map(FaultProxy::connect_string).collect();
        let backend = backend(&hosts.join(",")).await;
        let path = path("silent-member");
        let made = create(&backend, &path, Label::Lock).await;
        for round in 0..6 {
            // The proxy that heartbeats go through.
            let before: Vec<_> = proxies.iter().map(FaultProxy::bytes_to_client).collect();
            sleep(SESSION / 2).await;
            let used = (0..3).find(|&i| proxies[i].bytes_to_client() > before[i]).unwrap();
            let began = Instant::now();
            proxies[used].freeze().await;
            assert_eq!(backend.children(&path, None).await.unwrap().len(), 1);
            println!("round {round}: found another one after {:?}", began.elapsed());
            connected(&backend, 1).await;
            proxies[used].cut(Cut::Reset);
            proxies[used].heal().await;
        }
        assert!(!made.deletion.is_deleted());
    })
    .await;
}

/// MX-02, FR-14: an outage that is shorter than the session timeout.
#[tokio::test]
async fn a_server_that_is_away_for_two_seconds_costs_nothing() {
    limit_to_if(Duration::from_secs(120), have_zookeeper(), async {
        let server = ZooKeeper::start().await;
        let options = ZkOptions::new([server.connect_string()]);
        let backend = ZkBackend::connect(options).await.unwrap();
        let path = path("restart");
        let made = create(&backend, &path, Label::Lock).await;
        let waiter = create(&backend, &path, Label::Lock).await;
        let watch = watch(&backend, &path, &made.node).await;
        let states = record_states(&backend.session_events(), (1, SessionState::Connected)).await;
        server.stop();
        sleep(Duration::from_secs(2)).await;
        server.restart().await;
        assert_eq!(states.await.unwrap(), [(1, SessionState::Suspended), (1, SessionState::Connected)]);
        backend.delete(&path, &Target::Node(made.node), None).await.unwrap();
        assert_eq!(watch.await, WatchEvent::Deleted);
        assert_eq!(backend.children(&path, None).await.unwrap().position(&waiter.node.id), Some(0));
        assert!(!waiter.deletion.is_deleted());
    })
    .await;
}

/// FR-14, T17, T26: an outage that is longer than the session timeout.
#[tokio::test]
async fn a_longer_outage_is_a_new_epoch() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let l = linked(server).await;
        let path = path("outage");
        let made = create(&l.backend, &path, Label::Lock).await;
        let watch = watch(&l.backend, &path, &made.node).await;
        let states = record_states(&l.backend.session_events(), (2, SessionState::Connected)).await;
        l.proxy.refuse().await;
        l.proxy.cut(Cut::Fin);
        assert_eq!(watch.await, WatchEvent::Changed, "it fires with its session");
        assert_eq!(l.backend.session_events().current().state, SessionState::Lost);
        // An operation in between waits for the next session.
        let later = async {
            let made = create(&l.backend, &path, Label::Lock).await;
            assert_eq!(made.epoch, 2);
            made
        };
        let (later, ()) = tokio::join!(later, l.proxy.heal());
        assert_eq!(
            states.await.unwrap(),
            [(1, SessionState::Suspended), (1, SessionState::Lost), (2, SessionState::Connected)]
        );
        until("the first is gone", async || names(&l.observer, &path).await == [later.node.name.to_string()])
            .await;
        // This node belongs to a session that is over.
        assert_eq!(
            l.backend.relabel(&path, &made.node, Label::Read).await.unwrap_err().kind(),
            ErrorKind::SessionLost
        );
        l.backend.delete(&path, &Target::Node(made.node), None).await.unwrap();
    })
    .await;
}

/// When the link is up again, the nodes of a lost session are removed at once, not when the server expires the session.
#[tokio::test]
async fn a_lost_session_is_closed_at_the_server() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        // A margin of half the session, so that there is time between our end and the server's.
        let long = Duration::from_secs(8);
        let l =
            linked_with(server, |options| options.with_session_timeout(long).with_server_tick(long)).await;
        let path = path("closed-at-the-server");
        let _made = create(&l.backend, &path, Label::Lock).await;
        // A new session has no such margin, since the leader itself has just started it.
        sleep(long * 3 / 4).await;
        // A future that is not polled has a request in flight, which must not keep the old session alive.
        l.proxy.both(Flow::Hold);
        let mut unpolled = Box::pin(l.backend.children(&path, None));
        assert!(timeout(Duration::from_millis(20), &mut unpolled).await.is_err());
        let began = Instant::now();
        l.backend.session_events().ended(1).await;
        assert!(began.elapsed() < long * 5 / 8, "{:?}", began.elapsed());
        l.proxy.heal().await;
        until("the node is gone", async || names(&l.observer, &path).await.is_empty()).await;
        assert!(began.elapsed() < long * 7 / 8, "gone only after {:?}", began.elapsed());
        connected(&l.backend, 2).await;
        assert!(unpolled.await.unwrap().is_empty());
    })
    .await;
}

/// FR-17: the server has ended the session without our noticing. One loss is reported, and then a connection.
#[tokio::test]
async fn a_session_ended_by_the_server_is_one_loss() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let l = linked(server).await;
        let path = path("expired");
        create(&l.backend, &path, Label::Lock).await;
        for epoch in 1..4 {
            let mut listener = l.backend.session_events().listen();
            assert_eq!(listener.next().await.unwrap().epoch, epoch);
            l.proxy.freeze().await;
            sleep(SESSION + Duration::from_secs(1)).await;
            l.proxy.heal().await;
            let mut lost = 0;
            loop {
                let session = listener.next().await.unwrap();
                lost += usize::from(session.state == SessionState::Lost);
                if session.state == SessionState::Connected && session.epoch > epoch {
                    assert_eq!((session.epoch, lost), (epoch + 1, 1));
                    break;
                }
            }
        }
    })
    .await;
}

/// The server that we reconnect to may be behind the previous one.
#[tokio::test]
async fn the_first_read_after_an_interruption_catches_up() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        // Its heartbeats, which sync too, are more than two seconds apart.
        let l = linked_with(server, |options| options.with_session_timeout(SESSION * 8)).await;
        let path = path("sync");
        create(&l.backend, &path, Label::Lock).await;
        let synced =
            || l.proxy.lose_next(Lose::Answer, zookeeper_request(&[zk_op::SYNC]), Cut::Fin).happened();
        let none = timeout(Duration::from_millis(300), synced());
        let (none, queue) = tokio::join!(none, l.backend.children(&path, None));
        assert!(none.is_err(), "nothing was interrupted");
        assert_eq!(queue.unwrap().len(), 1);
        let synced = synced();
        l.proxy.cut(Cut::Reset);
        let mut events = l.backend.session_events();
        events.changed().await;
        connected(&l.backend, 1).await;
        assert_eq!(l.backend.children(&path, None).await.unwrap().len(), 1);
        synced.await;
    })
    .await;
}

/// Starts a relay that turns the requests for a session's nodes into requests that no server knows.
async fn relay_to_an_old_server(server: std::net::SocketAddr) -> Relay {
    const UNKNOWN: [u8; 4] = 9999_i32.to_be_bytes();
    Relay::start(server, |_, request| {
        if operation(request) == zk_op::GET_EPHEMERALS {
            request[4..8].copy_from_slice(&UNKNOWN);
        }
    })
    .await
}

/// Servers before 3.6 do not know the request that lists a session's nodes, and close the connection on which it arrives, as
/// later ones do for requests that they do not know. A holder asks such a server once, not again and again.
#[tokio::test]
async fn a_server_that_cannot_list_a_sessions_nodes_is_not_asked_again() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let relay = relay_to_an_old_server(server.addr()).await;
        let backend = backend(&relay.hosts).await;
        let made = create(&backend, &path("old"), Label::Lock).await;
        // A single node is not listed.
        let _other = create(&backend, &path("other"), Label::Lock).await;
        sleep(SESSION * 3).await;
        assert_eq!(relay.connections(), 2);
        connected(&backend, 1).await;
        assert!(!made.deletion.is_deleted());
    })
    .await;
}
