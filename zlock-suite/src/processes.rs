//! What the cases of the recipes do with clients.

use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio::time::timeout;
use zlock_core::{LockPath, Result, Session, SessionState};
use zlock_recipes::{Client, ClientBuilder};

use crate::case::{LONG, lock};
use crate::wrapped::Wrapped;
use crate::{Call, Case, Connection, Faults, GuardOf, Mutual, Side, TestLock};

/// A client with its own session, like another process.
#[derive(Debug)]
pub struct Process {
    /// The client.
    pub client: Client,
    /// Its backend, as the store knows it.
    pub connection: Connection,
    /// The faults of its calls.
    pub faults: Arc<Faults>,
}

impl Process {
    /// Returns a snapshot of the session.
    #[must_use]
    pub fn session(&self) -> Session {
        self.client.session_events().current()
    }
}

impl Case<'_> {
    /// Creates a client.
    pub async fn process(&self) -> Process {
        self.process_with(|builder| builder).await
    }

    /// Creates a client with its own settings.
    pub async fn process_with(&self, settings: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Process {
        let connection = self.store.connect().await;
        let faults = Arc::<Faults>::default();
        let faulty = Wrapped { inner: connection.backend.clone(), around: faults.clone() };
        let client = settings(Client::builder(faulty)).build();
        lock(&self.clients).push(client.clone());
        Process { client, connection, faults }
    }

    /// Creates a client of which the case keeps no handle.
    pub(crate) async fn unkept(&self) -> (Client, Arc<Faults>) {
        let (backend, faults) = (self.store.connect().await.backend, Arc::<Faults>::default());
        (Client::new(Wrapped { inner: backend, around: faults.clone() }), faults)
    }

    /// Creates clients.
    pub async fn processes<const N: usize>(&self) -> [Process; N] {
        let mut processes = Vec::with_capacity(N);
        for _ in 0..N {
            processes.push(self.process().await);
        }
        processes.try_into().expect("N of them")
    }

    /// Returns a lock under this case's root.
    pub fn lock<M: Mutual>(&self, process: &Process, name: &str) -> M::Lock {
        let path = self.path(name);
        self.uses(M::paths(&path));
        M::at(&process.client, path.as_str()).expect("a lock")
    }

    /// Returns how many places are in a queue at the server.
    pub async fn queued(&self, path: &LockPath) -> usize {
        self.store.names(path).await.len()
    }

    /// Waits until this many places are in the queue.
    pub async fn until_queued(&self, path: &LockPath, places: usize) {
        let what = format!("{places} places taken at {path}");
        self.until(&what, async || self.queued(path).await == places).await;
    }

    /// Waits until this many waits of a process have begun: their creates are answered, and they wait for the places ahead of
    /// them. A node at the server does not show that.
    pub async fn until_waiting(&self, process: &Process, waits: usize) {
        let begun = || process.faults.count(Call::Exists) + process.faults.count(Call::ChildrenWithWatch);
        self.until(&format!("{waits} waits have begun"), async || begun() >= waits).await;
    }

    /// Waits for a lock in a task. Returns when the wait's watch is armed. For the head of the queue.
    pub async fn waiting<M: Mutual>(
        &self,
        process: &Process,
        lock: M::Lock,
    ) -> JoinHandle<Result<GuardOf<M>>> {
        let armed = process.faults.hold(M::WAIT, Side::After);
        let waiter = tokio::spawn(async move { lock.acquire().await });
        armed.reached().await;
        waiter
    }

    /// Waits until there is no holder and no waiter, while the clients live.
    pub async fn until_free(&self, path: &LockPath) {
        self.until_queued(path, 0).await;
    }

    /// Waits until the session is in this state, in an epoch not below this one.
    pub async fn until_session(&self, process: &Process, epoch: u64, state: SessionState) {
        let mut events = process.client.session_events();
        let reached = timeout(3 * self.store.session_timeout() + LONG, async {
            let mut session = events.current();
            while session.epoch < epoch || session.state != state {
                session = events.changed().await;
            }
        });
        assert!(reached.await.is_ok(), "never {state:?} in epoch {epoch}: {:?}", process.session());
    }
}
