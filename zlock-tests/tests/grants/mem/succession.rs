//! Hand-over at the worst moments, on mem: outages, releases that stall, deleted nodes, and the ends of clients and runtimes.

mod storms;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use zlock::backend::LockPath;
use zlock::mem::{MemOptions, MemServer, Operation};
use zlock::{Client, Guard, InterProcessMutex, Release, Result};

const PATH: &str = "/app/lock";

fn mutex(client: &Client) -> InterProcessMutex {
    client.mutex(PATH).unwrap()
}

fn path() -> LockPath {
    LockPath::new(PATH).unwrap()
}

async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

fn waiting(client: &Client) -> JoinHandle<Result<Guard>> {
    let lock = mutex(client);
    tokio::spawn(async move { lock.acquire().await })
}

/// An outage that the session survives does not fail a waiter in the queue.
#[tokio::test(start_paused = true)]
async fn a_waiter_survives_an_outage_that_its_session_survives() {
    for (begins, lasts) in [(14, 20), (1, 5)] {
        let server = MemServer::new();
        let options = MemOptions::default()
            .with_session_timeout(Duration::from_secs(60))
            .with_operation_timeout(Duration::from_secs(if begins == 1 { 3 } else { 15 }));
        let backend = server.connect_with(options);
        let link = backend.link();
        let client = Client::builder(backend)
            .with_response_timeout(Duration::from_secs(if begins == 1 { 3 } else { 15 }))
            .unwrap()
            .build();
        let held = mutex(&client).acquire().await.unwrap();
        let next = waiting(&client);
        settle().await;
        sleep(Duration::from_secs(begins)).await;
        link.suspend();
        sleep(Duration::from_secs(lasts)).await;
        link.heal();
        sleep(Duration::from_secs(2)).await;
        assert!(held.is_held(), "the session is the same");
        let early = next.is_finished();
        if early {
            panic!("{begins}, {lasts}: the waiter gave up: {}", next.await.unwrap().unwrap_err());
        }
        assert_eq!(held.release().await.unwrap(), Release::Released);
        next.await.unwrap().unwrap().release().await.unwrap();
    }
}

/// A release on a runtime that is no longer driven, or blocked. The server removes the node at once.
#[test]
fn a_release_on_a_blocked_runtime_wakes_the_next_at_once() {
    let home = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let other = Builder::new_current_thread().enable_all().build().unwrap();
    let server = MemServer::new();
    let (client, link) = home.block_on(async {
        let backend = server.connect();
        let link = backend.link();
        (Client::new(backend), link)
    });
    let held = home.block_on(async { mutex(&client).acquire().await.unwrap() });
    let next = {
        let _home = home.enter();
        waiting(&client)
    };
    home.block_on(async {
        while server.names(&path()).len() < 2 {
            sleep(Duration::from_millis(1)).await
        }
    });
    home.block_on(async { sleep(Duration::from_millis(50)).await });
    link.delay(Duration::ZERO, Duration::from_millis(100));
    other.block_on(async {
        tokio::spawn(held.release());
        tokio::task::yield_now().await;
    });
    // From here on, `other` is not driven, but exists.
    home.block_on(async {
        while server.names(&path()).len() > 1 {
            sleep(Duration::from_millis(1)).await;
        }
        let guard = timeout(Duration::from_secs(5), next).await;
        guard
            .expect("the lock is free and the next in line sleeps")
            .unwrap()
            .unwrap()
            .release()
            .await
            .unwrap();
    });
    drop(other);
}

/// An operator deletes the holder's node. The next waiter notices it with a heartbeat, or as soon as it has a watch.
#[tokio::test(start_paused = true)]
async fn a_deleted_holder_is_passed_in_time() {
    let server = MemServer::new();
    let options = MemOptions::default().with_session_timeout(Duration::from_secs(60));
    let client = Client::new(server.connect_with(options));
    let held = mutex(&client).acquire().await.unwrap();
    let next = waiting(&client);
    settle().await;
    let begin = Instant::now();
    server.remove(&path(), held.node().as_str());
    let next = next.await.unwrap().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(6), "{:?}", begin.elapsed());
    drop(next);
}

/// A wait that is longer than the fallback interval.
#[tokio::test(start_paused = true)]
async fn a_long_wait_costs_no_more_than_before() {
    let server = MemServer::new();
    let client = Client::new(server.connect());
    let held = mutex(&client).acquire().await.unwrap();
    server.reset_requests();
    let tasks: Vec<_> = (0..100).map(|_| waiting(&client)).collect();
    sleep(Duration::from_secs(14)).await;
    sleep(Duration::from_secs(2)).await;
    held.release().await.unwrap();
    for task in tasks {
        task.await.unwrap().unwrap().release().await.unwrap();
    }
    let lists = server.requests(Operation::List);
    assert!(lists <= 200, "{lists} listings for 100 waiters; a watch takes two each");
}

