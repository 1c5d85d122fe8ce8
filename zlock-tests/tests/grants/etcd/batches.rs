//! Writes that leave together, as one transaction.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::{PutOptions, Txn, TxnOp};
use futures_util::FutureExt;
use futures_util::future::{join, join_all};
use tokio::time::sleep;
use zlock_core::{
    CoordinationBackend, Created, Deletion, ErrorKind, Label, LockPath, Needs, Node, NodeId, Target,
};
use zlock_etcd::{EtcdBackend, EtcdOptions};
use zlock_recipes::Client;
use zlock_testkit::etcd::{create, linked_with, names, observer, options, path, revoke, token};
use zlock_testkit::{Cut, Etcd, Flow, Lose, Process, etcd_or_skip, have_etcd, limit, limit_if, until};

/// So long that only the first keep-alive is due.
const LONG: Duration = Duration::from_secs(3600);

async fn backend(server: &Etcd) -> EtcdBackend {
    EtcdBackend::connect(options(&server.connect_string()).with_ttl(LONG)).await.unwrap()
}

fn paths<const N: usize>(name: &str) -> [LockPath; N] {
    std::array::from_fn(|_| path(name))
}

/// Accepts bytes that contain this text.
fn about(text: impl ToString) -> impl Fn(&[u8]) -> bool + Send + 'static {
    let text = text.to_string();
    move |bytes| bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

async fn delete(backend: &EtcdBackend, path: &LockPath, node: &Node) -> Deletion {
    backend.delete(path, &Target::Node(node.clone()), None).await.unwrap()
}

/// Creates a node on each path, all at the same time, and checks that each caller gets the answer for its own node.
async fn create_all(backend: &EtcdBackend, paths: &[LockPath]) -> Vec<Created> {
    let creates = paths.iter().map(async |path| {
        let id = token();
        let made =
            backend.create_ephemeral_sequential(path, Label::Lock, &id, b"data", Needs::Queue).await.unwrap();
        assert_eq!(made.node.id, id);
        assert_eq!(made.queue.clone().listed().as_deref(), Some(std::slice::from_ref(&made.node)));
        made
    });
    join_all(creates).await
}

/// Checks that each path has this node and no other.
async fn check(server: &Etcd, paths: &[LockPath], made: &[Created]) {
    let observer = observer(&server.connect_string()).await;
    for (path, made) in paths.iter().zip(made) {
        let key = format!("{path}/{}", made.node.name);
        let kvs = observer.kv_client().get(key, None).await.unwrap();
        let [kv] = kvs.kvs() else { panic!("{path}: {kvs:?}") };
        assert_eq!(kv.create_revision(), made.node.sequence.get());
        assert!(kv.value().windows(36).any(|text| text == made.node.id.as_str().as_bytes()));
        assert_eq!(names(&observer, path).await.len(), 1);
    }
}

/// Returns the number of requests that write. The delete of a node that leaves alone is no transaction.
async fn requests(server: &Etcd) -> u64 {
    let messages = server.metrics().await.messages();
    ["Txn", "DeleteRange"].iter().filter_map(|method| messages.get(*method)).sum()
}

