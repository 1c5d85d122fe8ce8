//! A place in the queue: its create, what it asks the store and waits for, and its clean-up.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use zlock_core::{
    Created, CreatedQueue, Error, ErrorKind, Existence, FencingToken, GuardNode, Label, LastFailure,
    LockPath, Needs, Node, Result, SessionState, Target, Watch,
};

use crate::acquire::request::Request;
use crate::client::inner::ClientInner;
use crate::place::admission::Admitted;
use crate::place::granted::{Granted, closed, lost, lost_error, no_token, status};
use crate::place::pauses::{Contradictions, PAUSES, Pauses, connected};
use crate::place::succession::{Followed, PlaceHandle, Promise};
use crate::queue::{Discipline, Event, Status, Step};

/// The time after which a waiter for a predecessor of the same client also watches its node.
const LONG_WAIT: Duration = Duration::from_secs(5);

/// Whether a create also returns the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listing {
    Always,
    /// Only if the place is probably not right behind another place of the same client.
    IfNeeded,
}

/// The event that a place is waiting for.
pub(crate) enum Awaited {
    Watch(Watch),
    Predecessor(Node, Promise),
}

/// A place in the queue. If it is dropped before the grant, the reaper removes it.
pub(crate) struct Place<'a> {
    client: &'a Arc<ClientInner>,
    created: Created,
    /// The token of the first create, and never that of a relabel: a relabel may return a larger token, which would shut out
    /// the next holder.
    fencing_token: FencingToken,
    /// For this client's places behind this one.
    handle: Option<Arc<PlaceHandle>>,
    contradictions: Contradictions,
    cleanup: Cleanup<'a>,
}

impl<'a> Place<'a> {
    /// Queues up. A place that another client deletes before it is known here is replaced, after a pause: nothing was missed by
    /// then.
    pub(crate) async fn queue_up(request: Request<'a>, listing: Listing) -> Result<Self> {
        let mut pauses = PAUSES.start();
        loop {
            let place = Self::create(time_to_create(request).await?, request, listing).await?;
            if !place.was_deleted() {
                return Ok(place);
            }
            let gone = lost_error(Status::NodeDeleted, "create", request.path);
            tracing::warn!(path = %request.path, "a new place in the queue was deleted; it is replaced");
            LastFailure::note(|| gone);
            drop(place);
            pauses.sleep().await;
        }
    }

    fn was_deleted(&self) -> bool {
        let Created { node, queue, .. } = &self.created;
        let is_listed = !matches!(queue, CreatedQueue::Listed(queue) if queue.position(&node.id).is_none());
        self.status() == Status::NodeDeleted || self.status() == Status::Live && !is_listed
    }

    /// Creates the place, once [`time_to_create`] has admitted that. The node may exist even if this fails.
    pub(crate) async fn create(admitted: Admitted, request: Request<'a>, listing: Listing) -> Result<Self> {
        let Request { client, path, label, data, .. } = request;
        let node_id = client.node_ids.next();
        // Armed before the create is sent, so that no exit from here on leaves a node behind.
        let target = Target::Id(node_id.clone());
        let mut cleanup =
            Cleanup { client, path, target, epoch: None, admitted: Some(admitted), armed: true };
        let is_in_a_row =
            label == Label::Lock && listing == Listing::IfNeeded && client.places.is_in_a_row(path);
        let handle = client.places.begin(path, &node_id, label);
        let needs = if is_in_a_row { Needs::Number } else { Needs::Queue };
        match client.backend().create_ephemeral_sequential(path, label, &node_id, data, needs).await {
            Ok(created) => {
                if let Some(admitted) = cleanup.admitted.take() {
                    admitted.answered();
                }
                cleanup.target = Target::Node(created.node.clone());
                cleanup.epoch = Some(created.epoch);
                let fencing_token = created.node.fencing_token.ok_or_else(|| no_token("create", path))?;
                if let Some(handle) = &handle {
                    handle.created(&created);
                }
                let contradictions = Contradictions::default();
                Ok(Place { client, created, fencing_token, handle, contradictions, cleanup })
            }
            Err(e) => {
                if !e.is_ambiguous() {
                    cleanup.disarm();
                }
                Err(e)
            }
        }
    }

    /// Takes what the create shows of the queue. `None` if that is nothing.
    pub(crate) fn first_event(&mut self) -> Option<Event> {
        match std::mem::replace(&mut self.created.queue, CreatedQueue::Unlisted) {
            CreatedQueue::Listed(queue) => Some(Event::Listed(queue)),
            CreatedQueue::Alone => Some(Event::Alone),
            CreatedQueue::Unlisted => None,
        }
    }

    pub(crate) fn status(&self) -> Status {
        status(self.client.session.current(), self.created.epoch, &self.created.deletion)
    }

