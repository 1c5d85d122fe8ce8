//! Acquiring through a client's local queue, and the task that drives the queue.

use std::future::pending;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use zlock_core::{CoordinationBackend, Error, ErrorKind, Job, Label, Mutex, Result, Target};

use crate::acquire::{self, Progress, Request};
use crate::client::hold_record::Entry;
use crate::client::inner::ClientInner;
use crate::guard::Guard;
use crate::hold::Hold;
use crate::place::cohort::{Cohort, Ended, Handoff, Turn, Work};
use crate::place::granted::{Granted, closed, lost, lost_error};
use crate::place::pauses::{Pauses, connected};
use crate::queue::{Arrival, Status};

/// How long a waiter waits at least while there is no session. By then, the operation of a running driver has failed, unless
/// the backend's operation timeout is longer.
const UNATTENDED: Duration = Duration::from_secs(60);

/// How long the place of the previous batch is kept until the next place is created.
const LEFTOVER: Duration = Duration::from_secs(1);

/// Waits until the lock is held.
pub(crate) async fn acquire(request: Request<'_>, handoff: Handoff) -> Result<Guard> {
    Ticket::new(request, handoff).guard().await
}

/// Waits until the lock is held or the time is over. A zero duration makes a single attempt.
pub(crate) async fn acquire_within(request: Request<'_>, handoff: Handoff, time: Duration) -> Result<Guard> {
    if time.is_zero() {
        return if is_taken(request, handoff) {
            Err(request.timed_out("acquire", true, None))
        } else {
            acquire::acquire_within(request, time).await
        };
    }
    let mut ticket = Ticket::new(request, handoff);
    // A deadline that the clock cannot represent means no time limit.
    let Some(deadline) = Instant::now().checked_add(time) else { return ticket.guard().await };
    match timeout_at(deadline, ticket.guard()).await {
        Ok(result) => result,
        Err(_) => {
            let (is_queued, failure) = (ticket.cohort.is_queued(), ticket.cohort.failure.get());
            Err(request.timed_out("acquire", is_queued, failure))
        }
    }
}

/// Acquires the lock if it is free. Performs no I/O if another user of the client has or awaits the lock's place.
pub(crate) async fn try_acquire(request: Request<'_>, handoff: Handoff) -> Result<Option<Guard>> {
    if is_taken(request, handoff) { Ok(None) } else { acquire::try_acquire(request).await }
}

fn is_taken(Request { client, path, .. }: Request<'_>, handoff: Handoff) -> bool {
    client.cohorts.find(path, handoff).is_some_and(|cohort| cohort.is_taken())
}

/// A waiter's position in the local queue, which is given up when this is dropped.
struct Ticket<'a> {
    client: &'a Arc<ClientInner>,
    cohort: Arc<Cohort>,
    number: u64,
    metric_name: Option<&'a Arc<str>>,
    turn: oneshot::Receiver<Result<Turn>>,
}

impl<'a> Ticket<'a> {
    fn new(request: Request<'a>, handoff: Handoff) -> Self {
        let Request { client, path, data, metric_name, .. } = request;
        let cohort = client.cohorts.get(path, handoff, &client.session);
        if cohort.is_taken() {
            request.warn_of_waiting_for_itself();
        }
        let (Arrival { number, driver }, turn) = cohort.join(data);
        let ticket = Ticket { client, cohort, number, metric_name, turn };
        if let Some(number) = driver {
            let driver = Driver { number, client: Arc::downgrade(client), cohort: ticket.cohort.clone() };
            client.backend().background().push(client.backend.clone(), driver);
        }
        ticket
    }

    /// Waits for the turn.
    async fn guard(&mut self) -> Result<Guard> {
        let (client, cohort) = (self.client, &self.cohort);
        let turn = tokio::select! {
            biased;
            turn = &mut self.turn => turn.unwrap_or_else(|_| Err(unserved(client, cohort))),
            error = unattended(client, cohort) => return Err(error),
        }?;
        match turn.granted.status(client.session.current()) {
            Status::Live => Ok(hold(client, cohort, self.metric_name, turn)),
            bad => {
                turn.end(client, cohort);
                Err(lost_error(bad, "acquire", cohort.path()))
            }
        }
    }
}

fn hold(client: &Arc<ClientInner>, cohort: &Cohort, metric_name: Option<&Arc<str>>, turn: Turn) -> Guard {
    let entry = Entry::of(turn.granted.node.label);
    let granted = turn.granted.clone();
    Guard::new(Hold::new(client.clone(), cohort.path().clone(), metric_name, granted, Some(turn)), entry)
}

impl Turn {
    /// Ends the turn of a waiter that does not use it.
    fn end(self, client: &Arc<ClientInner>, cohort: &Cohort) {
        let granted = self.granted.clone();
        if self.leave() == Ended::GiveUp {
            client.give_up_in_background(cohort.path(), granted);
        }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.turn.close();
        self.cohort.leave(self.number);
        if let Ok(Ok(turn)) = self.turn.try_recv() {
            turn.end(self.client, &self.cohort);
        }
    }
}

