//! The tree: names, parents, access lists, chroot, watches, and the number of requests.

use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep, timeout};
use zlock_core::{
    CloseReason, CoordinationBackend, ErrorKind, Existence, Groups, Joined, Label, LockPath, Needs, Node,
    NodeName, Sequence, SessionState, Target, WatchEvent,
};
use zlock_recipes::Client;
use zlock_testkit::zk::{
    FOREVER, Meter, Observer, SESSION, backend, cost, create, mkdir, names, observer, options, path, token,
    watch,
};
use zlock_testkit::{
    Cut, FaultProxy, Flow, ZooKeeper, have_zookeeper, limit, limit_if, until, zookeeper_or_skip,
};
use zlock_zk::{Acl, AuthId, Permission, ZkBackend};
use zookeeper_client::{Acls, CreateMode};

/// An acquisition and a release are a create, a listing and a delete, in two round trips.
#[tokio::test]
async fn acquire_and_release_are_three_requests() {
    limit_if(have_zookeeper(), async {
        let server = ZooKeeper::start().await;
        // Heartbeats count, too. None is due within the time of this test.
        let long = options(&server.connect_string()).with_session_timeout(Duration::from_secs(100));
        let backend = ZkBackend::connect(long).await.unwrap();
        let path = path("cost");
        let first = create(&backend, &path, Label::Lock).await;
        let packets = async || server.mntr().await["packets_received"];
        let idle = {
            let before = packets().await;
            packets().await - before
        };
        let rounds = 50;
        let before = packets().await;
        for _ in 0..rounds {
            let made = create(&backend, &path, Label::Lock).await;
            backend.delete(&path, &Target::Node(made.node), None).await.unwrap();
        }
        assert_eq!(packets().await - before - idle, 3.0 * f64::from(rounds));
        // A watch that fires costs one more request, and one that is dropped costs two.
        let before = packets().await;
        drop(backend.exists_with_watch(&path, &first.node).await.unwrap());
        until("removed", async || server.mntr().await["watch_count"] == 0.0).await;
        let asked = (packets().await - before - idle) as u32;
        assert!((2..).contains(&asked));
    })
    .await;
}

/// The second request of a create leaves before the first is answered.
#[tokio::test]
async fn a_create_is_one_round_trip() {
    limit_if(have_zookeeper(), async {
        let mut meter = Meter::start().await;
        let proxy = FaultProxy::start_zookeeper(meter.server.addr()).await;
        let options = options(&proxy.connect_string()).with_session_timeout(FOREVER);
        let (backend, path) = (ZkBackend::connect(options).await.unwrap(), path("trip"));
        // Makes the parent.
        let first = create(&backend, &path, Label::Lock).await;
        backend.delete(&path, &Target::Node(first.node), None).await.unwrap();
        let before = meter.counts().await;
        proxy.to_client(Flow::Hold);
        let arrive = async {
            until("two requests", async || cost(before, meter.counts().await).0 == 2).await;
            proxy.heal().await;
        };
        let (made, ()) = tokio::join!(create(&backend, &path, Label::Lock), arrive);
        assert_eq!(made.queue.listed().unwrap().len(), 1);
        assert_eq!(cost(before, meter.counts().await).0, 2);
    })
    .await;
}

/// T60: the number of watches at the server stays constant.
#[tokio::test]
async fn watches_do_not_pile_up() {
    limit_if(have_zookeeper(), async {
        let server = ZooKeeper::start().await;
        let backend = backend(&server.connect_string()).await;
        let path = path("watches");
        let watches = async || server.mntr().await["watch_count"] as u32;
        let held = create(&backend, &path, Label::Lock).await;
        let mut kept = Vec::new();
        for i in 0..300 {
            match backend.exists_with_watch(&path, &held.node).await.unwrap() {
                Existence::Watching(watch) if i % 100 == 0 => kept.push(watch),
                Existence::Watching(watch) => drop(watch),
                other => panic!("{other:?}"),
            }
            // Dropped while the request is in flight.
            drop(timeout(Duration::ZERO, backend.exists_with_watch(&path, &held.node)).await);
            drop(backend.children_with_watch(&path).await.unwrap());
            drop(timeout(Duration::ZERO, backend.children_with_watch(&path)).await);
            drop(backend.children_with_watch(&LockPath::new("/nowhere/at/all").unwrap()).await.unwrap());
        }
        // Several watches on one node are a single one at the server.
        until("flat", async || watches().await == 1).await;
        backend.delete(&path, &Target::Node(held.node.clone()), None).await.unwrap();
        for watch in kept {
            assert_eq!(watch.await, WatchEvent::Deleted);
        }
        assert!(matches!(backend.exists_with_watch(&path, &held.node).await.unwrap(), Existence::Deleted));
        until("none", async || watches().await == 0).await;
    })
    .await;
}