/// Keeps two requests in flight until the proxy passes them on, so that further writes wait.
macro_rules! keep_two_in_flight {
    ($l:ident, $first:ident, $second:ident) => {
        create(&$l.backend, &path("connected"), Label::Lock).await;
        $l.proxy.to_server(Flow::Hold);
        let (one, two) = (path("first"), path("second"));
        let mut $first = pin!(create(&$l.backend, &one, Label::Lock));
        let mut $second = pin!(create(&$l.backend, &two, Label::Lock));
        assert!($first.as_mut().now_or_never().is_none() && $second.as_mut().now_or_never().is_none());
    };
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_of_many_tasks_leave_together() {
    limit_if(have_etcd(), async {
        const ROUNDS: usize = 20;
        let server = Etcd::start().await;
        let (backend, paths) = (backend(&server).await, paths::<64>("together"));
        let before = requests(&server).await;
        let tasks = paths.iter().map(async |path| {
            for _ in 0..ROUNDS {
                let id = token();
                let made = backend
                    .create_ephemeral_sequential(path, Label::Lock, &id, b"data", Needs::Queue)
                    .await
                    .unwrap();
                assert_eq!(made.node.id, id);
                assert_eq!(made.queue.clone().listed().as_deref(), Some(std::slice::from_ref(&made.node)));
                assert_eq!(delete(&backend, path, &made.node).await, Deletion::Deleted);
            }
        });
        join_all(tasks).await;
        let (writes, sent) = (2 * ROUNDS * paths.len(), requests(&server).await - before);
        println!("{writes} writes in {sent} requests");
        assert!(sent * 4 < writes as u64, "{writes} writes in {sent} requests");
        let made = create_all(&backend, &paths).await;
        check(&server, &paths, &made).await;
    })
    .await;
}

/// Several writes of a queue have places of their own, whatever the number in flight.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_nodes_of_a_queue_have_the_same_place() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let (backend, paths) = (backend(server).await, paths::<4>("places"));
        for _ in 0..10 {
            let all: Vec<_> = (0..16).flat_map(|_| &paths).collect();
            let made = join_all(all.iter().map(|path| create(&backend, path, Label::Lock))).await;
            for path in &paths {
                let mut places: Vec<_> = (all.iter().zip(&made))
                    .filter(|(of, _)| **of == path)
                    .map(|(_, made)| made.node.sequence.get())
                    .collect();
                places.sort_unstable();
                places.dedup();
                assert_eq!(places.len(), 16);
            }
            join_all(all.iter().zip(&made).map(|(path, made)| delete(&backend, path, &made.node))).await;
        }
    })
    .await;
}

/// Each write of a batch has an outcome of its own.
#[tokio::test]
async fn a_condition_that_fails_is_one_writes_alone() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let (backend, paths) = (backend(server).await, paths::<40>("outcome"));
        let made = create_all(&backend, &paths).await;
        let is_gone = |n: usize| n.is_multiple_of(3);
        for n in (0..paths.len()).filter(|n| is_gone(*n)) {
            delete(&backend, &paths[n], &made[n].node).await;
        }
        let outcomes = (paths.iter().zip(&made)).map(|(path, made)| delete(&backend, path, &made.node));
        for (n, outcome) in join_all(outcomes).await.into_iter().enumerate() {
            assert_eq!(outcome == Deletion::AlreadyDeleted, is_gone(n), "{n}");
        }
    })
    .await;
}

async fn etcdctl(server: &Etcd, args: &[&str]) {
    let command = server.etcdctl(args);
    let ended = Process::spawn(&command[0], &command[1..], &[("ETCDCTL_API", "3")]).wait().await;
    assert_eq!(ended, 0, "{args:?}");
}

/// A refusal of the batch is the answer for none of its writes. The server does not check the permissions for nested
/// transactions.
#[tokio::test]
async fn a_path_that_is_not_permitted_is_refused_and_no_other() {
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
        for args in [
            &["user", "add", "root:toor"][..],
            &["user", "grant-role", "root", "root"],
            &["user", "add", "orders:secret"],
            &["role", "add", "prod"],
            &["role", "grant-permission", "prod", "--prefix=true", "readwrite", "/prod/"],
            &["role", "grant-permission", "prod", "--prefix=true", "readwrite", "//fence/"],
            &["role", "grant-permission", "prod", "--prefix=true", "read", "/read/"],
            &["role", "grant-permission", "prod", "--prefix=true", "write", "/write/"],
            &["user", "grant-role", "orders", "prod"],
            &["auth", "enable"],
        ] {
            etcdctl(&server, args).await;
        }
        let orders = options(&server.connect_string()).with_ttl(LONG).with_user("orders", "secret");
        let backend = EtcdBackend::connect(orders).await.unwrap();
        let before = requests(&server).await;
        for round in 0..8 {
            let creates = (0..48).map(async |n| {
                let is_permitted = n % 8 != round;
                let top = if is_permitted { "prod" } else { ["read", "write", "other"][round % 3] };
                let path = LockPath::new(format!("/{top}/{n}")).unwrap();
                let id = token();
                let made =
                    backend.create_ephemeral_sequential(&path, Label::Lock, &id, b"", Needs::Queue).await;
                match made {
                    Ok(made) => {
                        assert!(is_permitted, "{path}");
                        delete(&backend, &path, &made.node).await;
                    }
                    Err(error) => {
                        let kind = (error.kind(), error.is_ambiguous());
                        assert_eq!(
                            (is_permitted, kind),
                            (false, (ErrorKind::NotAuthorized, false)),
                            "{error}"
                        );
                    }
                }
            });
            join_all(creates).await;
        }
        let refused = requests(&server).await - before;
        let before = requests(&server).await;
        let paths: Vec<_> = (0..48).map(|n| LockPath::new(format!("/prod/{n}")).unwrap()).collect();
        create_all(&backend, &paths).await;
        let sent = requests(&server).await - before;
        println!("{refused} requests with refusals; then {sent} for {} permitted creates", paths.len());
        assert!(sent < 10, "{sent}");
    })
    .await;
}

