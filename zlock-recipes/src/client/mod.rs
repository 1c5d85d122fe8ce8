//! The client and its builder.
//!
//! The folder also has what the locks of a client share (`inner.rs`), and its calls for health and shutdown.

pub(crate) mod closing;
pub(crate) mod health;
pub(crate) mod hold_record;
pub(crate) mod inner;
pub(crate) mod joined;
pub(crate) mod shutdown;

use std::sync::{Arc, Weak};
use std::time::Duration;

use zlock_core::observer::Observer;
use zlock_core::{
    Close, CoordinationBackend, Error, ErrorKind, IntoBackend, MAX_DATA, Mutex, NodeIds, REVOKE, Result,
    SessionEvents,
};

use crate::client::closing::ShutdownState;
use crate::client::inner::ClientInner;
use crate::report::{Observing, Reports};

/// The default time limit of a release or a single attempt.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);

/// A connection to a coordination store, shared by all locks made with it. Cheap to clone.
///
/// A client has one session with the store at a time, and its locks belong to that session. When the last clone, lock
/// and guard are dropped, the client first finishes its background work and then ends the session. A
/// [`LockContext`](crate::LockContext), a [`Scope`](crate::Scope) and [`SessionEvents`] do not keep it.
///
/// A client may be created anywhere, including synchronous code, and its locks may be used on any runtime. The
/// background work, which removes the nodes of dropped guards and cancelled acquisitions, runs on the backend's
/// runtime. It is completed even if the client is dropped first.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock::Result<()> {
/// use std::time::Duration;
/// use zlock::Client;
/// use zlock::mem::MemServer;
///
/// let server = MemServer::new();
/// let client = Client::builder(server.connect())
///     .with_node_data("worker 7")?
///     .with_response_timeout(Duration::from_secs(5))?
///     .build();
/// client.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Client(Arc<ClientInner>);

impl Client {
    /// Ends the session at the store, and with it every held lock and every wait: waiters get [`ErrorKind::Closed`].
    ///
    /// Returns [`Close::Ended`] if the store has confirmed the end of the session: the locks are free. Returns
    /// [`Close::Pending`] if the store could not be reached or did not answer in time: the locks are free one session
    /// timeout later at the latest.
    ///
    /// # Errors
    /// Returns the backend's error. The backends of this workspace never fail here.
    ///
    /// # Cancel safety
    /// The session ends once the future has been polled. Dropping it only stops waiting for the confirmation.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # use zlock::Close;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// if client.close().await? == Close::Pending {
    ///     eprintln!("the locks are free when the session has timed out");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn close(&self) -> Result<Close> {
        self.0.shutdown.closed.raise();
        self.0.backend().close().await
    }

    /// Returns a view of the session: its state, and the deadline up to which locks are certainly held. Performs no I/O.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// use zlock::SessionState;
    ///
    /// let session = client.session_events().current();
    /// assert_eq!(session.state, SessionState::Connected);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn session_events(&self) -> SessionEvents {
        self.0.session.clone()
    }

    /// Returns the number of nodes that remain to be removed in the background: those of dropped guards, of cancelled
    /// acquisitions, and of releases that could not reach the server. Also counts nodes whose label is still to be changed,
    /// after a downgrade or for a semaphore. Includes the nodes of other clients of the same backend.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let guard = client.mutex("/app/orders/42")?.acquire().await?;
    /// drop(guard); // removed in the background
    /// println!("{} nodes are still to be removed", client.pending_cleanups());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn pending_cleanups(&self) -> usize {
        self.0.backend().background().len()
    }

    /// Reports the client's measurements to this observer from now on: its locks, its session and its requests. Without an
    /// observer, nothing is measured. Performs no I/O.
    ///
    /// Acquisitions under way and locks that are already held are not reported. If several clients share a backend, the first
    /// of their observers receives the measurements of the session and of all requests.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the client already has an observer, which it keeps.
    ///
    /// # Examples
    /// See [`Observer`].
    pub fn observe(&self, observer: Arc<dyn Observer>) -> Result<()> {
        let held: Weak<ClientInner> = Arc::downgrade(&self.0);
        let reports = Arc::new(Reports::new(observer, held));
        if self.0.observing.set(reports.clone()).is_err() {
            let message = "the client has an observer already";
            return Err(Error::new(ErrorKind::InvalidArgument, "observe").with_message(message));
        }
        self.0.backend.observe(reports);
        Ok(())
    }

    /// Creates a client with default settings on this backend.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// use zlock::Client;
    /// use zlock::mem::MemServer;
    ///
    /// let client = Client::new(MemServer::new().connect());
    /// # client.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(backend: impl IntoBackend) -> Self {
        Client::builder(backend).build()
    }

    /// Returns a builder for a client with other settings.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// use zlock::Client;
    /// use zlock::mem::MemServer;
    ///
    /// let client = Client::builder(MemServer::new().connect()).with_node_data("worker 7")?.build();
    /// # client.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(backend: impl IntoBackend) -> ClientBuilder {
        ClientBuilder {
            backend: backend.into_backend(),
            node_ids: NodeIds::random(),
            response_timeout: RESPONSE_TIMEOUT,
            node_data: default_node_data().into(),
        }
    }

    /// Returns a client with this state.
    pub(crate) fn of(inner: &Arc<ClientInner>) -> Self {
        Client(inner.clone())
    }

    pub(crate) fn inner(&self) -> &Arc<ClientInner> {
        &self.0
    }
}

