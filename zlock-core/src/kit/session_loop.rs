//! The session loop, which is the same for all stores: connect, keep, connect again, close.

use std::convert::Infallible;
use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::attempts::Attempts;
use super::failure::{Failure, Interrupted};
use super::options::Options;
use super::sessions::{SessionKey, Sessions};
use super::task::{Closing, Task};
use crate::contract::backend::Close;
use crate::error::{Error, ErrorKind, Result};
use crate::mutex::Mutex;
use crate::probe::Probe;
use crate::session::{CloseReason, SessionId};
use crate::signal::Signal;

/// The pause between two looks at what the probe has found.
const LOOK: Duration = Duration::from_millis(100);

/// The pause before servers for which waiting was pointless are probed again.
const PROBE_AGAIN: Duration = Duration::from_secs(5);

/// The pause between two attempts at ending the last session.
const PAUSE: Duration = Duration::from_millis(50);

/// A store's part of keeping sessions. [`Task::connect`] and [`Task::connect_lazy`] do the rest: the first connect with its limit
/// and its causes, the attempts with their pauses, what is published and logged, and the close.
pub trait SessionStore: Send + Sync + 'static {
    /// What the store granted, before it is the current session.
    type Granted: Send;
    /// What keeps the current session.
    type Kept: Send;
    /// What operations need of the current session.
    type Live: Send + Sync;
    /// The reason why an attempt at a session fails.
    type Failure: Failure + Send;

    /// Returns the sessions of the backend.
    fn sessions(&self) -> &Sessions<Self::Live>;

    /// Returns the options of the backend.
    fn options(&self) -> &Options;

    /// Returns a check of the files that the options name, which reads them. `None`, the default, if there are none.
    fn files(&self) -> Option<impl FnOnce() -> Result<(), String> + Send + 'static> {
        None::<fn() -> Result<(), String>>
    }

    /// Returns the servers, each `host:port`, which may have to be looked up. By default, those of the options.
    fn servers(&self) -> impl Future<Output = Result<Vec<String>, Self::Failure>> + Send {
        ready(Ok(self.options().hosts.clone()))
    }

    /// Returns a probe of these servers, which finds out why none grants a session. `None`, the default, if the failures say that.
    fn probe(&self, servers: Vec<String>) -> Option<Probe> {
        let _ = servers;
        None
    }

    /// Returns how long the first attempt at a session may take, and the longest one.
    fn patience(&self) -> (Duration, Duration);

    /// Ends the session `old` at the store, if there is one, and then begins another. The order matters: once a session begins,
    /// nothing that was sent in the previous one can take effect.
    ///
    /// # Cancel safety
    /// A session that begins all the same does not outlive its timeout.
    fn begin(
        &self,
        old: Option<SessionId>,
        patience: Duration,
    ) -> impl Future<Output = Result<Begun<Self::Granted>, Self::Failure>> + Send;

    /// Divides a session that becomes the current one into what operations need and what keeps it. Performs no I/O.
    fn publish(&self, key: SessionKey, granted: Self::Granted) -> (Self::Live, Self::Kept);

    /// Keeps the current session alive, and returns when it is over. Suspends it from the moment at which no server is known to
    /// answer until one has answered. Dropped if the session ends or the backend is closed before.
    fn keep(&self, key: SessionKey, kept: &mut Self::Kept) -> impl Future<Output = Over> + Send;

    /// Ends a session for operations. A store that keeps more for them than [`Sessions`] releases that, too.
    fn lost(&self, key: SessionKey) {
        self.sessions().end(key);
    }

    /// Closes the backend, as far as that is possible without I/O. Like [`lost`](Self::lost) for all sessions.
    fn close(&self, reason: CloseReason) {
        self.sessions().close(reason);
    }

    /// Makes one attempt at ending the last session at the store, once the backend is closed. `kept` is what kept it, if it ever was
    /// the current one.
    fn end(
        &self,
        id: SessionId,
        kept: Option<&mut Self::Kept>,
    ) -> impl Future<Output = Result<Close, Self::Failure>> + Send;
}

