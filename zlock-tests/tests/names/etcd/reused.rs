//! Reused names of nodes: late requests, overwritten values, and keys of other clients.

mod late;

use std::collections::BTreeSet;
use std::time::Duration;

use etcd_client::{Client as Observer, PutOptions, WatchOptions};
use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use zlock_core::{
    CoordinationBackend, Created, Deletion, ErrorKind, Existence, Label, LockPath, Needs, Node, Target,
    WatchEvent,
};
use zlock_etcd::EtcdBackend;
use zlock_recipes::{Client, InterProcessMutex, Release};
use zlock_testkit::etcd::{self, TTL, create, names, observer, path, revoke, token, watch};
use zlock_testkit::{Cut, Etcd, Flow, Lose, etcd_or_skip, limit, until};

fn key(path: &LockPath, node: &Node) -> String {
    format!("{path}/{}", node.name)
}

fn lease(backend: &EtcdBackend) -> i64 {
    backend.session_events().current().id.get().cast_signed()
}

async fn delete(backend: &EtcdBackend, path: &LockPath, node: &Node) -> Deletion {
    backend.delete(path, &Target::Node(node.clone()), None).await.unwrap()
}

async fn value(observer: &Observer, key: &str) -> Vec<u8> {
    observer.kv_client().get(key, None).await.unwrap().kvs()[0].value().to_owned()
}

/// Returns the keys below the path that were written after this revision.
async fn ever_written(observer: &mut Observer, path: &LockPath, after: i64) -> BTreeSet<String> {
    let last = observer.put("/end", "", None).await.unwrap().header().unwrap().revision();
    let prefix = format!("{path}/");
    let options = WatchOptions::new().with_prefix().with_start_revision(after + 1).with_progress_notify();
    let mut watch = observer.watch(prefix, Some(options)).await.unwrap();
    let (mut keys, mut seen) = (BTreeSet::new(), 0);
    while seen < last {
        let answer = timeout(Duration::from_millis(500), watch.message()).await;
        // There are no more events, since the last write was to another key.
        let Ok(answer) = answer else { break };
        let answer = answer.unwrap().unwrap();
        for event in answer.events() {
            let kv = event.kv().unwrap();
            keys.insert(kv.key_str().unwrap().to_owned());
            seen = kv.mod_revision();
        }
    }
    keys
}

/// Concurrent acquisitions, some of which give up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_as_many_as_places_at_the_same_time() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let mut observer = observer(&server.connect_string()).await;
        let backend = etcd::backend(&server.connect_string()).await;
        let lease = lease(&backend);
        let path = path("many");
        let before = observer.put("/begin", "", None).await.unwrap().header().unwrap().revision();
        let client = Client::new(backend);
        let mut tasks = JoinSet::new();
        for _ in 0..4 {
            let mutex = client.mutex(path.as_str()).unwrap();
            tasks.spawn(async move {
                for n in 0..125 {
                    let guard = mutex.acquire().await.unwrap();
                    assert_eq!(guard.release().await.unwrap(), Release::Released);
                    if n % 10 == 0 {
                        drop(mutex.acquire_timeout(Duration::from_millis(n / 10)).await);
                    }
                }
            });
        }
        while tasks.join_next().await.transpose().unwrap().is_some() {}
        until("cleaned up", async || client.pending_cleanups() == 0).await;
        let keys = ever_written(&mut observer, &path, before).await;
        println!("{} keys: {keys:?}", keys.len());
        // Each of the four tasks may have one, and the removal of those that it gave up may still be in flight.
        assert!((2..=12).contains(&keys.len()), "{keys:?}");
        assert!(keys.contains(&format!("{path}/{lease:x}")), "{keys:?}");
        // Consecutive acquisitions use a single name.
        let path = path.join("alone").unwrap();
        let mutex = client.mutex(path.as_str()).unwrap();
        for _ in 0..50 {
            assert_eq!(mutex.acquire().await.unwrap().release().await.unwrap(), Release::Released);
        }
        assert_eq!(ever_written(&mut observer, &path, before).await, [format!("{path}/{lease:x}")].into());
    })
    .await;
}

