//! The link between one client and the server: two ordered queues, and the faults of the link.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use zlock_core::{SessionId, WatchEvent};

use crate::request::{Answer, Sent};

/// The server's number for a client, i.e. for one backend, whatever its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClientId(pub(crate) u64);

/// What a link lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Everything.
    Up,
    /// Nothing, and the client notices: connections are refused.
    Down,
    /// Nothing, and the client does not notice. Messages arrive when the link is restored.
    Silent,
    /// Requests, but no responses and no events.
    Mute,
}

#[derive(Debug)]
pub(crate) enum Delivery {
    Answer(oneshot::Sender<Answer>, Answer),
    Event(oneshot::Sender<WatchEvent>, WatchEvent),
}

impl Delivery {
    /// Delivers it. The receiver may have been dropped.
    pub(crate) fn deliver(self) {
        match self {
            Delivery::Answer(to, answer) => drop(to.send(answer)),
            Delivery::Event(to, event) => drop(to.send(event)),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) mode: Mode,
    /// `true` if the client has a connection. A broken connection carries nothing any more.
    pub(crate) connected: bool,
    pub(crate) request_delay: Duration,
    pub(crate) answer_delay: Duration,
    /// How long the server takes for each request, one after the other.
    pub(crate) service_time: Duration,
    /// When the server has done the last request that was sent.
    busy_until: Option<Instant>,
    /// The latest session.
    pub(crate) session: Option<SessionId>,
    /// `true` if the client is gone: the link is removed when its last request has arrived.
    pub(crate) forgotten: bool,
    /// Each with its earliest time of arrival. No request overtakes an earlier one.
    requests: VecDeque<(Instant, Sent)>,
    deliveries: VecDeque<(Instant, Delivery)>,
    /// Notifies the client that the connection broke, or that another attempt may succeed.
    pub(crate) signal: Arc<Notify>,
}

impl Link {
    pub(crate) fn new(signal: Arc<Notify>) -> Self {
        Link {
            mode: Mode::Up,
            connected: false,
            request_delay: Duration::ZERO,
            answer_delay: Duration::ZERO,
            service_time: Duration::ZERO,
            busy_until: None,
            session: None,
            forgotten: false,
            requests: VecDeque::new(),
            deliveries: VecDeque::new(),
            signal,
        }
    }

    /// Sends a request and returns when it arrives.
    pub(crate) fn send(&mut self, now: Instant, sent: Sent) -> Instant {
        let arrives = now + self.request_delay;
        let due = self.busy_until.map_or(arrives, |busy| busy.max(arrives)) + self.service_time;
        self.busy_until = Some(due).filter(|_| !self.service_time.is_zero());
        self.requests.push_back((due, sent));
        due
    }

    /// Sends a response or an event and returns when it arrives.
    pub(crate) fn reply(&mut self, now: Instant, delivery: Delivery) -> Instant {
        let due = now + self.answer_delay;
        self.deliveries.push_back((due, delivery));
        due
    }

    /// Returns the next request that has arrived at the server.
    pub(crate) fn arrived(&mut self, now: Instant) -> Option<Sent> {
        let passes = matches!(self.mode, Mode::Up | Mode::Mute);
        self.requests.front().filter(|(due, _)| passes && *due <= now)?;
        self.requests.pop_front().map(|(_, sent)| sent)
    }

    /// Returns the next response or event that has arrived at the client. Without a connection, events wait for the next one.
    pub(crate) fn delivered(&mut self, now: Instant) -> Option<Delivery> {
        let passes = self.mode == Mode::Up && self.connected;
        self.deliveries.front().filter(|(due, _)| passes && *due <= now)?;
        self.deliveries.pop_front().map(|(_, delivery)| delivery)
    }

    /// Returns when the next message arrives because of a delay.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let requests = self.requests.front().filter(|_| matches!(self.mode, Mode::Up | Mode::Mute));
        let deliveries = self.deliveries.front().filter(|_| self.mode == Mode::Up && self.connected);
        requests.map(|(due, _)| *due).into_iter().chain(deliveries.map(|(due, _)| *due)).min()
    }

    /// Breaks the connection. Messages in flight are lost, except for events, which the next connection delivers.
    pub(crate) fn hang_up(&mut self) {
        self.connected = false;
        self.busy_until = None;
        self.requests.clear();
        self.deliveries.retain(|(_, delivery)| matches!(delivery, Delivery::Event(..)));
    }

    /// Returns `true` if a request is in flight.
    pub(crate) fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }
}
