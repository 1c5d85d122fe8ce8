//! The loop around the state machine, which executes its steps and passes it the events.
//!
//! The clean-up of a node is armed before its create is sent. The steps are those of `queue/acquisition.rs`; with hand-off,
//! `handoff.rs` takes them for all local waiters.

pub(crate) mod handoff;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout, timeout_at};
use zlock_core::{
    Created, CreatedQueue, Error, ErrorKind, Existence, FencingToken, Label, LastFailure, LockPath, Node,
    Phase, Queue, Result, SessionState, Target, Watch,
};

use crate::client::inner::ClientInner;
use crate::guard::Guard;
use crate::hold::Hold;
use crate::hold::record::Entry;
use crate::place::admission::Admitted;
use crate::place::granted::{Granted, closed, lost_error, status};
use crate::place::pauses::{Pauses, connected};
use crate::place::succession::{Followed, PlaceHandle, Promise};
use crate::queue::{Acquisition, Discipline, Event, Status, Step, other_max, would_hold};

/// The time after which a waiter for a predecessor of the same client also watches its node.
const LONG_WAIT: Duration = Duration::from_secs(5);

/// What to acquire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) client: &'a Arc<ClientInner>,
    pub(crate) path: &'a LockPath,
    pub(crate) label: Label,
    pub(crate) data: &'a Arc<[u8]>,
    /// The lock's name in measurements.
    pub(crate) metric_name: Option<&'a Arc<str>>,
    /// The end of the acquisition's time, if that is limited and the request does not end by itself then.
    pub(crate) deadline: Option<Instant>,
}

/// The progress of an acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The acquisition has its place in the queue.
    Queued,
    /// The acquisition is waiting for a place ahead of its own. May be reported more than once.
    Waiting,
}

/// Waits until the lock is held.
pub(crate) async fn acquire(request: Request<'_>) -> Result<Guard> {
    drive(request, &|_| {}).await.map(|grant| grant.guard(request))
}

/// Waits until a mutex is held. The caller registers the holder.
pub(crate) async fn granted(request: Request<'_>, progress: &(dyn Fn(Progress) + Sync)) -> Result<Granted> {
    Box::pin(drive(request, progress)).await.map(|grant| grant.granted)
}

/// Waits until the lock is held or the time is over. A zero duration makes a single attempt.
pub(crate) async fn acquire_within(request: Request<'_>, time: Duration) -> Result<Guard> {
    if time.is_zero() {
        let taken = try_acquire(request).await?;
        return taken.ok_or_else(|| timed_out(request, "acquire", true, None));
    }
    // A deadline that the clock cannot represent means no time limit.
    let Some(deadline) = Instant::now().checked_add(time) else { return acquire(request).await };
    let (queued, last) = (AtomicBool::default(), LastFailure::default());
    let progress = |_| queued.store(true, Ordering::Relaxed);
    let request = Request { deadline: Some(deadline), ..request };
    match timeout_at(deadline, last.observe(drive(request, &progress))).await {
        Ok(result) => result.map(|grant| grant.guard(request)),
        Err(_) => Err(timed_out(request, "acquire", queued.load(Ordering::Relaxed), last.get())),
    }
}

/// Acquires the lock if it is free. Writes nothing if a listing shows that it is not.
pub(crate) async fn try_acquire(request: Request<'_>) -> Result<Option<Guard>> {
    let last = LastFailure::default();
    match timeout(request.client.operation_timeout, last.observe(try_once(request))).await {
        Ok(result) => result,
        Err(_) => Err(timed_out(request, "try_acquire", false, last.get())),
    }
}