/// The server's container reaper may run at any moment. Each round leaves the parents empty for long enough.
#[tokio::test]
async fn a_parent_that_the_server_removes_costs_no_error() {
    limit_if(have_zookeeper(), async {
        let server = ZooKeeper::builder().container_check_interval(Duration::from_millis(20)).start().await;
        let backend = backend(&server.connect_string()).await;
        let observer = observer(&server.connect_string()).await;
        let deep = LockPath::new("/reaped/a/b/c").unwrap();
        let (mut made, mut restarts, mut last) = (0, 0, 0);
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(10) {
            let created = create(&backend, &deep, Label::Lock).await;
            assert!(
                created.node.fencing_token.unwrap().number() > last,
                "it grows over the parent's removal"
            );
            last = created.node.fencing_token.unwrap().number();
            restarts += u32::from(created.node.sequence.get() == 0);
            made += 1;
            backend.delete(&deep, &Target::Node(created.node), None).await.unwrap();
            if made % 3 == 0 {
                sleep(Duration::from_millis(made % 50)).await;
            }
        }
        println!("{made} creates, {restarts} of them under a new parent");
        assert!(restarts > 20, "{restarts}");
        until("all parents are gone", async || observer.check_stat("/reaped").await.unwrap().is_none()).await;
    })
    .await;
}

/// The numbers wrap from 2147483647 to -2147483648.
#[tokio::test]
async fn the_order_holds_across_the_wrap() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let backend = backend(&server.connect_string()).await;
        let observer = observer(&server.connect_string()).await;
        let path = path("wrap");
        mkdir(&observer, &path).await;
        let mut expected = Vec::new();
        for number in [i32::MAX - 1, i32::MAX, i32::MIN, i32::MIN + 1] {
            let name = NodeName::of(&token(), Label::Lock, Sequence::new(number.into()));
            let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
            observer.create(&format!("{path}/{name}"), b"", &options).await.unwrap();
            expected.push(name);
        }
        let queue = backend.children(&path, None).await.unwrap();
        assert_eq!(queue.iter().map(|node| node.name.clone()).collect::<Vec<_>>(), expected);
    })
    .await;
}

/// AC-04, also with a chroot: of the ancestors that exist, we only need permissions on the lowest.
#[tokio::test]
async fn ancestors_need_no_permission() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let observer = observer(&server.connect_string()).await;
        let root = path("closed");
        mkdir(&observer, &root).await;
        let open = root.join("open").unwrap();
        mkdir(&observer, &open).await;
        let nobody = [Acl::new(Permission::ALL, AuthId::new("ip", "10.255.255.1"))];
        observer.set_acl(root.as_str(), &Acls::new(&nobody), None).await.unwrap();
        let backend = ZkBackend::connect(options(&server.connect_string()).with_chroot(open)).await.unwrap();
        let lock = LockPath::new("/new/lock").unwrap();
        let made = create(&backend, &lock, Label::Lock).await;
        backend.delete(&lock, &Target::Node(made.node), None).await.unwrap();
        // AC-03: a clear error at once.
        let began = Instant::now();
        let barred =
            ZkBackend::connect(options(&server.connect_string()).with_chroot(root.clone())).await.unwrap();
        let error = barred
            .create_ephemeral_sequential(&lock, Label::Lock, &token(), b"", Needs::Queue)
            .await
            .unwrap_err();
        assert_eq!((error.kind(), error.is_ambiguous()), (ErrorKind::NotAuthorized, false), "{error}");
        assert!(began.elapsed() < SESSION, "{:?}", began.elapsed());
    })
    .await;
}

