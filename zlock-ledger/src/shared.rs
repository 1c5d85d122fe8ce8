//! What the backend and its session loop have in common.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use zlock_core::kit::{Failure as _, Options, Receipts, SessionKey, Sessions};
use zlock_core::{ErrorKind, LockPath, Mutex, NodeId, SessionId};

use crate::deaths::Deaths;
use crate::floors::Floors;
use crate::hub::Hub;
use crate::ledger::{Calm as _, Fault, History, Kind, Ledger, Limits, OnHint, Scope};
use crate::past::Past;
use crate::requests::Requests;

/// The message of operations after the session loop has given up.
const REFUSED: &str = "the server refused the credentials, or a permission that the session needs";

/// The time after which the calm connection is closed if nothing needs it.
const IDLE: Duration = Duration::from_secs(60);

/// How long a session is looked at that has refused or delayed something, unless it is watched.
const WANTED: Duration = Duration::from_secs(2);

/// The state that the backend and its session loop share.
pub(crate) struct Shared<L: Ledger> {
    pub(crate) ledger: L,
    pub(crate) options: Options,
    pub(crate) limits: Limits,
    pub(crate) sessions: Sessions<Live>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) deaths: Mutex<Deaths>,
    /// Notified when there is a session of another client to look at.
    pub(crate) suspects: Notify,
    /// Notified when a request was not answered: a heartbeat then shows whether the server answers at all.
    pub(crate) doubt: Notify,
    calm: tokio::sync::Mutex<Connected<L::Calm>>,
    /// Notified when the calm connection is closed because nothing needs it.
    released: Notify,
}

struct Connected<C> {
    calm: Option<Arc<C>>,
    /// The session whose hints it receives.
    hints: Option<SessionId>,
    used: Instant,
}

/// The state of the current session.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) requests: Requests,
    pub(crate) floors: Mutex<Floors<Scope>>,
    pub(crate) receipts: Arc<Receipts<()>>,
    /// The nodes and members that the client holds or waits with, or whose create has begun.
    pub(crate) known: Mutex<BTreeMap<NodeId, (Scope, String)>>,
    /// Notified when the session has to be swept.
    pub(crate) unswept: Notify,
    beats: Mutex<Beats>,
    pub(crate) past: Mutex<Past>,
}

/// The numbers of heartbeats: the last one, the last one with the timeout of rest, and the last one with the other that was answered.
#[derive(Debug, Default)]
struct Beats {
    sent: u64,
    rested: u64,
    woken: u64,
}

impl Live {
    pub(crate) fn new(history: History, received: Instant) -> Self {
        Live {
            requests: Requests::default(),
            floors: Mutex::default(),
            receipts: Arc::default(),
            known: Mutex::default(),
            unswept: Notify::new(),
            beats: Mutex::default(),
            past: Mutex::new(Past::new(history, received)),
        }
    }

    /// Returns the number of a heartbeat that is sent now, with the timeout of rest or the other one.
    pub(crate) fn next_beat(&self, rests: bool) -> u64 {
        let beats = &mut *self.beats.lock();
        beats.sent += 1;
        if rests {
            beats.rested = beats.sent;
        }
        beats.sent
    }

    /// Records that a heartbeat with the short timeout was answered.
    pub(crate) fn woken(&self, beat: u64) {
        let beats = &mut *self.beats.lock();
        beats.woken = beats.woken.max(beat);
    }

    /// Returns `true` if the store may have the timeout of rest.
    pub(crate) fn rests(&self) -> bool {
        let beats = self.beats.lock();
        beats.woken <= beats.rested
    }

    /// Returns `true` if the session may go to rest: all that it has deleted is deleted for good once the heartbeat with which it does
    /// commits, and nobody has to watch the incarnation.
    pub(crate) fn may_rest(&self) -> bool {
        self.requests.is_idle() && !self.past.lock().is_quiet()
    }
}

impl<L: Ledger> Shared<L> {
    pub(crate) fn new(ledger: L, options: Options) -> Self {
        let used = Instant::now();
        Shared {
            limits: ledger.limits(),
            ledger,
            options,
            sessions: Sessions::new(REFUSED),
            hub: Arc::default(),
            deaths: Mutex::default(),
            suspects: Notify::new(),
            doubt: Notify::new(),
            calm: tokio::sync::Mutex::new(Connected { calm: None, hints: None, used }),
            released: Notify::new(),
        }
    }

