//! A client on a dedicated thread keeps its locks while the user's runtime is blocked, and any other client loses them.

use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use zlock::{Client, ErrorKind, blocking, with_dedicated_thread};
use zlock_testkit::limit;

const PATH: &str = "/dedicated/lock";
const WORKERS: usize = 2;
const LONG: Duration = Duration::from_secs(30);

async fn connect(url: String, dedicated: bool) -> Client {
    if dedicated {
        with_dedicated_thread(async move { zlock::connect(&url).await }).await.unwrap()
    } else {
        zlock::connect(&url).await.unwrap()
    }
}

/// Holds a lock while every worker of the holder's runtime is blocked for three session timeouts. Returns `true` if the lock
/// is still held then. `others` tries to acquire it meanwhile.
fn is_held_after_blocking(url: &str, dedicated: bool, session: Duration, others: &blocking::Client) -> bool {
    let runtime = Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().unwrap();
    let (url, blocked) = (url.to_owned(), Arc::new(Barrier::new(WORKERS + 1)));
    let (holds, held) = channel();
    let block = {
        let blocked = blocked.clone();
        move || {
            blocked.wait();
            thread::sleep(3 * session);
        }
    };
    let holder = runtime.spawn({
        let block = block.clone();
        async move {
            let client = connect(url, dedicated).await;
            let guard = client.mutex(PATH).unwrap().acquire().await.unwrap();
            holds.send(()).unwrap();
            block();
            let is_held = (guard.is_held(), guard.check().is_ok(), client.health().is_ready());
            drop((guard, client));
            is_held
        }
    });
    held.recv().unwrap();
    for _ in 1..WORKERS {
        let block = block.clone();
        runtime.spawn(async move { block() });
    }
    blocked.wait();
    let acquired = others.mutex(PATH).unwrap().acquire_timeout(2 * session + session / 2);
    match &acquired {
        Ok(guard) => assert!(!dedicated, "two hold: {guard:?}"),
        Err(error) => assert_eq!((error.kind(), dedicated), (ErrorKind::Busy, true), "{error}"),
    }
    drop(acquired);
    let (is_held, is_checked, is_ready) = runtime.block_on(holder).unwrap();
    assert_eq!(is_held, is_checked);
    // A client whose lock was lost may have its next session already.
    assert!(is_ready || !is_held, "a healthy client holds it");
    is_held
}

fn blocked_runtime(url: &str, session: Duration) {
    // Before the others, because mem's clock runs on the first client's runtime.
    let others = blocking::connect(url).unwrap();
    assert!(is_held_after_blocking(url, true, session, &others), "with a thread of its own");
    assert!(!is_held_after_blocking(url, false, session, &others), "without");
    others.close().unwrap();
}

async fn gone(thread: &str) {
    let gone = async {
        while Path::new(thread).exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, gone).await.expect("the thread ends with the client");
}

async fn this_thread() -> String {
    format!("/proc/{}", std::fs::read_link("/proc/thread-self").unwrap().display())
}

/// The thread ends when the client is dropped, here or on the thread itself, and also if the client was closed before.
async fn ends_with_its_client(url: &str) {
    for close in [false, true] {
        let of = url.to_owned();
        let connect = async move { Ok((zlock::connect(&of).await?, this_thread().await)) };
        let (client, thread) = with_dedicated_thread(connect).await.unwrap();
        assert_ne!(thread, this_thread().await);
        let guard = client.mutex(PATH).unwrap().acquire_timeout(LONG).await.unwrap();
        assert!(Path::new(&thread).exists());
        if close {
            client.close().await.unwrap();
        }
        drop(guard);
        drop(client);
        gone(&thread).await;
    }
    let of = url.to_owned();
    let connect = async move {
        let client = zlock::connect(&of).await?;
        let guard = client.mutex(PATH)?.acquire_timeout(LONG).await?;
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            drop(client);
            drop(guard);
        });
        Ok(this_thread().await)
    };
    gone(&with_dedicated_thread(connect).await.unwrap()).await;
}

#[test]
fn mem_blocked_runtime() {
    blocked_runtime("mem://dedicated?session_timeout=1s", Duration::from_secs(1));
}

#[tokio::test]
async fn mem_ends_with_its_client() {
    limit(ends_with_its_client("mem://")).await;
}

mod zookeeper {
    use super::*;

    async fn url(name: &str) -> Option<String> {
        let server = zlock_testkit::zookeeper_or_skip().await?;
        Some(format!("zk://{}/{name}?session_timeout=4s", server.connect_string()))
    }

    #[tokio::test]
    async fn blocked_runtime() {
        let Some(url) = url("dedicated-blocked").await else { return };
        // Outside this runtime, where nothing may block.
        thread::spawn(move || super::blocked_runtime(&url, Duration::from_secs(4))).join().unwrap();
    }

    #[tokio::test]
    async fn ends_with_its_client() {
        let Some(url) = url("dedicated-ends").await else { return };
        limit(super::ends_with_its_client(&url)).await;
    }
}

#[cfg(feature = "etcd")]
mod etcd {
    use super::*;

    async fn url(name: &str) -> Option<String> {
        let server = zlock_testkit::etcd_or_skip().await?;
        Some(format!("etcd://{}/{name}?session_timeout=2s", server.connect_string()))
    }

    #[tokio::test]
    async fn blocked_runtime() {
        let Some(url) = url("dedicated-blocked").await else { return };
        thread::spawn(move || super::blocked_runtime(&url, Duration::from_secs(2))).join().unwrap();
    }

    #[tokio::test]
    async fn ends_with_its_client() {
        let Some(url) = url("dedicated-ends").await else { return };
        limit(super::ends_with_its_client(&url)).await;
    }
}