#[tokio::test]
async fn a_missing_chroot_is_made() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let observer = observer(&server.connect_string()).await;
        let url = format!("zk://{}/made/for/us?session_timeout=4s", server.connect_string());
        let backend = ZkBackend::connect(zlock_zk::ZkOptions::from_url(&url).unwrap()).await.unwrap();
        let lock = LockPath::new("/db/lock").unwrap();
        assert!(backend.children(&lock, None).await.unwrap().is_empty());
        let (queue, watch) = backend.children_with_watch(&lock).await.unwrap();
        assert!(queue.is_empty());
        let made = create(&backend, &lock, Label::Write).await;
        watch.await;
        let below = LockPath::new("/made/for/us/db/lock").unwrap();
        assert_eq!(names(&observer, &below).await, [made.node.name.to_string()]);
        let now = backend.relabel(&lock, &made.node, Label::Read).await.unwrap();
        assert_eq!(names(&observer, &below).await, [now.name.to_string()]);
        assert!(matches!(backend.exists_with_watch(&lock, &made.node).await.unwrap(), Existence::Changed(_)));
        assert_eq!(backend.data(&lock, &made.node).await.unwrap().unwrap().data, b"data");
        assert!(!made.deletion.is_deleted());
        sleep(SESSION / 2).await;
        assert!(!made.deletion.is_deleted());
    })
    .await;
}

/// AC-01: the access list also applies to the parents.
#[tokio::test]
async fn access_lists_are_those_of_the_options() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let observer = observer(&server.connect_string()).await;
        let path = path("acl");
        let locked = |who: &str| {
            options(&server.connect_string())
                .with_auth("digest", who)
                .with_acls([Acl::new(Permission::ALL, AuthId::authed())])
        };
        let mine = ZkBackend::connect(locked("me:secret")).await.unwrap();
        let made = create(&mine, &path, Label::Write).await;
        let now = mine.relabel(&path, &made.node, Label::Read).await.unwrap();
        for node in [path.parent().unwrap().as_str(), path.as_str()] {
            assert_eq!(
                observer.list_children(node).await.unwrap_err(),
                zookeeper_client::Error::NoAuth,
                "{node}"
            );
        }
        let node = format!("{path}/{}", now.name);
        assert_eq!(observer.get_data(&node).await.unwrap_err(), zookeeper_client::Error::NoAuth);
        // A client with another password gets a clear error.
        let other = ZkBackend::connect(locked("me:wrong")).await.unwrap();
        let errors = [
            other.create_ephemeral_sequential(&path, Label::Lock, &token(), b"", Needs::Queue).await.err(),
            other.children(&path, None).await.err(),
            other.exists_with_watch(&path, &now).await.err(),
            other.delete(&path, &Target::Node(now.clone()), None).await.err(),
            other.data(&path, &now).await.err(),
        ];
        let kinds: Vec<_> = errors.iter().map(|error| error.as_ref().map(|error| error.kind())).collect();
        assert_eq!(kinds, [Some(ErrorKind::NotAuthorized); 5]);
        mine.delete(&path, &Target::Node(made.node), None).await.unwrap();
        let friend = ZkBackend::connect(locked("me:secret")).await.unwrap();
        assert!(friend.children(&path, None).await.unwrap().is_empty());
    })
    .await;
}

/// An auth scheme that the server does not know, and an access list for authenticated clients from a client that is not.
#[tokio::test]
async fn refused_credentials_are_final() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let began = Instant::now();
        let error = ZkBackend::connect(options(&server.connect_string()).with_auth("nonsense", "x"))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotAuthorized, "{error}");
        let creator = [Acl::new(Permission::ALL, AuthId::authed())];
        let backend = ZkBackend::connect(options(&server.connect_string()).with_acls(creator)).await.unwrap();
        let error = backend
            .create_ephemeral_sequential(&path("nobody"), Label::Lock, &token(), b"", Needs::Queue)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotAuthorized, "{error}");
        assert!(began.elapsed() < 2 * SESSION, "{:?}", began.elapsed());
    })
    .await;
}

/// The server refuses the credentials when the next session begins. The client does not retry forever.
#[tokio::test]
async fn credentials_that_are_refused_later_close_the_backend() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let refusing = ZooKeeper::builder()
            .property("zookeeper.DigestAuthenticationProvider.enabled", false)
            .start()
            .await;
        let proxy = FaultProxy::start_zookeeper(server.addr()).await;
        let options = options(&proxy.connect_string()).with_auth("digest", "me:secret");
        let backend = ZkBackend::connect(options).await.unwrap();
        proxy.set_upstream(refusing.addr());
        proxy.cut(Cut::Reset);
        let mut events = backend.session_events();
        while !matches!(events.current().state, SessionState::Closed(_)) {
            events.changed().await;
        }
        assert_eq!(events.current().state, SessionState::Closed(CloseReason::AuthFailed));
        let error = backend.children(&path("closed"), None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotAuthorized, "{error}");
    })
    .await;
}

