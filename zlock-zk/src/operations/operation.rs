//! One operation of a backend: its budget, and the way of its requests to the server.

use std::future::{Future, poll_fn};
use std::sync::Arc;

use tokio::time::Instant;
use zlock_core::kit::{Budget, SessionKey};
use zlock_core::{
    Consistency, ErrorKind, LastFailure, LockPath, Node, NodeId, NodeName, Queue, Result, SessionId,
};
use zookeeper_client::{Acls, CreateMode, Stat};

use crate::error::{Failure, if_exists};
use crate::session::heartbeat::check;
use crate::session::in_flight::Call;
use crate::session::{Live, Shared, catch_up, own_id};

/// A running operation on the queue of one path.
#[derive(Debug)]
pub(crate) struct Operation<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    /// The queue's path at the server.
    server_path: Arc<str>,
    pub(crate) budget: Budget<'a, Live>,
}

/// What a request leaves behind at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// Nothing, or at most a parent that is empty.
    Nothing,
    /// A watch. The request is answered even if its operation is dropped, so that the watch is removed.
    Watch,
    /// A change of the queue. The operation is ambiguous from the time that such a request gets no answer. An answered one is
    /// a committed write of the session.
    Change,
}

impl<'a> Operation<'a> {
    pub(crate) fn new(shared: &'a Arc<Shared>, name: &'static str, path: &'a LockPath) -> Self {
        let budget = Budget::new(&shared.sessions, &shared.options.kit, name, path);
        Operation { shared, server_path: shared.options.server_path(path), budget }
    }

    /// Returns this as a part of other operations, which is not reported.
    pub(crate) fn unreported(mut self) -> Self {
        self.budget = self.budget.unreported();
        self
    }

    /// Returns the path at the server. The chroot is prepended here and not by the client library, which would not create a
    /// missing chroot.
    pub(crate) fn server_path(&self) -> Arc<str> {
        self.server_path.clone()
    }

    /// Returns the path at the server of a node in the queue.
    pub(crate) fn node_path(&self, name: &NodeName) -> String {
        [&self.server_path, "/", name.as_str()].concat()
    }

    /// Returns the ID by which the session knows the node with this ID.
    pub(crate) fn own_id(&self, node_id: &NodeId) -> NodeId {
        own_id(&self.server_path, node_id)
    }