/// The limit is learned: in the end, no batch is refused.
#[tokio::test]
async fn a_server_may_accept_few_operations() {
    limit_if(have_etcd(), async {
        let server = Etcd::start_with(&["--max-txn-ops=16"]).await;
        let (backend, paths) = (backend(&server).await, paths::<64>("few"));
        let mut sent = Vec::new();
        for _ in 0..10 {
            let before = requests(&server).await;
            let made = create_all(&backend, &paths).await;
            check(&server, &paths, &made).await;
            sent.push(requests(&server).await - before);
            join_all(paths.iter().zip(&made).map(|(path, made)| delete(&backend, path, &made.node))).await;
        }
        println!("requests for {} creates: {sent:?}", paths.len());
        // Two alone, and the others in batches of fourteen.
        assert!(sent[9] <= 2 + 62_u64.div_ceil(14) + 1, "{sent:?}");
    })
    .await;
}

/// A client has more nodes than such a server reads in one request. It looks for deleted ones in vain, and keeps its locks.
#[tokio::test]
async fn a_server_that_accepts_few_operations_costs_no_lock() {
    limit_if(have_etcd(), async {
        let server = Etcd::start_with(&["--max-txn-ops=16"]).await;
        let ttl = Duration::from_secs(3);
        let options = options(&server.connect_string()).with_ttl(ttl);
        let client = Client::new(EtcdBackend::connect(options).await.unwrap());
        let locks = (0..20).map(|n| client.mutex(format!("/many/{n}")).unwrap());
        let held = join_all(locks.map(async |lock| lock.acquire().await.unwrap())).await;
        sleep(2 * ttl).await;
        assert_eq!(held.iter().filter(|guard| guard.is_held()).count(), 20);
        for guard in held {
            guard.release().await.unwrap();
        }
    })
    .await;
}

/// A create that is dropped while it waits for others has never been sent.
#[tokio::test]
async fn a_write_that_is_dropped_before_it_is_sent_leaves_nothing() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let l = linked_with(server, |options| options.with_ttl(LONG)).await;
        for _ in 0..10 {
            keep_two_in_flight!(l, first, second);
            let (dropped, id) = (path("dropped"), token());
            let staged = l.proxy.lose_next(Lose::Request, about(&id), Cut::Fin);
            let waiting =
                l.backend.create_ephemeral_sequential(&dropped, Label::Lock, &id, b"", Needs::Queue);
            assert!(waiting.now_or_never().is_none());
            l.proxy.to_server(Flow::Pass);
            join(first, second).await;
            create_all(&l.backend, &paths::<8>("after")).await;
            assert!(staged.happened().now_or_never().is_none(), "it was sent");
        }
    })
    .await;
}

