//! The contract, on the mem server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use tokio::time::timeout;
use zlock_core::{
    Background, Close, CoordinationBackend, Created, Deletion, ErrorKind, Existence, Label, LockPath, Node,
    NodeData, NodeId, NodeName, Queue, Result, Session, SessionEvents, Target, Watch,
};

use crate::armed::Arming;
use crate::call::{Call, Retries};
use crate::control::MemLink;
use crate::create::{Wanted, create};
use crate::options::MemOptions;
use crate::request::{Answer, Request, Watcher};
use crate::server::{MemServer, Server};
use crate::session::{Asked, Shared};

/// Clients.
impl MemServer {
    /// A new client with a session of its own, with the default options. See
    /// [`connect_with`](Self::connect_with).
    #[must_use]
    pub fn connect(&self) -> MemBackend {
        self.connect_with(MemOptions::default())
    }

    /// A new client with a session of its own.
    ///
    /// Inside a tokio runtime it is connected when this returns, unless the server is stopped; elsewhere its
    /// first operation connects it. That runtime then keeps the session alive and does the work that clients leave to
    /// the background. When it has ended, the runtime of the next operation does. If it has not ended and is not driven,
    /// the session is lost.
    ///
    /// All runtimes that share a server must run on the same clock. A paused one (`start_paused`) beside a real one is like
    /// two machines whose clocks run at different speeds, for which no lock is safe.
    #[must_use]
    pub fn connect_with(&self, options: MemOptions) -> MemBackend {
        MemBackend::new(self.0.clone(), options)
    }
}

/// One client of a [`MemServer`]: one session at a time. Made by [`MemServer::connect`]; dropping it closes its session.
///
/// Requests are cut, counted and ordered as ZooKeeper's are: those of one client take effect in the order in
/// which they were sent, a create and its listing go out together, a parent that is missing costs two more.
#[derive(Debug)]
pub struct MemBackend {
    shared: Arc<Shared>,
    /// The server has confirmed the end of the session.
    ended: AtomicBool,
}

impl MemBackend {
    pub(crate) fn new(server: Arc<Server>, options: MemOptions) -> Self {
        MemBackend { shared: Shared::new(server, options), ended: AtomicBool::new(false) }
    }

    /// The link between this client and the server, to harm it.
    #[must_use]
    pub fn link(&self) -> MemLink {
        MemLink::new(self.shared.server.clone(), self.shared.client)
    }