    /// Carries out a step that asks the store, or wakes up if the place is lost meanwhile. A request that hangs on a silent
    /// connection must not hide the loss.
    ///
    /// An outage that the session survives must not fail a queued acquisition, so a request that got no answer is sent again,
    /// after a pause and with a connection.
    pub(crate) async fn ask_until_answered(
        &mut self,
        step: Step,
        loss: &mut Loss,
    ) -> Result<(Event, Option<Awaited>)> {
        let answered = self.until_answered(|| self.ask(&step), loss).await?;
        if let (Some((Event::NotArmed, _)), Step::Arm(node)) = (&answered, &step) {
            let pause = self.contradictions.not_found(node);
            if !pause.is_zero() {
                // Ends with an error at the pause's end.
                let _ = timeout(pause, Box::pin(self.lost(loss))).await;
            }
        }
        Ok(answered.unwrap_or((Event::Woken, None)))
    }

    /// Sends a request until it is answered. `None` if the place is lost meanwhile.
    pub(crate) async fn until_answered<T, F>(
        &self,
        mut ask: impl FnMut() -> F,
        loss: &mut Loss,
    ) -> Result<Option<T>>
    where
        F: Future<Output = Result<T>>,
    {
        let session = &self.client.session;
        let answered = async {
            let mut pauses = Pauses::default();
            loop {
                connected(session).await;
                match ask().await {
                    // Boxed, because it is rarely needed.
                    Err(e) => Box::pin(pauses.after(e, self.cleanup.path, session)).await?,
                    answered => return answered,
                }
            }
        };
        tokio::select! {
            biased;
            () = self.lost(loss) => Ok(None),
            answered = answered => answered.map(Some),
        }
    }

    /// Gives the node of permits the label of a holder, or takes it back. Does nothing if the place is lost.
    pub(crate) async fn mark_granted(&mut self, granted: bool, loss: &mut Loss) -> Result<()> {
        let (backend, path, node) = (self.client.backend(), self.cleanup.path, &self.created.node);
        let Label::Permits { weight, max, .. } = node.label else { return Ok(()) };
        let label = Label::Permits { weight, max, granted };
        if let Some(node) = self.until_answered(|| backend.relabel(path, node, label), loss).await? {
            self.cleanup.target = Target::Node(node.clone());
            self.created.node = node;
        }
        Ok(())
    }

    /// Carries out a step that asks the store.
    async fn ask(&self, step: &Step) -> Result<(Event, Option<Awaited>)> {
        let (backend, path, me) = (self.client.backend(), self.cleanup.path, &self.created.node);
        Ok(match step {
            Step::Arm(node) => match backend.exists_with_watch(path, node).await? {
                Existence::Watching(armed) => (Event::Armed, Some(Awaited::Watch(armed))),
                _ => (Event::NotArmed, None),
            },
            Step::ListAndArm => {
                let (queue, armed) = backend.children_with_watch(path).await?;
                (Event::ListedAndArmed(queue), Some(Awaited::Watch(armed)))
            }
            _ if Discipline::of(me.label) == Discipline::Exclusive => {
                (Event::Listed(backend.children(path, Some(me)).await?), None)
            }
            _ => (Event::Listed(backend.children(path, None).await?), None),
        })
    }

    /// Links the place to the node directly before it, if that belongs to this client.
    pub(crate) async fn follow(&self, before: &Node, loss: &mut Loss) -> Option<Promise> {
        let follow = || self.client.places.follow(before, &self.created);
        let followed = match follow() {
            Followed::NotYet(told) => {
                let heard = Box::pin(async {
                    tokio::select! {
                        biased;
                        () = self.lost(loss) => {}
                        // Ends when the sender is dropped, which is an error, or at the time limit.
                        _ = timeout(LONG_WAIT, told) => {}
                    }
                });
                heard.await;
                follow()
            }
            followed => followed,
        };
        if let Followed::Promised(promise) = followed { Some(promise) } else { None }
    }

    /// Links the place to this client's place with the number directly before its own.
    pub(crate) fn follow_number(&self) -> Option<Awaited> {
        let (before, promise) = self.client.places.follow_number(self.cleanup.path, &self.created)?;
        Some(Awaited::Predecessor(before, promise))
    }

    /// Waits for the watch or the predecessor, or until the place is lost.
    pub(crate) async fn wait(&self, awaited: Option<Awaited>, loss: &mut Loss) -> Result<Event> {
        let Some(awaited) = awaited else { return Ok(Event::Woken) };
        let woken = async {
            match awaited {
                Awaited::Watch(watch) => {
                    let event = watch.await;
                    tracing::trace!(path = %self.cleanup.path, ?event, "woken");
                    Ok(Event::Woken)
                }
                // Boxed, so that not every acquisition is as large as this.
                Awaited::Predecessor(before, promise) => Box::pin(self.succeed(&before, promise)).await,
            }
        };
        tokio::select! {
            biased;
            () = self.lost(loss) => Ok(Event::Woken),
            event = woken => event,
        }
    }

    /// Waits until the predecessor hands the lock over, or can no longer do so.
    async fn succeed(&self, before: &Node, mut promise: Promise) -> Result<Event> {
        let granted = tokio::select! {
            biased;
            granted = promise.granted() => granted,
            gone = self.watch_if_it_takes_long(before) => {
                gone?;
                promise.is_on_its_way() && promise.granted().await
            }
        };
        if granted {
            return Ok(Event::Succeeded);
        }
        Ok(Event::Woken)
    }