/// A create that is dropped after it was sent is void once its delete is answered, and the others of its batch are not.
#[tokio::test]
async fn a_write_that_is_dropped_after_it_is_sent_is_void() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let l = linked_with(server, |options| options.with_ttl(LONG)).await;
        keep_two_in_flight!(l, first, second);
        let paths = paths::<8>("dropped");
        let ids: Vec<NodeId> = paths.iter().map(|_| token()).collect();
        let creates = paths.iter().zip(&ids).map(|(path, id)| {
            l.backend.create_ephemeral_sequential(path, Label::Lock, id, b"", Needs::Queue).boxed()
        });
        let mut creates: Vec<_> = creates.collect();
        assert!(creates.iter_mut().all(|create| create.now_or_never().is_none()));
        // The two in flight take longer than usual, so the batch leaves.
        l.proxy.to_client(Flow::Hold);
        let before = l.proxy.bytes_to_server();
        l.proxy.to_server(Flow::Pass);
        until("sent", async || l.proxy.bytes_to_server() > before + 2000).await;
        let kept = creates.split_off(4);
        drop(creates);
        l.proxy.to_client(Flow::Pass);
        for (path, id) in paths.iter().zip(&ids).take(4) {
            l.backend.delete(path, &Target::Id(id.clone()), None).await.unwrap();
            assert!(names(&l.observer, path).await.is_empty());
        }
        for (n, made) in join_all(kept).await.into_iter().enumerate() {
            assert_eq!(made.unwrap().node.id, ids[4 + n]);
        }
        join(first, second).await;
    })
    .await;
}

/// Requests of callers that do not poll, and of a silent server, are waited for no longer than an answer usually takes twice.
#[tokio::test]
async fn a_caller_that_does_not_poll_keeps_no_other_waiting() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let l = linked_with(server, |options| options.with_ttl(LONG)).await;
        keep_two_in_flight!(l, first, second);
        let (idle, id) = (path("idle"), token());
        let mut waiting =
            pin!(l.backend.create_ephemeral_sequential(&idle, Label::Lock, &id, b"", Needs::Queue));
        assert!(waiting.as_mut().now_or_never().is_none());
        l.proxy.to_server(Flow::Pass);
        // Neither the two in flight nor the first of the batch are polled.
        create_all(&l.backend, &paths::<40>("polled")).await;
        assert_eq!(names(&l.observer, &idle).await.len(), 1, "sent though its caller does not poll");
        assert_eq!(waiting.await.unwrap().node.id, id);
        join(first, second).await;
    })
    .await;
}

/// The outcome of a batch without an answer is unknown for each of its writes.
#[tokio::test]
async fn a_batch_that_is_lost_is_found_or_repeated() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        for lose in [Lose::Request, Lose::Answer] {
            let l = linked_with(server, |options| options.with_ttl(LONG)).await;
            let paths = paths::<40>("lost");
            create(&l.backend, &path("connected"), Label::Lock).await;
            // The last one is in a batch.
            let staged = l.proxy.lose_next(lose, about(&paths[39]), Cut::Fin);
            let made = create_all(&l.backend, &paths).await;
            staged.happened().await;
            check(server, &paths, &made).await;
            let staged = l.proxy.lose_next(lose, about(&paths[39]), Cut::Fin);
            let deleted = paths.iter().zip(&made).map(|(path, made)| delete(&l.backend, path, &made.node));
            for deletion in join_all(deleted).await {
                assert_eq!(deletion, Deletion::Deleted);
            }
            staged.happened().await;
            let names = join_all(paths.iter().map(|path| names(&l.observer, path))).await;
            assert!(names.concat().is_empty(), "{names:?}");
        }
    })
    .await;
}

/// A batch for a lease that is gone writes nothing, and all of its creates are made in the next session.
#[tokio::test]
async fn a_batch_of_a_dead_lease_writes_nothing() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let l = linked_with(server, |options| options.with_ttl(LONG)).await;
        let paths = paths::<40>("dead");
        create(&l.backend, &path("connected"), Label::Lock).await;
        let old = l.backend.session_events().current().id;
        revoke(&l.observer, &l.backend).await;
        let made = create_all(&l.backend, &paths).await;
        assert!(made.iter().all(|made| made.epoch == 2 && made.node.session != Some(old)));
        check(server, &paths, &made).await;
    })
    .await;
}

/// A path with thousands of creates in flight does not delay another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_path_delays_no_other() {
    limit_if(have_etcd(), async {
        const WAITERS: usize = 2000;
        let server = Etcd::start().await;
        let backend = EtcdOptions::new([server.connect_string()]).with_ttl(LONG);
        let backend = EtcdBackend::connect(backend.with_operation_timeout(LONG / 2)).await.unwrap();
        let (busy, quick, done) = (path("busy"), path("quick"), AtomicUsize::new(0));
        let creates = (0..WAITERS).map(async |_| {
            create(&backend, &busy, Label::Lock).await;
            done.fetch_add(1, Ordering::Relaxed);
        });
        let others = async {
            while done.load(Ordering::Relaxed) == 0 {
                sleep(Duration::from_millis(1)).await;
            }
            for _ in 0..10 {
                let made = create(&backend, &quick, Label::Lock).await;
                delete(&backend, &quick, &made.node).await;
            }
            done.load(Ordering::Relaxed)
        };
        let (_, created) = join(join_all(creates), others).await;
        println!("{created} of {WAITERS} creates while another path had ten turns");
        assert!(created < WAITERS, "the other path had to wait for all of them");
    })
    .await;
}

