//! Runtimes that come and go, and one with many threads.

use std::any::Any;
use std::cell::RefCell;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use zlock::mem::MemServer;
use zlock::{Client, ErrorKind, Handoff, InterProcessMutex, Release};
use zlock_suite::Cut;

const PATH: &str = "/app/lock";
const LONG: Duration = Duration::from_secs(30);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn threads(threads: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap()
}

fn mutex(client: &Client) -> InterProcessMutex {
    client.mutex(PATH).unwrap()
}

/// Guards that are dropped after the end of their backend's runtime, or by it, leave nothing pending. Their client is closed, and
/// the lock is free once its session has expired.
#[test]
fn guards_dropped_by_the_end_of_the_runtime() {
    let server = MemServer::new();
    let paused = || Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let first = paused();
    let (client, guard) = first.block_on(async {
        let client = Client::new(server.connect());
        let other = client.mutex("/app/other").unwrap().acquire().await.unwrap();
        tokio::spawn(async move {
            std::future::pending::<()>().await;
            drop(other);
        });
        tokio::task::yield_now().await;
        let guard = mutex(&client).acquire().await.unwrap();
        (client, guard)
    });
    drop(first);
    assert!(!guard.is_held());
    drop(guard);
    assert_eq!(client.pending_cleanups(), 0);
    paused().block_on(async {
        assert_eq!(mutex(&client).acquire().await.unwrap_err().kind(), ErrorKind::Closed);
        let others = Client::new(server.connect());
        let locks = [mutex(&others), others.mutex("/app/other").unwrap()];
        for lock in &locks {
            assert!(lock.try_acquire().await.unwrap().is_none(), "nothing could remove it yet");
        }
        for lock in &locks {
            drop(lock.acquire_timeout(LONG).await.unwrap());
        }
    });
}

/// The lock is released on another runtime than it was acquired on. A release that stays pending continues in the background of
/// the backend's runtime.
#[test]
fn release_pending_on_another_runtime() {
    let server = MemServer::new();
    let home = threads(1);
    let backend = home.block_on(async { server.connect() });
    let link = backend.link();
    let client = Client::builder(backend).with_response_timeout(Duration::from_millis(100)).unwrap().build();
    let guard = runtime().block_on(async { mutex(&client).acquire().await.unwrap() });
    runtime().block_on(async {
        link.cut();
        assert_eq!(guard.release().await.unwrap(), Release::Pending);
    });
    link.heal();
    runtime().block_on(async {
        timeout(LONG, async {
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
    let runtime = threads(2);
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
    // Not driven, so that what is passed to its background stays there.
    let home = runtime();
    let backend = home.block_on(async { MemServer::new().connect() });
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
    let runtime = threads(4);
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

/// The task that drives a local queue runs on the backend's runtime, whatever runtimes its waiters are on.
#[test]
fn hand_off_on_one_runtime_after_another() {
    let home = threads(1);
    let client = Client::new(home.block_on(async { MemServer::new().connect() }));
    let lock = mutex(&client).with_handoff(Handoff::within(Duration::from_millis(10)));
    for _ in 0..3 {
        runtime().block_on(async {
            let guard = timeout(LONG, lock.acquire()).await.expect("something drives the queue").unwrap();
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        });
    }
}

/// A client that was created outside any runtime drives its local queues on the first one that it is used on.
#[test]
fn hand_off_of_a_client_made_without_a_runtime() {
    let client = Client::new(MemServer::new().connect());
    let lock = mutex(&client).with_handoff(Handoff::within(Duration::from_millis(10)));
    runtime().block_on(async {
        let guard = timeout(LONG, lock.acquire()).await.expect("something drives the queue").unwrap();
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    });
}