/// The first delete of a node compares nothing. If it is given up, it may remove whichever node has the name at any later time.
#[tokio::test]
async fn a_name_whose_first_delete_was_given_up_is_never_used_again() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let l = etcd::linked(server).await;
        let path = path("dirty");
        let name = |number: &str| format!("{:x}{number}", lease(&l.backend));
        let made = create(&l.backend, &path, Label::Lock).await;
        l.proxy.to_server(Flow::Hold);
        let given_up = delete(&l.backend, &path, &made.node);
        assert!(timeout(Duration::from_millis(100), given_up).await.is_err());
        l.proxy.to_server(Flow::Pass);
        for _ in 0..2 {
            let next = create(&l.backend, &path, Label::Lock).await;
            assert_eq!(next.node.name.as_str(), name(".1"));
            delete(&l.backend, &path, &made.node).await;
            delete(&l.backend, &path, &next.node).await;
        }
    })
    .await;
}

/// Concurrent deletes of one create. When the first is answered, the name is reused while the others are in flight.
#[tokio::test]
async fn deletes_of_one_create_at_the_same_time_spare_the_next_node_of_the_name() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let backend = etcd::backend(&server.connect_string()).await;
        let path = path("together");
        for _ in 0..50 {
            let token = token();
            let given_up = backend.create_ephemeral_sequential(&path, Label::Lock, &token, b"", Needs::Queue);
            assert!(given_up.now_or_never().is_none());
            let target = Target::Id(token);
            let delete_and_create = async || {
                backend.delete(&path, &target, None).await.unwrap();
                create(&backend, &path, Label::Lock).await
            };
            let made = join_all((0..4).map(|_| delete_and_create())).await;
            let queue = backend.children(&path, None).await.unwrap();
            assert_eq!(queue.len(), made.len());
            for Created { node, deletion, .. } in made {
                assert!(queue.find(&node.id).is_some() && !deletion.is_deleted());
                assert_eq!(delete(&backend, &path, &node).await, Deletion::Deleted);
            }
        }
    })
    .await;
}

/// A deleted node is relabelled, read and watched while the next node has its name. Only the deleted node is reported as
/// deleted.
#[tokio::test]
async fn the_next_node_of_a_name_is_not_reported_deleted() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let (backend, mut observer) =
            (etcd::backend(&server.connect_string()).await, observer(&server.connect_string()).await);
        let path = path("gone");
        let first = create(&backend, &path, Label::Write).await;
        observer.delete(key(&path, &first.node), None).await.unwrap();
        assert_eq!(delete(&backend, &path, &first.node).await, Deletion::AlreadyDeleted);
        let next = create(&backend, &path, Label::Write).await;
        assert_eq!(next.node.name, first.node.name);
        let error = backend.relabel(&path, &first.node, Label::Read).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NodeDeleted);
        let error = backend.write_data(&path, &first.node, None, b"x").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NodeDeleted);
        assert!(backend.data(&path, &first.node).await.unwrap().is_none());
        assert!(backend.data_with_watch(&path, &first.node).await.unwrap().is_none());
        let existence = backend.exists_with_watch(&path, &first.node).await.unwrap();
        assert!(matches!(existence, Existence::Deleted), "{existence:?}");
        assert_eq!(delete(&backend, &path, &first.node).await, Deletion::AlreadyDeleted);
        sleep(TTL / 2).await;
        assert!(!next.deletion.is_deleted());
        assert_eq!(*backend.children(&path, None).await.unwrap(), *std::slice::from_ref(&next.node));
        let relabelled = backend.relabel(&path, &next.node, Label::Read).await.unwrap();
        assert_eq!(backend.data(&path, &relabelled).await.unwrap().unwrap().data, b"data");
    })
    .await;
}