/// If the listing is refused, the node that was created before it is deleted under its known name.
#[tokio::test]
async fn a_node_whose_queue_cannot_be_read_is_deleted() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let observer = observer(&server.connect_string()).await;
        let path = path("unreadable");
        mkdir(&observer, &path).await;
        let unread = Permission::CREATE | Permission::DELETE | Permission::ADMIN;
        let unreadable = [Acl::new(unread, AuthId::anyone())];
        observer.set_acl(path.as_str(), &Acls::new(&unreadable), None).await.unwrap();
        let backend = backend(&server.connect_string()).await;
        let error = backend
            .create_ephemeral_sequential(&path, Label::Lock, &token(), b"", Needs::Queue)
            .await
            .unwrap_err();
        assert_eq!((error.kind(), error.is_ambiguous()), (ErrorKind::NotAuthorized, false), "{error}");
        let client = Client::new(backend);
        assert!(client.mutex(path.as_str()).unwrap().acquire().await.is_err());
        assert_eq!(client.pending_cleanups(), 0);
        // From 3.8.4 and 3.9.2 on, a client cannot check the node without read permission (ZOOKEEPER-2590).
        observer.set_acl(path.as_str(), &Acls::anyone_all(), None).await.unwrap();
        let stat = observer.check_stat(path.as_str()).await.unwrap().unwrap();
        assert_eq!((stat.num_children, stat.cversion), (0, 4), "made, and deleted");
    })
    .await;
}

/// Curator requests a revocation by writing data to the node, which fires a watch on it.
#[tokio::test]
async fn written_data_is_a_change() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let backend = backend(&server.connect_string()).await;
        let observer = observer(&server.connect_string()).await;
        let path = path("data");
        let made = create(&backend, &path, Label::Lock).await;
        let watch = watch(&backend, &path, &made.node).await;
        observer.set_data(&format!("{path}/{}", made.node.name), b"__REVOKE__", None).await.unwrap();
        assert_eq!(watch.await, WatchEvent::Changed);
        assert_eq!(backend.data(&path, &made.node).await.unwrap().unwrap().data, b"__REVOKE__");
    })
    .await;
}

/// ZooKeeper reports when a node was created. A foreign node belongs to no session.
#[tokio::test]
async fn time_of_the_create_is_reported() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let backend = backend(&server.connect_string()).await;
        let observer = observer(&server.connect_string()).await;
        let path = path("time");
        let made = create(&backend, &path, Label::Lock).await;
        let stat = observer.check_stat(&format!("{path}/{}", made.node.name)).await.unwrap().unwrap();
        let told = backend.data(&path, &made.node).await.unwrap().unwrap();
        let since_epoch = told.created.unwrap().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(since_epoch.as_millis(), u128::try_from(stat.ctime).unwrap());
        let foreign = Node::listed("lock-0000000000").unwrap();
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        observer.create(&format!("{path}/{}", foreign.name), b"theirs", &options).await.unwrap();
        let told = backend.data(&path, &foreign).await.unwrap().unwrap();
        assert_eq!((told.data.as_slice(), told.session), (&b"theirs"[..], None));
        observer.delete(&format!("{path}/{}", foreign.name), None).await.unwrap();
    })
    .await;
}

/// A rename keeps the data that was written to the node. The contents that a rename wrote itself are known without a read.
#[tokio::test]
async fn written_data_survives_a_relabel() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let backend = backend(&server.connect_string()).await;
        let observer = observer(&server.connect_string()).await;
        let path = path("renamed-data");
        let mut node = create(&backend, &path, Label::Write).await.node;
        for (text, label) in [
            (None, Label::Read),
            (Some("one"), Label::Write),
            (None, Label::Read),
            (Some("two"), Label::Write),
        ] {
            if let Some(text) = text {
                observer.set_data(&format!("{path}/{}", node.name), text.as_bytes(), None).await.unwrap();
            }
            let before = backend.data(&path, &node).await.unwrap().unwrap().data;
            node = backend.relabel(&path, &node, label).await.unwrap();
            assert_eq!(backend.data(&path, &node).await.unwrap().unwrap().data, before);
        }
        assert_eq!(backend.data(&path, &node).await.unwrap().unwrap().data, b"two");
    })
    .await;
}

/// Refused before it is sent, since the server would close the connection.
#[tokio::test]
async fn too_much_data_is_refused() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let backend = backend(&server.connect_string()).await;
        let path = path("much");
        let data = vec![7; 1_000_001];
        let error = backend
            .create_ephemeral_sequential(&path, Label::Write, &token(), &data, Needs::Queue)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let made = backend
            .create_ephemeral_sequential(&path, Label::Write, &token(), &data[1..], Needs::Queue)
            .await
            .unwrap();
        let made = backend.relabel(&path, &made.node, Label::Read).await.unwrap();
        assert_eq!(backend.data(&path, &made).await.unwrap().unwrap().data.len(), 1_000_000);
        assert_eq!(backend.session_events().current().state, SessionState::Connected);
    })
    .await;
}