/// A waker that polls its task inside `wake`.
struct Inline {
    task: Mutex<Option<std::pin::Pin<Box<dyn Future<Output = ()> + Send>>>>,
    handle: tokio::runtime::Handle,
    woken: std::sync::atomic::AtomicBool,
}

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        let Ok(mut task) = self.task.try_lock() else { return };
        let _entered = self.handle.enter();
        let waker = Waker::from(self.clone());
        while self.woken.swap(false, Ordering::SeqCst) {
            let Some(future) = task.as_mut() else { return };
            if let Poll::Ready(()) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                *task = None;
            }
        }
    }
}

/// Wakers are user code, so none runs while an internal mutex is locked.
#[test]
fn a_waker_that_polls_inline_does_not_deadlock() {
    let (tell, done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = MemServer::new();
            let client = Client::new(server.connect());
            let held = mutex(&client).acquire().await.unwrap();
            let lock = mutex(&client);
            // Gives up its place at the first poll after it is woken.
            let gives_up = Arc::new(std::sync::atomic::AtomicBool::new(false));
            let told = gives_up.clone();
            let future = async move {
                let mut acquire = Some(Box::pin(lock.acquire()));
                std::future::poll_fn(|cx| {
                    if told.load(Ordering::SeqCst) {
                        acquire = None;
                        return Poll::Ready(());
                    }
                    acquire.as_mut().unwrap().as_mut().poll(cx).map(drop)
                })
                .await;
            };
            let inline = Arc::new(Inline {
                task: Mutex::new(Some(Box::pin(future))),
                handle: tokio::runtime::Handle::current(),
                woken: false.into(),
            });
            inline.wake_by_ref();
            while server.names(&path()).len() < 2 {
                settle().await;
            }
            sleep(Duration::from_millis(50)).await;
            // An operator removes its node. Another place then follows the holder.
            let name =
                server.names(&path()).into_iter().find(|name| name.as_str() != held.node().as_str()).unwrap();
            server.remove(&path(), &name);
            gives_up.store(true, Ordering::SeqCst);
            let next = waiting(&client);
            sleep(Duration::from_millis(100)).await;
            held.release().await.unwrap();
            timeout(Duration::from_secs(5), next).await.unwrap().unwrap().unwrap().release().await.unwrap();
        });
        tell.send(()).unwrap();
    });
    done.recv_timeout(Duration::from_secs(10)).expect("a deadlock");
}

/// A client is closed or dropped while its holder hands over.
#[test]
fn closed_while_handing_over() {
    let runtime = Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let server = MemServer::new();
        for round in 0..400_u64 {
            let backend = server.connect();
            backend.link().delay(Duration::from_micros(100), Duration::from_micros(100));
            let client = Client::new(backend);
            let held = mutex(&client).acquire().await.unwrap();
            let waiters: Vec<_> = (0..3)
                .map(|_| {
                    let lock = mutex(&client);
                    tokio::spawn(async move { lock.acquire().await.map(drop) })
                })
                .collect();
            while server.names(&path()).len() < 4 {
                tokio::task::yield_now().await;
            }
            let releasing =
                tokio::spawn(
                    async move { if round % 2 == 0 { drop(held) } else { drop(held.release().await) } },
                );
            sleep(Duration::from_micros(round * 3)).await;
            if round % 4 < 2 {
                client.close().await.unwrap();
            }
            drop(client);
            releasing.await.unwrap();
            for waiter in waiters {
                match timeout(Duration::from_secs(5), waiter).await.expect("it wakes").unwrap() {
                    Ok(()) => {}
                    Err(error) => assert_eq!(error.kind(), zlock::ErrorKind::Closed),
                }
            }
            timeout(Duration::from_secs(5), async {
                while !server.names(&path()).is_empty() || !server.sessions().is_empty() {
                    sleep(Duration::from_micros(200)).await;
                }
            })
            .await
            .unwrap_or_else(|_| panic!("{round}: left: {:?} {:?}", server.names(&path()), server.sessions()));
        }
    });
}