    /// Sends the request of `call` in this session once that is connected, and waits for the answer until the session has ended
    /// or the operation's time is used up. While the session is suspended, the library would queue requests without a limit, and
    /// send all of them when it reconnects.
    ///
    /// While the session is connected, the request is sent at the first poll, so the order of polls is the order on the wire.
    ///
    /// # Cancel safety
    /// The request may still take effect.
    pub(crate) async fn send<T, E, F>(
        &mut self,
        session: SessionKey,
        leaves: Leaves,
        call: impl FnOnce(Arc<Live>) -> F,
    ) -> Result<T, Failure>
    where
        T: Send + 'static,
        E: Into<Failure> + Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        let (shared, until, mut sent) = (self.shared, self.budget.deadline(), None);
        let answer = async {
            let call = loop {
                // A session that is found connected here is live as long as the mutex is locked, and its end cancels the call.
                {
                    let mut calls = shared.in_flight.lock();
                    // A session past its deadline must not be used, even if the session loop has not ended it yet.
                    if let Some(live) = shared.sessions.get(session)
                        && shared.sessions.is_connected(session) == Ok(true)
                    {
                        sent = Some(Instant::now());
                        break calls.begin(call(live));
                    }
                }
                shared.sessions.connected(session, until).await?;
            };
            let under_way = UnderWay { shared, session, leaves, call };
            let answer = poll_fn(|cx| under_way.call.poll(cx));
            let answer = shared.sessions.run_until_ended(session, until, answer).await?;
            answer.map_err(|error| shared.to_failure(session, error))
        };
        let answer = answer.await;
        // What was not sent has no unknown outcome.
        let Some(sent) = sent.filter(|_| leaves == Leaves::Change) else { return answer };
        if let (Ok(_), Some(live)) = (&answer, shared.sessions.get(session)) {
            live.touches.lock().wrote(sent);
        }
        self.budget.record(answer)
    }

    /// Returns the queue of the path. A missing path has an empty queue.
    pub(crate) async fn list(
        &mut self,
        session: SessionKey,
        consistency: Consistency,
    ) -> Result<Queue, Failure> {
        let path = self.server_path();
        let listed = self.send(session, Leaves::Nothing, move |live| async move {
            let (synced, names) =
                tokio::join!(catch_up(&live, consistency), live.client.list_children(&path));
            synced.and(names)
        });
        if_exists(listed.await).map(|names| names.map(Queue::listed).unwrap_or_default())
    }

    /// Returns the data and the stat of the server's node at `path`, or `None` if it does not exist.
    pub(crate) async fn data(
        &mut self,
        session: SessionKey,
        path: impl AsRef<str> + Send + 'static,
        consistency: Consistency,
    ) -> Result<Option<(Vec<u8>, Stat)>, Failure> {
        let read = self.send(session, Leaves::Nothing, move |live| async move {
            let read = live.client.get_data(path.as_ref());
            let (synced, read) = tokio::join!(catch_up(&live, consistency), read);
            synced.and(read)
        });
        if_exists(read.await)
    }

    /// Returns the stat of the server's node at `path`, which the connected server has seen. `None` if it does not exist there.
    pub(crate) async fn stat(
        &mut self,
        session: SessionKey,
        path: impl AsRef<str> + Send + 'static,
    ) -> Result<Option<Stat>, Failure> {
        let ask = move |live: Arc<Live>| async move { live.client.check_stat(path.as_ref()).await };
        self.send(session, Leaves::Nothing, ask).await
    }

    /// Returns whether the server's node at `path` exists. The leader answers, because it is asked by a write.
    pub(crate) async fn is_there(
        &mut self,
        session: SessionKey,
        path: impl AsRef<str> + Send + 'static,
    ) -> Result<bool, Failure> {
        let ask = move |live: Arc<Live>| async move { check(&live.client, path.as_ref()).await };
        self.send(session, Leaves::Change, ask).await
    }

    /// Creates a node of the server at `path`, with the access list of the options.
    pub(crate) async fn create(
        &mut self,
        session: SessionKey,
        leaves: Leaves,
        path: impl AsRef<str> + Send + 'static,
        data: &[u8],
        mode: CreateMode,
    ) -> Result<Stat, Failure> {
        let (data, acls) = (data.to_owned(), self.shared.options.acls.clone());
        let created = self.send(session, leaves, move |live| async move {
            live.client.create(path.as_ref(), &data, &mode.with_acls(Acls::new(&acls))).await
        });
        created.await.map(|(stat, _)| stat)
    }

    /// Returns the current name of a node that does not exist under its known name. `None` if it is gone.
    pub(crate) async fn renamed(
        &mut self,
        session: SessionKey,
        node: &Node,
    ) -> Result<Option<NodeName>, Failure> {
        // Such a label never changes, so the node cannot have another name by now.
        if node.label.is_fixed() {
            return Ok(None);
        }
        let queue = self.list(session, Consistency::Seen).await?;
        Ok(queue.find(&node.id).map(|found| found.name.clone()))
    }

    /// Returns the failure with which the operation ends, because its node no longer exists.
    pub(crate) fn node_deleted(&mut self) -> Failure {
        self.budget.ambiguous = false;
        Failure::NodeDeleted
    }

    /// Logs the reason why the operation takes so long.
    pub(crate) fn warn(&self, why: &'static str) {
        let Operation { budget, .. } = self;
        LastFailure::note(|| budget.error(ErrorKind::Unavailable).with_message(why));
        tracing::warn!(operation = budget.operation(), path = %budget.path(), why);
    }
}

/// Returns the session that a node of the server belongs to.
pub(crate) fn owner(stat: &Stat) -> Option<SessionId> {
    (stat.ephemeral_owner != 0).then(|| SessionId::new(stat.ephemeral_owner.cast_unsigned()))
}

/// A request in flight. If it leaves a watch, it goes on when this is dropped, until it is answered or the session is over.
struct UnderWay<'a, T: Send + 'static> {
    shared: &'a Shared,
    session: SessionKey,
    leaves: Leaves,
    call: Call<T>,
}

impl<T: Send + 'static> Drop for UnderWay<'_, T> {
    fn drop(&mut self) {
        if self.leaves == Leaves::Watch && !self.call.is_done() {
            let (call, ended) = (self.call.clone(), self.shared.sessions.ended(self.session));
            self.shared.runtime.spawn(async move {
                tokio::select! {
                    biased;
                    () = ended => {}
                    answer = poll_fn(|cx| call.poll(cx)) => drop(answer),
                }
            });
        }
    }
}
