//! Clients that are created outside their backend's runtime, and used on runtimes that end.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};
use zlock::backend::CoordinationBackend;
use zlock::{Client, InterProcessMutex, Release};

use super::{LONG, PATH, Store, runtime};

/// Where the client is created. Its backend lives on the runtime of the test.
#[derive(Clone, Copy)]
enum Made {
    InSyncCode,
    /// On a runtime that ends before the client is used.
    OnAShortRuntime,
    /// On a runtime that is not driven while the client is used.
    OnAnIdleRuntime,
}

/// A client that was created elsewhere, and the runtime that it was created on, if that still exists.
struct MadeElsewhere {
    client: Client,
    idle: Option<Runtime>,
}

impl MadeElsewhere {
    async fn new(made: Made, backend: &Arc<dyn CoordinationBackend>) -> Self {
        let backend = backend.clone();
        outside(move || {
            let home = match made {
                Made::InSyncCode => None,
                Made::OnAShortRuntime | Made::OnAnIdleRuntime => Some(runtime()),
            };
            let client = match &home {
                None => Client::new(backend),
                Some(home) => home.block_on(async { Client::new(backend) }),
            };
            MadeElsewhere { client, idle: home.filter(|_| matches!(made, Made::OnAnIdleRuntime)) }
        })
        .await
    }

    fn mutex(&self) -> InterProcessMutex {
        self.client.mutex(PATH).unwrap()
    }

    /// Waits until there is no background work left.
    async fn until_idle(&self) {
        until("the background is idle", async || self.client.pending_cleanups() == 0).await;
    }
}

impl Drop for MadeElsewhere {
    fn drop(&mut self) {
        if let Some(idle) = self.idle.take() {
            idle.shutdown_background();
        }
    }
}

/// Runs code in a thread outside of any runtime.
async fn outside<T: Send + 'static>(code: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(|| thread::spawn(code).join().unwrap()).await.unwrap()
}

/// Waits for a condition that must become true long before a session of `LONG` ends.
async fn until(what: &str, mut is: impl AsyncFnMut() -> bool) {
    let found = timeout(LONG / 2, async {
        while !is().await {
            sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(found.await.is_ok(), "not in time: {what}");
}

async fn until_queued(lock: &InterProcessMutex, nodes: usize) {
    until(&format!("{nodes} nodes"), async || lock.participants().await.unwrap().len() == nodes).await;
}

/// A guard that is dropped after its runtime has ended is released.
async fn dropped(store: Store, made: Made) {
    guard_dropped(store, made, true).await;
}

/// The same if the client is dropped, too, while its backend is kept elsewhere.
async fn dropped_with_client(store: Store, made: Made) {
    guard_dropped(store, made, false).await;
}

async fn guard_dropped(store: Store, made: Made, client_stays: bool) {
    let backend = store.backend(LONG).await;
    let session = backend.session_events().current();
    let maker = MadeElsewhere::new(made, &backend).await;
    let lock = maker.mutex();
    let guard = outside(move || runtime().block_on(lock.acquire()).unwrap()).await;
    let next = store.mutex(LONG).await;
    let waiter = next.clone();
    let waiting = tokio::spawn(async move { waiter.acquire_timeout(LONG / 2).await });
    until_queued(&next, 2).await;
    let maker = outside(move || {
        drop(guard);
        client_stays.then_some(maker)
    })
    .await;
    let acquired = waiting.await.unwrap().expect("the lock of a guard that was dropped");
    if let Some(maker) = maker {
        maker.until_idle().await;
    }
    assert_eq!(acquired.release().await.unwrap(), Release::Released);
    assert!(backend.session_events().is_live(session.epoch), "the lock came from a release");
}

/// An acquisition that is dropped while it waits, after its runtime has ended, leaves no node.
async fn cancelled(store: Store, made: Made) {
    let backend = store.backend(LONG).await;
    let session = backend.session_events().current();
    let maker = MadeElsewhere::new(made, &backend).await;
    let next = store.mutex(LONG).await;
    let held = next.acquire().await.unwrap();
    let lock = maker.mutex();
    let (queued, cancel) = std::sync::mpsc::channel();
    let waiter = outside(move || {
        let mut waiting = Box::pin(async move { lock.acquire().await.map(drop) });
        let runtime = runtime();
        runtime.block_on(async {
            while cancel.try_recv().is_err() {
                assert!(timeout(Duration::from_millis(10), &mut waiting).await.is_err(), "it waits");
            }
        });
        drop(runtime);
        drop(waiting);
    });
    let canceller = async {
        until_queued(&next, 2).await;
        queued.send(()).unwrap();
    };
    tokio::join!(waiter, canceller);
    until_queued(&next, 1).await;
    maker.until_idle().await;
    assert!(backend.session_events().is_live(session.epoch), "the node went by the cancellation");
    assert_eq!(held.release().await.unwrap(), Release::Released);
}

/// Permits that are granted on a runtime that ends at once let the next waiter in.
async fn promoted(store: Store, made: Made) {
    let semaphore = |client: &Client| client.semaphore(PATH, 2).unwrap();
    let backend = store.backend(LONG).await;
    let maker = MadeElsewhere::new(made, &backend).await;
    let (first, last) = (semaphore(&store.connect(LONG).await), semaphore(&store.connect(LONG).await));
    let until_queued = async |nodes: usize| {
        until(&format!("{nodes} nodes"), async || first.participants().await.unwrap().len() == nodes).await;
    };
    let both = first.acquire(2).await.unwrap();
    let (middle, queued) = (semaphore(&maker.client), until_queued);
    let middle = tokio::spawn(outside(move || runtime().block_on(middle.acquire(1)).unwrap()));
    queued(2).await;
    let last = tokio::spawn(async move { last.acquire_timeout(1, LONG / 2).await });
    queued(3).await;
    // Gives the last waiter time to wait for the middle one, so that it does not see the middle one's grant at once.
    sleep(Duration::from_millis(200)).await;
    assert_eq!(both.release().await.unwrap(), Release::Released);
    let middle = middle.await.unwrap();
    let last = last.await.unwrap().expect("the permit that is free");
    assert!(middle.is_held(), "both hold at the same time");
    maker.until_idle().await;
    assert_eq!(last.release().await.unwrap(), Release::Released);
    assert_eq!(middle.release().await.unwrap(), Release::Released);
}

/// The cases of clients that were created outside their backend's runtime.
macro_rules! made_elsewhere {
    ($($place:ident: $made:expr),* $(,)?) => {$(
        mod $place {
            use super::*;

            async fn dropped(store: Store) {
                super::dropped(store, $made).await;
            }

            async fn dropped_with_client(store: Store) {
                super::dropped_with_client(store, $made).await;
            }

            async fn cancelled(store: Store) {
                super::cancelled(store, $made).await;
            }

            async fn promoted(store: Store) {
                super::promoted(store, $made).await;
            }

            on_every_store!(dropped, dropped_with_client, cancelled, promoted);
        }
    )*};
}

made_elsewhere!(
    in_sync_code: Made::InSyncCode,
    on_a_short_runtime: Made::OnAShortRuntime,
    on_an_idle_runtime: Made::OnAnIdleRuntime,
);