/// The data of a member that replaces another one is sent once: the server would close a connection with a larger request.
#[tokio::test]
async fn a_large_member_replaces_another_one() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let member = LockPath::new(format!("{}/w7", path("group"))).unwrap();
        let (data, mut replaced) = (vec![7; 1_000_000], Vec::new());
        for _ in 0..3 {
            let backend = backend(&server.connect_string()).await;
            let joined = backend.join(&member, &data, true).await.unwrap();
            assert!(matches!(joined, Joined::Joined(_)), "{joined:?}");
            assert_eq!(backend.session_events().current().state, SessionState::Connected);
            // Its session lives on.
            replaced.push(backend);
        }
    })
    .await;
}

/// A term ends with its session: no later session of the client writes the leader's data.
#[tokio::test]
async fn data_of_an_earlier_sessions_node_is_not_written() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let path = path("term");
        let (first, second) =
            (backend(&server.connect_string()).await, backend(&server.connect_string()).await);
        let leader = create(&first, &path, Label::Candidate).await.node;
        let error = second.write_data(&path, &leader, Some(0), b"late").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SessionLost, "{error}");
        assert_eq!(first.data(&path, &leader).await.unwrap().unwrap().data, b"data");
    })
    .await;
}

/// Every path that we accept is accepted by the server.
#[tokio::test]
async fn every_path_that_we_take_works() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let backend = backend(&server.connect_string()).await;
        for segment in ["a b", "...", "订单", "\u{f900}", "\u{d7ff}", "é", "\u{e000}", "🔒", "\u{f8fe}"]
        {
            let Ok(path) = LockPath::new(format!("/paths/{segment}")) else { continue };
            let made =
                backend.create_ephemeral_sequential(&path, Label::Lock, &token(), b"", Needs::Queue).await;
            assert!(made.is_ok(), "{segment:?}: {made:?}");
        }
    })
    .await;
}

/// The parents of locks are containers, which the server removes with their data when they are empty. A value that was written over
/// one is kept.
#[tokio::test]
async fn a_value_above_a_lock_is_kept() {
    limit_if(have_zookeeper(), async {
        let server = ZooKeeper::builder().container_check_interval(Duration::from_millis(200)).start().await;
        let observer = Observer::connect(server.connect_string()).await;
        let connect = async || Client::new(backend(&server.connect_string()).await);
        let client = connect().await;
        let guard = client.mutex("/app/orders/42").unwrap().acquire().await.unwrap();
        assert_eq!(client.counter("/app/orders").unwrap().reserve(5).await.unwrap(), 1..6);
        let written = client.shared_value("/app").unwrap().update(|_| Some(b"read-only".into())).await;
        assert_eq!(written.unwrap().unwrap().data, *b"read-only");
        guard.release().await.unwrap();
        client.close().await.unwrap();
        until("the lock's parent is removed", async || observer.children("/app/orders").await == ["_r_keep"])
            .await;
        sleep(Duration::from_secs(1)).await;
        let client = connect().await;
        assert_eq!(client.counter("/app/orders").unwrap().reserve(1).await.unwrap(), 6..7);
        let value = client.shared_value("/app").unwrap().get().await.unwrap();
        assert_eq!(value.map(|value| value.data), Some(b"read-only".into()));
        // A value that zlock has created is no container.
        client.counter("/plain").unwrap().add(1).await.unwrap();
        connect().await.counter("/plain").unwrap().add(1).await.unwrap();
        assert!(!observer.children("/plain").await.contains(&"_r_keep".to_owned()));
    })
    .await;
}

/// A member's node cannot have children.
#[tokio::test]
async fn a_lock_below_a_member_is_invalid() {
    limit(async {
        let Some(server) = zookeeper_or_skip().await else { return };
        let client = Client::new(backend(&server.connect_string()).await);
        let group = path("below-a-member");
        let member = client.members(group.as_str()).unwrap().join("w1", "").await.unwrap();
        let lock = client.mutex(format!("{group}/w1/job")).unwrap();
        let error = lock.acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains("below the node of a member"), "{error}");
        member.leave().await.unwrap();
    })
    .await;
}
