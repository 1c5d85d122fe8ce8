//! Writes that leave together, as nested transactions of one.
//!
//! [`InFlight`] determines whether a write leaves at once or waits. All that wait leave as one transaction without a condition. Each
//! of its operations is a nested transaction with conditions of its own, or a delete without one, and has an outcome of its own.
//!
//! | rule | reason |
//! |---|---|
//! | no two writes of a queue in one batch | all nodes that a batch creates have the same revision, which is their place |
//! | a write that raises a fence is in no batch | the server refuses a transaction that puts a key twice |
//! | a batch that is refused is sent again, one write at a time | one write may be refused where the others are not |
//! | the outcome of a batch without an answer is unknown for each of its writes | the server executes all or none |
//! | batches are sent by the backend's runtime | the callers' futures may be dropped, or never polled again |
//! | the permissions for each write are checked apart | some servers do not check nested ones (advisory GHSA-rfx7-8w68-q57q) |
//!
//! A second write of a queue waits for no batch, since it could not join one: it leaves at once, as if there were no batches.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::Txn;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};
use zlock_core::kit::{Failure as _, InFlight, Interrupted, SessionKey};
use zlock_core::{Mutex, SessionEvents, SessionState};

use crate::config::EtcdOptions;
use crate::connection::connect::{By, Endpoints};
use crate::error::Failure;
use crate::requests::txn::{Answer, Request, Write};

/// The maximum number of writes in a batch.
const MAX_WRITES: usize = 32;

/// The maximum size of a batch, in bytes.
const MAX_BYTES: usize = 256 * 1024;

/// The server's default for the number of operations in a transaction.
const MAX_OPERATIONS: usize = 128;

/// The writes of a backend.
pub(crate) struct Batches {
    endpoints: Arc<Endpoints>,
    /// The time limit for a server's answer.
    limit: Duration,
    is_enabled: bool,
    /// Whether the server may have authentication enabled.
    has_identity: bool,
    events: SessionEvents,
    state: Mutex<State>,
    /// Notified when a request is no longer in flight.
    changed: Notify,
}

struct State {
    in_flight: InFlight,
    waiting: VecDeque<Waiting>,
    /// The queues of those that wait: their keys' prefixes.
    queues: BTreeSet<Arc<str>>,
    /// Whether there is a task that sends what waits.
    is_sending: bool,
    operations: Limit,
    bytes: Limit,
}

struct Waiting {
    lease: SessionKey,
    queue: Arc<str>,
    write: Arc<Write>,
    outcome: oneshot::Sender<Outcome>,
}

/// The outcome of a write that has waited.
enum Outcome {
    Answered(Result<Answer, Failure>),
    /// The batch was refused. Nothing has happened.
    Refused,
    /// The session is not connected, or over. Nothing was sent.
    NotSent,
}

/// The way of a write to the server.
enum Way {
    Now(InFlightGuard),
    Aside,
    Batch(oneshot::Receiver<Outcome>),
}

/// What to do with the writes that wait.
enum Next {
    Send(Vec<Waiting>, InFlightGuard),
    /// Another look is due at this instant, or when a request is no longer in flight.
    Wait(Instant),
    Stop,
}

impl Batches {
    pub(crate) fn new(endpoints: Arc<Endpoints>, options: &EtcdOptions, events: SessionEvents) -> Self {
        let state = State {
            in_flight: InFlight::new(),
            waiting: VecDeque::new(),
            queues: BTreeSet::new(),
            is_sending: false,
            operations: Limit::new(MAX_OPERATIONS),
            bytes: Limit::new(MAX_BYTES),
        };
        Batches {
            endpoints,
            limit: options.kit.answer_time(),
            is_enabled: options.batching,
            has_identity: options.has_identity(),
            events,
            state: Mutex::new(state),
            changed: Notify::new(),
        }
    }

    /// Sends a write, alone or together with others, and waits for its answer. Returns `None` if it was not sent, because the
    /// session is not connected or over.
    ///
    /// # Cancel safety
    /// The write may still take effect, unless it was waiting for others to be answered.
    pub(crate) async fn send(
        self: &Arc<Self>,
        lease: SessionKey,
        write: &Arc<Write>,
    ) -> Result<Option<Answer>, Failure> {
        match self.enter(lease, write) {
            Way::Now(in_flight) => {
                let request = write.request.clone();
                let answer = self
                    .endpoints
                    .ask_out_of_turn(By::Cluster, self.limit, |client| request.send(client))
                    .await;
                in_flight.end(answer.is_ok());
                answer.map(Some)
            }
            Way::Aside => self.send_alone(write).await.map(Some),
            Way::Batch(outcome) => match outcome.await {
                Ok(Outcome::Answered(answer)) => answer.map(Some),
                Ok(Outcome::Refused) => self.send_alone(write).await.map(Some),
                Ok(Outcome::NotSent) => Ok(None),
                // The runtime has ended.
                Err(_) => Err(Interrupted::Closed.into()),
            },
        }
    }

