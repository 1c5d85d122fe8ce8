//! Acquiring permits of a semaphore whose maximum is a value that may change.
//!
//! A grant is the relabel of the own node, while the maximum is one that all permits up to and including the own ones fit into,
//! together with those that are granted behind them:
//!
//! 1. the maximum is read,
//! 2. a listing shows that the permits fit,
//! 3. the node is relabelled as granted, which a majority of the servers commits,
//! 4. a read that shows at least the state of the relabel finds the version that was read first, so the maximum had it at the
//!    moment of the relabel.
//!
//! Nodes before the own one only leave, so what fits in the listing fits at the relabel. Of the nodes behind, those that are granted
//! by this maximum have counted the own one. Those that were granted by an earlier one are in the listing. If the maximum has
//! changed, the label is taken back, and the node goes on waiting.

use std::pin::pin;

use zlock_core::{Label, LastFailure, Queue, Result};

use super::place::{Listing, Loss, Place};
use super::request::{Progress, Request};
use crate::place::granted::{Granted, lost_error};
use crate::queue::{Acquisition, Discipline, Event, Status, Step, fits};
use crate::value::{Counter, Known};

/// Returns how many permits there are: none if the number is negative.
pub(crate) fn permits(known: Known) -> u64 {
    u64::try_from(known.number).unwrap_or(0)
}

/// Waits until the permits are held.
pub(crate) async fn drive(
    request: Request<'_>,
    max: &Counter,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Granted> {
    let mut known = max.known().await?;
    let mut place = Place::queue_up(request, Listing::Always).await?;
    progress(Progress::Queued);
    LastFailure::overcome();
    let (mut loss, mut watch) = (Loss::default(), None);
    let (mut event, mut awaited, mut is_first) = (first_event(&mut place, request)?, None, false);
    loop {
        match acquisition(&place, known).next(event, place.status()) {
            Step::Granted { .. } => match settle(&mut place, max, &mut known, &mut loss).await? {
                true => return granted(place, request),
                false => event = Event::Woken,
            },
            Step::Ended(reason) => return Err(lost_error(reason, "acquire", request.path)),
            Step::Wait => {
                progress(Progress::Waiting);
                let mut woken = pin!(place.wait(awaited.take(), &mut loss));
                // Only the first waiter has to know the maximum: its grant wakes the next one.
                if !is_first {
                    event = woken.await?;
                    continue;
                }
                let watch = watch.get_or_insert_with(|| max.watch());
                event = loop {
                    tokio::select! {
                        biased;
                        event = &mut woken => break event?,
                        view = watch.changed() => {
                            let now = max.saw(view?.value)?;
                            if now.version != known.version {
                                known = now;
                                break Event::Woken;
                            }
                        }
                    }
                };
            }
            asking => {
                is_first = asking == Step::ListAndArm;
                (event, awaited) = place.ask_until_answered(asking, &mut loss).await?;
                LastFailure::overcome();
            }
        }
    }
}

/// Acquires the permits if they are free. Writes nothing if a listing shows that they are not.
pub(crate) async fn try_once(request: Request<'_>, max: &Counter) -> Result<Option<Granted>> {
    let mut known = max.read().await?;
    let queue = request.client.backend().children(request.path, None).await?;
    LastFailure::overcome();
    request.check_max(&queue)?;
    let weight = if let Label::Permits { weight, .. } = request.label { weight } else { 0 };
    if !fits(&queue, weight, permits(known)) {
        return Ok(None);
    }
    let mut place = Place::queue_up(request, Listing::Always).await?;
    let event = first_event(&mut place, request)?;
    match acquisition(&place, known).next(event, place.status()) {
        Step::Granted { .. } if settle(&mut place, max, &mut known, &mut Loss::default()).await? => {
            return granted(place, request).map(Some);
        }
        Step::Ended(reason) => return Err(lost_error(reason, "try_acquire", request.path)),
        _ => {}
    }
    place.give_up().await;
    Ok(None)
}

fn acquisition(place: &Place<'_>, known: Known) -> Acquisition {
    let discipline = Discipline::SharedPermits { max: Some(permits(known)) };
    Acquisition::new(place.node().id.clone(), discipline)
}

/// Returns what the create shows of the queue. To be alone is no grant: the maximum may be too small.
fn first_event(place: &mut Place<'_>, request: Request<'_>) -> Result<Event> {
    Ok(match request.checked(place.first_event())? {
        Some(Event::Alone) => Event::Listed(Queue::linear([place.node().clone()].into())),
        Some(event) => event,
        None => Event::Woken,
    })
}

/// Marks the node as granted. Returns `false`, with the maximum that is there now, if that has changed, or if the place is lost.
async fn settle(place: &mut Place<'_>, max: &Counter, known: &mut Known, loss: &mut Loss) -> Result<bool> {
    place.mark_granted(true, loss).await?;
    let Some(now) = place.until_answered(|| max.read_seen(), loss).await? else { return Ok(false) };
    let is_unchanged = now.version == known.version;
    if !is_unchanged {
        *known = now;
        place.mark_granted(false, loss).await?;
    }
    Ok(is_unchanged)
}

fn granted(place: Place<'_>, request: Request<'_>) -> Result<Granted> {
    // There is no await between this look and the grant.
    match place.status() {
        Status::Live => Ok(place.granted()),
        reason => Err(lost_error(reason, "acquire", request.path)),
    }
}
