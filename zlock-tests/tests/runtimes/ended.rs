//! Code that blocks its runtime, and runtimes that end, on every store.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep, timeout};
use zlock::backend::CoordinationBackend;
use zlock::mem::{MemOptions, MemServer};
use zlock::{Client, ErrorKind, Guard, InterProcessMutex, Release};

const PATH: &str = "/runtimes/lock";
const LONG: Duration = Duration::from_secs(20);

/// A store, and its shortest session timeout.
#[derive(Clone)]
enum Store {
    Mem(MemServer),
    Zk(String),
    #[cfg(feature = "etcd")]
    Etcd(String),
}

impl Store {
    fn shortest(&self) -> Duration {
        match self {
            Store::Mem(_) => Duration::from_millis(300),
            Store::Zk(_) => Duration::from_secs(1),
            #[cfg(feature = "etcd")]
            Store::Etcd(_) => Duration::from_secs(2),
        }
    }

    /// Connects a backend that lives on the caller's runtime.
    async fn backend(&self, session: Duration) -> Arc<dyn CoordinationBackend> {
        match self {
            Store::Mem(server) => {
                Arc::new(server.connect_with(MemOptions::default().with_session_timeout(session)))
            }
            Store::Zk(url) => {
                let options = zlock::zk::ZkOptions::from_url(url).unwrap().with_session_timeout(session);
                Arc::new(zlock::zk::ZkBackend::connect(options).await.unwrap())
            }
            #[cfg(feature = "etcd")]
            Store::Etcd(url) => {
                let options = zlock::etcd::EtcdOptions::from_url(url).unwrap().with_ttl(session);
                Arc::new(zlock::etcd::EtcdBackend::connect(options).await.unwrap())
            }
        }
    }

    async fn connect(&self, session: Duration) -> Client {
        Client::new(self.backend(session).await)
    }

    async fn mutex(&self, session: Duration) -> InterProcessMutex {
        self.connect(session).await.mutex(PATH).unwrap()
    }

    /// Checks that another client acquires the lock, within a session timeout and the time that the server needs to notice.
    async fn expect_free(&self) -> Guard {
        self.mutex(LONG).await.acquire_timeout(2 * self.shortest() + Duration::from_secs(5)).await.unwrap()
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Acquires on a separate runtime in a separate thread, and then runs `then` there.
async fn elsewhere<T: Send + 'static>(
    store: &Store,
    then: impl FnOnce(Runtime, Guard) -> T + Send + 'static,
) -> T {
    // The mem server's clock runs on the runtime that used it first: on ours.
    let _first = store.connect(LONG).await;
    let (store, session) = (store.clone(), store.shortest());
    let holder = move || {
        let runtime = runtime();
        let guard = runtime.block_on(async { store.mutex(session).await.acquire().await.unwrap() });
        then(runtime, guard)
    };
    tokio::task::spawn_blocking(holder).await.unwrap()
}

/// User code that blocks its runtime stops the heartbeats. The lock is lost then, and the guard knows it before
/// another client holds the lock: by its deadline, for which nothing has to run.
async fn blocked(store: Store) {
    let session = store.shortest();
    let (blocks, blocked) = tokio::sync::oneshot::channel();
    let (wake, woken) = std::sync::mpsc::channel::<()>();
    let holder = elsewhere(&store, move |runtime, guard| {
        runtime.block_on(async {
            let _ = blocks.send(guard.context());
            // Not awaited: nothing else runs on this runtime.
            woken.recv().unwrap();
            assert!(!guard.is_held(), "the first look after it");
            let lost = timeout(Duration::ZERO, guard.lost()).await.expect("the loss is known");
            assert_eq!(lost.kind(), ErrorKind::SessionLost);
            assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost);
        });
    });
    let next = async {
        let held = blocked.await.unwrap();
        assert!(held.is_held());
        let next = store.mutex(LONG).await.acquire().await.unwrap();
        assert!(!held.is_held(), "two hold at the same time");
        assert!(next.fencing_token() > held.fencing_token());
        sleep(session).await;
        wake.send(()).unwrap();
        assert_eq!(next.release().await.unwrap(), Release::Released);
    };
    tokio::join!(holder, next);
}

/// A runtime that ends while its guard lives on, which knows at once that it lost the lock.
async fn ended(store: Store) {
    elsewhere(&store, |runtime, guard| {
        drop(runtime);
        assert!(!guard.is_held());
        let began = Instant::now();
        drop(guard);
        assert!(began.elapsed() < Duration::from_secs(1), "a drop blocks");
    })
    .await;
    assert_eq!(store.expect_free().await.release().await.unwrap(), Release::Released);
}

/// A runtime whose end drops guards, and a release in progress.
async fn shut_down(store: Store) {
    elsewhere(&store, |runtime, guard| {
        runtime.block_on(async {
            let other = guard.reenter().unwrap();
            tokio::spawn(async move {
                std::future::pending::<()>().await;
                drop(other);
            });
            let mut release = std::pin::pin!(guard.release());
            let once =
                std::future::poll_fn(|cx| std::task::Poll::Ready(release.as_mut().poll(cx).is_ready()));
            assert!(once.await, "not the last");
            tokio::task::yield_now().await;
        });
        runtime.shutdown_background();
    })
    .await;
    assert_eq!(store.expect_free().await.release().await.unwrap(), Release::Released);
}

/// A runtime that is only visited: what was acquired there is removed on the backend's runtime.
async fn visited(store: Store) {
    let mutex = store.mutex(LONG).await;
    let visitor = mutex.clone();
    let visit = move || runtime().block_on(visitor.acquire()).unwrap();
    drop(tokio::task::spawn_blocking(visit).await.unwrap());
    assert_eq!(store.expect_free().await.release().await.unwrap(), Release::Released);
    drop(mutex);
}

/// A guard that is dropped by a panic, outside of any runtime, whose own has ended.
async fn unwound(store: Store) {
    elsewhere(&store, |runtime, guard| {
        drop(runtime);
        let panicked = thread::spawn(move || {
            let _guard = guard;
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert_eq!(panicked.join().unwrap_err().downcast_ref(), Some(&"on purpose"));
    })
    .await;
    assert_eq!(store.expect_free().await.release().await.unwrap(), Release::Released);
}

macro_rules! on_every_store {
    ($($case:ident),*) => {$(
        mod $case {
            use super::*;

            #[tokio::test]
            async fn on_mem() {
                zlock_testkit::limit(super::$case(Store::Mem(zlock::mem::MemServer::new()))).await;
            }

            #[tokio::test]
            async fn on_zookeeper() {
                zlock_testkit::limit(async {
                    let Some(server) = zlock_testkit::zookeeper_or_skip().await else { return };
                    let url = format!("zk://{}/{}", server.connect_string(), module_path!().replace("::", "-"));
                    super::$case(Store::Zk(url)).await;
                })
                .await;
            }

            #[cfg(feature = "etcd")]
            #[tokio::test]
            async fn on_etcd() {
                zlock_testkit::limit(async {
                    let Some(server) = zlock_testkit::etcd_or_skip().await else { return };
                    let url = format!("etcd://{}/{}", server.connect_string(), module_path!().replace("::", "-"));
                    super::$case(Store::Etcd(url)).await;
                })
                .await;
            }
        }
    )*};
}

on_every_store!(blocked, ended, shut_down, visited, unwound);

mod made_elsewhere;