/// Returns the number of turns that eight other paths have while a path with thousands of nodes has thirty.
async fn turns_beside(server: &Etcd, long: &LockPath, label: Label, is_batching: bool) -> usize {
    let options = EtcdOptions::new([server.connect_string()]).with_ttl(LONG).with_batching(is_batching);
    let backend = EtcdBackend::connect(options).await.unwrap();
    let (others, turns, is_over) = (paths::<8>("quick"), AtomicUsize::new(0), AtomicBool::new(false));
    let slow = async {
        for _ in 0..30 {
            let made = create(&backend, long, label).await;
            assert!(made.queue.listed().unwrap().len() > 1, "there are others");
            delete(&backend, long, &made.node).await;
        }
        is_over.store(true, Ordering::Relaxed);
    };
    let quick = others.iter().map(async |path| {
        while !is_over.load(Ordering::Relaxed) {
            let made = create(&backend, path, Label::Lock).await;
            delete(&backend, path, &made.node).await;
            turns.fetch_add(1, Ordering::Relaxed);
        }
    });
    join(slow, join_all(quick)).await;
    turns.load(Ordering::Relaxed)
}

/// A create on such a path takes long, since the server sorts all keys to find the last two, or returns all of them. The second
/// kind is in no batch. Writes in a batch with the first kind are answered with it. That delays them no more than the server
/// does anyway, which executes one write at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_with_many_waiters_delays_no_other() {
    limit_if(have_etcd(), async {
        const WAITERS: usize = 10_000;
        let server = Etcd::start().await;
        let (observer, long) = (observer(&server.connect_string()).await, path("long"));
        let lease = observer.lease_client().grant(600, None).await.unwrap().id();
        let all: Vec<_> = (1..=WAITERS).collect();
        for some in all.chunks(100) {
            let put = |n: &usize| {
                let options = PutOptions::new().with_lease(lease);
                TxnOp::put(format!("{long}/{lease:x}.{n}"), "zlock1 lock\n", Some(options))
            };
            let puts: Vec<_> = some.iter().map(put).collect();
            observer.kv_client().txn(Txn::new().and_then(puts)).await.unwrap();
        }
        for label in [Label::Lock, Label::Read] {
            let alone = turns_beside(&server, &long, label, false).await;
            let together = turns_beside(&server, &long, label, true).await;
            println!(
                "{label:?}: beside {WAITERS} waiters {alone} turns without batching, {together} with it"
            );
            assert!(3 * together >= 2 * alone, "{together} instead of {alone}");
        }
    })
    .await;
}

/// etcd's proxy numbers watches by itself, so no event would find its watch. A wait says that, and does not last for ever.
#[tokio::test]
async fn a_wait_behind_a_grpc_proxy_names_the_proxy() {
    limit_if(have_etcd(), async {
        let server = Etcd::start().await;
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let args = [
            "grpc-proxy".to_owned(),
            "start".to_owned(),
            format!("--endpoints={}", server.connect_string()),
            format!("--listen-addr={port}"),
        ];
        let _proxy = Process::spawn("etcd", &args, &[]);
        let options = options(&port.to_string()).with_operation_timeout(Duration::from_secs(3));
        let waiter = Client::new(EtcdBackend::connect(options).await.unwrap());
        let holder = Client::new(backend(&server).await);
        let held = holder.mutex("/proxy").unwrap().acquire().await.unwrap();
        let error = waiter.mutex("/proxy").unwrap().acquire().await.unwrap_err();
        assert!(error.to_string().contains("as etcd grpc-proxy does"), "{error:?}");
        held.release().await.unwrap();
    })
    .await;
}
