//! Sessions survive outages, are lost before the server ends them, are replaced, and end on demand.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use zlock_core::{Close, CoordinationBackend, ErrorKind, Label, SessionState, Target, WatchEvent};
use zlock_etcd::{EtcdBackend, EtcdOptions};
use zlock_recipes::{Client, Release};
use zlock_testkit::etcd::{
    self, TTL, connected, create, linked, lost_and_gone, names, observer, path, record_states, revoke, watch,
};
use zlock_testkit::{Cut, Etcd, Flow, etcd_or_skip, have_etcd, limit, limit_if, limit_to_if, until};

/// A silent server: packets are swallowed, without a connection reset.
#[tokio::test]
async fn the_deadline_comes_before_the_server_ends_the_session() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        for flow in [Flow::Swallow, Flow::Hold] {
            let l = linked(server).await;
            let path = path("deadline");
            let made = create(&l.backend, &path, Label::Lock).await;
            // Some keep-alives later, so that the deadline has moved.
            sleep(TTL / 2).await;
            let began = Instant::now();
            l.proxy.both(flow);
            let is_gone = async || names(&l.observer, &path).await.is_empty();
            let (lost, gone) = lost_and_gone(&l.backend, is_gone).await;
            println!("{flow:?}: lost after {:?}, gone after {:?}", lost - began, gone - began);
            assert!(lost < gone);
            assert!(lost - began > TTL / 2, "not without need");
            assert!(!made.deletion.is_deleted(), "that is said of living sessions only");
        }
    })
    .await;
}

/// A keep-alive consists of several consecutive messages, each of which may take the whole time limit of one server.
#[tokio::test]
async fn a_slow_link_is_no_outage() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let l = linked(server).await;
        let mut listener = l.backend.session_events().listen();
        listener.next().await.unwrap();
        // A round trip takes a twelfth of the TTL, and a new stream takes three of them.
        l.proxy.both(Flow::Delay(TTL / 24));
        l.proxy.cut(Cut::Reset);
        let told = tokio::time::timeout(2 * TTL, async {
            while listener.next().await.unwrap().state != SessionState::Lost {}
        });
        assert!(told.await.is_err(), "the session was lost");
        connected(&l.backend, 1).await;
    })
    .await;
}

/// Keep-alives without answers keep the lease alive at the server. Our session ends in spite of that.
#[tokio::test]
async fn unanswered_keep_alives_do_not_move_the_deadline() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let l = linked(server).await;
        let path = path("unanswered");
        create(&l.backend, &path, Label::Lock).await;
        let began = Instant::now();
        l.proxy.to_client(Flow::Swallow);
        let session = l.backend.session_events().ended(1).await;
        assert_eq!(session.state, SessionState::Lost);
        assert!(began.elapsed() < TTL);
        assert_eq!(names(&l.observer, &path).await.len(), 1, "the server has heard of us since");
    })
    .await;
}

/// MX-02, FR-14: the server is killed and restarted within the TTL.
#[tokio::test]
async fn a_server_that_is_away_for_two_seconds_costs_nothing() {
    limit_to_if(Duration::from_secs(120), have_etcd(), async {
        let server = Etcd::start().await;
        let backend = EtcdBackend::connect(EtcdOptions::new([server.connect_string()])).await.unwrap();
        let states = record_states(&backend.session_events(), (1, SessionState::Connected)).await;
        let client = Client::new(backend);
        let other = EtcdBackend::connect(EtcdOptions::new([server.connect_string()])).await.unwrap();
        let other = Client::new(other).mutex("/app/lock").unwrap();
        let held = client.mutex("/app/lock").unwrap().acquire().await.unwrap();
        let waiting = tokio::spawn(async move { other.acquire().await.unwrap() });
        until("it waits", async || server.metrics().await.watches() == 1).await;
        server.stop();
        sleep(Duration::from_secs(2)).await;
        server.restart().await;
        assert_eq!(states.await.unwrap(), [(1, SessionState::Suspended), (1, SessionState::Connected)]);
        assert!(held.is_held() && !waiting.is_finished());
        assert_eq!(held.release().await.unwrap(), Release::Released);
        assert_eq!(waiting.await.unwrap().release().await.unwrap(), Release::Released);
    })
    .await;
}

