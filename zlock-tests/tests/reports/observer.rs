//! The reports of a client to its observer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use zlock::mem::{Fault, MemBackend, MemOptions, MemServer, Operation};
use zlock::observer::{AcquireOutcome, LockLabels, Observer, RequestOutcome};
use zlock::{Client, ErrorKind, LockPath, Release, Session, SessionState};
use zlock_testkit::limit;

const SECOND: Duration = Duration::from_secs(1);

/// Keeps all reports.
#[derive(Default)]
struct Seen(Mutex<Reports>);

#[derive(Clone, Default)]
struct Reports {
    waits: Vec<(String, AcquireOutcome, Duration)>,
    waiting: i32,
    holds: Vec<(String, Duration)>,
    held: i32,
    losses: Vec<(String, ErrorKind)>,
    states: Vec<(u64, SessionState)>,
    slack: Vec<Option<Duration>>,
    renewals: Vec<(Duration, Duration)>,
    /// By operation and outcome.
    requests: BTreeMap<(&'static str, &'static str), u32>,
}

impl Seen {
    fn reports(&self) -> Reports {
        self.0.lock().unwrap().clone()
    }

    fn forget_slack(&self) {
        self.0.lock().unwrap().slack.clear();
    }

    /// Waits until the reports satisfy a condition.
    async fn until(&self, condition: impl Fn(&Reports) -> bool) -> Reports {
        loop {
            let reports = self.reports();
            if condition(&reports) {
                return reports;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }
}

fn name(lock: LockLabels<'_>) -> String {
    format!("{} {:?}", lock.kind, lock.name)
}

impl Observer for Seen {
    fn acquisition_started(&self, _: LockLabels<'_>) {
        self.0.lock().unwrap().waiting += 1;
    }

    fn acquisition_ended(&self, lock: LockLabels<'_>, outcome: AcquireOutcome, waited: Duration) {
        let mut seen = self.0.lock().unwrap();
        seen.waiting -= 1;
        seen.waits.push((name(lock), outcome, waited));
    }

    fn hold_started(&self, _: LockLabels<'_>) {
        self.0.lock().unwrap().held += 1;
    }

    fn hold_ended(&self, lock: LockLabels<'_>, held: Duration) {
        let mut seen = self.0.lock().unwrap();
        seen.held -= 1;
        seen.holds.push((name(lock), held));
    }

    fn lock_lost(&self, lock: LockLabels<'_>, reason: ErrorKind) {
        self.0.lock().unwrap().losses.push((name(lock), reason));
    }

    fn session_changed(&self, session: Session) {
        self.0.lock().unwrap().states.push((session.epoch, session.state));
    }

    fn session_slack(&self, slack: Option<Duration>) {
        self.0.lock().unwrap().slack.push(slack);
    }

    fn session_renewed(&self, duration: Duration, life: Duration) {
        self.0.lock().unwrap().renewals.push((duration, life));
    }

    fn request_ended(&self, operation: &'static str, _: Duration, outcome: RequestOutcome) {
        let outcome = match outcome {
            RequestOutcome::Answered => "answered",
            RequestOutcome::Failed(kind) => kind.as_str(),
            _ => "cancelled",
        };
        *self.0.lock().unwrap().requests.entry((operation, outcome)).or_default() += 1;
    }
}

/// Creates a client with an observer, and another client of the same server.
struct World {
    server: MemServer,
    client: Client,
    link: zlock::mem::MemLink,
    other: Client,
    seen: Arc<Seen>,
}

fn world() -> World {
    let server = MemServer::new();
    let backend: MemBackend = server.connect_with(MemOptions::default().with_operation_timeout(5 * SECOND));
    let (link, client, seen) = (backend.link(), Client::new(backend), Arc::new(Seen::default()));
    client.observe(seen.clone()).unwrap();
    World { other: Client::new(server.connect()), server, client, link, seen }
}

#[tokio::test(start_paused = true)]
async fn each_outcome_of_an_acquisition_is_reported() {
    limit(async {
        let World { server, client, other, seen, .. } = world();
        let mutex = client.mutex("/a").unwrap().with_metric_name("orders");
        let last = || seen.reports().waits.last().cloned().unwrap();
        mutex.acquire().await.unwrap().release().await.unwrap();
        assert_eq!(last(), ("mutex \"orders\"".into(), AcquireOutcome::Granted, Duration::ZERO));

        let held = other.mutex("/a").unwrap().acquire().await.unwrap();
        assert_eq!(mutex.acquire_timeout(3 * SECOND).await.unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(last(), ("mutex \"orders\"".into(), AcquireOutcome::Busy, 3 * SECOND));
        assert!(mutex.try_acquire().await.unwrap().is_none());
        assert_eq!((last().1, seen.reports().waits.len()), (AcquireOutcome::Busy, 3));

        assert!(timeout(2 * SECOND, mutex.acquire()).await.is_err());
        assert_eq!(last(), ("mutex \"orders\"".into(), AcquireOutcome::Cancelled, 2 * SECOND));

        server.inject(Fault::lose_request(Operation::Create).times(u64::MAX));
        assert!(mutex.acquire_timeout(SECOND).await.unwrap_err().is_timeout());
        assert_eq!(last(), ("mutex \"orders\"".into(), AcquireOutcome::Timeout, SECOND));
        assert_eq!(mutex.acquire().await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(last().1, AcquireOutcome::Error);
        server.clear_faults();

        drop(held);
        let reports = seen.reports();
        assert_eq!((reports.waiting, reports.held, reports.waits.len()), (0, 0, 6));
        assert!(reports.requests[&("create", "answered")] > 0, "{:?}", reports.requests);
        assert!(reports.requests[&("create", "unavailable")] > 0, "{:?}", reports.requests);
        assert!(reports.requests[&("create", "cancelled")] > 0, "{:?}", reports.requests);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_reported_from_the_grant_to_the_last_guard() {
    limit(async {
        let World { client, seen, .. } = world();
        let locks = client.read_write_lock("/rw").unwrap().with_metric_name("prices");
        let guard = locks.write().acquire().await.unwrap();
        let other = guard.reenter().unwrap();
        sleep(2 * SECOND).await;
        assert_eq!(guard.release().await.unwrap(), Release::StillHeld);
        assert_eq!((seen.reports().held, seen.reports().holds.len()), (1, 0));
        sleep(SECOND).await;
        drop(other);
        assert_eq!(seen.reports().holds, [("write \"prices\"".to_owned(), 3 * SECOND)]);

        client.semaphore("/s", 3).unwrap().acquire(2).await.unwrap().release().await.unwrap();
        let template = client.lock_template("/app/locks").unwrap();
        // Reentry is neither an acquisition nor a hold.
        template
            .execute("x", |_| async { template.execute("x", |_| async {}).await.unwrap() })
            .await
            .unwrap();
        template.with_metric_name("jobs").execute("y", |_| async {}).await.unwrap();
        let reports = seen.reports();
        let names: Vec<_> = reports.holds.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            ["write \"prices\"", "semaphore \"\"", "mutex \"/app/locks\"", "mutex \"jobs\""],
            "no label has a path of one of any number"
        );
        assert_eq!((reports.held, reports.waiting, reports.waits.len()), (0, 0, 4));
        assert!(reports.losses.is_empty());
    })
    .await;
}

/// A future may be dropped at any point, with and without hand-off.
#[tokio::test(start_paused = true)]
async fn counts_return_to_zero_after_dropped_futures() {
    limit(async {
        let World { server, client, link, other, seen, .. } = world();
        link.delay(Duration::from_millis(3), Duration::from_millis(3));
        let held = other.mutex("/a").unwrap().acquire().await.unwrap();
        let plain = client.mutex("/a").unwrap();
        let handed = plain.clone().with_handoff(zlock::Handoff::within(SECOND));
        for millis in 1..30 {
            for mutex in [&plain, &handed] {
                assert!(timeout(Duration::from_millis(millis), mutex.acquire()).await.is_err());
            }
        }
        drop(held);
        for millis in 0..40 {
            for mutex in [&plain, &handed] {
                // A grant counts as a hold even if no caller receives the guard.
                drop(timeout(Duration::from_millis(millis), mutex.acquire()).await);
            }
        }
        let reports = seen.until(|reports| reports.held == 0).await;
        assert_eq!((reports.waiting, reports.waits.len()), (0, 138));
        assert_eq!(
            reports.waits.iter().filter(|wait| wait.1 == AcquireOutcome::Granted).count(),
            reports.holds.len()
        );
        assert!(
            !reports.holds.is_empty() && reports.waits.iter().any(|wait| wait.1 == AcquireOutcome::Cancelled)
        );
        while client.pending_cleanups() > 0 {
            sleep(SECOND).await;
        }
        assert!(server.names(&LockPath::new("/a").unwrap()).is_empty());
    })
    .await;
}

/// The holder does not check the lock. The slack has fallen before the loss.
#[tokio::test(start_paused = true)]
async fn slack_falls_before_a_loss_and_the_loss_is_reported_at_the_deadline() {
    limit(async {
        let World { client, link, seen, .. } = world();
        let template = client.lock_template("/app").unwrap();
        let working =
            tokio::spawn(
                async move { template.cancel_on_loss(false).execute("x", |_| sleep(30 * SECOND)).await },
            );
        // Some renewals: always with more than half of the time left.
        let before = seen.until(|reports| reports.renewals.len() >= 3).await;
        let least = before.slack.iter().flatten().min().unwrap();
        assert!(*least > 4 * SECOND, "{least:?}");
        assert_eq!(before.renewals.last().unwrap().1, Duration::from_millis(7500));
        assert!(before.losses.is_empty());

        seen.forget_slack();
        link.mute();
        let muted = Instant::now();
        let reports = seen.until(|reports| !reports.losses.is_empty()).await;
        assert!(muted.elapsed() < 8 * SECOND, "at the deadline, not at the next look: {:?}", muted.elapsed());
        assert_eq!(reports.losses, [("mutex \"/app\"".to_owned(), ErrorKind::SessionLost)]);
        assert_eq!((reports.held, reports.holds.len()), (0, 1));
        let slack: Vec<_> = reports.slack.iter().copied().map(Option::unwrap).collect();
        assert!(slack.is_sorted_by(|a, b| a >= b), "{slack:?}");
        let warnings = slack.iter().filter(|slack| (Duration::from_millis(1)..2 * SECOND).contains(slack));
        assert!(warnings.count() >= 4, "{slack:?}");
        assert_eq!(slack.last(), Some(&Duration::ZERO));
        let states: Vec<_> = reports.states.iter().map(|(_, state)| *state).collect();
        assert_eq!(states, [SessionState::Connected, SessionState::Suspended, SessionState::Lost]);
        link.heal();
        working.await.unwrap().unwrap();
        // It is not counted twice.
        assert_eq!((seen.reports().losses.len(), seen.reports().holds.len()), (1, 1));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_is_a_loss_and_so_is_the_end_of_the_client() {
    limit(async {
        let World { server, client, seen, .. } = world();
        let path = LockPath::new("/a").unwrap();
        let guard = client.mutex("/a").unwrap().acquire().await.unwrap();
        assert!(server.remove(&path, guard.node().as_str()));
        // No code checks the guard.
        let reports = seen.until(|reports| !reports.losses.is_empty()).await;
        assert_eq!(reports.losses, [("mutex \"\"".to_owned(), ErrorKind::NodeDeleted)]);
        drop(guard);
        let _guard = client.mutex("/a").unwrap().acquire().await.unwrap();
        client.close().await.unwrap();
        let reports = seen.until(|reports| reports.losses.len() == 2).await;
        assert_eq!(reports.losses[1].1, ErrorKind::Closed);
        assert!(matches!(reports.states.last(), Some((1, SessionState::Closed(_)))), "{:?}", reports.states);
        assert_eq!(reports.held, 0);
    })
    .await;
}

/// A session at rest has no slack.
#[tokio::test(start_paused = true)]
async fn an_idle_session_has_no_slack() {
    limit(async {
        let World { client, seen, .. } = world();
        seen.until(|reports| reports.slack.last() == Some(&None)).await;
        let _guard = client.mutex("/a").unwrap().acquire().await.unwrap();
        seen.until(|reports| reports.slack.last().is_some_and(Option::is_some)).await;
    })
    .await;
}

struct Panics;

impl Observer for Panics {
    fn acquisition_started(&self, _: LockLabels<'_>) {
        panic!("acquisition_started");
    }

    fn acquisition_ended(&self, _: LockLabels<'_>, _: AcquireOutcome, _: Duration) {
        panic!("acquisition_ended");
    }

    fn hold_started(&self, _: LockLabels<'_>) {
        panic!("hold_started");
    }

    fn hold_ended(&self, _: LockLabels<'_>, _: Duration) {
        panic!("hold_ended");
    }

    fn lock_lost(&self, _: LockLabels<'_>, _: ErrorKind) {
        panic!("lock_lost");
    }

    fn session_changed(&self, _: Session) {
        panic!("session_changed");
    }

    fn session_slack(&self, _: Option<Duration>) {
        panic!("session_slack");
    }

    fn session_renewed(&self, _: Duration, _: Duration) {
        panic!("session_renewed");
    }

    fn request_ended(&self, _: &'static str, _: Duration, _: RequestOutcome) {
        panic!("request_ended");
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_breaks_no_lock() {
    limit(async {
        let server = MemServer::new();
        let backend = server.connect();
        let (link, client) = (backend.link(), Client::new(backend));
        client.observe(Arc::new(Panics)).unwrap();
        let mutex = client.mutex("/a").unwrap();
        let guard = mutex.acquire().await.unwrap();
        assert!(mutex.try_acquire().await.unwrap().is_none());
        // The session stays alive: it is renewed, and so is the lock.
        sleep(30 * SECOND).await;
        assert!(guard.is_held());
        assert_eq!(server.names(mutex.path()).len(), 1);
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        assert!(timeout(SECOND, async { drop(mutex.acquire().await.unwrap()) }).await.is_ok());
        let guard = mutex.acquire().await.unwrap();
        link.expire();
        assert_eq!(guard.lost().await.kind(), ErrorKind::SessionLost);
        drop(guard);
        mutex.acquire().await.unwrap().release().await.unwrap();
        while client.pending_cleanups() > 0 {
            sleep(SECOND).await;
        }
        assert!(server.names(mutex.path()).is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn there_is_one_observer() {
    limit(async {
        let World { client, .. } = world();
        let error = client.observe(Arc::new(Seen::default())).unwrap_err();
        assert_eq!(error.to_string(), "observe: invalid argument: the client has an observer already");
    })
    .await;
}

#[tokio::test]
async fn on_zookeeper_requests_and_renewals_are_reported() {
    limit(async {
        let Some(server) = zlock_testkit::zookeeper_or_skip().await else { return };
        on_a_server(&format!("zk://{}/observer?session_timeout=4s", server.connect_string())).await;
    })
    .await;
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn on_etcd_requests_and_renewals_are_reported() {
    limit(async {
        let Some(server) = zlock_testkit::etcd_or_skip().await else { return };
        on_a_server(&format!("etcd://{}/observer?session_timeout=4s", server.connect_string())).await;
    })
    .await;
}

async fn on_a_server(url: &str) {
    let (client, seen) = (zlock::connect(url).await.unwrap(), Arc::new(Seen::default()));
    client.observe(seen.clone()).unwrap();
    let guard = client.mutex("/a").unwrap().acquire().await.unwrap();
    let reports = seen.until(|reports| reports.renewals.len() >= 2).await;
    assert!(reports.requests[&("create", "answered")] >= 1, "{:?}", reports.requests);
    for (duration, life) in &reports.renewals {
        assert!(
            *duration > Duration::ZERO && *life > Duration::ZERO && *life < 4 * SECOND,
            "{duration:?} {life:?}"
        );
    }
    assert_eq!(reports.states, [(1, SessionState::Connected)]);
    guard.release().await.unwrap();
    let reports = seen.reports();
    let deleted = reports.requests.iter().any(|((name, _), _)| *name == "delete");
    assert!(deleted, "{:?}", reports.requests);
    assert_eq!((reports.held, reports.waiting, reports.losses.len()), (0, 0, 0));
}

/// A holder that never checks is found by the heartbeats, and reported to the observer once. The hold itself goes on.
#[tokio::test(start_paused = true)]
async fn a_hold_that_is_too_long_is_reported_once_and_goes_on() {
    let client = Client::new(MemServer::new().connect());
    let seen = Arc::new(Seen::default());
    client.observe(seen.clone()).unwrap();
    let mutex = client.mutex("/a").unwrap().with_metric_name("a").max_hold(60 * SECOND).unwrap();
    let guard = mutex.acquire().await.unwrap();
    sleep(59 * SECOND).await;
    assert_eq!(seen.reports().losses, []);
    sleep(61 * SECOND).await;
    let too_long = ("mutex \"a\"".to_owned(), ErrorKind::HeldTooLong);
    let reports = seen.reports();
    assert_eq!((&*reports.losses, reports.held, reports.holds.len()), (&[too_long.clone()][..], 1, 0));
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::HeldTooLong);
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    let reports = seen.reports();
    assert_eq!(reports.losses, [too_long]);
    assert_eq!((reports.held, reports.holds[0].1), (0, 120 * SECOND));

    // One that was released in time, however late somebody looks at it.
    let guard = mutex.acquire().await.unwrap();
    let context = guard.context();
    guard.release().await.unwrap();
    sleep(120 * SECOND).await;
    assert_eq!(context.check().unwrap_err().kind(), ErrorKind::Released);
    assert_eq!(seen.reports().losses.len(), 1);
}