/// A session that a store has granted.
#[derive(Debug)]
pub struct Begun<G> {
    /// The store's number of the session.
    pub id: SessionId,
    /// The timeout that the store granted.
    pub timeout: Duration,
    /// The instant until which the session certainly lives.
    pub deadline: Instant,
    /// What the store needs to keep it.
    pub granted: G,
}

/// The reason why a session is no longer kept alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The store has ended it, or the deadline has passed.
    Lost,
    /// The store refuses the credentials, or a permission that the session needs.
    Refused,
    /// The backend was closed or dropped.
    Closed,
}

impl Task {
    /// Spawns the task of a backend once there is a [first session](first_session).
    ///
    /// # Errors
    /// Those of [`first_session`].
    ///
    /// # Cancel safety
    /// As safe as [`SessionStore::begin`].
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    pub async fn connect<S: SessionStore>(store: S) -> Result<Self> {
        // Boxed, so that the types of callers' futures stay flat.
        let begun = Box::pin(first_session(&store)).await?;
        Ok(Self::spawn_loop(store, Some(begun)))
    }

    /// Spawns the task of a backend, which connects for as long as that takes.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    pub fn connect_lazy<S: SessionStore>(store: S) -> Self {
        Self::spawn_loop(store, None)
    }

    fn spawn_loop<S: SessionStore>(store: S, first: Option<Begun<S::Granted>>) -> Self {
        let store = Arc::new(store);
        // Once the loop has ended, the backend is closed.
        let weak = Arc::downgrade(&store);
        let shut = move || weak.upgrade().iter().for_each(|store| store.close(CloseReason::Requested));
        Self::spawn(store.clone().sessions(), shut, |closing| {
            let sessions = SessionLoop { store, closing };
            let first = first.map(|begun| sessions.begin(begun));
            sessions.run(first)
        })
    }
}

/// Establishes a first session, within the connect timeout.
///
/// # Errors
/// - Those of [`Options::check_files`] with the check of [`SessionStore::files`].
/// - That of the first attempt that [cannot be repeated](super::FailureClass::retryable).
/// - [`ErrorKind::Unavailable`] if there is no session within the connect timeout, or earlier if waiting is pointless for all
///   servers. The message says what is wrong with each server, as far as that is known.
///
/// # Cancel safety
/// As safe as [`SessionStore::begin`].
///
/// # Panics
/// Panics outside a tokio runtime with time enabled.
pub async fn first_session<S: SessionStore>(store: &S) -> Result<Begun<S::Granted>> {
    let (options, causes) = (store.options(), Causes::default());
    let until = Instant::now() + options.connect_timeout;
    if let Some(check) = store.files() {
        options.check_files(until, check).await?;
    }
    let unavailable = || options.connect_error(ErrorKind::Unavailable);
    let last = Mutex::new(None);
    let attempts = establish(store, None, Attempts::first(), &causes, |failure| {
        let class = failure.classify();
        if !class.retryable {
            return Some(failure.explain(options.connect_error(class.kind)));
        }
        let error = failure.explain(unavailable());
        tracing::debug!(%error, "no session yet");
        *last.lock() = Some(error);
        None
    });
    tokio::select! {
        biased;
        outcome = attempts => outcome,
        () = causes.hopeless() => Err(unavailable().with_message(causes.text())),
        () = sleep_until(until) => {
            let last = last.lock().take();
            let within = format!("no session within {:?}", options.connect_timeout);
            Err(match (last, causes.text()) {
                (Some(error), causes) if causes.is_empty() => error,
                (None, _) if options.srv.is_some() && causes.probe().is_none() => {
                    unavailable().with_message("no name server answers")
                }
                (None, causes) if causes.is_empty() => unavailable().with_message(within),
                (error, causes) => {
                    error.unwrap_or_else(unavailable).with_message(format!("{within}: {causes}"))
                }
            })
        }
    }
}

