//! What the backend and its session loop have in common.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use zlock_core::kit::{Failure as _, Options, Receipts, SessionKey, Sessions};
use zlock_core::{ErrorKind, LockPath, Mutex, NodeId, SessionId};

use crate::deaths::Deaths;
use crate::floors::Floors;
use crate::hub::Hub;
use crate::ledger::{Fault, History, Kind, Ledger, Limits, Scope};
use crate::opening::Connected;
use crate::past::Past;
use crate::requests::Requests;

/// The message of operations after the session loop has given up.
const REFUSED: &str = "the server refused the credentials, or a permission that the session needs";

/// How long a session is looked at that has refused or delayed something, unless it is watched.
const WANTED: Duration = Duration::from_secs(2);

/// The state that the backend and its session loop share.
pub(crate) struct Shared<L: Ledger> {
    pub(crate) ledger: Arc<L>,
    pub(crate) options: Options,
    pub(crate) limits: Limits,
    pub(crate) sessions: Sessions<Live>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) deaths: Mutex<Deaths>,
    /// Notified when there is a session of another client to look at.
    pub(crate) suspects: Notify,
    /// Notified when a request was not answered: a heartbeat then shows whether the server answers at all.
    pub(crate) doubt: Notify,
    pub(crate) calm: Mutex<Connected<L::Calm>>,
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

    /// Returns `true` if the last heartbeat was sent with the short timeout.
    pub(crate) fn was_woken(&self) -> bool {
        let beats = self.beats.lock();
        beats.sent > beats.rested
    }

    /// Returns `true` if the session may go to rest: all that it has deleted is deleted for good once the heartbeat with which it does
    /// commits, and nobody has to watch the incarnation.
    pub(crate) fn may_rest(&self) -> bool {
        self.requests.is_idle() && !self.past.lock().is_quiet()
    }
}

impl<L: Ledger> Shared<L> {
    pub(crate) fn new(ledger: L, options: Options) -> Self {
        Shared {
            limits: ledger.limits(),
            ledger: Arc::new(ledger),
            options,
            sessions: Sessions::new(REFUSED),
            hub: Arc::default(),
            deaths: Mutex::default(),
            suspects: Notify::new(),
            doubt: Notify::new(),
            calm: Mutex::default(),
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

    /// Returns how long the store may take to answer a request. An operation can then try another connection.
    pub(crate) fn answer_time(&self) -> Duration {
        self.options.answer_time().min(self.options.operation_timeout / 2)
    }

    /// Returns how long the store certainly keeps the session after a heartbeat was sent. The margin is for the drift of clocks: that of
    /// another client may be faster than this one by a tenth.
    pub(crate) fn life(&self) -> Duration {
        self.options.session_timeout - self.options.session_timeout / 10
    }

    /// Returns the time between heartbeats: of three in the life of a session, two may be late.
    pub(crate) fn beat_interval(&self) -> Duration {
        self.life() / 3
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