/// A server is frozen for less and for more than the TTL. While frozen, it does not end leases either. When it resumes, it
/// finds the lease overdue, and by then we have given it up.
#[tokio::test]
async fn a_frozen_server() {
    limit_to_if(Duration::from_secs(120), have_etcd(), async {
        let server = Etcd::start().await;
        let backend = etcd::backend(&server.connect_string()).await;
        let path = path("frozen");
        let made = create(&backend, &path, Label::Lock).await;
        server.pause();
        sleep(TTL / 2).await;
        server.resume();
        until("connected", async || backend.session_events().current().state == SessionState::Connected)
            .await;
        sleep(TTL).await;
        let session = backend.session_events().current();
        assert_eq!((session.epoch, session.state), (1, SessionState::Connected));
        assert!(!made.deletion.is_deleted());

        server.pause();
        let began = Instant::now();
        let session = backend.session_events().ended(1).await;
        assert_eq!(session.state, SessionState::Lost);
        assert!(began.elapsed() <= TTL, "{:?}", began.elapsed());
        sleep(TTL / 4).await;
        server.resume();
        connected(&backend, 2).await;
        let observer = observer(&server.connect_string()).await;
        assert!(names(&observer, &path).await.is_empty(), "the old lease is gone before the new one is");
        assert_eq!(create(&backend, &path, Label::Lock).await.epoch, 2);
    })
    .await;
}

/// FR-14, T17, T26: an outage that is longer than the session.
#[tokio::test]
async fn a_longer_outage_is_a_new_epoch() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let l = linked(server).await;
        let path = path("outage");
        let made = create(&l.backend, &path, Label::Lock).await;
        let states = record_states(&l.backend.session_events(), (2, SessionState::Connected)).await;
        l.proxy.refuse().await;
        l.proxy.cut(Cut::Fin);
        l.backend.session_events().ended(1).await;
        // An operation in between waits for the next session.
        let later = async { create(&l.backend, &path, Label::Lock).await };
        let (later, ()) = tokio::join!(later, l.proxy.heal());
        assert_eq!(later.epoch, 2);
        assert_eq!(
            states.await.unwrap(),
            [(1, SessionState::Suspended), (1, SessionState::Lost), (2, SessionState::Connected)]
        );
        assert_eq!(names(&l.observer, &path).await, [later.node.name.to_string()]);
        let error = l.backend.relabel(&path, &made.node, Label::Read).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SessionLost);
        l.backend.delete(&path, &Target::Node(made.node), None).await.unwrap();
    })
    .await;
}

/// An operator ends the lease of a holder, and that of a waiter.
#[tokio::test]
async fn a_lease_revoked_by_hand() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let observer = observer(&server.connect_string()).await;
        let path = path("revoked");
        let mut locks = Vec::new();
        for _ in 0..3 {
            let backend = etcd::backend(&server.connect_string()).await;
            let id = backend.session_events().current().id.get().cast_signed();
            locks.push((Client::new(backend).mutex(path.as_str()).unwrap(), id));
        }
        let held = locks[0].0.acquire().await.unwrap();
        let mut waiting = Vec::new();
        for (lock, _) in &locks[1..] {
            let lock = lock.clone();
            waiting.push(tokio::spawn(async move { lock.acquire().await }));
            let length = 1 + waiting.len();
            until("queued", async || names(&observer, &path).await.len() == length).await;
        }
        // The first waiter's lease. The waiter learns of it with its next keep-alive.
        observer.lease_client().revoke(locks[1].1).await.unwrap();
        let error = waiting.remove(0).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SessionLost, "{error}");
        assert!(held.is_held());
        observer.lease_client().revoke(locks[0].1).await.unwrap();
        let (lost, next) = tokio::join!(held.lost(), waiting.remove(0));
        assert_eq!(lost.kind(), ErrorKind::SessionLost, "{lost}");
        assert!(!held.is_held());
        assert_eq!(held.release().await.unwrap(), Release::AlreadyLost);
        assert_eq!(next.unwrap().unwrap().release().await.unwrap(), Release::Released);
        // The client continues with a new lease.
        assert_eq!(locks[0].0.acquire().await.unwrap().release().await.unwrap(), Release::Released);
    })
    .await;
}

