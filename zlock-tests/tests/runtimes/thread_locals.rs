//! Clients, guards and waits that are stored in thread-locals and dropped after tokio's own thread-locals, where a panic aborts
//! the process. On every store, in a child process.

use std::any::Any;
use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use zlock::mem::MemServer;
use zlock::{Client, Guard, InterProcessMutex, MultiLock, Release};
use zlock_testkit::{Process, limit_to};

const PATH: &str = "/thread/lock";
const LONG: Duration = Duration::from_secs(20);

/// Set in a child: the URL of its store.
const STORE: &str = "ZLOCK_CHILD_STORE";

thread_local! {
    static KEPT: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

fn keep(what: impl Any) {
    KEPT.with_borrow_mut(|kept| kept.push(Box::new(what)));
}

/// Runs in a thread whose locals are dropped after tokio's: once on the thread's own runtime, which has ended by then, and once
/// on a runtime that outlives the thread.
fn at_the_end_of_a_thread(home: &Handle, what: &str, then: impl AsyncFn() + Send + Sync + Clone + 'static) {
    for visits in [false, true] {
        let (home, then) = (home.clone(), then.clone());
        let ended = thread::spawn(move || {
            // Used before tokio's, since locals are dropped in the reverse order of their first use.
            KEPT.with_borrow(|_| ());
            if visits {
                home.block_on(then());
            } else {
                Builder::new_current_thread().enable_all().build().unwrap().block_on(then());
            }
        });
        ended.join().unwrap();
        println!("\nended: {what}, visiting a runtime: {visits}");
    }
}

/// Polls a future a few times, so that its requests are in flight, and keeps it.
async fn begin<F: Future + 'static>(future: F) {
    let mut future: Pin<Box<F>> = Box::pin(future);
    for _ in 0..20 {
        poll_fn(|cx| {
            let _ = future.as_mut().poll(cx).is_ready();
            Poll::Ready(())
        })
        .await;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    keep(future);
}

/// Keeps the output of a future and never completes.
async fn for_ever<T>(future: impl Future<Output = T>) {
    let _kept = future.await;
    std::future::pending::<()>().await;
}

async fn mutex(url: &str) -> InterProcessMutex {
    zlock::connect(url).await.unwrap().mutex(PATH).unwrap()
}

async fn held(url: &str) -> Guard {
    mutex(url).await.acquire_timeout(LONG).await.unwrap()
}

fn drops(url: &'static str) {
    // Once time was paused in a process, tokio looks for its runtime on each call of `Instant::now`.
    drop(Builder::new_current_thread().enable_time().start_paused(true).build().unwrap());
    let home = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let _other = home.block_on(zlock::connect(url)).unwrap();
    macro_rules! case {
        ($what:literal, $then:expr) => {
            at_the_end_of_a_thread(home.handle(), $what, async move || $then.await);
            home.block_on(async {
                assert_eq!(held(url).await.release().await.unwrap(), Release::Released, $what);
            });
        };
    }
    case!("a client", async { keep(zlock::connect(url).await.unwrap()) });
    case!("a guard", async { keep(held(url).await) });
    case!("a guard and its client", async {
        let mutex = mutex(url).await;
        keep(mutex.acquire_timeout(LONG).await.unwrap());
        keep(mutex);
    });
    case!("an acquisition that was just begun", async {
        let mutex = mutex(url).await;
        let mut acquire = Box::pin(async move { for_ever(mutex.acquire()).await });
        poll_fn(|cx| Poll::Ready(acquire.as_mut().poll(cx).is_ready())).await;
        keep(acquire);
    });
    case!("acquisitions that wait", async {
        let guard = held(url).await;
        let one = mutex(url).await;
        begin(async move { for_ever(one.acquire()).await }).await;
        let two = mutex(url).await;
        begin(async move { for_ever(two.acquire_timeout(LONG)).await }).await;
        keep(guard);
    });
    case!("a template's closure", async {
        let template = zlock::connect(url).await.unwrap().lock_template("/thread").unwrap();
        begin(async move { template.execute("lock", |_| std::future::pending::<()>()).await }).await;
    });
    case!("waits for the loss and for a revocation", async {
        let guard = held(url).await;
        let (lost, asked) = (guard.context(), guard.context());
        begin(async move { for_ever(lost.lost()).await }).await;
        begin(async move { for_ever(asked.revocation_requested()).await }).await;
        keep(guard);
    });
    case!("a release", async {
        let mut release = Box::pin(held(url).await.release());
        poll_fn(|cx| Poll::Ready(release.as_mut().poll(cx).is_ready())).await;
        keep(release);
    });
    case!("other locks", async {
        let client = zlock::connect(url).await.unwrap();
        let both = client.read_write_lock("/thread/both").unwrap();
        let write = both.write().acquire().await.unwrap();
        let mut downgrade = Box::pin(write.downgrade());
        poll_fn(|cx| Poll::Ready(downgrade.as_mut().poll(cx).is_ready())).await;
        keep(downgrade);
        let permits = client.semaphore("/thread/permits", 2).unwrap();
        keep(permits.acquire(2).await.unwrap());
        begin(async move { for_ever(permits.acquire(1)).await }).await;
        let one = client.mutex("/thread/one").unwrap();
        let two = client.mutex("/thread/two").unwrap();
        keep(MultiLock::new([&one, &two]).unwrap().acquire().await.unwrap());
    });
    case!("a view of the session", async {
        let client = zlock::connect(url).await.unwrap();
        let (mut events, mut listener) = (client.session_events(), client.session_events().listen());
        begin(async move { for_ever(events.ended(1)).await }).await;
        begin(async move { while listener.next().await.is_some() {} }).await;
        begin(async move { for_ever(client.close()).await }).await;
    });
    if url.starts_with("mem:") {
        case!("a server", async {
            let server = MemServer::new();
            let backend = server.connect();
            let (client, other) = (Client::new(server.connect()), Client::new(server.connect()));
            let guard = client.mutex(PATH).unwrap().acquire().await.unwrap();
            let waits = other.mutex(PATH).unwrap();
            begin(async move { for_ever(waits.acquire()).await }).await;
            keep((guard, client, backend, other, server));
        });
    }
    println!("\nalive");
}

async fn child(test: &str, url: String) {
    let mut child = Process::spawn_test(&format!("{}::{test}", module_path!()), &[(STORE, &url)]);
    let mut last = String::new();
    while let Some(line) = child.line().await {
        if line == "alive" {
            assert_eq!(child.wait().await, 0, "after its last line");
            return;
        }
        if line.starts_with("ended: ") {
            last = line;
        }
    }
    panic!("the process has died, code {}; last: {last:?}", child.wait().await);
}

fn on_a_runtime(body: impl Future<Output = ()>) {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(limit_to(Duration::from_secs(120), body));
}

/// In the child: does its work and returns `true`.
fn is_child() -> bool {
    let Ok(url) = std::env::var(STORE) else { return false };
    drops(url.leak());
    true
}

#[test]
fn on_mem() {
    if !is_child() {
        on_a_runtime(child("on_mem", "mem://thread_locals".into()));
    }
}

#[test]
fn on_zookeeper() {
    if !is_child() {
        on_a_runtime(async {
            let Some(server) = zlock_testkit::zookeeper_or_skip().await else { return };
            child("on_zookeeper", format!("zk://{}/threads?session_timeout=2s", server.connect_string()))
                .await;
        });
    }
}

#[cfg(feature = "etcd")]
#[test]
fn on_etcd() {
    if !is_child() {
        on_a_runtime(async {
            let Some(server) = zlock_testkit::etcd_or_skip().await else { return };
            child("on_etcd", format!("etcd://{}/threads?ttl=2s", server.connect_string())).await;
        });
    }
}
