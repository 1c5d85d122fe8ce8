//! One operation: its budget, and the requests that several operations send.

use std::time::Duration;

use tokio::time::Instant;
use zlock_core::kit::{Budget, Interrupted, SessionKey};
use zlock_core::{
    Deletion, Error, ErrorKind, LockPath, Node, NodeData, NodeId, NodeName, Queue, Result, Target,
};

use crate::error::Failure;
use crate::request::{Answer, Request, Watcher};
use crate::session::Shared;

/// A running operation on the queue of one path.
pub(crate) struct Operation<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) budget: Budget<'a, ()>,
}

impl<'a> Operation<'a> {
    pub(crate) fn new(shared: &'a Shared, name: &'static str, path: &'a LockPath) -> Self {
        Operation { shared, budget: Budget::new(&shared.sessions, &shared.options.kit, name, path) }
    }

    /// Sends a request in this session, and waits for its answer.
    pub(crate) async fn ask_in(&mut self, session: SessionKey, request: Request) -> Result<Answer, Failure> {
        let writes = request.writes();
        let answer = self.shared.ask(session, self.budget.deadline(), request).await;
        if writes { self.budget.record(answer) } else { answer }
    }

    /// Sends the request until there is an answer, each time in the session that is connected then.
    pub(crate) async fn ask(&mut self, mut request: impl FnMut() -> Request) -> Result<(SessionKey, Answer)> {
        loop {
            let session = self.budget.session().await?;
            match self.ask_in(session, request()).await {
                Ok(answer) => return Ok((session, answer)),
                Err(failure) => self.budget.retry(failure).await?,
            }
        }
    }

    /// Returns the queue of the path. A missing path has an empty queue.
    pub(crate) async fn list(
        &mut self,
        mut watcher: impl FnMut() -> Option<Watcher>,
    ) -> Result<(SessionKey, Queue)> {
        let parent = self.budget.path();
        match self.ask(|| Request::List { parent: parent.clone(), watcher: watcher() }).await? {
            (session, Answer::Children(children)) => Ok((session, Queue::listed(children))),
            (_, answer) => Err(self.unexpected(&answer)),
        }
    }

    /// Returns the node of this ID as currently listed.
    pub(crate) async fn find(&mut self, node_id: &NodeId) -> Result<Option<Node>> {
        // The caller may have to repeat this any number of times, because other clients change labels meanwhile.
        self.pause(Duration::ZERO).await?;
        let (_, queue) = self.list(|| None).await?;
        Ok(queue.find(node_id).cloned())
    }

    /// Returns the current name of a node that does not exist under its known name. `None` if it is gone.
    pub(crate) async fn renamed(&mut self, node: &Node) -> Result<Option<NodeName>> {
        if node.label.is_fixed() {
            return Ok(None);
        }
        Ok(self.find(&node.id).await?.map(|found| found.name))
    }

    /// Returns the data of a node, whatever its current name.
    pub(crate) async fn read(
        &mut self,
        node: &Node,
        mut watcher: impl FnMut() -> Option<Watcher>,
    ) -> Result<Option<(SessionKey, NodeData)>> {
        let parent = self.budget.path();
        let mut name = node.name.clone();
        loop {
            let request =
                || Request::Data { parent: parent.clone(), name: name.as_str().into(), watcher: watcher() };
            match self.ask(request).await? {
                (session, Answer::Data(data)) => return Ok(Some((session, data))),
                (_, Answer::NoNode) => match self.renamed(node).await? {
                    Some(now) => name = now,
                    None => return Ok(None),
                },
                (_, answer) => return Err(self.unexpected(&answer)),
            }
        }
    }

    /// Returns the session of an own node once it is connected. Fails when it is over.
    pub(crate) async fn session_of(&self, node: &Node) -> Result<SessionKey> {
        let (sessions, budget) = (&self.shared.sessions, &self.budget);
        let current = sessions.session();
        let own = SessionKey { epoch: current.epoch, id: current.id };
        if node.session != Some(own.id) {
            return Err(budget.fail(Interrupted::SessionLost));
        }
        let connected = sessions.run_until_ended(own, budget.deadline(), budget.session()).await;
        match connected.map_err(|interrupted| budget.fail(interrupted))?? {
            session if session == own => Ok(own),
            _ => Err(budget.fail(Interrupted::SessionLost)),
        }
    }

    /// Waits before another attempt that does not count as a retry.
    pub(crate) async fn pause(&self, delay: Duration) -> Result<()> {
        let until = Instant::now() + delay;
        if until >= self.budget.deadline() {
            return Err(self.budget.fail(Interrupted::TimedOut));
        }
        if delay.is_zero() {
            return Ok(());
        }
        self.shared.sessions.sleep_until(until).await.map_err(|interrupted| self.budget.fail(interrupted))
    }

    /// Deletes the node with the target's ID, and returns whether this call did.
    pub(crate) async fn delete(&mut self, target: &Target) -> Result<Deletion> {
        let parent = self.budget.path();
        let (mut name, may_have_another) = match target {
            Target::Node(node) => (Some(node.name.clone()), !node.label.is_fixed()),
            Target::Id(_) => (None, true),
        };
        loop {
            if let Some(name) = name {
                let name = name.as_str();
                let request =
                    || Request::Delete { parent: parent.clone(), name: name.into(), next: Vec::new() };
                match self.ask(request).await?.1 {
                    Answer::Done => return Ok(Deletion::Deleted),
                    Answer::NoNode if !may_have_another => return Ok(self.deletion()),
                    Answer::NoNode => {}
                    answer => return Err(self.unexpected(&answer)),
                }
            }
            match self.find(target.id()).await? {
                Some(node) => name = Some(node.name),
                None => return Ok(self.deletion()),
            }
        }
    }

    /// Returns the outcome of a delete that finds no node. A request without an answer may have deleted it.
    fn deletion(&self) -> Deletion {
        if self.budget.ambiguous { Deletion::Deleted } else { Deletion::AlreadyDeleted }
    }

    /// Returns the error for a node that another client deleted.
    pub(crate) fn node_deleted(&mut self) -> Error {
        self.budget.ambiguous = false;
        self.budget.error(ErrorKind::NodeDeleted)
    }

    /// Returns the error for an answer that does not belong to the request.
    pub(crate) fn unexpected(&self, answer: &Answer) -> Error {
        self.budget.fail(Failure::unexpected(answer))
    }
}