/// A node was deleted, and another client has created a key with its name. The owner learns that its own node is gone.
#[tokio::test]
async fn a_key_of_the_name_is_not_taken_for_the_node() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let mut observer = observer(&server.connect_string()).await;
        for is_listed in [false, true] {
            let backend = etcd::backend(&server.connect_string()).await;
            let path = path("replaced");
            let mut made = create(&backend, &path, Label::Lock).await;
            let key = key(&path, &made.node);
            observer.delete(key.as_str(), None).await.unwrap();
            let options = PutOptions::new().with_lease(if is_listed { lease(&backend) } else { 0 });
            observer.put(key.as_str(), "", Some(options)).await.unwrap();
            if is_listed {
                backend.children(&path, None).await.unwrap();
            }
            timeout(TTL, made.deletion.deleted()).await.unwrap();
            assert_eq!(delete(&backend, &path, &made.node).await, Deletion::AlreadyDeleted);
            assert_eq!(names(&observer, &path).await.len(), 1, "not ours");
        }
    })
    .await;
}

/// A node is deleted, and the next one has its name. A client that watches the first is notified of the deletion.
#[tokio::test]
async fn a_watch_is_on_one_node_and_not_on_its_name() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let [a, b] =
            [etcd::backend(&server.connect_string()).await, etcd::backend(&server.connect_string()).await];
        let path = path("watched");
        // The second round takes the code path for short waits.
        for _ in 0..2 {
            let first = create(&a, &path, Label::Lock).await;
            b.children(&path, None).await.unwrap();
            let armed = watch(&b, &path, &first.node).await;
            let (_, data) = b.data_with_watch(&path, &first.node).await.unwrap().unwrap();
            delete(&a, &path, &first.node).await;
            let next = create(&a, &path, Label::Lock).await;
            assert_eq!(next.node.name, first.node.name);
            assert_eq!((armed.await, data.await), (WatchEvent::Deleted, WatchEvent::Deleted));
            let existence = b.exists_with_watch(&path, &first.node).await.unwrap();
            assert!(matches!(existence, Existence::Deleted), "{existence:?}");
            delete(&a, &path, &next.node).await;
        }
    })
    .await;
}

/// An operator overwrites a node's value. The node still belongs to its owner, and excludes all others.
#[tokio::test]
async fn an_overwritten_value_is_the_same_node() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let mut observer = observer(&server.connect_string()).await;
        let [a, b] =
            [etcd::backend(&server.connect_string()).await, etcd::backend(&server.connect_string()).await];
        let path = path("overwritten");
        let (first, second) = (create(&a, &path, Label::Write).await, create(&a, &path, Label::Write).await);
        for made in [&first, &second] {
            let keep = PutOptions::new().with_ignore_lease();
            observer.put(key(&path, &made.node), "overwritten", Some(keep)).await.unwrap();
        }
        let (ours, theirs) = (a.children(&path, None).await.unwrap(), b.children(&path, None).await.unwrap());
        for (place, Created { node, deletion, .. }) in [&first, &second].into_iter().enumerate() {
            assert_eq!((&ours[place].id, ours[place].label), (&node.id, Label::Candidate));
            assert_eq!((&theirs[place].name, theirs[place].sequence), (&node.name, node.sequence));
            assert!(!deletion.is_deleted());
        }
        // Written by a client that does not know the ID, and then by one that does.
        b.write_data(&path, &theirs[0], None, b"written").await.unwrap();
        assert_eq!(value(&observer, &key(&path, &first.node)).await, b"written");
        a.relabel(&path, &first.node, Label::Read).await.unwrap();
        let relabelled = format!("zlock1 read\nid {}\nwritten", first.node.id);
        assert_eq!(value(&observer, &key(&path, &first.node)).await, relabelled.as_bytes());
        b.write_data(&path, &theirs[0], None, b"again").await.unwrap();
        assert_eq!(a.children(&path, None).await.unwrap()[0].id, first.node.id);
        assert_eq!(delete(&a, &path, &first.node).await, Deletion::Deleted);
        assert_eq!(a.delete(&path, &Target::Id(second.node.id), None).await.unwrap(), Deletion::Deleted);
        assert!(names(&observer, &path).await.is_empty());
    })
    .await;
}