    async fn send_alone(&self, write: &Write) -> Result<Answer, Failure> {
        let request = write.request.clone();
        self.endpoints.ask(By::Cluster, self.limit, |client| request.send(client)).await
    }

    fn enter(self: &Arc<Self>, lease: SessionKey, write: &Arc<Write>) -> Way {
        if !self.is_enabled {
            return Way::Aside;
        }
        let (now, state) = (Instant::now(), &mut *self.state.lock());
        if state.waiting.is_empty() && state.in_flight.full_until(now).is_none() {
            return Way::Now(self.begin(state, now));
        }
        let queue = write.keys.prefix();
        if state.queues.contains(queue) || write.bytes > state.bytes.allowed() {
            return Way::Aside;
        }
        let queue: Arc<str> = queue.into();
        let (outcome, waits) = oneshot::channel();
        state.queues.insert(queue.clone());
        state.waiting.push_back(Waiting { lease, queue, write: write.clone(), outcome });
        if !state.is_sending {
            state.is_sending = true;
            self.endpoints.spawn(self.clone().send_what_waits());
        }
        Way::Batch(waits)
    }

    fn begin(self: &Arc<Self>, state: &mut State, now: Instant) -> InFlightGuard {
        InFlightGuard { batches: self.clone(), number: state.in_flight.begin(now), sent: now }
    }

    async fn send_what_waits(self: Arc<Self>) {
        loop {
            match self.next() {
                Next::Send(batch, in_flight) => {
                    self.endpoints.spawn(self.clone().send_batch(batch, in_flight));
                }
                Next::Wait(until) => tokio::select! {
                    biased;
                    () = self.changed.notified() => {}
                    () = sleep_until(until) => {}
                },
                Next::Stop => return,
            }
        }
    }

    fn next(self: &Arc<Self>) -> Next {
        let (now, session) = (Instant::now(), self.events.current());
        let state = &mut *self.state.lock();
        if let Some(until) = state.in_flight.full_until(now).filter(|_| !state.waiting.is_empty()) {
            return Next::Wait(until);
        }
        let mut batch = Vec::new();
        while let Some(waiting) = state.waiting.pop_front() {
            let is_connected =
                session.epoch == waiting.lease.epoch && session.state == SessionState::Connected;
            let is_cancelled = waiting.outcome.is_closed();
            if is_connected && !is_cancelled && !state.fits(&batch, &waiting.write, self.has_identity) {
                state.waiting.push_front(waiting);
                break;
            }
            state.queues.remove(&waiting.queue);
            if is_connected && !is_cancelled {
                batch.push(waiting);
            } else {
                // Fails if it is cancelled.
                let _ = waiting.outcome.send(Outcome::NotSent);
            }
        }
        if batch.is_empty() {
            state.is_sending = false;
            return Next::Stop;
        }
        Next::Send(batch, self.begin(state, now))
    }

    async fn send_batch(self: Arc<Self>, batch: Vec<Waiting>, in_flight: InFlightGuard) {
        tracing::trace!(writes = batch.len(), "sending a batch");
        let request = self.merge(&batch);
        let answer =
            self.endpoints.ask_out_of_turn(By::Cluster, self.limit, |client| request.send(client)).await;
        let is_answered = answer.is_ok();
        if batch.len() > 1 {
            self.learn(&batch, &answer);
        }
        let outcomes = outcomes(answer, batch.len());
        for (waiting, outcome) in batch.into_iter().zip(outcomes) {
            // Fails if it was cancelled meanwhile.
            let _ = waiting.outcome.send(outcome);
        }
        in_flight.end(is_answered);
    }

    fn merge(&self, batch: &[Waiting]) -> Request {
        if let [waiting] = batch {
            return waiting.write.request.clone();
        }
        let nested: Vec<_> = batch.iter().map(|waiting| waiting.write.request.clone().nested()).collect();
        let txn = Txn::new().and_then(nested);
        if !self.has_identity {
            return Request::Txn(txn);
        }
        // The other branch is never executed, but the server checks the permissions for it.
        let checks: Vec<_> = batch.iter().flat_map(|waiting| waiting.write.checks()).collect();
        Request::Txn(txn.or_else(checks))
    }

