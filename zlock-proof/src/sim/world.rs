//! The state that all actors of a run share: the store, the faults, the violations, and the trace.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use zlock::{LockPath, SessionId};

use super::plan::Plan;
use super::record::{Firsts, Holds, Jobs, Late, Past, Shared};
use super::store::{Link, Request, Store};
use crate::locks::{Holding, Wanted};

/// More requests than all clients together need at one moment.
const AT_ONCE: u64 = 10_000;

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The name of the check.
    pub(crate) check: &'static str,
    pub(crate) what: String,
    pub(crate) at: Duration,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (at {:?})", self.check, self.what, self.at)
    }
}

/// Counters of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) grants: u64,
    pub(crate) requests: u64,
    pub(crate) faults: u64,
    /// The number of acquisitions that ended because other clients use another maximum.
    pub(crate) refusals: u64,
    /// The number of attempts at ticks of jobs.
    pub(crate) runs: u64,
}

/// A client, numbered in the order of connection.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) link: Link,
    /// `true` while its link has no fault.
    pub(crate) healthy: bool,
    /// The time of its last fault, or `None` without any.
    pub(crate) disturbed: Option<Instant>,
    pub(crate) closed: bool,
    /// `true` if it is cut off for ever.
    pub(crate) killed: bool,
    /// The number of acquisitions in progress, by path.
    pub(crate) acquiring: BTreeMap<usize, u64>,
    /// How many of them are for several locks. Such an acquisition holds some locks before it reports that.
    pub(crate) together: u64,
}

impl Known {
    /// Returns `true` if it may have acquired this path as one of several, but not all of them.
    pub(crate) fn has_some(&self, path: usize) -> bool {
        self.together > 0 && self.acquiring.get(&path).is_some_and(|acquiring| *acquiring > 0)
    }
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) clients: Vec<Known>,
    /// A session outlives its link when its client is gone.
    sessions: BTreeMap<SessionId, usize>,
    pub(crate) holds: Holds,
    pub(crate) late: Late,
    pub(crate) firsts: Firsts,
    pub(crate) shared: Shared,
    pub(crate) jobs: Jobs,
    pub(crate) past: Past,
    pub(crate) counts: Counts,
    pub(crate) violation: Option<Violation>,
    /// Until when a fault of the store concerns all clients.
    disturbed: Option<Instant>,
    /// The current instant, and the number of requests in it.
    at_once: (Option<Instant>, u64),
    /// Values that are kept until after the end of the runtime.
    kept: Vec<Holding>,
    trace: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) store: Store,
    pub(crate) paths: Vec<LockPath>,
    pub(crate) began: Instant,
    pub(crate) end: Instant,
    /// Notified when a rule was broken.
    pub(crate) broken: Notify,
    tracing: bool,
    state: Mutex<State>,
}

impl World {
    /// Creates the world. Must be called inside the runtime, whose clock it reads.
    pub(crate) fn new(plan: Plan, tracing: bool) -> Arc<Self> {
        let path = |n| LockPath::new(format!("/app/lock{n}")).expect("a path");
        let (began, length) = (Instant::now(), plan.length);
        let world = World {
            paths: (0..plan.paths.len()).map(path).collect(),
            store: Store::new(&plan),
            plan,
            began,
            end: began + length,
            broken: Notify::new(),
            tracing,
            state: Mutex::default(),
        };
        world.note(|| format!("{:?}", world.plan));
        Arc::new(world)
    }

    /// Locks the state. Must not be held during calls of the store, whose hooks use the state.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line to the trace.
    pub(crate) fn note(&self, line: impl FnOnce() -> String) {
        if self.tracing {
            let line = format!("{:>9.3?} {}", self.began.elapsed().as_secs_f64(), line());
            self.lock().trace.push(line);
        }
    }