/// Settings of a [`Client`]. Created by [`Client::builder`].
#[derive(Debug)]
#[must_use = "build the client"]
pub struct ClientBuilder {
    backend: Arc<dyn CoordinationBackend>,
    node_ids: NodeIds,
    response_timeout: Duration,
    node_data: Arc<[u8]>,
}

impl ClientBuilder {
    /// Sets how long a release waits for the server before it continues in the background, and how long a `try_acquire`
    /// may take. Defaults to 15 seconds. The backend's operation timeout, which limits each operation of a longer
    /// call, is an option of the backend.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for zero.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// use zlock::Client;
    /// use zlock::mem::MemServer;
    ///
    /// let builder = Client::builder(MemServer::new().connect());
    /// let client = builder.with_response_timeout(std::time::Duration::from_secs(5))?.build();
    /// # let _ = client;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_response_timeout(mut self, timeout: Duration) -> Result<Self> {
        if timeout.is_zero() {
            let message = "the response timeout is 0; it must be greater";
            return Err(Error::new(ErrorKind::InvalidArgument, "client").with_message(message));
        }
        self.response_timeout = timeout;
        Ok(self)
    }

    /// Sets the data of this client's nodes, which [`participants`](crate::LockHandle::participants) and an operator see.
    /// Defaults to the host name and the process ID.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] above [`MAX_DATA`], and for `__REVOKE__`, which requests revocation.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// use zlock::Client;
    /// use zlock::mem::MemServer;
    ///
    /// let client = Client::builder(MemServer::new().connect()).with_node_data("import job 7")?.build();
    /// # let _ = client;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_node_data(mut self, data: impl Into<Vec<u8>>) -> Result<Self> {
        self.node_data = check_node_data(data.into())?;
        Ok(self)
    }

    /// Makes the client create the same node IDs for the same seed. Only for tests on mem: on a shared store, IDs must be
    /// unique.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.node_ids = NodeIds::seeded(seed);
        self
    }

    /// Creates the client.
    #[must_use]
    pub fn build(self) -> Client {
        Client(Arc::new(ClientInner {
            session: self.backend.session_events(),
            node_ids: self.node_ids,
            response_timeout: self.response_timeout,
            node_data: self.node_data,
            admission: Arc::default(),
            places: Arc::default(),
            cohorts: Arc::default(),
            joined: Arc::default(),
            shutdown: ShutdownState::default(),
            holds: Mutex::default(),
            backend: self.backend,
            observing: Observing::default(),
        }))
    }
}

pub(crate) fn check_node_data(data: Vec<u8>) -> Result<Arc<[u8]>> {
    if data.len() > MAX_DATA {
        let message = format!("{} bytes of node data; the limit is {MAX_DATA}", data.len());
        return Err(Error::new(ErrorKind::InvalidArgument, "node data").with_message(message));
    }
    if data == REVOKE {
        let message = "\"__REVOKE__\" is reserved for requests for revocation";
        return Err(Error::new(ErrorKind::InvalidArgument, "node data").with_message(message));
    }
    Ok(data.into())
}

fn default_node_data() -> Vec<u8> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .or_else(|| std::env::var("COMPUTERNAME").ok())
        .unwrap_or_else(|| "unknown".into());
    format!("{} pid {}", host.trim(), std::process::id()).into_bytes()
}
