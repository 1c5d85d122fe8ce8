//! Runtimes that come and go, and one with many threads.

use std::any::Any;
use std::cell::RefCell;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use zlock::mem::MemServer;
use zlock::{Client, Handoff, InterProcessMutex, Release};
use zlock_suite::Cut;

const PATH: &str = "/app/lock";
const LONG: Duration = Duration::from_secs(30);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn mutex(client: &Client) -> InterProcessMutex {
    client.mutex(PATH).unwrap()
}

/// A guard that is dropped after the shutdown of its runtime cannot be released at that time. The client's next acquisition, on
/// another runtime, removes the node.
#[test]
fn guard_dropped_after_its_runtime() {
    let server = MemServer::new();
    let first = runtime();
    let (client, guard) = first.block_on(async {
        let client = Client::new(server.connect());
        let guard = mutex(&client).acquire().await.unwrap();
        (client, guard)
    });
    drop(first);
    drop(guard);
    assert_eq!(client.pending_cleanups(), 1);
    runtime().block_on(async {
        let guard = mutex(&client).acquire_timeout(LONG).await.expect("the leftover is removed");
        assert_eq!(client.pending_cleanups(), 0);
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    });
}

/// The same for a guard that is dropped by the runtime's shutdown, and for a release that is cut off by it.
#[test]
fn guard_dropped_by_the_shutdown() {
    let server = MemServer::new();
    let first = runtime();
    let client = first.block_on(async {
        let client = Client::new(server.connect());
        for lock in [mutex(&client), client.mutex("/app/other").unwrap()] {
            let guard = lock.acquire().await.unwrap();
            tokio::spawn(async move {
                std::future::pending::<()>().await;
                drop(guard);
            });
        }
        tokio::task::yield_now().await;
        client
    });
    drop(first);
    assert_eq!(client.pending_cleanups(), 2);
    runtime().block_on(async {
        let others = Client::new(server.connect());
        assert!(mutex(&others).try_acquire().await.unwrap().is_none(), "nobody could remove it yet");
        let guard = mutex(&client).acquire_timeout(LONG).await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        let other = others.mutex("/app/other").unwrap();
        drop(other.acquire_timeout(LONG).await.unwrap());
    });
}

/// A reaper that is busy when its runtime ends continues with the same node on the next one.
#[test]
fn reaper_cut_off_by_the_shutdown() {
    let server = MemServer::new();
    let first = runtime();
    let backend = server.connect();
    let link = backend.link();
    let client = first.block_on(async {
        let client = Client::new(backend);
        let guard = mutex(&client).acquire().await.unwrap();
        link.suspend();
        drop(guard);
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!((client.pending_cleanups(), server.names(mutex(&client).path()).len()), (1, 1));
        client
    });
    drop(first);
    link.heal();
    runtime().block_on(async {
        let guard = mutex(&client).acquire_timeout(LONG).await.unwrap();
        assert_eq!(client.pending_cleanups(), 0);
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    });
}

/// The lock is released on another runtime than it was acquired on. A release that stays pending continues in the background of
/// that runtime.
#[test]
fn release_pending_on_another_runtime() {
    let server = MemServer::new();
    let backend = server.connect();
    let link = backend.link();
    let client = Client::builder(backend).with_operation_timeout(Duration::from_millis(100)).unwrap().build();
    let first = runtime();
    let guard = first.block_on(async { mutex(&client).acquire().await.unwrap() });
    drop(first);
    runtime().block_on(async {
        link.cut();
        assert_eq!(guard.release().await.unwrap(), Release::Pending);
        link.heal();
        tokio::time::timeout(LONG, async {
            while client.pending_cleanups() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .expect("the background is idle");
        assert!(server.names(mutex(&client).path()).is_empty());
    });
}

/// An acquisition that begins while its runtime shuts down does not block the thread that it runs on.
#[test]
fn acquisition_begun_during_the_shutdown() {
    let client = Client::new(MemServer::new().connect());
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (started, start) = std::sync::mpsc::channel();
    let (ended, end) = std::sync::mpsc::channel();
    let lock = mutex(&client);
    runtime.spawn(async move {
        started.send(()).unwrap();
        // Until the runtime accepts no more tasks. This task is not stopped while it runs.
        std::thread::sleep(Duration::from_millis(300));
        let _ = Cut { polls: 1, drop: zlock_suite::Drop::AtOnce }.run(lock.acquire()).await;
        ended.send(()).unwrap();
    });
    start.recv().unwrap();
    runtime.shutdown_background();
    end.recv_timeout(LONG).expect("it comes back");
}

/// A guard, and an acquisition whose create was not answered, are dropped after tokio's own thread-locals, when there is no
/// clock any more.
#[test]
fn dropped_in_the_destructor_of_a_thread_local() {
    thread_local! {
        static LATE: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
    }
    let server = MemServer::new();
    let backend = server.connect();
    let link = backend.link();
    let client = Client::new(backend);
    let (held, pending) = (mutex(&client), client.mutex("/app/other").unwrap());
    let thread = std::thread::spawn(move || {
        // The first to be registered is the last to be dropped.
        LATE.with_borrow_mut(Vec::clear);
        // Once the clock was paused, tokio uses its own instead of the system's.
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let guard = held.acquire().await.unwrap();
            let mut pending = Box::pin(async move { pending.acquire().await.map(drop) });
            assert!(poll_fn(|cx| Poll::Ready(pending.as_mut().poll(cx).is_pending())).await);
            LATE.with_borrow_mut(|late| late.extend([Box::new(guard) as Box<dyn Any>, Box::new(pending)]));
        });
        link.cut();
    });
    thread.join().unwrap();
    assert_eq!(client.pending_cleanups(), 2);
}

/// Threads that really run in parallel. There are never two holders, and no node is left.
#[test]
fn many_threads() {
    let server = MemServer::new();
    let runtime = Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let inside = zlock_suite::Inside::default();
    runtime.block_on(async {
        let clients: Vec<_> = (0..4).map(|_| Client::new(server.connect())).collect();
        let mut tasks = tokio::task::JoinSet::new();
        for i in 0..16 {
            let (lock, inside) = (mutex(&clients[i % 4]), inside.clone());
            tasks.spawn(async move {
                for round in 0..50 {
                    let guard = lock.acquire_timeout(LONG).await.unwrap();
                    inside.visit().await;
                    if (i + round) % 3 == 0 {
                        drop(guard);
                    } else {
                        assert_eq!(guard.release().await.unwrap(), Release::Released);
                    }
                }
            });
        }
        tasks.join_all().await;
        while clients.iter().any(|c| c.pending_cleanups() > 0) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!((server.names(mutex(&clients[0]).path()).len(), server.watches()), (0, 0));
    });
    assert_eq!(inside.visits(), 16 * 50);
}

/// The task that drives a local queue runs on the backend's runtime. The first acquisition starts it, and so does the next one,
/// on another runtime.
#[test]
fn hand_off_on_one_runtime_after_another() {
    let server = MemServer::new();
    let client = Client::new(server.connect());
    let lock = mutex(&client).with_handoff(Handoff::within(Duration::from_millis(10)));
    for _ in 0..3 {
        runtime().block_on(async {
            let guard = timeout(LONG, lock.acquire()).await.expect("somebody drives the queue").unwrap();
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        });
    }
}