    /// Adapts the limits of a batch to the server's.
    fn learn(&self, batch: &[Waiting], answer: &Result<Answer, Failure>) {
        let operations = operations(batch.iter().map(|waiting| &*waiting.write), self.has_identity);
        let bytes = batch.iter().map(|waiting| waiting.write.bytes).sum();
        let state = &mut *self.state.lock();
        match answer {
            Ok(_) => {
                state.operations.passed(operations);
                state.bytes.passed(bytes);
            }
            Err(failure) if failure.is_of_too_many_operations() => state.operations.refused(operations),
            Err(failure) if failure.is_of_too_large_a_request() => state.bytes.refused(bytes),
            Err(_) => {}
        }
    }
}

impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches").finish_non_exhaustive()
    }
}

impl State {
    /// Returns `true` if one more write fits into the batch. The first one always does.
    fn fits(&self, batch: &[Waiting], write: &Write, has_identity: bool) -> bool {
        let writes = || batch.iter().map(|waiting| &*waiting.write).chain([write]);
        batch.is_empty()
            || batch.len() < MAX_WRITES
                && operations(writes(), has_identity) <= self.operations.allowed()
                && writes().map(|write| write.bytes).sum::<usize>() <= self.bytes.allowed()
    }
}

/// Returns the number of operations in a batch, as etcd counts them: those of the outer transaction and of the nested one that
/// has most.
fn operations<'a>(writes: impl Iterator<Item = &'a Write> + Clone, has_identity: bool) -> usize {
    let outer = writes.clone().count() * if has_identity { Write::CHECKS } else { 1 };
    outer + writes.map(|write| write.operations).max().unwrap_or(0)
}

/// Returns the outcome of each write of a batch.
fn outcomes(answer: Result<Answer, Failure>, writes: usize) -> Vec<Outcome> {
    match answer {
        answer if writes == 1 => vec![Outcome::Answered(answer)],
        Ok(answer) => {
            let answers = answer.nested();
            let is_whole = answers.len() == writes;
            let answered = answers.into_iter().map(|answer| Outcome::Answered(Ok(answer)));
            if is_whole { answered.collect() } else { unknown(&Failure::Silent, writes) }
        }
        Err(failure) if failure.classify().ambiguous => unknown(&failure, writes),
        Err(_) => (0..writes).map(|_| Outcome::Refused).collect(),
    }
}

fn unknown(failure: &Failure, writes: usize) -> Vec<Outcome> {
    (0..writes).map(|_| Outcome::Answered(Err(failure.of_each()))).collect()
}

/// A request in flight, until it is dropped.
struct InFlightGuard {
    batches: Arc<Batches>,
    number: u64,
    sent: Instant,
}

impl InFlightGuard {
    fn end(self, is_answered: bool) {
        self.batches.state.lock().in_flight.end(self.number, Instant::now(), is_answered);
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        // A no-op after `end`. A future may be dropped where the thread's clock no longer exists.
        self.batches.state.lock().in_flight.end(self.number, self.sent, false);
        self.batches.changed.notify_one();
    }
}

/// A limit of the server, which is not known before a batch was refused.
struct Limit {
    /// The limit until then.
    at_most: usize,
    /// The most that was accepted.
    passed: usize,
    /// The least that was refused.
    refused: Option<usize>,
}

impl Limit {
    fn new(at_most: usize) -> Self {
        Limit { at_most, passed: 0, refused: None }
    }

    fn allowed(&self) -> usize {
        self.refused.map_or(self.at_most, |refused| usize::midpoint(self.passed, refused))
    }

    fn passed(&mut self, size: usize) {
        let most = self.refused.map_or(size, |refused| size.min(refused.saturating_sub(1)));
        self.passed = self.passed.max(most);
    }

    fn refused(&mut self, size: usize) {
        self.refused = Some(self.refused.map_or(size, |refused| refused.min(size)));
        self.passed = self.passed.min(size.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_found_by_bisection() {
        let (mut limit, mut refusals) = (Limit::new(128), 0);
        for _ in 0..20 {
            let size = limit.allowed().min(34);
            if size > 16 {
                limit.refused(size);
                refusals += 1;
            } else {
                limit.passed(size);
            }
        }
        assert_eq!((limit.allowed(), refusals), (16, 2));
    }
}