async fn try_once(request: Request<'_>) -> Result<Option<Guard>> {
    let Request { client, path, label, .. } = request;
    let queue = client.backend().children(path).await?;
    LastFailure::overcome();
    same_max(request, &queue)?;
    if !would_hold(&queue, label) {
        return Ok(None);
    }
    let mut place = Place::create(request, Listing::Always).await?;
    let event = place.first_event(request)?.unwrap_or(Event::Woken);
    let acquisition = Acquisition::new(place.created.node.id.clone(), Discipline::of(label));
    match acquisition.next(event, place.status()) {
        Step::Granted { promote } => Ok(Some(place.grant(promote).guard(request))),
        Step::Ended(reason) => Err(lost_error(reason, "try_acquire", path)),
        // Another client came in between: remove the node. If that fails, the reaper takes over.
        _ => {
            match client.backend().delete(path, &place.cleanup.target).await {
                Ok(_) => place.cleanup.disarm(),
                Err(e) => tracing::warn!(%path, error = %e, "a place in the queue could not be given up yet"),
            }
            Ok(None)
        }
    }
}

/// Refuses permits if the head of the queue uses another maximum.
fn same_max(request: Request<'_>, queue: &Queue) -> Result<()> {
    let Some(other) = other_max(queue, request.label) else { return Ok(()) };
    let mine = if let Label::Permits { max, .. } = request.label { max } else { 0 };
    let message = format!("the maximum is {mine} here, and {other} for the head of the queue");
    Err(Error::new(ErrorKind::PermitLimitMismatch, "acquire").with_path(request.path).with_message(message))
}

/// Waits until the lock is held.
///
/// Large, so it is boxed: in [`granted`], and by `LockHandle`.
async fn drive(request: Request<'_>, progress: &(dyn Fn(Progress) + Sync)) -> Result<Grant> {
    let Request { path, label, .. } = request;
    let mut place = Place::create(request, Listing::IfNeeded).await?;
    progress(Progress::Queued);
    LastFailure::overcome();
    let acquisition = Acquisition::new(place.created.node.id.clone(), Discipline::of(label));
    let mut loss = Loss::default();
    let (mut waited, mut followed) = (false, false);
    let (mut event, mut awaited) = match place.first_event(request)? {
        Some(event) => (event, None),
        None => match place.follow_number() {
            Some(predecessor) => {
                (waited, followed) = (true, true);
                warn_of_waiting_for_itself(request);
                (Event::Armed, Some(predecessor))
            }
            None => (Event::Woken, None),
        },
    };
    loop {
        // There is no await between reading the status and taking the step, so the status is current when the lock is
        // granted.
        match acquisition.next(event, place.status()) {
            Step::Granted { promote } => return Ok(place.grant(promote)),
            Step::Ended(reason) => return Err(lost_error(reason, "acquire", path)),
            Step::Wait => {
                progress(Progress::Waiting);
                event = place.wait(awaited.take(), &mut loss).await?;
            }
            asking => {
                if matches!(asking, Step::Arm(_)) && !waited {
                    waited = true;
                    warn_of_waiting_for_itself(request);
                }
                // At most once: a waiter that was not handed the lock uses a watch from then on.
                if let Step::Arm(before) = &asking
                    && !followed
                    && let Some(promise) = place.follow(before, &mut loss).await
                {
                    followed = true;
                    (event, awaited) = (Event::Armed, Some(Awaited::Predecessor(before.clone(), promise)));
                    continue;
                }
                (event, awaited) = place.ask_until_answered(asking, &mut loss).await?;
                LastFailure::overcome();
            }
        }
    }
}

/// Logs a warning if the calling task already holds the lock: outside the lock's scope it waits for its own release. That can
/// be intended (in a sibling branch), so it is not an error.
///
/// A task may well take permits of a semaphore more than once.
pub(crate) fn warn_of_waiting_for_itself(Request { client, path, label, .. }: Request<'_>) {
    if !matches!(label, Label::Permits { .. }) && client.is_held_by_this_task(path) {
        tracing::warn!(
            %path,
            "this task waits for a lock that it holds itself: use `reenter`, or acquire it inside `scope`"
        );
    }
}

/// Whether a create also returns the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listing {
    Always,
    /// Only if the place is probably not right behind another place of the same client.
    IfNeeded,
}

/// The event that a place is waiting for.
enum Awaited {
    Watch(Watch),
    Predecessor(Node, Promise),
}

