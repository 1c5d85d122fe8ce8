//! Requests and answers that are lost at the server, one at a time, and parents that vanish at the worst moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use zlock::mem::{Fate, Fault, MemLink, MemOptions, MemServer, Operation};
use zlock::{Client, InterProcessMutex, LockPath, Release};
use zlock_suite::{Case, Cut, Process, run, sweep};
use zlock_testkit::mem::MemStore;

const LONG: Duration = Duration::from_secs(30);

type Lose = fn(Operation) -> Fault;

/// What happens to the victim's request.
const LOSSES: [(&str, Lose); 2] = [("request", Fault::lose_request), ("answer", Fault::lose_answer)];

/// The n-th request of this kind while the victim acquires behind a holder and releases.
const REQUESTS: [(Operation, u64); 5] = [
    (Operation::Create, 0),
    (Operation::List, 0),
    (Operation::Watch, 0),
    (Operation::List, 1),
    (Operation::Delete, 0),
];

async fn on_mem(name: &str, case: impl AsyncFnOnce(&Case<'_>, MemServer)) {
    let store = MemStore::default();
    let server = store.server.clone();
    run(Some(store), true, name, async |c| case(c, server).await).await;
}

fn link(server: &MemServer, process: &Process) -> MemLink {
    server.link_of(process.session().id).unwrap()
}

fn at(process: &Process, path: &LockPath) -> InterProcessMutex {
    process.client.mutex(path).unwrap()
}

/// T2, FR-01: acquire behind a holder, then release, with each request lost before and after it took effect, and with the
/// future dropped after its k-th poll for every k.
#[tokio::test(start_paused = true)]
async fn t2_every_request_lost_and_every_poll_cut() {
    on_mem("t2", async |case, server| {
        let [a, b, c] = case.processes().await;
        for (what, lose) in LOSSES {
            for (operation, nth) in REQUESTS {
                let name = format!("{what} {nth} of {operation:?} lost");
                sweep(&name, async |cut| {
                    let path = case.path(&format!("{what}-{operation:?}-{nth}-{}", cut.name()));
                    let fault = lose(operation).after(nth).only(&link(&server, &a));
                    let done = queued(case, &path, cut, [&a, &b, &c], || server.inject(fault)).await;
                    server.clear_faults();
                    done
                })
                .await;
            }
        }
        assert_eq!(
            [&a, &b, &c].map(|p| p.session().epoch),
            [1, 1, 1],
            "nothing went by the end of a session"
        );
    })
    .await;
}

async fn queued(
    case: &Case<'_>,
    path: &LockPath,
    cut: Cut,
    [victim, next, holder]: [&Process; 3],
    harm: impl FnOnce(),
) -> bool {
    let (guard, lock, next) = (at(holder, path).acquire().await.unwrap(), at(victim, path), at(next, path));
    harm();
    let task = tokio::spawn(cut.run(async move { lock.acquire().await.unwrap().release().await.unwrap() }));
    case.until("queued or cut", async || task.is_finished() || case.queued(path).await == 2).await;
    let behind = tokio::spawn({
        let next = next.clone();
        async move { next.acquire_timeout(LONG).await.unwrap() }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    let done = task.await.unwrap();
    assert!(matches!(done, None | Some(Release::Released)), "{done:?}");
    assert_eq!(behind.await.unwrap().release().await.unwrap(), Release::Released);
    case.until_free(path).await;
    case.until("the background is idle", async || victim.client.pending_cleanups() == 0).await;
    done.is_some()
}

/// FR-01: the create's answer is lost again and again. There is one node, and it is ours.
#[tokio::test(start_paused = true)]
async fn fr_01_answers_lost_again_and_again() {
    on_mem("fr_01", async |case, server| {
        let a = case.process().await;
        let path = case.path("lock");
        for times in 1..6 {
            server.inject(Fault::lose_answer(Operation::Create).times(times));
            server.inject(Fault::lose_answer(Operation::List).times(times));
            let guard = at(&a, &path).acquire().await.unwrap();
            assert_eq!(server.names(&path).len(), 1, "{times} times");
            assert_eq!(guard.release().await.unwrap(), Release::Released);
            assert_eq!(server.names(&path).len(), 0, "{times} times");
            server.clear_faults();
        }
        assert_eq!(a.session().epoch, 1);
    })
    .await;
}

/// MX-04: the parent vanishes right before each of the first requests arrives. That costs a retry and is not an error.
#[tokio::test(start_paused = true)]
async fn mx_04_parent_vanishes_at_each_request() {
    on_mem("mx_04", async |case, server| {
        let a = case.process().await;
        let (path, left) = (case.path("deep/lock"), Arc::new(AtomicUsize::new(0)));
        let parent = path.parent().unwrap();
        let (hook_left, hook_path) = (left.clone(), path.clone());
        server.on_request(move |server, arrival| {
            if arrival.parent.as_ref() == Some(&hook_path)
                && hook_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
            {
                server.remove_parent(&hook_path);
                server.remove_parent(&parent);
            }
            Fate::Pass
        });
        for times in 0..8 {
            left.store(times, Ordering::SeqCst);
            let guard = at(&a, &path).acquire().await.unwrap();
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
    })
    .await;
}

/// T2: the session ends right before the k-th request of an acquire arrives, for every k. The result is an error or a lock that
/// is really held, never a grant on a dead session. No node is left.
#[tokio::test(start_paused = true)]
async fn t2_session_ends_at_each_request() {
    on_mem("t2 session", async |case, server| {
        let b = case.process().await;
        let path = case.path("lock");
        for kth in 0.. {
            let a = case.process().await;
            let (id, mut seen) = (a.session().id, 0);
            let reached = Arc::new(AtomicUsize::new(0));
            let told = reached.clone();
            server.on_request(move |server, arrival| {
                if arrival.session == Some(id) && arrival.parent.is_some() {
                    if seen == kth {
                        server.expire(id);
                        told.store(1, Ordering::SeqCst);
                    }
                    seen += 1;
                }
                Fate::Pass
            });
            let holder = at(&b, &path).acquire().await.unwrap();
            let lock = at(&a, &path);
            let waiter = tokio::spawn(async move { lock.acquire().await });
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(holder.release().await.unwrap(), Release::Released);
            match waiter.await.unwrap() {
                Ok(guard) => {
                    assert!(guard.is_held());
                    assert!(at(&b, &path).try_acquire().await.unwrap().is_none(), "request {kth}");
                    let _ = guard.release().await.unwrap();
                }
                Err(e) => assert_eq!(e.kind(), zlock::ErrorKind::SessionLost, "request {kth}"),
            }
            server.clear_faults();
            let guard = at(&b, &path).acquire_timeout(LONG).await.unwrap();
            assert_eq!(guard.release().await.unwrap(), Release::Released);
            case.until_free(&path).await;
            if reached.load(Ordering::SeqCst) == 0 {
                assert!(kth >= 4, "an acquire behind a holder and a release are five requests");
                break;
            }
        }
    })
    .await;
}

/// MX-02: the server itself stops and starts again within the session timeout. No session, lock or place is lost.
#[tokio::test(start_paused = true)]
async fn mx_02_server_restarts() {
    on_mem("mx_02", async |case, server| {
        let [a, b] = case.processes().await;
        let path = case.path("lock");
        let guard = at(&a, &path).acquire().await.unwrap();
        let lock = at(&b, &path);
        let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
        case.until_queued(&path, 2).await;
        server.stop();
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(guard.is_held());
        server.start();
        case.until("connected", async || {
            [&a, &b].iter().all(|p| p.session().state == zlock::SessionState::Connected)
        })
        .await;
        assert!(guard.is_held() && !waiter.is_finished());
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        assert_eq!(waiter.await.unwrap().release().await.unwrap(), Release::Released);
        assert_eq!([a, b].map(|p| p.session().epoch), [1, 1]);
    })
    .await;
}

/// An acquisition on a stopped server takes exactly its timeout, and works when the server is back.
#[tokio::test(start_paused = true)]
async fn connects_when_the_server_comes_up() {
    let server = MemServer::new();
    server.stop();
    let client = Client::new(server.connect());
    let lock = client.mutex("/app/lock").unwrap();
    let began = tokio::time::Instant::now();
    let error = lock.acquire_timeout(Duration::from_secs(2)).await.unwrap_err();
    assert_eq!(began.elapsed(), Duration::from_secs(2));
    assert_eq!(error.kind(), zlock::ErrorKind::Timeout(zlock::Phase::Connecting));
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.start();
    assert_eq!(waiter.await.unwrap().release().await.unwrap(), Release::Released);
}

/// T3: no listing is answered after the create. The node is known, so the failed acquisition leaves nothing behind.
#[tokio::test(start_paused = true)]
async fn t3_no_listing_is_ever_answered() {
    on_mem("t3", async |case, server| {
        let a = case.process().await;
        let path = case.path("lock");
        for lose in LOSSES.map(|(_, lose)| lose) {
            server.inject(lose(Operation::List).times(u64::MAX));
            let error = at(&a, &path).acquire().await.unwrap_err();
            assert_eq!(error.kind(), zlock::ErrorKind::Unavailable);
            server.clear_faults();
            case.until_free(&path).await;
        }
        assert_eq!(a.session().epoch, 1);
    })
    .await;
}

/// A hook that panics, for example by a test's failed assertion, affects no other client's requests.
#[tokio::test(start_paused = true)]
async fn a_hook_that_panics_does_not_stop_the_server() {
    let server = MemServer::new();
    let (client, other) = (Client::new(server.connect()), Client::new(server.connect()));
    server.on_request(|_, arrival| {
        assert!(arrival.operation != Operation::Create, "a test's own assertion");
        Fate::Pass
    });
    let lock = client.mutex("/hook/a").unwrap();
    assert!(tokio::spawn(async move { lock.acquire().await }).await.unwrap_err().is_panic());
    server.clear_faults();
    let guard = other.mutex("/hook/b").unwrap().try_acquire().await.unwrap().expect("a free lock");
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// A leader blocks its thread until its leadership is lost, and then panics.
#[tokio::test]
async fn a_panic_is_not_lost_with_the_leadership() {
    let session = Duration::from_millis(500);
    let options = MemOptions::default().with_session_timeout(session);
    let client = Client::new(MemServer::new().connect_with(options));
    let leading = tokio::spawn(async move {
        let election = client.election("/app/leader").unwrap();
        let work = async |leader: zlock::LeaderContext| {
            std::thread::sleep(2 * session);
            leader.check().unwrap();
            Ok::<_, zlock::Error>(())
        };
        election.lead(work).await
    });
    let ended = tokio::time::timeout(LONG, leading).await.expect("it campaigns again");
    assert!(ended.unwrap_err().is_panic());
}