/// Makes attempts at a session until one succeeds, or `failed` returns the error with which they end.
async fn establish<S: SessionStore>(
    store: &S,
    old: Option<SessionId>,
    mut attempts: Attempts,
    causes: &Causes,
    failed: impl Fn(S::Failure) -> Option<Error> + Send + Sync,
) -> Result<Begun<S::Granted>> {
    loop {
        attempts.pause().await;
        let (shortest, longest) = store.patience();
        let (mut began, patience) = (Instant::now(), attempts.time(shortest, longest));
        let attempt = async {
            causes.look_at(store, store.servers().await?);
            // A slow name server says nothing about the servers.
            began = Instant::now();
            store.begin(old, patience).await
        };
        match attempt.await {
            Ok(begun) => return Ok(begun),
            Err(failure) => {
                attempts.failed(began.elapsed() >= patience / 2);
                if let Some(error) = failed(failure) {
                    return Err(error);
                }
            }
        }
    }
}

/// A session that the loop has begun, and what keeps it unless the backend was closed before.
type Last<S> = (SessionId, Option<(SessionKey, <S as SessionStore>::Kept)>);

struct SessionLoop<S: SessionStore> {
    store: Arc<S>,
    closing: Closing,
}

impl<S: SessionStore> SessionLoop<S> {
    /// Makes a session the current one, unless the backend is closed.
    fn begin(&self, begun: Begun<S::Granted>) -> Last<S> {
        let (Begun { id, timeout, deadline, granted }, mut kept) = (begun, None);
        let publish = |key| {
            let (live, keeps) = self.store.publish(key, granted);
            kept = Some(keeps);
            live
        };
        let key = self.store.sessions().begin(id, deadline, publish).map(|(key, _)| key);
        if let Some(SessionKey { epoch, .. }) = key {
            tracing::info!(session = %id, epoch, ?timeout, "session established");
        }
        (id, key.zip(kept))
    }

    /// Keeps sessions until the backend is closed, or the store refuses any further session. Returns whether the store has confirmed
    /// the end of the last one.
    async fn run(mut self, mut last: Option<Last<S>>) -> Close {
        loop {
            let (old, attempts) = match &mut last {
                None => (None, Attempts::first()),
                Some((_, None)) => break,
                Some((id, Some((key, kept)))) => match self.keep(*key, kept).await {
                    Over::Lost => (Some(*id), Attempts::after_loss()),
                    Over::Refused | Over::Closed => break,
                },
            };
            let Some(begun) = self.next(old, attempts).await else { break };
            last = Some(self.begin(begun));
        }
        match last {
            Some((id, kept)) => self.end(id, kept.map(|(_, kept)| kept)).await,
            // No session has owned any node.
            None => Close::Ended,
        }
    }

    /// Keeps one session alive until it is over.
    async fn keep(&mut self, key: SessionKey, kept: &mut S::Kept) -> Over {
        let store = &*self.store;
        let mut events = store.sessions().events();
        let over = tokio::select! {
            biased;
            () = self.closing.wait() => Over::Closed,
            _ = events.ended(key.epoch) => Over::Lost,
            over = store.keep(key, kept) => over,
        };
        // Another thread may have closed the backend at any moment.
        let over = match store.sessions().closed() {
            None => over,
            Some(Interrupted::AuthFailed(_)) => Over::Refused,
            Some(_) => Over::Closed,
        };
        let SessionKey { epoch, id } = key;
        match over {
            Over::Lost => tracing::warn!(session = %id, epoch, "session lost"),
            Over::Refused => {
                tracing::error!(session = %id, epoch, "credentials or permission refused");
                // Before the end of the session is published, which would look like an ordinary loss.
                store.close(CloseReason::AuthFailed);
            }
            Over::Closed => tracing::info!(session = %id, epoch, "session closed"),
        }
        store.lost(key);
        over
    }

