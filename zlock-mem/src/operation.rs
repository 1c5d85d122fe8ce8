//! One operation: its budget, and the requests that several operations send.

use std::time::Duration;

use tokio::time::Instant;
use zlock_core::kit::{Budget, Interrupted, SessionKey, repeat};
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
        repeat!(self.budget, |session| async {
            self.ask_in(session, request()).await.map(|answer| (session, answer))
        })
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
    pub(crate) async fn session_of(&mut self, node: &Node) -> Result<SessionKey> {
        let (sessions, deadline) = (&self.shared.sessions, self.budget.deadline());
        let current = sessions.session();
        let own = SessionKey { epoch: current.epoch, id: current.id };
        if node.session != Some(own.id) {
            return Err(self.interrupted(Interrupted::SessionLost));
        }
        match sessions.run_until_ended(own, deadline, self.budget.session()).await {
            Ok(session) if session.as_ref().is_ok_and(|session| *session != own) => {
                Err(self.interrupted(Interrupted::SessionLost))
            }
            Ok(session) => session,
            Err(interrupted) => Err(self.interrupted(interrupted)),
        }
    }

    /// Waits before another attempt that does not count as a retry.
    pub(crate) async fn pause(&mut self, delay: Duration) -> Result<()> {
        let until = Instant::now() + delay;
        if until >= self.budget.deadline() {
            return Err(self.interrupted(Interrupted::TimedOut));
        }
        if delay.is_zero() {
            return Ok(());
        }
        let slept = self.shared.sessions.sleep_until(until).await;
        slept.map_err(|interrupted| self.interrupted(interrupted))
    }

    /// Deletes the node with the target's ID, and returns whether this call did, and whether `next` existed then.
    pub(crate) async fn delete(&mut self, target: &Target, next: Option<&Node>) -> Result<Deletion> {
        let parent = self.budget.path();
        let request = |name: &NodeName, next: Option<&Node>| Request::Delete {
            parent: parent.clone(),
            name: name.as_str().into(),
            next: next.map(|next| next.name.as_str().to_owned()),
        };
        if let (Target::Node(node), Some(next)) = (target, next) {
            let session = self.budget.session().await?;
            if node.session == Some(session.id) {
                match self.ask_in(session, request(&node.name, Some(next))).await {
                    Ok(Answer::Done) => return self.budget.finish(Ok(Deletion::HandedOver)),
                    // Nothing was deleted, because the node or `next` does not exist.
                    Ok(Answer::NoNode) => {}
                    Ok(answer) => return Err(self.unexpected(&answer)),
                    Err(failure) => self.budget.retry(failure).await?,
                }
            }
        }
        let (mut name, may_have_another) = match target {
            Target::Node(node) => (Some(node.name.clone()), !node.label.is_fixed()),
            Target::Id(_) => (None, true),
        };
        loop {
            if let Some(name) = &name {
                match self.ask(|| request(name, None)).await?.1 {
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
        self.budget.refuse(ErrorKind::NodeDeleted)
    }

    /// Returns the error for an answer that does not belong to the request.
    pub(crate) fn unexpected(&mut self, answer: &Answer) -> Error {
        self.fail(self.budget.fail(Failure::unexpected(answer)))
    }

    fn interrupted(&mut self, interrupted: Interrupted) -> Error {
        self.fail(self.budget.fail(interrupted))
    }

    /// Ends the operation with this error.
    fn fail(&mut self, error: Error) -> Error {
        let _ = self.budget.finish(Err::<(), _>(error.clone()));
        error
    }
}