#[tokio::test]
async fn a_node_deleted_by_hand_is_noticed_within_a_keep_alive() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let backend = etcd::backend(&server.connect_string()).await;
        let mut observer = observer(&server.connect_string()).await;
        let path = path("deleted");
        let mut made = Vec::new();
        for _ in 0..3 {
            made.push(create(&backend, &path, Label::Lock).await);
        }
        let began = Instant::now();
        observer.delete(format!("{path}/{}", made[1].node.name), None).await.unwrap();
        made[1].deletion.deleted().await;
        assert!(began.elapsed() < TTL / 2, "{:?}", began.elapsed());
        sleep(TTL).await;
        assert!(!made[0].deletion.is_deleted() && !made[2].deletion.is_deleted());
        assert_eq!(backend.session_events().current().epoch, 1);
    })
    .await;
}

/// A node is deleted by hand while more requests wait for their turn than can be answered until the deadline.
#[tokio::test]
async fn a_node_deleted_by_hand_under_load_costs_no_session() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let (l, path) = (linked(server).await, path("load"));
        let mut made = create(&l.backend, &path, Label::Lock).await;
        l.proxy.both(Flow::Delay(TTL / 40));
        let backend = Arc::new(l.backend);
        let mut reads = JoinSet::new();
        for n in 0..1000 {
            let (backend, path) = (backend.clone(), path.join(&format!("empty{n}")).unwrap());
            reads.spawn(async move { while backend.children(&path, None).await.is_ok() {} });
        }
        l.observer.kv_client().delete(format!("{path}/{}", made.node.name), None).await.unwrap();
        let mut events = backend.session_events();
        tokio::select! {
            biased;
            () = made.deletion.deleted() => {}
            _ = events.ended(1) => panic!("the session was lost"),
        }
    })
    .await;
}

/// A listing without our node reports the deletion at once, and distinguishes it from the end of the lease, which deletes all
/// its keys.
#[tokio::test]
async fn a_listing_without_our_node_says_why() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let options = etcd::options(&server.connect_string()).with_ttl(Duration::from_secs(3600));
        let backend = EtcdBackend::connect(options).await.unwrap();
        let mut observer = observer(&server.connect_string()).await;
        let path = path("listed");
        let (made, other) =
            (create(&backend, &path, Label::Lock).await, create(&backend, &path, Label::Lock).await);
        observer.delete(format!("{path}/{}", made.node.name), None).await.unwrap();
        assert_eq!(*backend.children(&path, None).await.unwrap(), *std::slice::from_ref(&other.node));
        assert!(made.deletion.is_deleted() && !other.deletion.is_deleted());
        assert!(backend.session_events().is_live(1));
        revoke(&observer, &backend).await;
        assert!(backend.children(&path, None).await.unwrap().is_empty());
        assert!(!backend.session_events().is_live(1));
        assert!(!other.deletion.is_deleted());
        connected(&backend, 2).await;
    })
    .await;
}

/// Nodes are deleted while a watch on them is being created, among many other writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_lost_among_many_writes() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let (a, b) =
            (etcd::backend(&server.connect_string()).await, etcd::backend(&server.connect_string()).await);
        let path = path("noise");
        let mut noise = tokio::task::JoinSet::new();
        for n in 0..4 {
            let mut observer = observer(&server.connect_string()).await;
            noise.spawn(async move {
                loop {
                    observer.put(format!("/noise/{n}"), "", None).await.unwrap();
                }
            });
        }
        for _ in 0..300 {
            let made = create(&a, &path, Label::Lock).await;
            let target = Target::Node(made.node.clone());
            let (deleted, existence) =
                tokio::join!(a.delete(&path, &target, None), b.exists_with_watch(&path, &made.node));
            deleted.unwrap();
            if let zlock_core::Existence::Watching(watch) = existence.unwrap() {
                let fired = tokio::time::timeout(Duration::from_secs(10), watch).await;
                assert_eq!(fired.unwrap(), WatchEvent::Deleted);
            }
        }
    })
    .await;
}