/// A place in the queue. If it is dropped before the grant, the reaper removes it.
struct Place<'a> {
    client: &'a Arc<ClientInner>,
    created: Created,
    /// The token of the first create, and never that of a relabel: a relabel may return a larger token, which would shut out
    /// the next holder.
    fencing_token: FencingToken,
    /// For this client's places behind this one.
    handle: Option<Arc<PlaceHandle>>,
    cleanup: Cleanup<'a>,
}

impl<'a> Place<'a> {
    async fn create(request: Request<'a>, listing: Listing) -> Result<Self> {
        let Request { client, path, label, data, .. } = request;
        let admitted = time_to_create(request).await?;
        let node_id = client.node_ids.next();
        // Armed before the create is sent, so that no exit from here on leaves a node behind.
        let target = Target::Id(node_id.clone());
        let mut cleanup =
            Cleanup { client, path, target, epoch: None, admitted: Some(admitted), armed: true };
        let is_unlisted =
            label == Label::Lock && listing == Listing::IfNeeded && client.places.is_in_a_row(path);
        let handle = client.places.begin(path, &node_id, label);
        let created = if is_unlisted {
            client.backend().create_unlisted(path, label, &node_id, data)
        } else {
            client.backend().create_ephemeral_sequential(path, label, &node_id, data)
        };
        match created.await {
            Ok(created) => {
                if let Some(admitted) = cleanup.admitted.take() {
                    admitted.answered();
                }
                cleanup.target = Target::Node(created.node.clone());
                cleanup.epoch = Some(created.epoch);
                let Some(fencing_token) = created.node.fencing_token else {
                    let message = "the backend returned no fencing token";
                    return Err(Error::new(ErrorKind::Unexpected, "create")
                        .with_path(path)
                        .with_message(message));
                };
                if let Some(handle) = &handle {
                    handle.created(&created);
                }
                Ok(Place { client, created, fencing_token, handle, cleanup })
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
    fn first_event(&mut self, request: Request<'_>) -> Result<Option<Event>> {
        match std::mem::replace(&mut self.created.queue, CreatedQueue::Unlisted) {
            CreatedQueue::Listed(queue) => {
                same_max(request, &queue)?;
                Ok(Some(Event::Listed(queue)))
            }
            CreatedQueue::Alone => Ok(Some(Event::Alone)),
            CreatedQueue::Unlisted => Ok(None),
        }
    }

    fn status(&self) -> Status {
        status(self.client.session.current(), self.created.epoch, &self.created.deletion)
    }

    /// Carries out a step that asks the store, or wakes up if the place is lost meanwhile. A request that hangs on a silent
    /// connection must not hide the loss.
    ///
    /// An outage that the session survives must not fail a queued acquisition, so a request that got no answer is sent again,
    /// after a pause and with a connection. All of them only read.
    async fn ask_until_answered(&self, step: Step, loss: &mut Loss) -> Result<(Event, Option<Awaited>)> {
        let session = &self.client.session;
        let answered = async {
            let mut pauses = Pauses::default();
            loop {
                connected(session).await;
                match self.ask(&step).await {
                    // Boxed, because it is rarely needed.
                    Err(e) => Box::pin(pauses.after(e, self.cleanup.path, session)).await?,
                    answered => return answered,
                }
            }
        };
        tokio::select! {
            biased;
            () = self.lost(loss) => Ok((Event::Woken, None)),
            answered = answered => answered,
        }
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
                (Event::Listed(backend.children_up_to(path, me).await?), None)
            }
            _ => (Event::Listed(backend.children(path).await?), None),
        })
    }