/// The next waiter is on a runtime that ends right when the lock is handed to it, or that is not driven. Another waiter
/// follows.
#[test]
fn the_runtime_of_the_next_in_line_ends() {
    let home = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let server = MemServer::new();
    let client = home.block_on(async { Client::new(server.connect()) });
    for micros in (0..400).step_by(10) {
        let held = home.block_on(async { mutex(&client).acquire().await.unwrap() });
        let other = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let first = {
            let lock = mutex(&client);
            other.spawn(async move {
                let _guard = lock.acquire().await;
                std::future::pending::<()>().await;
            })
        };
        home.block_on(async {
            while server.names(&path()).len() < 2 {
                sleep(Duration::from_millis(1)).await
            }
        });
        let second = {
            let _home = home.enter();
            waiting(&client)
        };
        home.block_on(async {
            while server.names(&path()).len() < 3 {
                sleep(Duration::from_millis(1)).await
            }
        });
        home.block_on(async { sleep(Duration::from_millis(2)).await });
        let releasing = home.spawn(held.release());
        std::thread::sleep(Duration::from_micros(micros));
        other.shutdown_background();
        home.block_on(async {
            assert_eq!(releasing.await.unwrap().unwrap(), Release::Released);
            let guard = timeout(Duration::from_secs(3), second).await.expect("it wakes").unwrap().unwrap();
            assert_eq!(guard.release().await.unwrap(), Release::Released);
            drop(first.await);
        });
    }
}

/// A waiter that has another behind it is dropped after tokio's thread-locals.
#[test]
fn a_waiter_dropped_in_the_destructor_of_a_thread_local() {
    type Waiting = std::pin::Pin<Box<dyn Future<Output = Result<Guard>>>>;
    thread_local! {
        static LATE: std::cell::RefCell<Vec<Waiting>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    let home = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let server = MemServer::new();
    let client = home.block_on(async { Client::new(server.connect()) });
    let held = home.block_on(async { mutex(&client).acquire().await.unwrap() });
    let (handle, also, names) = (home.handle().clone(), client.clone(), server.clone());
    let next = std::thread::spawn(move || {
        LATE.with_borrow(|_| ());
        let _home = handle.enter();
        let lock = mutex(&also);
        let mut first: Waiting = Box::pin(async move { lock.acquire().await });
        handle.block_on(async {
            while names.names(&path()).len() < 2 {
                let _ = timeout(Duration::from_millis(5), first.as_mut()).await;
            }
            let _ = timeout(Duration::from_millis(20), first.as_mut()).await;
        });
        let next = waiting(&also);
        handle.block_on(async {
            while names.names(&path()).len() < 3 {
                sleep(Duration::from_millis(1)).await;
            }
            sleep(Duration::from_millis(20)).await;
        });
        LATE.with_borrow_mut(|late| late.push(first));
        next
    })
    .join()
    .unwrap();
    home.block_on(async {
        timeout(Duration::from_secs(3), async {
            while server.names(&path()).len() > 2 {
                sleep(Duration::from_millis(1)).await;
            }
        })
        .await
        .expect("its node is removed");
        held.release().await.unwrap();
        timeout(Duration::from_secs(3), next).await.unwrap().unwrap().unwrap().release().await.unwrap();
    });
}

/// The parent is removed with all its children and created again, so that its numbers start at 0 again.
#[tokio::test(start_paused = true)]
async fn a_parent_that_is_made_again() {
    for dropped in [false, true] {
        let server = MemServer::new();
        let [a, b] = [0, 1].map(|_| Client::new(server.connect()));
        let held = mutex(&a).acquire().await.unwrap();
        let next = waiting(&a);
        settle().await;
        for name in server.names(&path()) {
            server.remove(&path(), &name);
        }
        server.remove_parent(&path());
        let other = timeout(Duration::from_secs(60), mutex(&b).acquire()).await.expect("other").unwrap();
        let later = waiting(&a);
        settle().await;
        if dropped {
            drop(held);
        } else {
            assert_eq!(held.release().await.unwrap(), Release::AlreadyLost);
        }
        sleep(Duration::from_secs(30)).await;
        let next = timeout(Duration::from_secs(60), next).await.expect("next").unwrap();
        assert_eq!(next.unwrap_err().kind(), zlock::ErrorKind::NodeDeleted);
        assert!(other.is_held() && !later.is_finished());
        other.release().await.unwrap();
        let later = timeout(Duration::from_secs(60), later).await.expect("later").unwrap();
        later.unwrap().release().await.unwrap();
    }
}

/// The outage begins with a release, whose outcome is unknown.
#[tokio::test(start_paused = true)]
async fn a_waiter_survives_an_outage_that_begins_with_the_release() {
    let server = MemServer::new();
    let options = MemOptions::default().with_session_timeout(Duration::from_secs(60));
    let backend = server.connect_with(options);
    let link = backend.link();
    let client = Client::new(backend);
    let held = mutex(&client).acquire().await.unwrap();
    let next = waiting(&client);
    settle().await;
    link.suspend();
    assert_eq!(held.release().await.unwrap(), Release::Pending);
    sleep(Duration::from_secs(20)).await;
    link.heal();
    next.await.unwrap().expect("its session and its node live").release().await.unwrap();
}