/// When its stream breaks, a watch fires with `Changed`, since it is unknown what happened meanwhile.
#[tokio::test]
async fn a_watch_survives_nothing_and_tells() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let path = path("broken");
        for cut in [Cut::Fin, Cut::Reset, Cut::Mute] {
            let l = linked(server).await;
            let made = create(&l.backend, &path, Label::Lock).await;
            let armed = watch(&l.backend, &path, &made.node).await;
            l.proxy.cut(cut);
            assert_eq!(armed.await, WatchEvent::Changed, "{cut:?}");
            // A new watch works as well as the first.
            let armed = watch(&l.backend, &path, &made.node).await;
            l.backend.delete(&path, &Target::Node(made.node), None).await.unwrap();
            assert_eq!(armed.await, WatchEvent::Deleted);
        }
    })
    .await;
}

/// Compaction removes the history from which a watch could be resumed. Our watches do not need it.
#[tokio::test]
async fn compaction_loses_no_wake_up() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let l = linked(server).await;
        let path = path("compacted");
        let mut observer = observer(&server.connect_string()).await;
        let made = create(&l.backend, &path, Label::Lock).await;
        let armed = watch(&l.backend, &path, &made.node).await;
        for n in 0..10 {
            let put = observer.put("/noise", n.to_string(), None).await.unwrap();
            observer.compact(put.header().unwrap().revision(), None).await.unwrap();
        }
        l.backend.delete(&path, &Target::Node(made.node), None).await.unwrap();
        assert_ne!(armed.await, WatchEvent::Relabelled);
    })
    .await;
}

#[tokio::test]
async fn close_revokes_the_lease() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let observer = observer(&server.connect_string()).await;
        for drop_it in [false, true] {
            let backend = etcd::backend(&server.connect_string()).await;
            let id = backend.session_events().current().id.get().cast_signed();
            if drop_it {
                drop(backend);
            } else {
                assert_eq!(backend.close().await.unwrap(), Close::Ended);
            }
            let gone = async || {
                let left = observer.lease_client().time_to_live(id, None).await.unwrap();
                left.ttl() == -1
            };
            assert!(drop_it || gone().await);
            until("revoked", gone).await;
        }
    })
    .await;
}

/// A frozen server confirms nothing, so the locks are not free yet.
#[tokio::test]
async fn close_says_whether_the_server_has_ended_the_session() {
    limit_if(have_etcd(), async {
        let server = zlock_testkit::Etcd::start().await;
        let host = server.connect_string();
        let (first, second) = (etcd::backend(&host).await, etcd::backend(&host).await);
        let path = path("frozen");
        create(&first, &path, Label::Lock).await;
        create(&second, &path, Label::Lock).await;
        server.pause();
        assert_eq!(first.close().await.unwrap(), Close::Pending);
        server.resume();
        // A second call returns the same, although the server may know of the close by now.
        assert_eq!(first.close().await.unwrap(), Close::Pending);
        assert_eq!(second.close().await.unwrap(), Close::Ended);
        let observer = observer(&host).await;
        until("all are gone", async || names(&observer, &path).await.is_empty()).await;
    })
    .await;
}

/// The backend's runtime is not driven. When it is driven again, it still ends the session.
#[test]
fn close_does_not_wait_for_an_idle_runtime() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (home, other) = (runtime(), runtime());
    let Some(backend) = home.block_on(async {
        let server = etcd_or_skip().await?;
        let options = etcd::options(&server.connect_string()).with_ttl(Duration::from_secs(60));
        Some(EtcdBackend::connect(options).await.unwrap())
    }) else {
        return;
    };
    assert_eq!(other.block_on(limit(backend.close())).unwrap(), Close::Pending);
    assert_eq!(home.block_on(limit(backend.close())).unwrap(), Close::Ended);
}

/// A lost session's lease is ended before the next session begins.
#[tokio::test]
async fn the_old_lease_is_gone_before_the_new_session_begins() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let l = linked(server).await;
        let path = path("old");
        create(&l.backend, &path, Label::Lock).await;
        // Keep-alives arrive until our session ends, so the server's lease outlives it by far.
        l.proxy.to_client(Flow::Swallow);
        l.backend.session_events().ended(1).await;
        assert_eq!(names(&l.observer, &path).await.len(), 1);
        l.proxy.heal().await;
        connected(&l.backend, 2).await;
        assert!(names(&l.observer, &path).await.is_empty());
        revoke(&l.observer, &l.backend).await;
        connected(&l.backend, 3).await;
    })
    .await;
}
