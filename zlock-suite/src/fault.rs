//! Faults at the contract, between a client and its backend: they work on every store.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use zlock_core::{Error, ErrorKind, LockPath, Result};

use crate::case::soon;
use crate::wrapped::{Around, Call};

/// Before the call reaches the backend, or after it has returned: a lost request differs from a lost answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The backend is not called.
    Before,
    /// The backend was called, and its answer is dropped or held back.
    After,
}

/// The faults of one client's calls. Also counts the calls.
#[derive(Debug, Default)]
pub struct Faults(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    counts: BTreeMap<Call, usize>,
    under_way: usize,
    plans: Vec<Plan>,
    hides_nodes: bool,
}

#[derive(Debug)]
struct Plan {
    call: Call,
    side: Side,
    times: usize,
    action: Action,
}

#[derive(Clone, Debug)]
enum Action {
    Fail(ErrorKind),
    Hold(Arc<Turnstile>),
}

#[derive(Debug)]
struct Turnstile {
    reached: watch::Sender<bool>,
    open: watch::Sender<bool>,
}

/// Holds one call back. Opens when dropped.
#[derive(Debug)]
pub struct Gate(Arc<Turnstile>);

impl Gate {
    /// Waits until the call has reached the gate.
    ///
    /// # Panics
    /// Panics if the call does not reach the gate within 30 seconds.
    pub async fn reached(&self) {
        let mut reached = self.0.reached.subscribe();
        soon("a call reaches the gate", reached.wait_for(|reached| *reached)).await.expect("the gate");
    }

    /// Lets the call continue.
    pub fn open(&self) {
        self.0.open.send_replace(true);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

impl Faults {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how often the operation was called.
    #[must_use]
    pub fn count(&self, call: Call) -> usize {
        self.lock().counts.get(&call).copied().unwrap_or(0)
    }

    /// Returns how many calls are in progress.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.lock().under_way
    }

    /// Returns how many operations were called.
    #[must_use]
    pub fn total(&self) -> usize {
        self.lock().counts.values().sum()
    }

    /// Makes the next `times` calls fail with this kind. After the backend was called, the error is ambiguous.
    pub fn fail(&self, call: Call, side: Side, times: usize, kind: ErrorKind) {
        self.lock().plans.push(Plan { call, side, times, action: Action::Fail(kind) });
    }

    /// Holds the next call back until the gate opens.
    #[must_use]
    pub fn hold(&self, call: Call, side: Side) -> Gate {
        let stile =
            Arc::new(Turnstile { reached: watch::Sender::new(false), open: watch::Sender::new(false) });
        self.lock().plans.push(Plan { call, side, times: 1, action: Action::Hold(stile.clone()) });
        Gate(stile)
    }

    /// Makes `exists_with_watch` find no node, as a server of an ensemble that lacks what the others list.
    pub fn hide_nodes(&self) {
        self.lock().hides_nodes = true;
    }

    /// Returns how many faults have not happened yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.lock().plans.iter().map(|plan| plan.times).sum()
    }

    /// Ends all faults that have not happened yet.
    pub fn mend(&self) {
        let mut state = self.lock();
        state.plans.clear();
        state.hides_nodes = false;
    }

    fn planned(&self, call: Call, side: Side) -> Option<Action> {
        let mut state = self.lock();
        let at = state.plans.iter().position(|p| p.call == call && p.side == side)?;
        let plan = &mut state.plans[at];
        let action = plan.action.clone();
        plan.times -= 1;
        if plan.times == 0 {
            state.plans.remove(at);
        }
        Some(action)
    }

    async fn pass(&self, call: Call, side: Side) -> Result<()> {
        match self.planned(call, side) {
            None => Ok(()),
            Some(Action::Fail(kind)) => {
                let error = Error::new(kind, "injected");
                Err(if side == Side::After { error.ambiguous() } else { error })
            }
            Some(Action::Hold(stile)) => {
                stile.reached.send_replace(true);
                // A gate that was dropped is open.
                let _ = stile.open.subscribe().wait_for(|open| *open).await;
                Ok(())
            }
        }
    }
}

impl Around for Arc<Faults> {
    async fn around<T: Send>(
        &self,
        call: Call,
        _: &LockPath,
        inner: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let _under_way = UnderWay::begin(self, call);
        self.pass(call, Side::Before).await?;
        let result = inner.await;
        self.pass(call, Side::After).await?;
        result
    }

    fn hides_nodes(&self) -> bool {
        self.lock().hides_nodes
    }
}

/// A call in progress, which ends when this is dropped.
struct UnderWay<'a>(&'a Faults);

impl<'a> UnderWay<'a> {
    fn begin(faults: &'a Faults, call: Call) -> Self {
        let mut state = faults.lock();
        *state.counts.entry(call).or_default() += 1;
        state.under_way += 1;
        UnderWay(faults)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.lock().under_way -= 1;
    }
}