    pub(crate) fn trace(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().trace)
    }

    /// Records a violation. Only the first one counts.
    pub(crate) fn fail(&self, check: &'static str, what: impl FnOnce() -> String) {
        let what = what();
        self.note(|| format!("VIOLATION {check}: {what}"));
        for path in &self.paths {
            self.note(|| format!("{path}: {:?}", self.places(path)));
        }
        let at = self.began.elapsed();
        self.lock().violation.get_or_insert(Violation { check, what, at });
        self.broken.notify_one();
    }

    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.end || self.lock().violation.is_some()
    }

    pub(crate) fn add_client(&self, link: Link, is_calm: bool) -> usize {
        let mut state = self.lock();
        let now = Instant::now();
        let disturbed = state.disturbed.filter(|until| *until >= now).max((!is_calm).then_some(now));
        let acquiring = BTreeMap::new();
        state.clients.push(Known {
            link,
            healthy: true,
            disturbed,
            closed: false,
            killed: false,
            acquiring,
            together: 0,
        });
        state.clients.len() - 1
    }

    /// Records that this client has a fault, now or until then.
    pub(crate) fn disturb(&self, client: usize, until: Instant) {
        if let Some(known) = self.lock().clients.get_mut(client) {
            known.disturbed = known.disturbed.max(Some(until));
        }
    }

    pub(crate) fn disturb_all(&self, until: Instant) {
        let state = &mut *self.lock();
        state.disturbed = state.disturbed.max(Some(until));
        for known in &mut state.clients {
            known.disturbed = known.disturbed.max(Some(until));
        }
    }

    pub(crate) fn set_healthy(&self, client: usize, healthy: bool) {
        if let Some(known) = self.lock().clients.get_mut(client) {
            known.healthy = healthy;
        }
        self.disturb(client, Instant::now());
    }

    /// Returns whether this client ever had a fault, and whether it was closed.
    pub(crate) fn excuses(&self, client: usize) -> (bool, bool) {
        let state = self.lock();
        let known = state.clients.get(client);
        known.map_or((true, true), |known| (known.disturbed.is_some(), known.closed))
    }

    /// Forgets all holds.
    pub(crate) fn forget_all(&self) {
        let holds = std::mem::take(&mut self.lock().holds);
        // Not under the lock: the last handle of a client ends its session.
        drop(holds);
    }

    /// Counts a request. Very many at one moment mean that a client retries without waiting.
    pub(crate) fn count_request(&self) {
        let now = Instant::now();
        let at_once = {
            let mut state = self.lock();
            state.counts.requests += 1;
            let (moment, requests) = &mut state.at_once;
            if moment.replace(now) != Some(now) {
                *requests = 0;
            }
            *requests += 1;
            *requests
        };
        if at_once > AT_ONCE {
            self.fail("busy loop", || format!("{at_once} requests, and no time passes"));
        }
    }

    /// Keeps a value until after the runtime.
    pub(crate) fn keep(&self, holding: Holding) {
        self.lock().kept.push(holding);
    }

    /// Takes the kept values.
    pub(crate) fn kept(&self) -> Vec<Holding> {
        std::mem::take(&mut self.lock().kept)
    }

    /// Returns the client that owns this session at the store, or owned it when it was last seen there.
    pub(crate) fn client_of(&self, session: SessionId) -> Option<usize> {
        let mut state = self.lock();
        if let Some(client) = state.sessions.get(&session) {
            return Some(*client);
        }
        let client = state.clients.iter().rposition(|c| c.link.session() == Some(session))?;
        state.sessions.insert(session, client);
        Some(client)
    }

    /// Returns the client that has sent this request.
    pub(crate) fn sender_of(&self, request: &Request) -> Option<usize> {
        if let Some(client) = request.session().and_then(|session| self.client_of(session)) {
            return Some(client);
        }
        let mut state = self.lock();
        let client = state.clients.iter().rposition(|c| request.came_over(&c.link))?;
        state.sessions.extend(request.session().map(|session| (session, client)));
        Some(client)
    }

    /// Returns the number of watches that are armed.
    pub(crate) fn watches(&self) -> usize {
        let of_clients: usize = self.lock().clients.iter().map(|c| c.link.watches()).sum();
        self.store.watches() + of_clients
    }

    /// Counts an acquisition as in progress until the returned value is dropped.
    pub(crate) fn acquiring(self: &Arc<Self>, client: usize, locks: &[(usize, Wanted)]) -> Acquiring {
        let paths: Vec<_> = locks.iter().map(|(path, _)| *path).collect();
        let mut state = self.lock();
        let known = &mut state.clients[client];
        for path in &paths {
            *known.acquiring.entry(*path).or_default() += 1;
        }
        known.together += u64::from(paths.len() > 1);
        Acquiring { world: self.clone(), client, paths }
    }
}

/// An acquisition in progress.
pub(crate) struct Acquiring {
    world: Arc<World>,
    client: usize,
    paths: Vec<usize>,
}

impl Drop for Acquiring {
    fn drop(&mut self) {
        let mut state = self.world.lock();
        let known = &mut state.clients[self.client];
        for path in &self.paths {
            *known.acquiring.entry(*path).or_default() -= 1;
        }
        known.together -= u64::from(self.paths.len() > 1);
    }
}
