//! The server: its state under one mutex, and the requests that take time.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::MutexGuard;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use zlock_core::kit::sleep_until;
use zlock_core::{Mutex, SessionId};

use super::connection::Outbox;
use super::fault::{Arrival, Fate, Faults, Operation};
use super::settings::Settings;
use super::signal::Signal;
use super::state::{Holder, State};
use crate::{Fault, OnHint, Outcome, Tx, Wire};

pub(crate) struct Server {
    state: Mutex<State>,
    pub(crate) settings: Settings,
    pub(crate) faults: Faults,
    counts: Mutex<BTreeMap<Operation, u64>>,
    /// The number of the server's life. While it is stopped, the number is odd.
    pub(crate) life: Signal<u64>,
    /// A lock may be free.
    released: Notify,
    /// The connections to which hints are sent.
    listeners: Mutex<BTreeMap<u64, Listener>>,
    next_number: Mutex<u64>,
    created: Instant,
}

#[derive(Clone)]
pub(crate) struct Listener {
    pub(crate) session: SessionId,
    pub(crate) on_hint: OnHint,
    pub(crate) outbox: Outbox,
}

/// A batch that the server has accepted over a lane. Dropping it frees the lane and what it has locked.
struct Accepted<'a> {
    server: &'a Server,
    life: u64,
    session: SessionId,
    wire: Wire,
    holder: Holder,
}

impl Drop for Accepted<'_> {
    fn drop(&mut self) {
        let Accepted { server, life, session, wire, holder } = *self;
        server.free(life, |state| state.release(session, wire, holder));
    }
}

impl Server {
    pub(crate) fn new(settings: Settings) -> Self {
        Server {
            state: Mutex::new(State::new(settings.clone())),
            settings,
            faults: Faults::default(),
            counts: Mutex::default(),
            life: Signal::new(0),
            released: Notify::new(),
            listeners: Mutex::default(),
            next_number: Mutex::default(),
            created: Instant::now(),
        }
    }

    pub(crate) fn next_number(&self) -> u64 {
        let mut number = self.next_number.lock();
        *number += 1;
        *number
    }

    pub(crate) fn counts(&self) -> MutexGuard<'_, BTreeMap<Operation, u64>> {
        self.counts.lock()
    }

    /// Works on the state, and sends the hints that follow from that.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        state.clock = state.clock.max(self.created.elapsed());
        let value = work(&mut state);
        let hints = std::mem::take(&mut state.hints);
        drop(state);
        if self.settings.hints && !hints.is_empty() {
            let listeners: Vec<_> = self.listeners.lock().values().cloned().collect();
            for (session, scope, key) in hints {
                for listener in listeners.iter().filter(|listener| listener.session == session) {
                    listener.send(Some((scope.clone(), key.clone())));
                }
            }
        }
        value
    }

    /// Works on the state, unless the server has stopped since the connection was opened.
    pub(crate) fn in_life<T>(&self, life: u64, work: impl FnOnce(&mut State) -> T) -> Result<T, Fault> {
        self.with(|state| if self.life.get() == life { Ok(work(state)) } else { Err(stopped()) })
    }

    /// Frees a lock that a life of the server had, and wakes whoever waits for it.
    pub(crate) fn free(&self, life: u64, work: impl FnOnce(&mut State)) {
        // The end of that life has freed it already.
        let _ = self.in_life(life, work);
        self.released.notify_waiters();
    }

    /// Stops the server: everything that is connected or in flight ends.
    pub(crate) fn stop(&self) {
        self.with(|_| self.life.update(|life| *life |= 1));
        self.released.notify_waiters();
    }

    /// Stops the server, and starts it with another state.
    pub(crate) fn start<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        self.stop();
        self.with(|state| {
            let value = change(state);
            self.life.update(|life| *life += 1);
            value
        })
    }
}

/// Requests.
impl Server {
    /// Decides the fate of a request that has arrived, and counts it.
    pub(crate) fn arrive(&self, arrival: &Arrival) -> Fate {
        let fate = self.faults.fate(arrival);
        if fate != Fate::LoseRequest {
            *self.counts.lock().entry(arrival.operation).or_default() += 1;
        }
        fate
    }

    /// Sends hints to a connection from now on.
    pub(crate) fn listen(&self, connection: u64, listener: Listener) {
        if self.settings.hints {
            let mut listeners = self.listeners.lock();
            if listener.outbox.is_open() {
                listener.send(None);
                listeners.insert(connection, listener);
            }
        }
    }

    pub(crate) fn stop_listening(&self, connection: u64) {
        self.listeners.lock().remove(&connection);
    }

    /// Waits until a lane has nothing in flight, and raises its number.
    pub(crate) async fn raise(&self, life: u64, session: SessionId, wire: Wire) -> Result<u64, Fault> {
        loop {
            let mut released = pin!(self.released.notified());
            released.as_mut().enable();
            if let Some(number) = self.in_life(life, |state| state.raise(session, wire))?? {
                return Ok(number);
            }
            released.await;
        }
    }

    /// Executes a batch. It has its locks for the service time.
    pub(crate) async fn transact(
        &self,
        life: u64,
        service_time: Duration,
        (session, wire, lane): (SessionId, Wire, u64),
        txs: &[Tx],
    ) -> Result<Vec<Result<Outcome, Fault>>, Fault> {
        if txs.len() > self.settings.limits.batch {
            return Err(Fault::Invalid(format!("{} transactions in a batch", txs.len())));
        }
        let holder = self.in_life(life, |state| state.accept(session, wire, lane))??;
        let accepted = Accepted { server: self, life, session, wire, holder };
        let deadline = Instant::now() + self.settings.patience;
        loop {
            let mut released = pin!(self.released.notified());
            let is_free = self.in_life(life, |state| {
                released.as_mut().enable();
                state.lock(holder, txs);
                !txs.iter().any(|tx| state.is_busy(session, holder, tx))
            })?;
            if is_free || wire == Wire::Fast || Instant::now() >= deadline {
                break;
            }
            tokio::select! {
                biased;
                () = released => {}
                () = sleep_until(Some(deadline)) => {}
            }
        }
        if !service_time.is_zero() {
            sleep(service_time).await;
        }
        let outcomes = self.in_life(life, |state| state.transact(session, holder, txs));
        drop(accepted);
        outcomes
    }
}

impl Listener {
    fn send(&self, hint: Option<(crate::Scope, String)>) {
        let on_hint = self.on_hint.clone();
        self.outbox.send(Box::new(move || on_hint(hint)));
    }
}

fn stopped() -> Fault {
    Fault::Unknown("the server has stopped".into())
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Server")
    }
}