    /// Links the place to the node directly before it, if that belongs to this client.
    async fn follow(&self, before: &Node, loss: &mut Loss) -> Option<Promise> {
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
    fn follow_number(&self) -> Option<Awaited> {
        let (before, promise) = self.client.places.follow_number(self.cleanup.path, &self.created)?;
        Some(Awaited::Predecessor(before, promise))
    }

    /// Waits for the watch or the predecessor, or until the place is lost.
    async fn wait(&self, awaited: Option<Awaited>, loss: &mut Loss) -> Result<Event> {
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
    async fn lost(&self, loss: &mut Loss) {
        let subscribe = || -> Pin<Box<dyn Future<Output = ()> + Send>> {
            let (mut session, mut deletion) = (self.client.session.clone(), self.created.deletion.clone());
            let epoch = self.created.epoch;
            Box::pin(async move {
                tokio::select! {
                    biased;
                    _ = session.over(epoch) => {}
                    () = deletion.deleted() => {}
                }
            })
        };
        loss.0.get_or_insert_with(subscribe).await;
        loss.0 = None;
    }

    fn grant(mut self, promote: bool) -> Grant {
        self.cleanup.disarm();
        let Created { node, epoch, deletion, .. } = self.created;
        let (fencing_token, handle) = (self.fencing_token, self.handle);
        Grant { granted: Granted { node, epoch, fencing_token, deletion, handle }, promote }
    }
}

/// The subscription to the loss of a place. Made at the first wait, because most acquisitions never wait, and kept for all
/// later waits, because subscribing costs more than listening.
#[derive(Default)]
struct Loss(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

/// A held lock whose holder is not registered yet.
struct Grant {
    granted: Granted,
    promote: bool,
}

impl Grant {
    fn guard(self, Request { client, path, metric_name, .. }: Request<'_>) -> Guard {
        let entry = Entry::of(self.granted.node.label);
        let hold = Hold::new(client.clone(), path.clone(), metric_name, self.granted, None);
        if self.promote && hold.promote() {
            // The grant does not wait for it.
            hold.relabel_in_background();
        }
        Guard::new(hold, entry)
    }
}

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

/// The error of an acquisition that ran out of time. Its kind depends on whether the acquisition had its place in the queue.
/// Its source is the store's last failure, unless that was overcome.
pub(crate) fn timed_out(
    request: Request<'_>,
    operation: &'static str,
    queued: bool,
    last: Option<Error>,
) -> Error {
    let state = request.client.session.current().state;
    let kind = match state {
        _ if queued => ErrorKind::Busy,
        SessionState::Connected => ErrorKind::Timeout(Phase::Queueing),
        _ => ErrorKind::Timeout(Phase::Connecting),
    };
    let error = Error::new(kind, operation).with_path(request.path);
    // A request that waits for the connection has not failed yet.
    let suspended = || {
        let error = Error::new(ErrorKind::Unavailable, "session");
        (state == SessionState::Suspended).then(|| error.with_message("the connection is interrupted"))
    };
    match last.or_else(suspended) {
        Some(cause) => error.with_source(cause),
        None => error,
    }
}

/// Waits until a create may begin. Each create that is given up leaves work for the background, even if it was never sent. So
/// none begins while its request would have to wait for the connection, or without being admitted.
async fn time_to_create(Request { client, path, deadline, .. }: Request<'_>) -> Result<Admitted> {
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

/// Waits while the connection is interrupted. Returns `false` after the operation timeout.
async fn resumed(client: &ClientInner, path: &LockPath) -> bool {
    LastFailure::note(|| {
        Error::new(ErrorKind::Unavailable, "create").with_path(path).with_message("no connection")
    });
    // A new subscription: a backend whose runtime has ended may continue on this one.
    let mut session = client.backend().session_events();
    let resumed = async {
        while client.session.current().state == SessionState::Suspended {
            session.changed().await;
        }
    };
    timeout(client.operation_timeout, resumed).await.is_ok()
}

/// Waits until a create is admitted.
async fn admission(client: &ClientInner, path: &LockPath, deadline: Option<Instant>) -> Result<Admitted> {
    LastFailure::note(|| {
        let why = "more creates wait to be admitted than the store answers in time";
        Error::new(ErrorKind::Unavailable, "create").with_path(path).with_message(why)
    });
    // A new subscription, as above.
    let session = client.backend().session_events();
    let admitted = tokio::select! {
        biased;
        () = session.closed() => None,
        admitted = client.admission.create(deadline) => Some(admitted),
    };
    admitted.ok_or_else(|| {
        lost_error(closed(client.session.current()).unwrap_or(Status::Closed), "acquire", path)
    })
}
