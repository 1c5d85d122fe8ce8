//! The loop around the state machine, which executes its steps and passes it the events.
//!
//! The clean-up of a node is armed before its create is sent. The steps are those of `queue/acquisition.rs`; with hand-off,
//! `handoff.rs` takes them for all local waiters. A request to the store is in `place.rs`.

pub(crate) mod handoff;
pub(crate) mod place;
mod request;
mod shared;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};
use zlock_core::{LastFailure, Result};

use crate::acquire::place::{Awaited, Listing, Loss, Place};
pub(crate) use crate::acquire::request::{Progress, Request};
use crate::client::hold_record::Entry;
use crate::guard::Guard;
use crate::hold::Hold;
use crate::place::granted::{Granted, lost_error};
use crate::queue::{Acquisition, Discipline, Event, Step, would_hold};

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
        return taken.ok_or_else(|| request.timed_out("acquire", true, None));
    }
    // A deadline that the clock cannot represent means no time limit.
    let Some(deadline) = Instant::now().checked_add(time) else { return acquire(request).await };
    let (queued, last) = (AtomicBool::default(), LastFailure::default());
    let progress = |_| queued.store(true, Ordering::Relaxed);
    let request = Request { deadline: Some(deadline), ..request };
    match timeout_at(deadline, last.observe(drive(request, &progress))).await {
        Ok(result) => result.map(|grant| grant.guard(request)),
        Err(_) => Err(request.timed_out("acquire", queued.load(Ordering::Relaxed), last.get())),
    }
}

/// Acquires the lock if it is free. Writes nothing if a listing shows that it is not.
pub(crate) async fn try_acquire(request: Request<'_>) -> Result<Option<Guard>> {
    let last = LastFailure::default();
    match timeout(request.client.response_timeout, last.observe(try_once(request))).await {
        Ok(result) => result,
        Err(_) => Err(request.timed_out("try_acquire", false, last.get())),
    }
}

async fn try_once(request: Request<'_>) -> Result<Option<Guard>> {
    let Request { client, path, label, .. } = request;
    if let Some(max) = request.shared_max {
        let granted = Box::pin(shared::try_once(request, max)).await?;
        return Ok(granted.map(|granted| Grant { granted, promote: false }.guard(request)));
    }
    let queue = client.backend().children(path, None).await?;
    LastFailure::overcome();
    request.check_max(&queue)?;
    if !would_hold(&queue, label) {
        return Ok(None);
    }
    let mut place = Place::queue_up(request, Listing::Always).await?;
    let event = request.checked(place.first_event())?.unwrap_or(Event::Woken);
    let acquisition = Acquisition::new(place.node().id.clone(), Discipline::of(label));
    match acquisition.next(event, place.status()) {
        Step::Granted { promote } => Ok(Some(Grant { granted: place.granted(), promote }.guard(request))),
        Step::Ended(reason) => Err(lost_error(reason, "try_acquire", path)),
        // Another client came in between: remove the node. If that fails, the reaper takes over.
        _ => {
            place.give_up().await;
            Ok(None)
        }
    }
}

/// Waits until the lock is held.
///
/// Large, so it is boxed: in [`granted`], and by `LockHandle`.
async fn drive(request: Request<'_>, progress: &(dyn Fn(Progress) + Sync)) -> Result<Grant> {
    let Request { path, label, .. } = request;
    if let Some(max) = request.shared_max {
        let granted = Box::pin(shared::drive(request, max, progress)).await?;
        return Ok(Grant { granted, promote: false });
    }
    let mut place = Place::queue_up(request, Listing::IfNeeded).await?;
    progress(Progress::Queued);
    LastFailure::overcome();
    let acquisition = Acquisition::new(place.node().id.clone(), Discipline::of(label));
    let mut loss = Loss::default();
    let (mut waited, mut followed) = (false, false);
    let (mut event, mut awaited) = match request.checked(place.first_event())? {
        Some(event) => (event, None),
        None => match place.follow_number() {
            Some(predecessor) => {
                (waited, followed) = (true, true);
                request.warn_of_waiting_for_itself();
                (Event::Armed, Some(predecessor))
            }
            None => (Event::Woken, None),
        },
    };
    loop {
        // There is no await between reading the status and taking the step, so the status is current when the lock is
        // granted.
        match acquisition.next(event, place.status()) {
            Step::Granted { promote } => return Ok(Grant { granted: place.granted(), promote }),
            Step::Ended(reason) => return Err(lost_error(reason, "acquire", path)),
            Step::Wait => {
                progress(Progress::Waiting);
                event = place.wait(awaited.take(), &mut loss).await?;
            }
            asking => {
                if matches!(asking, Step::Arm(_)) && !waited {
                    waited = true;
                    request.warn_of_waiting_for_itself();
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
