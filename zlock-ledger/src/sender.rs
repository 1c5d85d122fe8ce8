//! The writes of a session: what waits is sent together, over a lane.
//!
//! A request leaves at once while fewer than two batches are in flight. Otherwise it waits, and leaves with all that wait when one of these
//! is answered (`kit::InFlight`). Over which lane, and after what, is decided by [`Lanes`].

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until, timeout};
use zlock_core::kit::{InFlight, SessionKey};

use crate::lanes::Lanes;
use crate::ledger::{Fault, Lane as _, Ledger, Outcome, Scope, Tx, Wire, Write};
use crate::requests::{Item, Requests, State, fits, reply_all};
use crate::shared::Shared;

/// How often a request is busy on the patient lane before its caller learns that.
const MAX_BUSY: u32 = 5;

/// How long an answer over the patient lane may take that says busy.
const PATIENCE: Duration = Duration::from_millis(500);

/// The time after which a lane that is not used is closed.
const IDLE: Duration = Duration::from_secs(60);

/// The pause before another attempt at a lane, and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// A batch that is no longer in flight.
struct Answered {
    numbers: Vec<u64>,
    txs: Vec<Tx>,
    pace: u64,
    answer: Result<Vec<Result<Outcome, Fault>>, Fault>,
}

type Batches = FuturesUnordered<Pin<Box<dyn Future<Output = Answered> + Send>>>;
type Opening<T> = Option<Pin<Box<dyn Future<Output = Result<T, Fault>> + Send>>>;

/// One of the lanes.
struct Way<T> {
    wire: Wire,
    lane: Option<Arc<T>>,
    opening: Opening<T>,
    in_flight: Batches,
    /// When it may be opened again, and how often that has failed.
    not_before: Instant,
    failures: u32,
    used: Instant,
}

impl<T> Way<T> {
    fn new(wire: Wire) -> Self {
        let now = Instant::now();
        let in_flight = FuturesUnordered::new();
        Way { wire, lane: None, opening: None, in_flight, not_before: now, failures: 0, used: now }
    }

    /// Waits until the lane is open or has failed to open, or a batch is answered.
    async fn next(&mut self) -> Event<T> {
        let opened = async {
            match &mut self.opening {
                Some(opening) => opening.await,
                None => std::future::pending().await,
            }
        };
        let answered = async {
            match self.in_flight.next().await {
                Some(answered) => answered,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            answered = answered => Event::Answered(answered),
            opened = opened => Event::Opened(opened),
        }
    }
}

enum Event<T> {
    Opened(Result<T, Fault>),
    Answered(Answered),
}

/// Sends the requests of a session.
struct Sender<'a, L: Ledger> {
    shared: &'a Arc<Shared<L>>,
    session: SessionKey,
    requests: &'a Requests,
    pace: InFlight,
}

/// Sends the requests of a session until it is dropped. The fast lane may be open already.
pub(crate) async fn send_forever<L: Ledger>(
    shared: &Arc<Shared<L>>,
    session: SessionKey,
    requests: &Requests,
    lane: Option<L::Lane>,
) -> Infallible {
    let mut sender = Sender { shared, session, requests, pace: InFlight::default() };
    let (mut fast, mut patient) = (Way::new(Wire::Fast), Way::new(Wire::Patient));
    if let Some(lane) = lane {
        fast.lane = Some(Arc::new(lane));
        requests.state.lock().lanes.raised(Wire::Fast);
    }
    loop {
        sender.open(&mut fast);
        sender.open(&mut patient);
        let more = sender.send(&mut fast).await | sender.send(&mut patient).await;
        if more {
            continue;
        }
        let due = sender.due(&fast, &patient);
        tokio::select! {
            biased;
            event = fast.next() => sender.handle(&mut fast, event),
            event = patient.next() => sender.handle(&mut patient, event),
            () = requests.added.notified() => {}
            () = sleep_until(due) => sender.close_idle([&mut fast, &mut patient]),
        }
    }
}

