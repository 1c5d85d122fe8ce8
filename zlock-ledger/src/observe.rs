//! Looks at the sessions of other clients that stand in the way, and ends those that are over.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use zlock_core::SessionId;
use zlock_core::kit::SessionKey;

use crate::hub::{MAX_OWNERS, owners};
use crate::ledger::{Calm as _, End, Ended, Fault, Ledger, Range, Read, Scope};
use crate::shared::Shared;

/// The time for which something has to be in the way before its session is looked at. Most holds are shorter.
const FIRST: Duration = Duration::from_millis(100);

/// The time between two looks, and the longest wait for a session to become overdue.
const INTERVAL: Duration = Duration::from_secs(1);

/// The shortest time between two looks at what was seen before.
const SHORTEST: Duration = Duration::from_millis(10);

/// The number of queues whose places ahead are read at each look.
const MAX_PLACES: usize = 16;

/// The time between two looks for dead sessions by a client that waits for nothing, so that their rows do not pile up.
const HOUSEKEEPING: Duration = Duration::from_secs(300);

/// The number of looks after which a node whose session is over is no longer about to be removed.
const STUCK: u32 = 3;

/// Looks at sessions while there is a reason.
pub(crate) async fn observe_forever<L: Ledger>(shared: &Arc<Shared<L>>, session: SessionKey) -> Infallible {
    let (mut kept, mut over) = (Instant::now(), BTreeMap::new());
    loop {
        let now = Instant::now();
        if shared.hub.len() == 0 && shared.deaths.lock().due(now).is_empty() {
            tokio::select! {
                biased;
                () = shared.suspects.notified() => {}
                () = sleep_until(kept + HOUSEKEEPING) => {}
            }
            if !shared.deaths.lock().has_unseen(Instant::now()) {
                sleep(FIRST).await;
            }
        }
        // What is waited for may depend on a session without showing that: the rounds of a barrier on its members, for example.
        let is_waiting = shared.hub.len() > 0;
        if kept.elapsed() >= if is_waiting { shared.options.session_timeout } else { HOUSEKEEPING } {
            kept = Instant::now();
            if let Err(fault) = housekeeping(shared, session).await {
                tracing::debug!(?fault, "dead sessions are not looked for");
            }
        }
        if let Err(fault) = look(shared, session, &mut over).await {
            tracing::debug!(?fault, "the sessions of others are not looked at");
        }
        let interval = INTERVAL.min(shared.options.session_timeout / 10);
        let now = Instant::now();
        let next = shared.deaths.lock().next(now).0.map_or(now + interval, |next| next.min(now + interval));
        let unseen = async {
            loop {
                shared.suspects.notified().await;
                if shared.deaths.lock().has_unseen(Instant::now()) {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            () = unseen => {}
            () = sleep_until(next.max(now + SHORTEST)) => {}
        }
    }
}

/// Asks for sessions that look dead by the clock of the store. That is no more than a reason to look at them.
async fn housekeeping<L: Ledger>(shared: &Shared<L>, session: SessionKey) -> Result<(), Fault> {
    let is_at_rest = shared.sessions.session().deadline.is_none() && shared.hub.len() == 0;
    if is_at_rest || !shared.sessions.is_connected(session)? {
        return Ok(());
    }
    let calm = shared.calm(Some(session.id)).await?;
    let silent = shared.ask(&calm, shared.answer_time(), calm.silent(MAX_OWNERS)).await?;
    shared.deaths.lock().want(&silent, Instant::now() + shared.options.session_timeout * 2, false);
    Ok(())
}

/// Looks at all sessions that are in the way, and ends those that are over. `was_over` counts the looks at those whose nodes remain.
async fn look<L: Ledger>(
    shared: &Shared<L>,
    session: SessionKey,
    was_over: &mut BTreeMap<SessionId, u32>,
) -> Result<(), Fault> {
    if !shared.sessions.is_connected(session)? {
        return Ok(());
    }
    let (now, limit) = (Instant::now(), shared.answer_time());
    let is_silent = shared.deaths.lock().next(now).1;
    let places = shared.hub.places(is_silent);
    if places.is_empty() && shared.hub.owners().is_empty() && shared.deaths.lock().due(now).is_empty() {
        return Ok(());
    }
    let calm = shared.calm(Some(session.id)).await?;
    for (scope, number) in places.into_iter().take(MAX_PLACES) {
        let read = Read {
            scope: scope.clone(),
            range: Range::Last { up_to: Some(number), limit: u32::try_from(MAX_OWNERS).unwrap_or(u32::MAX) },
            floor: shared.live(session)?.floors.lock().get(&scope),
            data: false,
        };
        let entries = shared.judge(session, shared.ask(&calm, limit, calm.read(session.id, &read)).await)?;
        shared.hub.ahead(&scope, number, &owners(&entries, session.id));
    }
    let due = {
        let mut deaths = shared.deaths.lock();
        for ahead in shared.hub.owners() {
            deaths.want(&ahead, now + INTERVAL * 2, is_silent);
        }
        deaths.due(now)
    };
    let found = shared.ask(&calm, limit, calm.look(&due)).await?;
    let mut ends: Vec<_> = {
        let mut deaths = shared.deaths.lock();
        let over = deaths.looked(&due, &found, Instant::now());
        // Their entries may remain.
        let over = over.into_iter().map(|session| End { session, beat: None });
        over.chain(deaths.overdue(&due, Instant::now())).collect()
    };
    warn_of_remaining_nodes(was_over, &ends);
    if ends.is_empty() {
        return Ok(());
    }
    let first: Vec<Scope> = shared.hub.scopes();
    while !ends.is_empty() {
        let ended = shared.ask(&calm, limit, calm.end(&ends, &first)).await?;
        let mut more = Vec::new();
        for (end, ended) in ends.into_iter().zip(ended) {
            if ended != Ended::Busy {
                shared.deaths.lock().forget(end.session);
            }
            if let (Ended::Over | Ended::More, Some(_)) = (ended, end.beat) {
                tracing::info!(session = %end.session, "the session of another client is over");
            }
            if ended == Ended::More {
                more.push(End { session: end.session, beat: None });
            }
        }
        ends = more;
        shared.hub.poll_soon();
    }
    Ok(())
}

/// Warns of sessions that were over at several looks in a row, and still own what is in the way.
fn warn_of_remaining_nodes(was_over: &mut BTreeMap<SessionId, u32>, ends: &[End]) {
    let over: Vec<_> = ends.iter().filter(|end| end.beat.is_none()).map(|end| end.session).collect();
    was_over.retain(|session, _| over.contains(session));
    for session in over {
        let looks = was_over.entry(session).or_default();
        *looks = looks.saturating_add(1);
        if *looks == STUCK {
            let why = "perhaps an open transaction has the lock's fence, which `zlock doctor` would name";
            tracing::warn!(%session, "the session of another client is over, and its node is still there: {why}");
        }
    }
}
