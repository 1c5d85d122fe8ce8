//! The controls of the server for tests: inspecting it and injecting faults.

use std::collections::BTreeMap;
use std::sync::Arc;

use zlock_core::{FencingToken, LockPath, Node, NodeName, Queue, SessionId};

use crate::fault::{Arrival, Fate, Fault};
use crate::mem_link::MemLink;
use crate::request::Operation;
use crate::server::MemServer;
use crate::tree::{Child, Owner};

/// Inspecting and changing nodes.
impl MemServer {
    /// Returns the names of the children of `parent`, in alphabetical order.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> zlock::Result<()> {
    /// # use zlock::mem::MemServer;
    /// # let server = MemServer::new();
    /// let client = zlock::Client::new(server.connect());
    /// let guard = client.mutex("/app/orders")?.acquire().await?;
    /// assert_eq!(server.names(guard.path()), [guard.node().as_str()]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn names(&self, parent: &LockPath) -> Vec<String> {
        self.0.lock().tree.children(parent.as_str()).into_iter().map(|child| child.name.to_string()).collect()
    }

    /// Returns the queue of `parent` with the owner and the fencing token of every node, which the listings of clients
    /// do not include.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> zlock::Result<()> {
    /// # use zlock::mem::MemServer;
    /// # let server = MemServer::new();
    /// let client = zlock::Client::new(server.connect());
    /// let guard = client.mutex("/app/orders")?.acquire().await?;
    /// assert_eq!(server.queue(guard.path())[0].fencing_token, Some(guard.fencing_token()));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn queue(&self, parent: &LockPath) -> Queue {
        let children = self.0.lock().tree.children(parent.as_str());
        let node = |child: Child| {
            let mut node = Node::listed(child.name)?;
            node.fencing_token = Some(FencingToken::new(child.transaction));
            node.session = child.owner.session();
            Some(node)
        };
        Queue::wrapping(children.into_iter().filter_map(node).collect())
    }

    /// Returns the full path of every node and parent, in alphabetical order.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> zlock::Result<()> {
    /// # use zlock::mem::MemServer;
    /// # let server = MemServer::new();
    /// let client = zlock::Client::new(server.connect());
    /// let guard = client.mutex("/app/orders")?.acquire().await?;
    /// assert_eq!(server.paths().len(), 3); // /app, /app/orders and the lock's node
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn paths(&self) -> Vec<String> {
        self.0.lock().tree.paths().map(Into::into).collect()
    }

    /// Returns the data of a node, or `None` if it does not exist. The parent of the value at `/app/count` is `/app`.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> zlock::Result<()> {
    /// # use zlock::mem::MemServer;
    /// # let server = MemServer::new();
    /// let client = zlock::Client::new(server.connect());
    /// client.counter("/app/count")?.add(3).await?;
    /// assert_eq!(server.data(&"/app".parse()?, "count").unwrap(), 3_i64.to_be_bytes());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn data(&self, parent: &LockPath, name: &str) -> Option<Vec<u8>> {
        self.0.lock().tree.get(parent.as_str(), name).map(|node| node.data.clone())
    }

    /// Creates a child with exactly this name, and its missing parents. It belongs to no session and stays until it is
    /// removed. Does nothing if it exists.
    pub fn put(&self, parent: &LockPath, name: &str, data: &[u8]) {
        self.0.with(|state, now| {
            let transaction = state.next_transaction();
            let mut changes = state.tree.make_containers(parent.as_str(), transaction);
            changes.extend(state.tree.insert(
                parent.as_str(),
                name,
                Owner::Nobody,
                data.to_vec(),
                transaction,
            ));
            state.changed(changes, now);
        });
    }

    /// Deletes a node and everything below it, whichever session owns it, as an operator would. Returns `false` if the
    /// node does not exist.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> zlock::Result<()> {
    /// # use zlock::mem::MemServer;
    /// # let server = MemServer::new();
    /// let client = zlock::Client::new(server.connect());
    /// let guard = client.mutex("/app/orders")?.acquire().await?;
    /// server.remove(guard.path(), guard.node().as_str()); // an operator
    /// assert_eq!(guard.lost().await.kind(), zlock::ErrorKind::NodeDeleted);
    /// # Ok(())
    /// # }
    /// ```
    pub fn remove(&self, parent: &LockPath, name: &str) -> bool {
        self.0.with(|state, now| {
            let changes = state.tree.remove(parent.as_str(), name);
            let found = changes.is_some();
            state.next_transaction();
            state.changed(changes.unwrap_or_default(), now);
            found
        })
    }

    /// Removes every parent that has become empty. On its own, the server does so a minute after the first parent
    /// became empty.
    pub fn reap_containers(&self) {
        self.0.with(|state, now| {
            let changes = state.tree.reap();
            state.changed(changes, now);
        });
    }

    /// Removes one parent if it is empty, even if it never had a child.
    pub fn remove_parent(&self, parent: &LockPath) {
        self.0.with(|state, now| {
            let changes = state.tree.reap_one(parent.as_str());
            state.changed(changes, now);
        });
    }

    /// Sets the sequence number of the first child of every parent created from now on. Numbers are signed 32-bit and
    /// wrap: a start near `i32::MAX` lets a test cross the wrap.
    pub fn set_first_sequence(&self, number: i32) {
        self.0.lock().tree.set_first_sequence(number);
    }
}

