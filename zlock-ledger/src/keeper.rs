//! The engine's part of the session loop of `zlock_core::kit`: a session is a row that heartbeats renew.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use zlock_core::kit::{Beats, Begun, Options, Over, SessionKey, SessionStore, Sessions, keep_alive};
use zlock_core::{Close, NodeId, SessionId};

use crate::ledger::{Beat, Begin, Calm as _, End, Ended, Fault, History, Ledger, Wire};
use crate::observe::observe_forever;
use crate::poll::poll_forever;
use crate::sender::send_forever;
use crate::shared::{Live, Shared};

/// The timeout of a session at rest, which owns nothing.
const REST: Duration = Duration::from_secs(600);

/// The pause before another attempt at a sweep.
const PAUSE: Duration = Duration::from_millis(100);

/// The sessions of a backend, for the loop that keeps them.
pub(crate) struct Keeper<L: Ledger>(pub(crate) Arc<Shared<L>>);

/// A session that has begun at the store, at rest.
pub(crate) struct Granted<L: Ledger> {
    history: History,
    sent: Instant,
    received: Instant,
    /// The fast lane, opened before operations use the session, since they must not wait for more than their own answer.
    lane: Option<L::Lane>,
    /// The state of the session, once it is kept.
    live: Option<Arc<Live>>,
}

impl<L: Ledger> SessionStore for Keeper<L> {
    type Granted = Granted<L>;
    type Kept = Granted<L>;
    type Live = Live;
    type Failure = Fault;

    fn sessions(&self) -> &Sessions<Live> {
        &self.0.sessions
    }

    fn options(&self) -> &Options {
        &self.0.options
    }

    fn files(&self) -> Option<impl FnOnce() -> Result<(), String> + Send + 'static> {
        self.0.ledger.files()
    }

    fn patience(&self) -> (Duration, Duration) {
        (self.0.answer_time() * 2, self.options().connect_timeout)
    }

    async fn begin(&self, old: Option<SessionId>, patience: Duration) -> Result<Begun<Granted<L>>, Fault> {
        let begun = self.begin_after(old, patience).await;
        // What was granted before may be granted again: a restore makes the roles last.
        if old.is_some() { begun.map_err(temporary) } else { begun }
    }

    fn publish(&self, _: SessionKey, granted: Granted<L>) -> (Live, Granted<L>) {
        self.0.hub.begin(granted.history.incarnation);
        (Live::new(granted.history, granted.received), granted)
    }

    async fn keep(&self, session: SessionKey, granted: &mut Granted<L>) -> Over {
        let shared = &self.0;
        let Ok(live) = shared.live(session) else { return Over::Lost };
        granted.live = Some(live.clone());
        let mut beats = Beats::new(granted.sent, shared.life(), shared.beat_interval()).resting(REST / 3);
        if live.may_rest() {
            // It owns nothing yet.
            shared.sessions.rest(session);
        } else {
            beats.woken(granted.sent);
        }
        let mut heartbeats = Heartbeats { shared, session, live: &live };
        tokio::select! {
            biased;
            over = keep_alive(&shared.sessions, session, beats, &mut heartbeats) => over,
            never = send_forever(shared, session, &live.requests, granted.lane.take()) => match never {},
            never = poll_forever(shared, session) => match never {},
            never = observe_forever(shared, session) => match never {},
            never = sweep_forever(shared, session, &live) => match never {},
        }
    }

    async fn end(&self, id: SessionId, granted: Option<&mut Granted<L>>) -> Result<Close, Fault> {
        let (shared, limit) = (&self.0, self.0.answer_time());
        // Other clients that are as short-lived as this one go on from there.
        if let Some(live) = granted.and_then(|granted| granted.live.take()) {
            add_to_quiet_time(shared, id, &live, limit).await;
        }
        let spans = shared.deaths.lock().spans(Instant::now());
        if !spans.is_empty() {
            let calm = shared.calm(None).await?;
            shared.ask(&calm, limit, calm.watched(&spans)).await?;
        }
        end(shared, id, limit).await?;
        Ok(Close::Ended)
    }
}

impl<L: Ledger> Keeper<L> {
    async fn begin_after(
        &self,
        old: Option<SessionId>,
        patience: Duration,
    ) -> Result<Begun<Granted<L>>, Fault> {
        let shared = &self.0;
        if let Some(old) = old {
            end(shared, old, patience).await?;
        }
        let calm = shared.calm(None).await?;
        let timeout = shared.options.session_timeout;
        // A sequence would give the number of a session that a failover has lost to another client.
        let session = SessionId::new(fastrand::u64(1..1 << 63));
        let begin = Begin { session, last: old, timeout, rest: REST };
        let sent = Instant::now();
        let history = shared.ask(&calm, patience, calm.begin(&begin)).await?;
        let received = Instant::now();
        shared.has_begun(session);
        let lane = tokio::time::timeout(patience, shared.ledger.lane(session, Wire::Fast)).await;
        let lane = Some(lane.unwrap_or_else(|_| Err(Fault::NotSent("no connection for writes".into())))?);
        let granted = Granted { history, sent, received, lane, live: None };
        Ok(Begun { id: session, timeout, deadline: sent + shared.life(), granted })
    }
}

/// Returns the failure of a request that the store refuses, and may serve later.
fn temporary(fault: Fault) -> Fault {
    match fault {
        Fault::Refused(why) => Fault::NotSent(why),
        fault => fault,
    }
}