/// The answer to a create is lost, and the value is overwritten before the client looks for its node.
#[tokio::test]
async fn a_create_whose_value_was_overwritten_is_found_by_its_name() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let mut l = etcd::linked(server).await;
        let (path, token) = (path("found"), token());
        let text = token.to_string();
        let about = move |bytes: &[u8]| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        let staged = l.proxy.lose_next(Lose::Answer, about, Cut::Mute);
        let overwrite = async {
            staged.happened().await;
            // The lost message may instead be the answer to a keep-alive that was in flight.
            until("made", async || names(&l.observer, &path).await.len() == 1).await;
            let key = format!("{path}/{}", names(&l.observer, &path).await[0]);
            l.observer.put(key, "", Some(PutOptions::new().with_ignore_lease())).await.unwrap();
        };
        let create = l.backend.create_ephemeral_sequential(&path, Label::Lock, &token, b"", Needs::Queue);
        let (made, ()) = tokio::join!(create, overwrite);
        assert_eq!(made.unwrap().node.id, token);
        assert_eq!(names(&l.observer, &path).await.len(), 1);
    })
    .await;
}

async fn mutex(server: &Etcd, path: &LockPath) -> (InterProcessMutex, i64) {
    let backend = etcd::backend(&server.connect_string()).await;
    let lease = lease(&backend);
    (Client::new(backend).mutex(path.as_str()).unwrap(), lease)
}

/// An operator's plain `put` detaches a holder's key from its lease. The key counts as long as the lease is live.
#[tokio::test]
async fn a_place_that_lost_its_lease_counts_as_long_as_its_session() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let mut observer = observer(&server.connect_string()).await;
        for text in ["overwritten", "zlock1 lock\n"] {
            let path = path("detached");
            let [(holder, lease), (waiter, _), (other, _)] =
                [mutex(server, &path).await, mutex(server, &path).await, mutex(server, &path).await];
            let held = holder.acquire().await.unwrap();
            let wait = |mutex: &InterProcessMutex| {
                let mutex = mutex.clone();
                tokio::spawn(async move { mutex.acquire().await.unwrap() })
            };
            // One client already waits, and another comes later.
            let first = wait(&waiter);
            until("it waits", async || names(&observer, &path).await.len() == 2).await;
            sleep(Duration::from_millis(100)).await;
            observer.put(format!("{path}/{}", held.node()), text, None).await.unwrap();
            let second = wait(&other);
            assert!(other.try_acquire().await.unwrap().is_none());
            sleep(2 * TTL).await;
            assert!(held.is_held() && !first.is_finished() && !second.is_finished());
            let began = Instant::now();
            observer.lease_client().revoke(lease).await.unwrap();
            let next = first.await.unwrap();
            assert!(began.elapsed() < TTL + TTL / 2, "{:?}", began.elapsed());
            assert_eq!(next.release().await.unwrap(), Release::Released);
            assert_eq!(second.await.unwrap().release().await.unwrap(), Release::Released);
            assert!(names(&observer, &path).await.is_empty());
        }
    })
    .await;
}

/// The owner releases such a place like any other. A `try_acquire` also notices when the owner is gone.
#[tokio::test]
async fn a_place_that_lost_its_lease_goes_with_its_release_and_not_with_its_session() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let mut observer = observer(&server.connect_string()).await;
        let path = path("detached");
        let [(holder, lease), (other, _)] = [mutex(server, &path).await, mutex(server, &path).await];
        for is_released in [true, false] {
            let held = holder.acquire().await.unwrap();
            observer.put(format!("{path}/{}", held.node()), "", None).await.unwrap();
            assert!(other.try_acquire().await.unwrap().is_none());
            if is_released {
                assert_eq!(held.release().await.unwrap(), Release::Released);
            } else {
                observer.lease_client().revoke(lease).await.unwrap();
            }
            let next = other.try_acquire().await.unwrap().unwrap();
            assert_eq!(names(&observer, &path).await, [next.node().to_string()]);
            assert_eq!(next.release().await.unwrap(), Release::Released);
        }
    })
    .await;
}