/// Completes with an error when the backend is closed, or when there has been no session for a long time: the backend's
/// runtime may not be driven then, nor the driver with it.
async fn unattended(client: &ClientInner, cohort: &Cohort) -> Error {
    let patience = UNATTENDED.max(client.response_timeout.saturating_mul(2));
    // A new view: a mem backend that was created outside a runtime begins its first session on this one.
    let mut session = client.backend().session_events();
    loop {
        let now = session.current();
        if now.is_live() {
            session.changed().await;
        } else if closed(now).is_some() || timeout(patience, session.changed()).await.is_err() {
            return unserved(client, cohort);
        }
    }
}

/// The error of a waiter that no driver serves.
fn unserved(client: &ClientInner, cohort: &Cohort) -> Error {
    if let Some(closed) = closed(client.session.current()) {
        return lost_error(closed, "acquire", cohort.path());
    }
    let error = Error::new(ErrorKind::Unavailable, "acquire").with_path(cohort.path());
    match cohort.failure.get() {
        Some(cause) => error.with_cause(cause),
        None => error,
    }
}

/// Drives the local queue of a lock while it has waiters: acquires its places, and passes on turns that were ended without a
/// clock. Runs on the backend's runtime, so that a waiter that is not polled cannot hold up the driver.
#[derive(Debug)]
struct Driver {
    number: u64,
    cohort: Arc<Cohort>,
    /// Weak, because the backend owns the driver. Waiters keep the client alive.
    client: Weak<ClientInner>,
}

#[async_trait]
impl Job for Driver {
    async fn run(&self, backend: &dyn CoordinationBackend) {
        let cohort = &self.cohort;
        let Some(client) = &self.client.upgrade() else {
            // There are no waiters left. A turn that ended by a drop may have left its place.
            while let Work::GiveUp(granted) = cohort.work() {
                let target = Target::Node(granted.node);
                if let Err(error) = backend.delete(cohort.path(), &target, None).await {
                    tracing::warn!(path = %cohort.path(), %error, "a node could not be removed");
                }
            }
            return;
        };
        let mut pauses = Pauses::default();
        loop {
            match cohort.work() {
                Work::Acquire { data, leftover } => {
                    let leftover = Leftover { client, cohort, granted: Mutex::new(leftover) };
                    acquire_place(client, cohort, &data, &leftover, &mut pauses).await;
                }
                Work::Watch { batch, granted: Granted { epoch, deletion, .. } } => tokio::select! {
                    biased;
                    () = lost(&client.session, epoch, &deletion) => cohort.abandon(batch),
                    () = cohort.changed() => {}
                },
                Work::GiveUp(granted) => client.give_up_in_background(cohort.path(), granted),
                Work::Done => return,
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.cohort.driver_gone(self.number);
    }
}

/// Acquires a place, and begins a batch with it.
///
/// An outage that the session survives must not fail waiters that were queued behind the previous place. So the next one is
/// created when there is a connection, and after a pause in another attempt if the store did not answer.
async fn acquire_place(
    client: &Arc<ClientInner>,
    cohort: &Arc<Cohort>,
    data: &Arc<[u8]>,
    leftover: &Leftover<'_>,
    pauses: &mut Pauses,
) {
    let request = Request {
        client,
        path: cohort.path(),
        label: Label::Lock,
        shared_max: None,
        data,
        metric_name: None,
        deadline: None,
    };
    let progress = |progress| match progress {
        Progress::Queued => cohort.set_queued(true),
        Progress::Waiting => leftover.give_up(),
    };
    let not_for_long = async {
        sleep(LEFTOVER).await;
        leftover.give_up();
        pending().await
    };
    let acquiring = async {
        if !cohort.is_queued() {
            return acquire::granted(request, &progress).await.map(Some);
        }
        connected(&client.session).await;
        match acquire::granted(request, &progress).await {
            Ok(granted) => Ok(Some(granted)),
            Err(error) => pauses.after(error, cohort.path(), &client.session).await.map(|()| None),
        }
    };
    let acquired = tokio::select! {
        biased;
        () = cohort.deserted() => return cohort.set_queued(false),
        acquired = cohort.failure.observe(acquiring) => acquired,
        () = not_for_long => return,
    };
    match acquired {
        Ok(Some(granted)) => {
            *pauses = Pauses::default();
            if let Some(granted) = cohort.begin(granted) {
                client.give_up_in_background(cohort.path(), granted);
            }
        }
        Ok(None) => {}
        Err(error) => cohort.fail(&error),
    }
}

/// The place of the previous batch. Its node is removed once the next place is queued behind it. The removal then hands the
/// lock over to that place, unless another client has a place in between.
struct Leftover<'a> {
    client: &'a Arc<ClientInner>,
    cohort: &'a Cohort,
    granted: Mutex<Option<Granted>>,
}

impl Leftover<'_> {
    fn give_up(&self) {
        let granted = self.granted.lock().take();
        if let Some(granted) = granted {
            self.client.give_up_in_background(self.cohort.path(), granted);
        }
    }
}

impl Drop for Leftover<'_> {
    fn drop(&mut self) {
        self.give_up();
    }
}