    /// Waits until the node is deleted or changed. Watches it only after some time, by which most waits have ended.
    async fn watch_if_it_takes_long(&self, before: &Node) -> Result<()> {
        loop {
            sleep(LONG_WAIT).await;
            connected(&self.client.session).await;
            match self.client.backend().exists_with_watch(self.cleanup.path, before).await {
                Ok(Existence::Watching(watch)) => {
                    let event = watch.await;
                    tracing::trace!(path = %self.cleanup.path, ?event, "woken");
                    return Ok(());
                }
                Ok(_) => return Ok(()),
                Err(e) if e.is_retryable() => LastFailure::note(|| e),
                Err(e) => return Err(e),
            }
        }
    }

    /// Waits until the session has ended or the node was deleted. Completes at once from then on.
    pub(crate) async fn lost(&self, loss: &mut Loss) {
        let Created { epoch, deletion, .. } = &self.created;
        loss.0.get_or_insert_with(|| Box::pin(lost(&self.client.session, *epoch, deletion))).await;
        loss.0 = None;
    }

    /// Returns what the grant relies on. The node stays from now on.
    pub(crate) fn granted(mut self) -> Granted {
        self.cleanup.disarm();
        let Created { node, epoch, deletion, .. } = self.created;
        let (fencing_token, handle) = (self.fencing_token, self.handle);
        Granted { node, epoch, fencing_token, deletion, handle }
    }

    /// Removes the node. If that fails, the reaper takes over.
    pub(crate) async fn give_up(mut self) {
        let path = self.cleanup.path;
        match self.client.backend().delete(path, &self.cleanup.target, None).await {
            Ok(_) => self.cleanup.disarm(),
            Err(e) => tracing::warn!(%path, error = %e, "a place in the queue could not be given up yet"),
        }
    }

    pub(crate) fn node(&self) -> &Node {
        &self.created.node
    }

    /// Returns the node as what a write depends on.
    pub(crate) fn guard(&self) -> GuardNode {
        GuardNode::new(self.cleanup.path.clone(), self.node().name.clone(), self.fencing_token)
    }
}

/// The subscription to the loss of a place. Made at the first wait, because most acquisitions never wait, and kept for all
/// later waits, because subscribing costs more than listening.
#[derive(Default)]
pub(crate) struct Loss(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

/// Hands a node to the reaper unless disarmed.
struct Cleanup<'a> {
    client: &'a Arc<ClientInner>,
    path: &'a LockPath,
    target: Target,
    /// The epoch of the node; not known while the create is in flight.
    epoch: Option<u64>,
    /// The admission of the create, until that is answered.
    admitted: Option<Admitted>,
    armed: bool,
}

impl Cleanup<'_> {
    fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Drop for Cleanup<'_> {
    fn drop(&mut self) {
        if self.armed {
            // A create that is abandoned now takes effect in the latest epoch or in an older one.
            let epoch = self.epoch.unwrap_or_else(|| self.client.session.epoch());
            let admitted = self.admitted.take();
            self.client.remove_in_background(self.path, self.target.clone(), epoch, admitted);
        }
    }
}

/// Waits until a create may begin. Each create that is given up leaves work for the background, even if it was never sent. So
/// none begins while its request would have to wait for the connection, or without being admitted.
pub(crate) async fn time_to_create(Request { client, path, deadline, .. }: Request<'_>) -> Result<Admitted> {
    let is_suspended = || client.session.current().state == SessionState::Suspended;
    let mut is_resumed = true;
    loop {
        // Only once: the second time, the backend's own limit applies, with its own error.
        if is_resumed && is_suspended() {
            is_resumed = Box::pin(resumed(client, path)).await;
        }
        let admitted = match client.admission.create_now(deadline) {
            Some(admitted) => admitted,
            None => Box::pin(admission(client, path, deadline)).await?,
        };
        // There is no await between this look and the create.
        if !is_resumed || !is_suspended() {
            return Ok(admitted);
        }
    }
}

/// Waits while the connection is interrupted. Returns `false` after the response timeout.
async fn resumed(client: &ClientInner, path: &LockPath) -> bool {
    LastFailure::note(|| {
        Error::new(ErrorKind::Unavailable, "create").with_path(path).with_message("no connection")
    });
    timeout(client.response_timeout, connected(&client.session)).await.is_ok()
}

/// Waits until a create is admitted.
async fn admission(client: &ClientInner, path: &LockPath, deadline: Option<Instant>) -> Result<Admitted> {
    LastFailure::note(|| {
        let why = "more creates wait to be admitted than the store answers in time";
        Error::new(ErrorKind::Unavailable, "create").with_path(path).with_message(why)
    });
    let admitted = tokio::select! {
        biased;
        () = client.session.closed() => None,
        admitted = client.admission.create(deadline) => Some(admitted),
    };
    admitted.ok_or_else(|| {
        lost_error(closed(client.session.current()).unwrap_or(Status::Closed), "acquire", path)
    })
}
