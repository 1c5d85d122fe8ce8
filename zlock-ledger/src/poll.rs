//! The poll: asks from time to time what has changed of all that is watched.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use zlock_core::kit::SessionKey;

use crate::ledger::{Calm as _, Fault, Ledger};
use crate::shared::Shared;

/// The time between two looks at whether the connection is needed.
const IDLE: Duration = Duration::from_secs(15);

/// The number of marks in one request.
const MAX_MARKS: usize = 1000;

/// Polls while anything is watched: at once if there is a reason, soon after a watch is armed that no hint reports, and then less and less
/// often. The gaps grow so slowly that a change is found late by at most an eighth of the time that it took to come, if that is more than the shortest gap.
pub(crate) async fn poll_forever<L: Ledger>(shared: &Arc<Shared<L>>, session: SessionKey) -> Infallible {
    let (longest, shortest) = shared.limits.poll;
    let (mut last, mut gap) = (Instant::now(), shortest);
    loop {
        if shared.hub.len() == 0 {
            tokio::select! {
                biased;
                () = shared.hub.sooner.notified() => {}
                () = sleep(IDLE) => {
                    shared.close_idle();
                    continue;
                }
            }
            (last, gap) = (Instant::now(), shortest);
        }
        if !shared.hub.take_due() {
            let due = last + if shared.hub.is_hinted() { longest } else { gap };
            tokio::select! {
                biased;
                () = shared.hub.sooner.notified() => {
                    gap = shortest;
                    continue;
                }
                () = sleep_until(due) => {}
            }
        }
        (last, gap) = (Instant::now(), (gap * 9 / 8).min(longest));
        if let Err(fault) = poll(shared, session).await {
            tracing::debug!(?fault, "no answer to a poll");
        }
    }
}

async fn poll<L: Ledger>(shared: &Shared<L>, session: SessionKey) -> Result<(), Fault> {
    // Nothing is sent while the session is suspended.
    if !shared.sessions.is_connected(session)? {
        return Ok(());
    }
    let asked = shared.hub.asks();
    if asked.marks.is_empty() {
        return Ok(());
    }
    let calm = shared.calm(Some(session.id)).await?;
    let (mut changed, mut incarnation) = (Vec::new(), None);
    for (part, marks) in asked.marks.chunks(MAX_MARKS).enumerate() {
        let answer = shared.ask(&calm, shared.answer_time(), calm.changed(session.id, marks)).await;
        let (now, positions) = shared.judge(session, answer)?;
        changed.extend(positions.into_iter().map(|position| position + part * MAX_MARKS));
        // A restart between two parts shows in the next poll.
        incarnation.get_or_insert(now);
    }
    if let Some(incarnation) = incarnation {
        shared.hub.answered(&asked, incarnation, &changed);
    }
    Ok(())
}