impl<L: Ledger> Sender<'_, L> {
    /// Begins to open a lane that is needed.
    fn open(&self, way: &mut Way<L::Lane>) {
        let now = Instant::now();
        if way.opening.is_some() || now < way.not_before || !self.requests.state.lock().lanes.needs(way.wire)
        {
            return;
        }
        let (shared, id, wire) = (self.shared.clone(), self.session.id, way.wire);
        way.opening = Some(Box::pin(async move {
            let opened = timeout(shared.options.connection_time(), shared.ledger.lane(id, wire)).await;
            opened.unwrap_or_else(|_| Err(Fault::NotSent("no connection".into())))
        }));
    }

    /// Sends the next batch over a lane, if there is one. Returns `true` if there was, or if requests that will not be sent have made way
    /// for others, perhaps over the other lane.
    async fn send(&mut self, way: &mut Way<L::Lane>) -> bool {
        let Some(lane) = way.lane.clone() else { return false };
        let now = Instant::now();
        if way.wire == Wire::Fast && self.pace.full_until(now).is_some() {
            return false;
        }
        let is_connected = matches!(self.shared.sessions.is_connected(self.session), Ok(true));
        let (numbers, txs, made_way) = {
            let State { lanes, items } = &mut *self.requests.state.lock();
            if !is_connected {
                // Nothing is sent while the session is suspended.
                let fault = Fault::NotSent("the session is suspended".into());
                reply_all(items, lanes.fail(way.wire), &fault);
                return false;
            }
            let fits = fits(items, self.shared.limits.batch, self.shared.limits.bytes);
            let (numbers, gone) = lanes.take(way.wire, fits);
            gone.iter().for_each(|number| {
                items.remove(number);
            });
            let txs = numbers.iter().filter_map(|number| items.get_mut(number)?.tx.take());
            let txs: Vec<_> = txs.collect();
            (numbers, txs, !gone.is_empty())
        };
        if numbers.is_empty() {
            return made_way;
        }
        way.used = now;
        let (pace, limit) = (self.pace.begin(now), self.shared.answer_time());
        let mut batch: Pin<Box<dyn Future<Output = Answered> + Send>> = Box::pin(async move {
            let answer = timeout(limit, lane.transact(&txs)).await;
            let answer =
                answer.unwrap_or_else(|_| Err(Fault::Unknown(format!("no response within {limit:?}"))));
            Answered { numbers, txs, pace, answer }
        });
        // Batches are sent in their order.
        match poll_fn(|cx| Poll::Ready(batch.as_mut().poll(cx))).await {
            Poll::Pending => way.in_flight.push(batch),
            Poll::Ready(answered) => self.answered(way, answered),
        }
        true
    }

    fn handle(&mut self, way: &mut Way<L::Lane>, event: Event<L::Lane>) {
        match event {
            Event::Answered(answered) => self.answered(way, answered),
            Event::Opened(opened) => {
                way.opening = None;
                match opened {
                    Ok(lane) => {
                        (way.lane, way.failures, way.used) = (Some(Arc::new(lane)), 0, Instant::now());
                        self.requests.state.lock().lanes.raised(way.wire);
                    }
                    Err(fault) => self.not_opened(way, &fault),
                }
            }
        }
    }

    fn not_opened(&self, way: &mut Way<L::Lane>, fault: &Fault) {
        tracing::debug!(?fault, wire = ?way.wire, "no lane");
        if let Fault::SessionOver = fault {
            self.shared.sessions.lose(self.session);
        }
        way.failures += 1;
        way.not_before = Instant::now() + (PAUSES.0 * (1 << way.failures.min(5))).min(PAUSES.1);
        self.shared.doubt.notify_one();
        let State { lanes, items } = &mut *self.requests.state.lock();
        reply_all(items, lanes.fail(way.wire), fault);
    }

    /// Handles the answer to a batch.
    fn answered(&mut self, way: &mut Way<L::Lane>, answered: Answered) {
        let Answered { numbers, txs, pace, answer } = answered;
        self.pace.end(pace, Instant::now(), answer.is_ok());
        let mut given_up = None;
        {
            let State { lanes, items } = &mut *self.requests.state.lock();
            match answer {
                Ok(outcomes) => {
                    self.shared.sessions.resume(self.session);
                    let missing =
                        || Err(Fault::Unexpected("the answer has not the form that was expected".into()));
                    let outcomes = outcomes.into_iter().chain(std::iter::repeat_with(missing));
                    for ((number, tx), outcome) in numbers.into_iter().zip(txs).zip(outcomes) {
                        self.settle(lanes, items, way.wire, number, tx, outcome);
                    }
                }
                // Nothing has happened, and one of them may be the reason.
                Err(Fault::Refused(_) | Fault::Invalid(_) | Fault::Unexpected(_) | Fault::Busy)
                    if numbers.len() > 1 =>
                {
                    for (number, tx) in numbers.into_iter().zip(txs) {
                        lanes.returned(way.wire, number);
                        items.get_mut(&number).into_iter().for_each(|item| {
                            (item.tx, item.is_alone) = (Some(tx.clone()), true);
                        });
                    }
                }
                Err(Fault::Unknown(why)) => given_up = Some(why),
                Err(Fault::Interrupted(_)) => given_up = Some("interrupted".into()),
                Err(fault) => {
                    if let Fault::NotSent(_) | Fault::StaleLane = fault {
                        given_up = Some("the connection broke".into());
                    }
                    for (number, tx) in numbers.into_iter().zip(txs) {
                        self.settle(lanes, items, way.wire, number, tx, Err(fault.clone()));
                    }
                }
            }
        }
        if let Some(why) = given_up {
            self.give_up(way, why);
        }
    }

    /// Hands out the outcome of a transaction, or keeps one that is busy.
    fn settle(
        &self,
        lanes: &mut Lanes<Scope>,
        items: &mut BTreeMap<u64, Item>,
        wire: Wire,
        number: u64,
        tx: Tx,
        outcome: Result<Outcome, Fault>,
    ) {
        let has_patience = self.shared.limits.connections > 2;
        if let (Err(Fault::Busy), Some(item)) = (&outcome, items.get_mut(&number))
            && has_patience
            && item.busy < MAX_BUSY
            && Instant::now() + PATIENCE < item.until
            && !item.reply.is_closed()
        {
            (item.tx, item.busy) = (Some(tx), item.busy + 1);
            lanes.answered(wire, number, true);
            return;
        }
        lanes.answered(wire, number, false);
        match &outcome {
            Ok(outcome) if outcome.failed.is_none() => self.wake(&tx),
            Err(Fault::SessionOver) => self.shared.sessions.lose(self.session),
            _ => {}
        }
        if let Some(item) = items.remove(&number) {
            // Fails if the caller has gone.
            let _ = item.reply.send(outcome);
        }
    }

    /// Wakes those in this process who watch what has changed.
    fn wake(&self, tx: &Tx) {
        for write in &tx.then {
            match write {
                Write::Append { key, .. } | Write::Update { key, .. } => {
                    self.shared.hub.changed(&tx.scope, key)
                }
                Write::Delete { scope, key } => self.shared.hub.changed(scope, key),
                Write::Receipt { .. } => {}
            }
        }
    }

    /// Gives up a lane. What is unanswered may still take effect until it is raised again.
    fn give_up(&mut self, way: &mut Way<L::Lane>, why: String) {
        (way.lane, way.in_flight) = (None, FuturesUnordered::new());
        // The batches that were in flight are no longer waited for, whichever lane they were on.
        self.pace = InFlight::default();
        self.shared.doubt.notify_one();
        let State { lanes, items } = &mut *self.requests.state.lock();
        let unanswered = lanes.given_up(way.wire);
        reply_all(items, unanswered, &Fault::Unknown(why));
    }

    /// Returns when there is something to do without an event.
    fn due(&self, fast: &Way<L::Lane>, patient: &Way<L::Lane>) -> Instant {
        let now = Instant::now();
        let state = self.requests.state.lock();
        let mut due = now + IDLE;
        for way in [fast, patient] {
            if way.opening.is_none() && state.lanes.needs(way.wire) {
                due = due.min(way.not_before);
            }
            if way.lane.is_some() && state.lanes.rests(way.wire) {
                due = due.min(way.used + IDLE);
            }
        }
        let full = self.pace.full_until(now).filter(|_| state.lanes.waiting(Wire::Fast).next().is_some());
        full.map_or(due, |full| due.min(full))
    }

    /// Closes lanes that were not used for a while.
    fn close_idle(&self, ways: [&mut Way<L::Lane>; 2]) {
        for way in ways {
            let mut state = self.requests.state.lock();
            if way.lane.is_some() && state.lanes.rests(way.wire) && way.used.elapsed() >= IDLE {
                way.lane = None;
                state.lanes.given_up(way.wire);
            }
        }
    }
}
