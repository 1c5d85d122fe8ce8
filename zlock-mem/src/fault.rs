//! Faults that lose single requests or their responses.

use std::fmt;
use std::sync::Arc;

use zlock_core::{LockPath, Mutex, SessionId};

use crate::link::ClientId;
use crate::request::{Operation, Sent};

/// The outcome of a request that arrives at the server.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is executed and answered.
    Pass,
    /// It is lost *before* it takes effect. The client notices that no answer will arrive.
    LoseRequest,
    /// Its answer is lost *after* it took effect. The client notices that no answer will arrive.
    LoseAnswer,
}

/// A request that has arrived at the server, as passed to a hook before it takes effect.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The kind of request.
    pub operation: Operation,
    /// The session that it was sent in, or `None` if it opens one.
    pub session: Option<SessionId>,
    /// The path of the lock that it concerns, if any.
    pub parent: Option<LockPath>,
}

/// A fault that loses certain requests or their responses, to be passed to
/// [`MemServer::inject`](crate::MemServer::inject).
///
/// # Examples
/// ```
/// use zlock::mem::{Fault, MemServer, Operation};
///
/// let server = MemServer::new();
/// // The answer of the second create from now on.
/// server.inject(Fault::lose_answer(Operation::Create).after(1));
/// ```
#[derive(Clone, Debug)]
pub struct Fault {
    operation: Operation,
    fate: Fate,
    /// Restricts the fault to this client.
    pub(crate) client: Option<ClientId>,
    after: u64,
    times: u64,
}

impl Fault {
    fn new(operation: Operation, fate: Fate) -> Self {
        Fault { operation, fate, client: None, after: 0, times: 1 }
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

    /// Counts a request that matches, and returns its outcome.
    fn judge(&mut self, client: ClientId, operation: Operation) -> Fate {
        if self.operation != operation || self.client.is_some_and(|only| only != client) {
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
    rules: Mutex<Vec<Fault>>,
    hook: Mutex<Option<Arc<Mutex<Hook>>>>,
}

impl Faults {
    pub(crate) fn inject(&self, fault: Fault) {
        if fault.times > 0 {
            self.rules.lock().push(fault);
        }
    }

    pub(crate) fn set_hook(&self, hook: Box<Hook>) {
        *self.hook.lock() = Some(Arc::new(Mutex::new(hook)));
    }

    pub(crate) fn clear(&self) {
        self.rules.lock().clear();
        *self.hook.lock() = None;
    }

    /// Returns the outcome of this request. The hook is called last, with only its own mutex locked: only one caller at a time
    /// executes requests.
    pub(crate) fn fate(&self, client: ClientId, sent: &Sent) -> Fate {
        let operation = sent.request.operation();
        {
            let mut rules = self.rules.lock();
            for i in 0..rules.len() {
                let fate = rules[i].judge(client, operation);
                if fate != Fate::Pass {
                    if rules[i].times == 0 {
                        rules.remove(i);
                    }
                    return fate;
                }
            }
        }
        let Some(hook) = self.hook.lock().clone() else { return Fate::Pass };
        let arrival = Arrival { operation, session: sent.session, parent: sent.request.parent().cloned() };
        hook.lock()(&arrival)
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults").field("rules", &*self.rules.lock()).finish_non_exhaustive()
    }
}
