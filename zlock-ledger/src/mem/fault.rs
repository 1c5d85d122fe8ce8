//! Faults that lose or refuse single requests.

use std::fmt;
use std::sync::Arc;

use zlock_core::{Mutex, SessionId};

use super::link::MemLink;
use crate::Scope;

/// A kind of request, as the store counts it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// Opens a calm connection.
    Calm,
    /// Opens a lane.
    Lane,
    /// Begins a session.
    Begin,
    /// A heartbeat.
    Beat,
    /// Lists the nodes of a session.
    Nodes,
    /// Sweeps a session.
    Sweep,
    /// Looks at sessions.
    Look,
    /// Adds to the time for which sessions were watched.
    Watched,
    /// Ends sessions.
    End,
    /// Reads entries.
    Read,
    /// Looks at what is watched.
    Changed,
    /// A batch of transactions.
    Transact,
    /// Reads or changes the settings.
    Setup,
    /// Begins a new incarnation.
    Restored,
}

/// The outcome of a request that arrives at the store.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is executed and answered.
    Pass,
    /// It is lost *before* it takes effect, and its connection breaks.
    LoseRequest,
    /// Its answer is lost *after* it took effect, and its connection breaks.
    LoseAnswer,
    /// It has no effect, and the answer is [`Fault::Refused`](crate::Fault::Refused).
    Refuse,
}

/// A request that has arrived at the store, as passed to a hook before it takes effect.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The kind of request.
    pub operation: Operation,
    /// The session for which it was sent, if any.
    pub session: Option<SessionId>,
    /// The scopes of its transactions, its read or its marks, which may contain repetitions.
    pub scopes: Vec<Scope>,
    /// The number of the link over which it was sent.
    pub(super) link: u64,
}

impl Arrival {
    /// Returns `true` if the request was sent over this link.
    #[must_use]
    pub fn came_over(&self, link: &MemLink) -> bool {
        self.link == link.number()
    }
}

/// A fault that loses or refuses certain requests, to be passed to [`MemStore::inject`](super::MemStore::inject).
///
/// # Examples
/// ```
/// use zlock_ledger::mem::{MemFault, MemStore, Operation, Settings};
///
/// let store = MemStore::new(Settings::default());
/// // The answer of the second batch from now on.
/// store.inject(MemFault::lose_answer(Operation::Transact).after(1));
/// ```
#[derive(Clone, Debug)]
pub struct MemFault {
    operation: Operation,
    fate: Fate,
    /// Restricts the fault to this link.
    link: Option<u64>,
    after: u64,
    times: u64,
}

impl MemFault {
    fn new(operation: Operation, fate: Fate) -> Self {
        MemFault { operation, fate, link: None, after: 0, times: 1 }
    }

    /// Loses the next request of this kind before it takes effect.
    #[must_use]
    pub fn lose_request(operation: Operation) -> Self {
        Self::new(operation, Fate::LoseRequest)
    }

    /// Loses the response to the next request of this kind, after the request took effect.
    #[must_use]
    pub fn lose_answer(operation: Operation) -> Self {
        Self::new(operation, Fate::LoseAnswer)
    }

    /// Refuses the next request of this kind, as a server does that lacks a permission.
    #[must_use]
    pub fn refuse(operation: Operation) -> Self {
        Self::new(operation, Fate::Refuse)
    }

    /// Skips the first `n` requests.
    #[must_use]
    pub fn after(mut self, n: u64) -> Self {
        self.after = n;
        self
    }

    /// Applies to `n` requests in a row. `u64::MAX` means all requests.
    #[must_use]
    pub fn times(mut self, n: u64) -> Self {
        self.times = n;
        self
    }

    /// Restricts the fault to one client.
    #[must_use]
    pub fn only(mut self, link: &MemLink) -> Self {
        self.link = Some(link.number());
        self
    }

    /// Counts a request that matches, and returns its outcome.
    fn judge(&mut self, arrival: &Arrival) -> Fate {
        if self.operation != arrival.operation || self.link.is_some_and(|only| only != arrival.link) {
            return Fate::Pass;
        }
        if self.after > 0 {
            self.after -= 1;
            return Fate::Pass;
        }
        self.times = self.times.saturating_sub(1);
        self.fate
    }
}

type Hook = dyn FnMut(&Arrival) -> Fate + Send;

/// The faults in force.
#[derive(Default)]
pub(crate) struct Faults {
    rules: Mutex<Vec<MemFault>>,
    hook: Mutex<Option<Arc<Mutex<Hook>>>>,
}

impl Faults {
    pub(crate) fn inject(&self, fault: MemFault) {
        if fault.times > 0 {
            self.rules.lock().push(fault);
        }
    }

    pub(crate) fn set_hook(&self, hook: impl FnMut(&Arrival) -> Fate + Send + 'static) {
        *self.hook.lock() = Some(Arc::new(Mutex::new(hook)));
    }

    pub(crate) fn clear(&self) {
        self.rules.lock().clear();
        *self.hook.lock() = None;
    }

    /// Returns the outcome of this request. The hook is called last, with only its own mutex locked.
    pub(crate) fn fate(&self, arrival: &Arrival) -> Fate {
        {
            let mut rules = self.rules.lock();
            for i in 0..rules.len() {
                let fate = rules[i].judge(arrival);
                if fate != Fate::Pass {
                    if rules[i].times == 0 {
                        rules.remove(i);
                    }
                    return fate;
                }
            }
        }
        let hook = self.hook.lock().clone();
        hook.map_or(Fate::Pass, |hook| hook.lock()(arrival))
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults").field("rules", &*self.rules.lock()).finish_non_exhaustive()
    }
}
