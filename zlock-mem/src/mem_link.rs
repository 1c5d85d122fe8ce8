//! The controls of one client's link for tests.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use zlock_core::SessionId;

use crate::fault::Fault;
use crate::link::{ClientId, Link, Mode};
use crate::options::LONGEST;
use crate::server::Server;

/// The link between one client and the server, for injecting network faults. It keeps neither the client's session nor
/// its backend alive, and does nothing once the backend is dropped.
#[derive(Clone)]
pub struct MemLink {
    /// The server keeps the hook, which may have a link.
    server: Weak<Server>,
    client: ClientId,
}

impl MemLink {
    pub(crate) fn new(server: &Arc<Server>, client: ClientId) -> Self {
        MemLink { server: Arc::downgrade(server), client }
    }

    fn with(&self, change: impl FnOnce(&mut Link)) {
        let Some(server) = self.server.upgrade() else { return };
        server.with(|state, _| {
            if let Some(link) = state.links.get_mut(&self.client) {
                change(link);
                link.signal.notify_one();
                if let Some(due) = link.next_due() {
                    state.arm(due);
                }
                state.mark(self.client);
            }
        });
    }

    /// Returns the session that the server has for this client.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> zlock::Result<()> {
    /// # use zlock::mem::MemServer;
    /// # let server = MemServer::new();
    /// let backend = server.connect();
    /// let link = backend.link();
    /// let client = zlock::Client::new(backend);
    /// let guard = client.mutex("/app/orders")?.acquire().await?;
    ///
    /// assert!(server.sessions().contains(&link.session().unwrap()));
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        let server = self.server.upgrade()?;
        let state = server.lock();
        let session = state.links.get(&self.client)?.session?;
        state.sessions.contains_key(&session).then_some(session)
    }

    /// Ends the client's session at the server, without waiting for the client's deadline. The client learns of it afterwards;
    /// until then, its guards may return `true` from `is_held`, even if another client has acquired the lock. With
    /// [`cut`](Self::cut), the session times out.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> zlock::Result<()> {
    /// # use zlock::mem::MemServer;
    /// # let server = MemServer::new();
    /// let backend = server.connect();
    /// let link = backend.link();
    /// let client = zlock::Client::new(backend);
    /// let guard = client.mutex("/app/orders")?.acquire().await?;
    ///
    /// link.expire();
    /// assert!(guard.lost().await.is_lock_lost());
    /// # Ok(())
    /// # }
    /// ```
    pub fn expire(&self) {
        if let (Some(session), Some(server)) = (self.session(), self.server.upgrade()) {
            server.with(|state, now| state.end_session(session, now));
        }
    }

    /// Breaks the connection and refuses new ones until [`heal`](Self::heal). The client notices at once. The session
    /// remains at the server until it times out.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> zlock::Result<()> {
    /// # use zlock::mem::MemServer;
    /// # let server = MemServer::new();
    /// let backend = server.connect();
    /// let link = backend.link();
    /// let client = zlock::Client::new(backend);
    /// let guard = client.mutex("/app/orders")?.acquire().await?;
    ///
    /// link.suspend();
    /// assert!(guard.is_held()); // until the deadline
    /// link.heal();
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn suspend(&self) {
        self.with(|link| {
            link.mode = Mode::Down;
            link.hang_up();
        });
    }

    /// Breaks the connection. The client may reconnect at once. Messages in flight are lost.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> zlock::Result<()> {
    /// # use zlock::mem::MemServer;
    /// # let server = MemServer::new();
    /// let backend = server.connect();
    /// let link = backend.link();
    /// let client = zlock::Client::new(backend);
    /// let guard = client.mutex("/app/orders")?.acquire().await?;
    ///
    /// link.reset();
    /// guard.release().await?; // after the client has reconnected
    /// # Ok(())
    /// # }
    /// ```
    pub fn reset(&self) {
        self.with(Link::hang_up);
    }

    /// Lets nothing through in either direction until [`heal`](Self::heal), without the client noticing, as when a
    /// cable is unplugged or packets are dropped. Requests that the client has not given up by then arrive late.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> zlock::Result<()> {
    /// # use zlock::mem::MemServer;
    /// # let server = MemServer::new();
    /// let backend = server.connect();
    /// let link = backend.link();
    /// let client = zlock::Client::new(backend);
    /// let guard = client.mutex("/app/orders")?.acquire().await?;
    ///
    /// link.cut();
    /// assert!(guard.lost().await.is_lock_lost()); // at the deadline
    /// assert_eq!(server.sessions().len(), 1); // the server has not noticed yet
    /// # Ok(())
    /// # }
    /// ```
    pub fn cut(&self) {
        self.with(|link| link.mode = Mode::Silent);
    }

    /// Lets requests through, but no responses and no events, until [`heal`](Self::heal), which breaks the connection, so
    /// that the responses are lost.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> zlock::Result<()> {
    /// # use zlock::mem::MemServer;
    /// # let server = MemServer::new();
    /// let backend = server.connect();
    /// let link = backend.link();
    /// let client = zlock::Client::new(backend);
    /// let guard = client.mutex("/app/orders")?.acquire().await?;
    ///
    /// link.mute();
    /// assert!(guard.lost().await.is_lock_lost());
    /// # Ok(())
    /// # }
    /// ```
    pub fn mute(&self) {
        self.with(|link| link.mode = Mode::Mute);
    }

    /// Ends every fault of the link except for delays.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> zlock::Result<()> {
    /// # use zlock::mem::MemServer;
    /// # let server = MemServer::new();
    /// let backend = server.connect();
    /// let link = backend.link();
    /// let client = zlock::Client::new(backend);
    /// let guard = client.mutex("/app/orders")?.acquire().await?;
    ///
    /// link.cut();
    /// tokio::time::sleep(std::time::Duration::from_secs(2)).await; // shorter than the session
    /// link.heal();
    /// assert!(guard.is_held());
    /// # Ok(())
    /// # }
    /// ```
    pub fn heal(&self) {
        self.with(|link| {
            if link.mode == Mode::Mute {
                link.hang_up();
            }
            link.mode = Mode::Up;
        });
    }

    /// Delays requests to the server, and responses and events from it. The order in each direction is kept. A zero
    /// duration ends the delay. A delay of more than a year counts as a year.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> zlock::Result<()> {
    /// # use zlock::mem::MemServer;
    /// # let server = MemServer::new();
    /// let backend = server.connect();
    /// let link = backend.link();
    /// let client = zlock::Client::new(backend);
    /// let guard = client.mutex("/app/orders")?.acquire().await?;
    ///
    /// use std::time::Duration;
    ///
    /// link.delay(Duration::from_millis(200), Duration::ZERO);
    /// let sent = tokio::time::Instant::now();
    /// guard.release().await?;
    /// assert!(sent.elapsed() >= Duration::from_millis(200));
    /// # Ok(())
    /// # }
    /// ```
    pub fn delay(&self, requests: Duration, answers: Duration) {
        self.with(|link| {
            link.request_delay = requests.min(LONGEST);
            link.answer_delay = answers.min(LONGEST);
        });
    }

    /// Makes the server take this long for each request of this client from now on, one after the other: an overloaded
    /// server. Also heartbeats wait for the requests before them.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let server = zlock::mem::MemServer::new();
    /// let backend = server.connect();
    /// let link = backend.link();
    /// let client = zlock::Client::new(backend);
    ///
    /// use std::time::Duration;
    ///
    /// link.slow_down(Duration::from_millis(20));
    /// let began = tokio::time::Instant::now();
    /// let guard = client.mutex("/app/orders")?.acquire().await?;
    /// assert!(began.elapsed() >= Duration::from_millis(20));
    /// # guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn slow_down(&self, service_time: Duration) {
        self.with(|link| link.service_time = service_time.min(LONGEST));
    }
}

impl Fault {
    /// Restricts the fault to one client.
    #[must_use]
    pub fn only(mut self, link: &MemLink) -> Self {
        self.client = Some(link.client);
        self
    }
}

impl fmt::Debug for MemLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemLink({})", self.client.0)
    }
}
