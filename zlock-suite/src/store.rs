//! The interface of a store to the suite.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use zlock_core::{CoordinationBackend, LockPath};

/// A store under test: connects backends, and does directly what an operator could do at the server. Its methods panic if the
/// store fails.
#[async_trait]
pub trait Store: Send + Sync {
    /// Connects a backend with its own session.
    async fn connect(&self) -> Connection;

    /// Returns a path that no other client uses, for one case. Nothing exists there yet.
    fn root(&self) -> LockPath;

    /// Returns the timeout of the sessions that [`connect`](Self::connect) creates.
    fn session_timeout(&self) -> Duration;

    /// Returns the names of the children of `parent` at the server, in any order. Empty if there is no parent.
    async fn names(&self, parent: &LockPath) -> Vec<String>;

    /// Creates a child with exactly this name, which belongs to no session, and its missing parents.
    async fn put(&self, parent: &LockPath, name: &str);

    /// Deletes a child, whatever its owner, and everything below it.
    async fn remove(&self, parent: &LockPath, name: &str);

    /// Removes `parent` if it exists and has no children, as the store's own clean-up would. A no-op on a store without
    /// parents.
    async fn remove_parent(&self, parent: &LockPath);

    /// Ends the session of a backend at the server, by any means, and returns when it has ended there. The backend can reach
    /// the server afterwards.
    async fn expire(&self, connection: &Connection);

    /// Returns how many watches the server has on `parent` and below it. `None` if that is not known.
    async fn watches(&self, _parent: &LockPath) -> Option<usize> {
        None
    }

    /// Returns the maximum number of watches at the server while this many processes take turns at one lock. By default, one
    /// for each waiter.
    fn most_watches(&self, processes: usize) -> usize {
        processes - 1
    }

    /// Returns `true` if each watch needs a request. On some stores, the first watch after a create may need none.
    fn watches_by_request(&self) -> bool {
        true
    }

    /// Returns the links between the backends and the server, if the store can break them.
    fn links(&self) -> Option<&dyn Links> {
        None
    }
}

/// Breaks the link of one backend. All methods take effect at once; [`heal`](Self::heal) ends all faults.
#[async_trait]
pub trait Links: Send + Sync {
    /// Creates a backend over a link that is [cut](Self::cut) from the beginning, so it has no session yet.
    async fn connect_cut(&self) -> Connection;

    /// Breaks the connection so that the client notices, and refuses new ones. Requests under way fail at once.
    async fn cut(&self, connection: &Connection);

    /// Lets nothing through in either direction, without the client noticing. Messages arrive after `heal`.
    async fn freeze(&self, connection: &Connection);

    /// Lets requests through, but no answers, which are lost for good. `heal` breaks the connection, so that the client
    /// notices. The answer to a request that was sent before `heal` is lost, even if its caller is polled only later.
    async fn mute(&self, connection: &Connection);

    /// Repairs the link.
    async fn heal(&self, connection: &Connection);
}

/// A backend under test.
pub struct Connection {
    /// The backend. The suite keeps no other handle of it.
    pub backend: Arc<dyn CoordinationBackend>,
    /// The store's key for it.
    pub key: usize,
}

impl Deref for Connection {
    type Target = dyn CoordinationBackend;

    fn deref(&self) -> &Self::Target {
        &*self.backend
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({})", self.key)
    }
}
