//! How long waiters of other clients wait while a client hands the lock over among its own tasks, in paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use zlock::backend::CoordinationBackend;
use zlock::mem::MemServer;
use zlock::{Client, ErrorKind, FencingToken, Handoff, InterProcessMutex, Release};

/// The durations of a batch, of a critical section, and of a message to or from the server.
const WITHIN: Duration = Duration::from_millis(100);
const SECTION: Duration = Duration::from_millis(7);
const MESSAGE: Duration = Duration::from_millis(1);

/// How long a hand-over between two clients takes: a create that may precede the removal, the removal, its notification, and
/// the next holder's listing. Each is at most a request and an answer.
const HAND_OVER: Duration = Duration::from_millis(4 * 2);

/// The number of clients whose tasks wait for the lock all the time, and the number of tasks of each.
const CLIENTS: u32 = 4;
const TASKS: usize = 5;

const LENGTH: Duration = Duration::from_secs(20);

fn client(server: &MemServer) -> Client {
    let backend = server.connect();
    let link = server.link_of(backend.session_events().current().id).expect("a session");
    link.delay(MESSAGE, MESSAGE);
    Client::new(backend)
}

/// Acquires the lock again and again; returns the longest wait.
async fn wait_and_hold(lock: InterProcessMutex, over: Arc<AtomicBool>) -> Duration {
    let mut longest = Duration::ZERO;
    while !over.load(Ordering::Relaxed) {
        let began = Instant::now();
        let guard = lock.acquire().await.unwrap();
        longest = longest.max(began.elapsed());
        sleep(SECTION).await;
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
    longest
}

/// Runs all clients, and one waiter of a separate client. Returns that waiter's longest wait and how often it held the lock.
async fn remote_waits(handoff: Option<Handoff>) -> (Duration, usize) {
    let server = MemServer::new();
    let (over, mut tasks) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
    for _ in 0..CLIENTS {
        let client = client(&server);
        for _ in 0..TASKS {
            let mut lock = client.mutex("/app/lock").unwrap();
            if let Some(handoff) = handoff {
                lock = lock.with_handoff(handoff);
            }
            tasks.spawn(wait_and_hold(lock, over.clone()));
        }
    }
    let lock = client(&server).mutex("/app/lock").unwrap();
    let (mut longest, mut waits) = (Duration::ZERO, 0);
    let mut last: Option<FencingToken> = None;
    let end = Instant::now() + LENGTH;
    while Instant::now() < end {
        let began = Instant::now();
        let guard = lock.acquire_timeout(LENGTH).await.expect("its turn comes");
        (longest, waits) = (longest.max(began.elapsed()), waits + 1);
        assert!(last < Some(guard.fencing_token()));
        last = Some(guard.fencing_token());
        sleep(SECTION).await;
        guard.release().await.unwrap();
        sleep(Duration::from_millis(13)).await;
    }
    over.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    (longest, waits)
}

/// A waiter waits for each client ahead of it: for the time of a batch, one critical section, and one hand-over.
#[tokio::test(start_paused = true)]
async fn a_remote_waiter_waits_for_one_batch_of_each_client() {
    let most = CLIENTS * (WITHIN + SECTION + HAND_OVER) + HAND_OVER;
    let (longest, waits) = remote_waits(Some(Handoff::within(WITHIN))).await;
    println!("with hand-off: longest wait {longest:?} of {waits}, allowed {most:?}");
    assert!(longest <= most, "{longest:?} of at most {most:?}");
    // The waiter must have waited for the others, or this shows nothing.
    assert!(longest > WITHIN * CLIENTS / 2, "{longest:?}");

    let most = CLIENTS * 2 * (SECTION + HAND_OVER) + HAND_OVER;
    let (longest, _) = remote_waits(Some(Handoff::within(WITHIN).at_most(1))).await;
    println!("with hand-off, at most one: longest wait {longest:?}, allowed {most:?}");
    assert!(longest <= most, "{longest:?} of at most {most:?}");

    let (longest, waits) = remote_waits(None).await;
    println!("without: longest wait {longest:?} of {waits}");
}

/// A waiter of the local queue computes with the operation timeout.
#[tokio::test(start_paused = true)]
async fn no_response_timeout_is_too_long() {
    let builder = Client::builder(MemServer::new().connect());
    let client = builder.with_response_timeout(Duration::MAX).unwrap().build();
    let lock = client.mutex("/app/lock").unwrap().with_handoff(Handoff::within(Duration::MAX));
    let guard = lock.acquire().await.unwrap();
    assert_eq!(lock.acquire_timeout(SECTION).await.unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}
