//! An outage that the session survives, during which a thousand tasks repeatedly try to acquire a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use zlock_core::{ErrorKind, SessionState};
use zlock_recipes::{Client, Release};

const PATHS: usize = 50;
const TASKS: usize = 1000;

/// The time limit of one attempt until the link is mended.
const IMPATIENT: Duration = Duration::from_millis(50);
/// The time limit of the attempts after that, which are counted but not timed.
const PATIENT: Duration = Duration::from_secs(300);

/// The number of attempts during the outage. If the link falls silent, this many are made before the client notices, and this
/// many afterwards.
const ATTEMPTS: usize = 25 * TASKS;

/// How the link breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// The client notices at once that there is no connection.
    Cut,
    /// Nothing is answered, and the session remains `Connected` for a while.
    Mute,
}

/// What happened from the outage on until everything was idle again.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    /// The number of attempts while the link was broken.
    pub attempts: usize,
    /// The maximum number of nodes at the moment when the link broke: those of attempts in progress, and those of abandoned
    /// attempts that were not deleted yet.
    pub nodes: usize,
    /// The number of acquisitions that succeeded after the link was mended.
    pub granted: usize,
    /// The number of requests that reached the server.
    pub requests: u64,
}

impl Counted {
    /// Checks that there were no more than this many requests for each node and each grant, however many attempts there were.
    ///
    /// # Panics
    /// Panics if there were more.
    pub fn check(&self, requests: usize) {
        let Counted { attempts, nodes, granted, .. } = *self;
        println!("{self:?}");
        assert!(attempts >= ATTEMPTS);
        assert!(self.requests <= (requests * (nodes + granted)) as u64, "{self:?}");
    }
}

/// Breaks the link while a thousand tasks acquire and release locks, and mends it before the session ends. Then each task
/// acquires once more.
///
/// `requests` returns the number of requests that have reached the server.
///
/// # Panics
/// Panics if the session has changed, or if background work is left.
pub async fn outage(
    client: &Client,
    how: Outage,
    break_link: impl AsyncFnOnce(),
    mend_link: impl AsyncFnOnce(),
    requests: impl AsyncFn() -> u64,
) -> Counted {
    let (attempts, granted) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let is_mended = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let mutex = client.mutex(format!("/outage/{}", task % PATHS)).unwrap();
        let (attempts, granted, is_mended) = (attempts.clone(), granted.clone(), is_mended.clone());
        tasks.spawn(async move {
            loop {
                let is_last = is_mended.load(Ordering::SeqCst);
                attempts.fetch_add(1, Ordering::SeqCst);
                match mutex.acquire_timeout(if is_last { PATIENT } else { IMPATIENT }).await {
                    Ok(guard) if is_last => {
                        assert_eq!(guard.release().await.unwrap(), Release::Released);
                        granted.fetch_add(1, Ordering::SeqCst);
                        return;
                    }
                    Ok(guard) => drop(guard.release().await.unwrap()),
                    Err(error) => {
                        let is_over = matches!(error.kind(), ErrorKind::Busy | ErrorKind::Timeout(_));
                        assert!(is_over || error.is_retryable(), "{error}");
                    }
                }
            }
        });
    }
    let made = || attempts.load(Ordering::SeqCst);
    let until_made = async |count| {
        while made() < count {
            sleep(IMPATIENT).await
        }
    };
    let until_suspended = async || {
        while client.session_events().current().state == SessionState::Connected {
            sleep(IMPATIENT).await;
        }
    };
    until_made(2 * TASKS).await;
    let (epoch, before, began) = (client.session_events().epoch(), requests().await, made());
    let nodes = TASKS + client.pending_cleanups();
    break_link().await;
    if how == Outage::Mute {
        until_made(began + ATTEMPTS).await;
    }
    until_suspended().await;
    until_made(made() + ATTEMPTS).await;
    let attempts = made() - began;
    is_mended.store(true, Ordering::SeqCst);
    mend_link().await;
    let mended = Instant::now();
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    while client.pending_cleanups() > 0 {
        sleep(IMPATIENT).await;
    }
    println!("quiet after {:?}", mended.elapsed());
    let session = client.session_events().current();
    assert_eq!((session.epoch, session.state), (epoch, SessionState::Connected));
    let granted = granted.load(Ordering::SeqCst);
    assert_eq!(granted, TASKS);
    Counted { attempts, nodes, granted, requests: requests().await - before }
}

/// The paths that [`outage`] has used.
pub fn paths() -> impl Iterator<Item = zlock_core::LockPath> {
    (0..PATHS).map(|n| zlock_core::LockPath::new(format!("/outage/{n}")).unwrap())
}