/// Sessions, watches and requests.
impl MemServer {
    /// Returns the sessions that are live at the server, oldest first.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> zlock::Result<()> {
    /// # use zlock::mem::MemServer;
    /// # let server = MemServer::new();
    /// let client = zlock::Client::new(server.connect());
    /// let guard = client.mutex("/app/orders")?.acquire().await?;
    /// assert_eq!(server.sessions().len(), 1);
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionId> {
        self.0.lock().sessions.keys().copied().collect()
    }

    /// Ends a session with its nodes and watches, as [`MemLink::expire`] does. Returns `false` if there is no such session.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> zlock::Result<()> {
    /// # use zlock::mem::MemServer;
    /// # let server = MemServer::new();
    /// let client = zlock::Client::new(server.connect());
    /// let guard = client.mutex("/app/orders")?.acquire().await?;
    /// server.expire(server.sessions()[0]);
    /// assert_eq!(guard.lost().await.kind(), zlock::ErrorKind::SessionLost);
    /// # Ok(())
    /// # }
    /// ```
    pub fn expire(&self, session: SessionId) -> bool {
        self.0.with(|state, now| {
            let found = state.sessions.contains_key(&session);
            state.end_session(session, now);
            found
        })
    }

    /// Returns the link of the client that has this session.
    #[must_use]
    pub fn link_of(&self, session: SessionId) -> Option<MemLink> {
        let client = self.0.lock().sessions.get(&session)?.client;
        Some(MemLink::new(&self.0, client))
    }

    /// Returns the number of armed watches.
    #[must_use]
    pub fn watches(&self) -> usize {
        self.0.lock().watches.len()
    }

    /// Returns the number of watches that are armed on `path` and below it.
    #[must_use]
    pub fn watches_under(&self, path: &LockPath) -> usize {
        self.0.lock().watches.count(path.as_str())
    }

    /// Returns the number of watches that are armed on this node.
    #[must_use]
    pub fn watches_on(&self, parent: &LockPath, node: &NodeName) -> usize {
        self.0.lock().watches.on_child(parent.as_str(), node.as_str())
    }

    /// Returns the number of requests of this kind that have arrived since the last reset.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> zlock::Result<()> {
    /// # use zlock::mem::MemServer;
    /// # let server = MemServer::new();
    /// use zlock::mem::Operation;
    ///
    /// let client = zlock::Client::new(server.connect());
    /// let guard = client.mutex("/app/orders")?.acquire().await?;
    /// assert_eq!(server.requests(Operation::Create), 2); // one found no parent
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn requests(&self, operation: Operation) -> u64 {
        self.0.lock().counts.get(&operation).copied().unwrap_or_default()
    }

    /// Returns the number of requests of each kind that have arrived since the last reset.
    #[must_use]
    pub fn request_counts(&self) -> BTreeMap<Operation, u64> {
        self.0.lock().counts.clone()
    }

    /// Returns the number of watches that have fired since the server was created.
    #[must_use]
    pub fn fired_watches(&self) -> u64 {
        self.0.lock().fired
    }

    /// Sets the number of requests to zero.
    pub fn reset_requests(&self) {
        self.0.lock().counts.clear();
    }
}

/// Faults.
impl MemServer {
    /// Injects a fault that loses certain requests or their responses. If several faults apply, the first one injected
    /// decides.
    pub fn inject(&self, fault: Fault) {
        self.0.faults.inject(fault);
    }

    /// Calls `hook` for every request to which no [`Fault`] applies, when it arrives and before it takes effect. The
    /// hook may call the server, for instance to remove a node or end a session, and those calls take effect before the
    /// request. Replaces the previous hook.
    pub fn on_request(&self, hook: impl FnMut(&MemServer, &Arrival) -> Fate + Send + 'static) {
        // Weak: the server keeps the hook.
        let (server, mut hook) = (Arc::downgrade(&self.0), hook);
        self.0.faults.set_hook(Box::new(move |arrival| {
            server.upgrade().map_or(Fate::Pass, |server| hook(&MemServer(server), arrival))
        }));
    }

    /// Removes all faults and the hook.
    pub fn clear_faults(&self) {
        self.0.faults.clear();
    }

    /// Stops the server: every connection breaks and none is accepted. The nodes remain, and no session times out
    /// meanwhile, as when a ZooKeeper server is restarted.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> zlock::Result<()> {
    /// # use zlock::mem::MemServer;
    /// # let server = MemServer::new();
    /// let client = zlock::Client::new(server.connect());
    /// let guard = client.mutex("/app/orders")?.acquire().await?;
    /// server.stop();
    /// server.start();
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn stop(&self) {
        self.0.with(|state, _| {
            state.stopped = true;
            for link in state.links.values_mut() {
                link.hang_up();
                link.signal.notify_one();
            }
        });
    }

    /// Starts the server again. Every session has its whole timeout to reconnect.
    pub fn start(&self) {
        self.0.with(|state, now| {
            state.stopped = false;
            state.touch_all(now);
            for link in state.links.values() {
                link.signal.notify_one();
            }
        });
    }
}