    /// Returns the scope at a path.
    pub(crate) fn scope(&self, kind: Kind, path: &LockPath) -> Scope {
        let prefix = self.options.prefix.as_ref().map_or("", LockPath::as_str);
        Scope { kind, path: [prefix, path.as_str()].concat().into() }
    }

    /// Returns the state of a session.
    pub(crate) fn live(&self, session: SessionKey) -> Result<Arc<Live>, Fault> {
        self.sessions.get(session).ok_or_else(|| self.sessions.interrupted().into())
    }

    /// Returns how long the store certainly keeps the session after a heartbeat was sent. The margin is for the drift of clocks.
    pub(crate) fn life(&self) -> Duration {
        self.options.session_timeout - self.options.session_timeout / 10
    }

    /// Returns the calm connection, which is made if there is none. With a session, it receives the hints for it.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn calm(&self, session: Option<SessionId>) -> Result<Arc<L::Calm>, Fault> {
        let opened = timeout(self.options.connection_time(), async {
            let mut connected = self.calm.lock().await;
            connected.used = Instant::now();
            if let Some(calm) = &connected.calm
                && (session.is_none() || session == connected.hints)
            {
                return Ok(calm.clone());
            }
            *connected = Connected { calm: None, hints: session, used: Instant::now() };
            self.hub.unhinted();
            let hub = self.hub.clone();
            let on_hint: OnHint = Arc::new(move |hint| hub.hint(hint));
            let calm = Arc::new(self.ledger.calm(session, on_hint).await?);
            connected.calm = Some(calm.clone());
            Ok(calm)
        });
        opened.await.unwrap_or_else(|_| Err(Fault::NotSent("no connection".into())))
    }

    /// Records that a session has begun over the calm connection, which receives its hints from now on.
    pub(crate) async fn has_begun(&self, session: SessionId) {
        self.calm.lock().await.hints = Some(session);
    }

    /// Waits for the answer to a request over the calm connection. A connection that does not answer is given up.
    pub(crate) async fn ask<R>(
        &self,
        calm: &Arc<L::Calm>,
        limit: Duration,
        answer: impl Future<Output = Result<R, Fault>>,
    ) -> Result<R, Fault> {
        let silent = |_| Err(Fault::Unknown(format!("no response within {limit:?}")));
        let answer = timeout(limit, answer).await.unwrap_or_else(silent);
        if let Err(Fault::Unknown(_) | Fault::NotSent(_)) = &answer {
            self.give_up(calm).await;
            self.doubt.notify_one();
        }
        answer
    }

    async fn give_up(&self, broken: &Arc<L::Calm>) {
        let mut connected = self.calm.lock().await;
        connected.calm.take_if(|calm| Arc::ptr_eq(calm, broken));
    }

    /// Waits until the calm connection breaks. Waits forever if there is none.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn broken(&self) {
        let calm = self.calm.lock().await.calm.clone();
        if let Some(calm) = calm {
            let broken = tokio::select! {
                biased;
                () = calm.closed() => true,
                () = self.released.notified() => false,
            };
            if broken {
                return self.give_up(&calm).await;
            }
        }
        std::future::pending().await
    }

    /// Closes the calm connection if nothing has needed it for a while.
    pub(crate) async fn close_idle(&self) {
        let mut connected = self.calm.lock().await;
        if connected.used.elapsed() >= IDLE && self.hub.len() == 0 {
            connected.calm = None;
            self.released.notify_waiters();
        }
    }

    /// Gives a reason to look at sessions that are in the way, for a while.
    pub(crate) fn wants(&self, ahead: &[SessionId]) {
        if !ahead.is_empty() {
            self.deaths.lock().want(ahead, Instant::now() + WANTED, false);
            self.suspects.notify_one();
        }
    }

    /// Handles the outcome of a request in a session.
    pub(crate) fn judge<R>(&self, session: SessionKey, answer: Result<R, Fault>) -> Result<R, Fault> {
        match &answer {
            Ok(_) => {
                self.sessions.resume(session);
            }
            // An operation may learn of the session's end before the session loop does.
            Err(fault) if fault.classify().kind == ErrorKind::SessionLost => self.sessions.lose(session),
            Err(_) => {}
        }
        answer
    }
}

impl<L: Ledger> fmt::Debug for Shared<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("ledger", &self.ledger)
            .field("options", &self.options)
            .field("session", &self.sessions.session())
            .finish_non_exhaustive()
    }
}