/// Adds what a client that ends has watched of quiet time since its last heartbeat, by another one.
async fn add_to_quiet_time<L: Ledger>(shared: &Shared<L>, session: SessionId, live: &Live, limit: Duration) {
    let watched = live.past.lock().span(Instant::now());
    if watched.is_none() {
        return;
    }
    let timeout = shared.options.session_timeout;
    let beat = Beat { number: live.next_beat(false), timeout, known: Vec::new(), watched };
    let beaten = match shared.calm(None).await {
        Ok(calm) => shared.ask(&calm, limit, calm.beat(session, &beat)).await.map(drop),
        Err(fault) => Err(fault),
    };
    if let Err(fault) = beaten {
        tracing::debug!(?fault, "what was watched of quiet time is not added");
    }
}

/// Ends an own session and removes what it owns.
async fn end<L: Ledger>(shared: &Shared<L>, session: SessionId, limit: Duration) -> Result<(), Fault> {
    loop {
        let calm = shared.calm(None).await?;
        let ended = shared.ask(&calm, limit, calm.end(&[End { session, beat: None }], &[])).await?;
        match ended.first() {
            Some(Ended::More) => {}
            Some(Ended::Busy) => return Err(Fault::Busy),
            _ => return Ok(()),
        }
    }
}

/// Counts a heartbeat, and compares the session's entries with those that it is known to have. Returns whether the session rests at
/// the store, and when the request was sent.
///
/// # Errors
/// Also [`Fault::SessionOver`].
pub(crate) async fn beat<L: Ledger>(
    shared: &Shared<L>,
    session: SessionKey,
    live: &Live,
    rests: bool,
) -> Result<(bool, Instant), Fault> {
    let own = shared.sessions.own();
    let calm = shared.calm(Some(session.id)).await?;
    let (mark, rests) = (own.mark(), rests && live.may_rest());
    let asked: Vec<_> = {
        let known = live.known.lock();
        own.node_ids().into_iter().filter_map(|id| known.get(&id).cloned().map(|entry| (id, entry))).collect()
    };
    let sent = Instant::now();
    let number = live.next_beat(rests);
    let (watched, before) = {
        let mut past = live.past.lock();
        (past.span(sent), past.history())
    };
    let beat = Beat {
        number,
        timeout: if rests { REST } else { shared.options.session_timeout },
        known: asked.iter().map(|(_, entry)| entry.clone()).collect(),
        watched,
    };
    let beaten = shared.ask(&calm, shared.options.beat_time(), calm.beat(session.id, &beat)).await?;
    let asked_ids: BTreeSet<_> = asked.iter().map(|(id, _)| id.clone()).collect();
    let exists = asked.into_iter().zip(&beaten.exists).filter(|(_, exists)| **exists);
    let present: BTreeSet<NodeId> = exists.map(|((id, _), _)| id).collect();
    own.compare_part(mark, &present, |id| asked_ids.contains(id));
    if !rests {
        live.woken(number);
    }
    live.past.lock().saw(number, beaten.history, beaten.added, Instant::now());
    if beaten.history.is_behind(&before) {
        // Nothing that was granted can be relied on.
        tracing::error!(session = %session.id, "the store has lost commits without a restart: a backup was put back, or this is a copy");
        shared.ask(&calm, shared.options.beat_time(), calm.restored(beaten.history.incarnation)).await?;
        return Err(Fault::SessionOver);
    }
    if beaten.swept != beaten.history.incarnation {
        live.unswept.notify_one();
    }
    // It may own what this client does not know: what a crash has brought back, or what is still to be deleted.
    Ok((rests && !beaten.owns, sent))
}

struct Heartbeats<'a, L: Ledger> {
    shared: &'a Shared<L>,
    session: SessionKey,
    live: &'a Live,
}

impl<L: Ledger> zlock_core::kit::Beat for Heartbeats<'_, L> {
    type Failure = Fault;

    async fn beat(&mut self, at_rest: bool, _: Instant) -> Result<Option<bool>, Fault> {
        let before = self.shared.uses_of_none();
        match beat(self.shared, self.session, self.live, at_rest).await {
            Ok((rests, _)) => {
                // A fleet at rest has no connections.
                if let (true, Some(uses)) = (rests, before) {
                    self.shared.close_after_one_use(uses);
                }
                Ok(Some(rests))
            }
            Err(Fault::SessionOver) => Ok(None),
            Err(fault) => Err(temporary(fault)),
        }
    }

    async fn doubted(&mut self) {
        tokio::select! {
            biased;
            () = self.shared.broken() => {}
            () = self.shared.doubt.notified() => {}
        }
    }

    fn servers(&self) -> usize {
        1
    }
}

/// Sweeps the session after each restart of the store that has ended no session: removes its nodes whose delete was undone.
async fn sweep_forever<L: Ledger>(shared: &Shared<L>, session: SessionKey, live: &Live) -> Infallible {
    loop {
        live.unswept.notified().await;
        loop {
            match sweep(shared, session, live).await {
                Ok(true) => break,
                Ok(false) => {}
                Err(fault) => tracing::debug!(?fault, "the session is not swept yet"),
            }
            sleep(PAUSE).await;
        }
    }
}

/// Makes one attempt. Returns `false` if the store was restarted again meanwhile.
async fn sweep<L: Ledger>(shared: &Shared<L>, session: SessionKey, live: &Live) -> Result<bool, Fault> {
    let (limit, calm) = (shared.answer_time(), shared.calm(Some(session.id)).await?);
    let (incarnation, nodes) = shared.ask(&calm, limit, calm.nodes(session.id)).await?;
    // Judged when the answer has arrived: what was created later is not in it.
    let strays: Vec<_> = {
        let known = live.known.lock();
        nodes.into_iter().filter(|id| !known.contains_key(&NodeId::new(&**id))).collect()
    };
    if !strays.is_empty() {
        tracing::info!(session = %session.id, count = strays.len(), "removing nodes whose deletion a crash has undone");
    }
    shared.ask(&calm, limit, calm.sweep(session.id, incarnation, &strays)).await
}