    /// Begins the next session, retrying without a limit. `None` when that has become pointless.
    async fn next(&mut self, old: Option<SessionId>, attempts: Attempts) -> Option<Begun<S::Granted>> {
        let (store, causes) = (&*self.store, Causes::default());
        let options = store.options();
        let attempts = establish(store, old, attempts, &causes, |failure| {
            let (kind, is_local, causes) = (failure.classify().kind, failure.is_local(), causes.text());
            let error = failure.explain(options.connect_error(kind));
            if kind == ErrorKind::NotAuthorized {
                return Some(error);
            }
            let error = if is_local || causes.is_empty() { error } else { error.with_message(causes) };
            store.sessions().attempt_failed(error);
            None
        });
        let report = |causes| {
            let error = options.connect_error(ErrorKind::Unavailable).with_message(causes);
            store.sessions().attempt_failed(error);
        };
        let outcome = tokio::select! {
            biased;
            () = self.closing.wait() => return None,
            outcome = attempts => outcome,
            never = causes.watch(report) => match never {},
        };
        outcome
            .inspect_err(|error| {
                tracing::error!(%error, "no further session");
                store.close(CloseReason::AuthFailed);
            })
            .ok()
    }

    /// Ends a session at the store if the store can be reached. Only the store's answer is a confirmation.
    async fn end(&self, id: SessionId, mut kept: Option<S::Kept>) -> Close {
        let ended = timeout(Task::CLOSE_TIMEOUT, async {
            loop {
                match self.store.end(id, kept.as_mut()).await {
                    Ok(close) => return close,
                    Err(failure) if !failure.classify().retryable => return Close::Pending,
                    Err(_) => sleep(PAUSE).await,
                }
            }
        });
        let close = ended.await.unwrap_or(Close::Pending);
        if close == Close::Pending {
            tracing::warn!(session = %id, "the session could not be ended at the server in time");
        }
        close
    }
}

/// The task ends with the backend, or is dropped with its runtime. From then on, no session is kept alive.
impl<S: SessionStore> Drop for SessionLoop<S> {
    fn drop(&mut self) {
        self.store.close(CloseReason::Requested);
    }
}

/// What is wrong with each server, as far as a probe has found out. The servers may change from attempt to attempt.
#[derive(Default)]
struct Causes {
    probe: Mutex<(Vec<String>, Option<Arc<Probe>>)>,
    changed: Signal,
}

impl Causes {
    fn probe(&self) -> Option<Arc<Probe>> {
        self.probe.lock().1.clone()
    }

    /// Probes these servers from now on.
    fn look_at<S: SessionStore>(&self, store: &S, mut servers: Vec<String>) {
        // A lookup returns the same servers in any order.
        servers.sort();
        let mut probe = self.probe.lock();
        if probe.0 != servers {
            *probe = (servers.clone(), store.probe(servers).map(Arc::new));
            self.changed.notify();
        }
    }

    /// Returns the latest findings, or an empty string if there are none.
    fn text(&self) -> String {
        self.probe().map(|probe| probe.causes()).unwrap_or_default()
    }

    /// Probes the current servers, and returns once waiting is pointless for all of them.
    async fn hopeless(&self) {
        loop {
            let (changed, probe) = (self.changed.notified(), self.probe());
            let hopeless = async {
                match &probe {
                    Some(probe) => probe.hopeless().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                () = hopeless => return,
                () = changed => {}
            }
        }
    }

    /// Probes the current servers, and calls `report` at each change of what is found.
    async fn watch(&self, report: impl Fn(String)) -> Infallible {
        let probes = async {
            loop {
                self.hopeless().await;
                sleep(PROBE_AGAIN).await;
            }
        };
        let reports = async {
            let mut reported = String::new();
            loop {
                sleep(LOOK).await;
                let causes = self.text();
                if !causes.is_empty() && causes != reported {
                    reported.clone_from(&causes);
                    report(causes);
                }
            }
        };
        tokio::select! {
            biased;
            never = probes => never,
            never = reports => never,
        }
    }
}
