//! The link between one client and the store, and its faults.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;
use zlock_core::{Mutex, SessionId};

use super::server::Server;
use super::signal::Signal;

/// The maximum of every delay: the clock cannot represent arbitrary instants.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// What a link lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Everything.
    Up,
    /// Nothing, and the client notices: connections are refused.
    Down,
    /// Nothing, and the client does not notice. Messages arrive when the link is restored.
    Silent,
    /// Requests, but no responses and no hints.
    Mute,
}

/// What the connections of a link have to notice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wiring {
    pub(crate) mode: Mode,
    /// How often all connections were broken.
    pub(crate) breaks: u64,
}

#[derive(Debug)]
struct Times {
    request_delay: Duration,
    answer_delay: Duration,
    service_time: Duration,
    random: Rng,
    /// The last session that was begun over this link.
    session: Option<SessionId>,
    /// How many connections the client has open.
    connections: usize,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) number: u64,
    pub(crate) wiring: Signal<Wiring>,
    jitter: Duration,
    times: Mutex<Times>,
}

impl Link {
    pub(crate) fn new(number: u64, seed: u64, jitter: Duration) -> Self {
        let times = Times {
            request_delay: Duration::ZERO,
            answer_delay: Duration::ZERO,
            service_time: Duration::ZERO,
            random: Rng::with_seed(seed.rotate_left(32) ^ number),
            session: None,
            connections: 0,
        };
        let wiring = Signal::new(Wiring { mode: Mode::Up, breaks: 0 });
        Link { number, wiring, jitter: jitter.min(LONGEST), times: Mutex::new(times) }
    }

    /// Returns when a request that is sent now arrives.
    pub(crate) fn request_arrives(&self) -> Instant {
        let mut times = self.times.lock();
        Instant::now() + times.request_delay + random(&mut times.random, self.jitter)
    }

    /// Returns when an answer or a hint that is sent now arrives.
    pub(crate) fn answer_arrives(&self) -> Instant {
        let mut times = self.times.lock();
        Instant::now() + times.answer_delay + random(&mut times.random, self.jitter)
    }

    pub(crate) fn service_time(&self) -> Duration {
        self.times.lock().service_time
    }

    pub(crate) fn began(&self, session: SessionId) {
        self.times.lock().session = Some(session);
    }

    /// Counts a connection, and returns `false` if there are `most` already.
    pub(crate) fn connected(&self, most: usize) -> bool {
        let connections = &mut self.times.lock().connections;
        let room = *connections < most;
        *connections += usize::from(room);
        room
    }

    pub(crate) fn disconnected(&self) {
        self.times.lock().connections -= 1;
    }
}

fn random(random: &mut Rng, most: Duration) -> Duration {
    Duration::from_nanos(random.u64(0..=u64::try_from(most.as_nanos()).unwrap_or(u64::MAX)))
}

/// The link between one client and the store, for injecting network faults.
#[derive(Clone)]
pub struct MemLink {
    link: Arc<Link>,
    /// The store keeps the hook, which may have a link.
    server: Weak<Server>,
}

impl MemLink {
    /// Returns how many connections the client has open.
    pub fn connections(&self) -> usize {
        self.link.times.lock().connections
    }

    pub(crate) fn new(link: Arc<Link>, server: &Arc<Server>) -> Self {
        MemLink { link, server: Arc::downgrade(server) }
    }

    pub(crate) fn number(&self) -> u64 {
        self.link.number
    }

    /// Returns the session that the client has begun last, if it is not over at the store.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        let session = self.link.times.lock().session?;
        self.server.upgrade()?.with(|state| state.session(session).is_ok()).then_some(session)
    }

    /// Breaks all connections and refuses new ones until [`heal`](Self::heal). The client notices at once. Requests that have not
    /// arrived are lost; the store finishes what it has accepted.
    pub fn suspend(&self) {
        self.link.wiring.update(|wiring| {
            wiring.mode = Mode::Down;
            wiring.breaks += 1;
        });
    }

    /// Breaks all connections, as [`suspend`](Self::suspend) does. The client may connect again at once.
    pub fn reset(&self) {
        self.link.wiring.update(|wiring| wiring.breaks += 1);
    }

    /// Lets nothing through in either direction until [`heal`](Self::heal), without the client noticing, as when a cable is
    /// unplugged. What was sent arrives then, also over connections that the client has given up.
    pub fn cut(&self) {
        self.link.wiring.update(|wiring| wiring.mode = Mode::Silent);
    }

    /// Lets requests through, but no responses and no hints, until [`heal`](Self::heal), which breaks the connections.
    pub fn mute(&self) {
        self.link.wiring.update(|wiring| wiring.mode = Mode::Mute);
    }

    /// Ends every fault of the link except for delays.
    pub fn heal(&self) {
        self.link.wiring.update(|wiring| {
            wiring.breaks += u64::from(wiring.mode == Mode::Mute);
            wiring.mode = Mode::Up;
        });
    }

    /// Delays the requests that are sent from now on, and the answers and hints to them. The order on each connection is kept. Zero
    /// durations end the delays. A delay of more than a year counts as a year.
    ///
    /// A connection that the client gives up meanwhile still delivers its requests.
    pub fn delay(&self, requests: Duration, answers: Duration) {
        let mut times = self.link.times.lock();
        times.request_delay = requests.min(LONGEST);
        times.answer_delay = answers.min(LONGEST);
    }

    /// Makes the store take this long for each request of this client from now on, one after the other on each connection. A batch
    /// keeps its lane and its scopes locked for that time.
    pub fn slow_down(&self, service_time: Duration) {
        self.link.times.lock().service_time = service_time.min(LONGEST);
    }
}

impl fmt::Debug for MemLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemLink({})", self.link.number)
    }
}
