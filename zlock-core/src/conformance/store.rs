//! What a store offers to the suite.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::backend::CoordinationBackend;
use crate::path::LockPath;

/// A store under test: makes backends, and does by hand what an operator could do at the server. Its methods
/// panic when the store fails them.
#[async_trait]
pub trait Store: Send + Sync {
    /// A new backend with a session of its own, connected.
    async fn connect(&self) -> Connection;

    /// A path that nobody else uses, under which a case works. Nothing is there yet.
    fn root(&self) -> LockPath;

    /// The timeout of the sessions that [`connect`](Self::connect) makes.
    fn session_timeout(&self) -> Duration;

    /// The names of the children of `parent` as the server has them, in any order; none if there is no parent.
    async fn names(&self, parent: &LockPath) -> Vec<String>;

    /// Makes a child with exactly this name, which belongs to no session, and its missing parents.
    async fn put(&self, parent: &LockPath, name: &str);

    /// Deletes a child, whoever owns it, and what is below it.
    async fn remove(&self, parent: &LockPath, name: &str);

    /// Removes `parent` if it is there and has no children, as the store's own clean-up would. Nothing on a
    /// store that has no parents.
    async fn remove_parent(&self, parent: &LockPath);

    /// Ends the session of a backend at the server, by whatever means, and returns when it has ended there.
    /// The backend can reach the server afterwards.
    async fn expire(&self, connection: &Connection);

    /// How many watches the server has on `parent` and on what is below it. `None` if it cannot tell.
    async fn watches(&self, _parent: &LockPath) -> Option<usize> {
        None
    }

    /// The most watches that the server may have while this many processes take turns at one lock: one for each
    /// that waits, unless the store says otherwise.
    fn most_watches(&self, processes: usize) -> usize {
        processes - 1
    }

    /// The links between the backends and the server, if the store can harm them.
    fn links(&self) -> Option<&dyn Links> {
        None
    }
}

/// Harms the link of one backend. All methods take effect at once; [`heal`](Self::heal) ends them all.
#[async_trait]
pub trait Links: Send + Sync {
    /// A new backend over a link that is [cut](Self::cut) from the beginning, so it has no session yet.
    async fn connect_cut(&self) -> Connection;

    /// Breaks the connection so that the client sees it, and refuses new ones.
    async fn cut(&self, connection: &Connection);

    /// Lets nothing through in either direction, without a word. What is sent arrives after `heal`.
    async fn freeze(&self, connection: &Connection);

    /// Lets requests through, but no answer; the answers are lost for good. `heal` breaks the connection, so
    /// that the client sees it.
    async fn mute(&self, connection: &Connection);

    /// Mends the link.
    async fn heal(&self, connection: &Connection);
}

/// A backend under test.
pub struct Connection {
    /// The backend. The suite keeps no other handle of it.
    pub backend: Arc<dyn CoordinationBackend>,
    /// What the store knows it by.
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