    fn call<'a>(&'a self, operation: &'static str, path: &'a LockPath) -> Call<'a> {
        self.shared.keep_task();
        Call::new(&self.shared, operation, path)
    }

    /// The node of this ID as a listing has it now.
    async fn find(
        &self,
        call: &Call<'_>,
        retries: &mut Retries,
        parent: &LockPath,
        node_id: &NodeId,
    ) -> Result<Option<Node>> {
        let (_, queue) = self.list(call, retries, parent, || None).await?;
        Ok(queue.find(node_id).cloned())
    }

    async fn list(
        &self,
        call: &Call<'_>,
        retries: &mut Retries,
        parent: &LockPath,
        mut watcher: impl FnMut() -> Option<Watcher>,
    ) -> Result<(Session, Queue)> {
        let request = || Request::List { parent: parent.clone(), watcher: watcher() };
        match call.answer_to(retries, request).await? {
            (session, Answer::Children(children)) => Ok((session, Queue::listed(children))),
            (_, answer) => Err(call.unexpected(&answer)),
        }
    }

    async fn exists(&self, call: &Call<'_>, parent: &LockPath, seen: &Node) -> Result<Existence> {
        let mut retries = call.retries();
        loop {
            let mut armed = Arming::default();
            let request = || Request::Watch {
                parent: parent.clone(),
                name: seen.name.as_str().into(),
                watcher: armed.renew(&self.shared.server),
            };
            let (session, answer) = call.answer_to(&mut retries, request).await?;
            match answer {
                Answer::Done => return Ok(Existence::Watching(armed.watch(&self.shared, session))),
                Answer::NoNode if seen.label == Label::Lock => return Ok(Existence::Deleted),
                Answer::NoNode => match self.find(call, &mut retries, parent, &seen.id).await? {
                    None => return Ok(Existence::Deleted),
                    // Its create went on in another session of its client, at another place.
                    Some(node) if node.sequence != seen.sequence => return Ok(Existence::Deleted),
                    Some(node) if node.label != seen.label => return Ok(Existence::Changed(node)),
                    // It has its label back: try again to watch it.
                    Some(_) => {}
                },
                answer => return Err(call.unexpected(&answer)),
            }
        }
    }

    async fn change_label(
        &self,
        call: &Call<'_>,
        parent: &LockPath,
        node: &Node,
        label: Label,
    ) -> Result<Node> {
        let to = NodeName::of(&node.id, label, node.sequence);
        let done = Node { name: to.clone(), label, ..node.clone() };
        let mut from = node.name.clone();
        let mut retries = call.retries();
        loop {
            let session = self.session_of(call, node).await?;
            let (parent_, from_, to_) = (parent.clone(), from.as_str().into(), to.as_str().into());
            let request = Request::Relabel { parent: parent_, from: from_, to: to_ };
            match call.ask(session, request).await {
                Asked::Answer(Answer::Done) => return Ok(done),
                Asked::Answer(Answer::NoNode) => {
                    match self.find(call, &mut retries, parent, &node.id).await? {
                        Some(found) if found.name == to => return Ok(done),
                        Some(found) => from = found.name,
                        None => {
                            self.session_of(call, node).await?;
                            self.shared.own.report_deleted(&node.id);
                            return Err(call.error(ErrorKind::NodeDeleted));
                        }
                    }
                }
                Asked::Answer(answer) => return Err(call.unexpected(&answer)),
                Asked::Lost | Asked::Over => call.again(&mut retries).await?,
            }
        }
    }

    /// The session of an own node, once it is connected; an error when it is over.
    async fn session_of(&self, call: &Call<'_>, node: &Node) -> Result<Session> {
        let session = self.shared.publisher.current();
        if node.session != Some(session.id) || !session.is_live() {
            return Err(call.error(ErrorKind::SessionLost));
        }
        let mut events = self.shared.events();
        tokio::select! {
            biased;
            _ = events.over(session.epoch) => Err(call.error(ErrorKind::SessionLost)),
            session = call.session() => Ok(session),
        }
    }

    async fn remove(&self, call: &Call<'_>, parent: &LockPath, target: &Target) -> Result<Deletion> {
        self.shared.own.remove(target.id());
        let mut retries = call.retries();
        let (mut name, may_have_another) = match target {
            Target::Node(node) => (Some(node.name.clone()), node.label != Label::Lock),
            Target::Id(_) => (None, true),
        };
        loop {
            if let Some(name) = name {
                let request = || Request::Delete { parent: parent.clone(), name: name.as_str().into() };
                match call.answer_to(&mut retries, request).await?.1 {
                    Answer::Done => return Ok(Deletion::Deleted),
                    Answer::NoNode if !may_have_another => return Ok(call.deleted()),
                    Answer::NoNode => {}
                    answer => return Err(call.unexpected(&answer)),
                }
            }
            match self.find(call, &mut retries, parent, target.id()).await? {
                Some(node) => name = Some(node.name),
                None => return Ok(call.deleted()),
            }
        }
    }

    async fn read(
        &self,
        call: &Call<'_>,
        parent: &LockPath,
        node: &Node,
        mut watcher: impl FnMut() -> Option<Watcher>,
    ) -> Result<Option<(Session, NodeData)>> {
        let mut retries = call.retries();
        let mut name = node.name.clone();
        loop {
            let (parent_, name_) = (parent.clone(), name.as_str().to_owned());
            let request =
                || Request::Data { parent: parent_.clone(), name: name_.clone(), watcher: watcher() };
            match call.answer_to(&mut retries, request).await? {
                (session, Answer::Data(data)) => return Ok(Some((session, data))),
                (_, Answer::NoNode) => match self.renamed(call, &mut retries, parent, node).await? {
                    Some(now) => name = now,
                    None => return Ok(None),
                },
                (_, answer) => return Err(call.unexpected(&answer)),
            }
        }
    }

    async fn write(&self, call: &Call<'_>, parent: &LockPath, node: &Node, data: &[u8]) -> Result<()> {
        let mut retries = call.retries();
        let mut name = node.name.clone();
        loop {
            let (parent_, name_) = (parent.clone(), name.as_str().to_owned());
            let request =
                || Request::SetData { parent: parent_.clone(), name: name_.clone(), data: data.into() };
            match call.answer_to(&mut retries, request).await?.1 {
                Answer::Done => return Ok(()),
                Answer::NoNode => match self.renamed(call, &mut retries, parent, node).await? {
                    Some(now) => name = now,
                    None => return Err(call.error(ErrorKind::NodeDeleted)),
                },
                answer => return Err(call.unexpected(&answer)),
            }
        }
    }

    /// The name by now of a node that is not there under the one that we knew; `None` if it is gone.
    async fn renamed(
        &self,
        call: &Call<'_>,
        retries: &mut Retries,
        parent: &LockPath,
        node: &Node,
    ) -> Result<Option<NodeName>> {
        if node.label == Label::Lock {
            return Ok(None);
        }
        Ok(self.find(call, retries, parent, &node.id).await?.map(|found| found.name))
    }
}