/// A semaphore's first waiter watches the whole queue.
#[tokio::test]
async fn a_permit_that_lost_its_lease_counts_as_long_as_its_session() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let mut observer = observer(&server.connect_string()).await;
        let path = path("permits");
        let backend = etcd::backend(&server.connect_string()).await;
        let lease = lease(&backend);
        let label = Label::Permits { weight: 1, max: 1, granted: true };
        let made = create(&backend, &path, label).await;
        let value = value(&observer, &key(&path, &made.node)).await;
        observer.put(key(&path, &made.node), value, None).await.unwrap();
        let client = Client::new(etcd::backend(&server.connect_string()).await);
        let permit = client.semaphore(path.as_str(), 1).unwrap().permits(1).unwrap();
        let waiting = tokio::spawn(async move { permit.acquire().await.unwrap() });
        sleep(TTL).await;
        assert!(!waiting.is_finished());
        observer.lease_client().revoke(lease).await.unwrap();
        let held = timeout(2 * TTL, waiting).await.unwrap().unwrap();
        assert_eq!(held.release().await.unwrap(), Release::Released);
    })
    .await;
}

/// Keys that only look like a lease ID are not locks, and are not removed: not even once it is not known any more how they began.
#[tokio::test]
async fn a_key_that_looks_like_a_place_and_is_none_stays() {
    limit(async {
        if etcd_or_skip().await.is_none() {
            return;
        }
        // Its own, because it is compacted.
        let server = &Etcd::start().await;
        let mut observer = observer(&server.connect_string()).await;
        let path = path("foreign");
        let foreign = [("1732241234567", 1), ("1732241234568", 3), ("20261122", 3), ("20261122.1", 3)];
        for (name, times) in foreign {
            for _ in 0..times {
                observer.put(format!("{path}/{name}"), "text", None).await.unwrap();
            }
        }
        for is_compacted in [false, true] {
            if is_compacted {
                let now = observer.get("now", None).await.unwrap().header().unwrap().revision();
                observer.compact(now, None).await.unwrap();
            }
            let [(mutex, _), (waiter, _)] = [mutex(server, &path).await, mutex(server, &path).await];
            let held = mutex.try_acquire().await.unwrap().unwrap();
            assert_eq!(mutex.participants().await.unwrap().len(), 1);
            // A waiter waits for the holder alone, behind all of them.
            let waits = tokio::spawn(async move { waiter.acquire().await.unwrap() });
            until("it waits", async || names(&observer, &path).await.len() == foreign.len() + 2).await;
            assert_eq!(held.release().await.unwrap(), Release::Released);
            assert_eq!(waits.await.unwrap().release().await.unwrap(), Release::Released);
            let election = Client::new(etcd::backend(&server.connect_string()).await);
            assert_eq!(election.election(path.as_str()).unwrap().leader().await.unwrap(), None);
            assert_eq!(names(&observer, &path).await.len(), foreign.len());
        }
    })
    .await;
}

/// Another client uses our lease, for example for a lock of the Go client. Our node gets the next name.
#[tokio::test]
async fn a_name_of_another_client_is_not_used() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let (backend, mut observer) =
            (etcd::backend(&server.connect_string()).await, observer(&server.connect_string()).await);
        let (path, lease) = (path("taken"), lease(&backend));
        let theirs = format!("{path}/{lease:x}");
        let options = PutOptions::new().with_lease(lease);
        observer.put(theirs.as_str(), "theirs", Some(options)).await.unwrap();
        for _ in 0..2 {
            let made = create(&backend, &path, Label::Lock).await;
            assert_eq!(made.node.name.as_str(), format!("{lease:x}.1"));
            let queue = made.queue.listed().unwrap();
            assert_eq!((queue.len(), queue.position(&made.node.id)), (2, Some(1)));
            assert_eq!(delete(&backend, &path, &made.node).await, Deletion::Deleted);
        }
        assert_eq!(value(&observer, &theirs).await, b"theirs");
        assert_eq!(backend.session_events().current().epoch, 1);
        revoke(&observer, &backend).await;
    })
    .await;
}