#[async_trait]
impl CoordinationBackend for MemBackend {
    async fn create_ephemeral_sequential(
        &self,
        parent: &LockPath,
        label: Label,
        node_id: &NodeId,
        data: &[u8],
    ) -> Result<Created> {
        let call = self.call("create", parent);
        let wanted = Wanted { parent, label, node_id, data };
        call.within_budget(create(&self.shared, &call, wanted)).await
    }

    async fn children(&self, parent: &LockPath) -> Result<Queue> {
        let call = self.call("children", parent);
        let mut retries = call.retries();
        let (_, queue) = call.within_budget(self.list(&call, &mut retries, parent, || None)).await?;
        Ok(queue)
    }

    async fn children_with_watch(&self, parent: &LockPath) -> Result<(Queue, Watch)> {
        let call = self.call("children_with_watch", parent);
        let mut retries = call.retries();
        let mut armed = Arming::default();
        let watcher = || Some(armed.renew(&self.shared.server));
        let (session, queue) = call.within_budget(self.list(&call, &mut retries, parent, watcher)).await?;
        Ok((queue, armed.watch(&self.shared, session)))
    }

    async fn exists_with_watch(&self, parent: &LockPath, seen: &Node) -> Result<Existence> {
        let call = self.call("exists_with_watch", parent);
        call.within_budget(self.exists(&call, parent, seen)).await
    }

    async fn relabel(&self, parent: &LockPath, node: &Node, label: Label) -> Result<Node> {
        let call = self.call("relabel", parent);
        // Not hidden from the heartbeat: that lists IDs, and a relabel keeps the ID.
        call.within_budget(self.change_label(&call, parent, node, label)).await
    }

    async fn delete(&self, parent: &LockPath, target: &Target) -> Result<Deletion> {
        let call = self.call("delete", parent);
        call.within_budget(self.remove(&call, parent, target)).await
    }

    async fn data(&self, parent: &LockPath, node: &Node) -> Result<Option<NodeData>> {
        let call = self.call("data", parent);
        let read = call.within_budget(self.read(&call, parent, node, || None)).await?;
        Ok(read.map(|(_, data)| data))
    }

    async fn data_with_watch(&self, parent: &LockPath, node: &Node) -> Result<Option<(Vec<u8>, Watch)>> {
        let call = self.call("data_with_watch", parent);
        let mut armed = Arming::default();
        let watcher = || Some(armed.renew(&self.shared.server));
        let read = call.within_budget(self.read(&call, parent, node, watcher)).await?;
        Ok(read.map(|(session, node)| (node.data, armed.watch(&self.shared, session))))
    }

    async fn set_data(&self, parent: &LockPath, node: &Node, data: &[u8]) -> Result<()> {
        let call = self.call("set_data", parent);
        call.within_budget(self.write(&call, parent, node, data)).await
    }

    fn session_events(&self) -> SessionEvents {
        self.shared.events()
    }

    fn background(&self) -> Background {
        self.shared.background.clone()
    }

    async fn close(&self) -> Result<Close> {
        let had_session = self.shared.publisher.current().epoch > 0;
        let ended = match self.shared.close() {
            // If it does not come, the session ends by itself.
            Some(answer) => {
                timeout(self.shared.options.operation_timeout, answer).await.is_ok_and(|a| a.is_ok())
            }
            None => !had_session,
        };
        let ended = self.ended.fetch_or(ended, Ordering::Relaxed) || ended;
        Ok(if ended { Close::Ended } else { Close::Pending })
    }
}

impl Drop for MemBackend {
    fn drop(&mut self) {
        drop(self.shared.close());
        self.shared.server.with(|state, _| {
            if let Some(link) = state.links.get_mut(&self.shared.client) {
                link.forgotten = true;
            }
            state.mark(self.shared.client);
        });
    }
}
