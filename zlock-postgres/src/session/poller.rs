//! The poll: one statement for all watches of a client. It is what watches rely on; notifications only make them faster. It also
//! shows whether the sessions that own the watched nodes are alive.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use zlock_core::kit::SessionKey;

use crate::connection::link::Params;
use crate::connection::statement;
use crate::error::Failure;
use crate::session::begin::REST;
use crate::session::death::{expire, suspect, sweep};
use crate::session::shared::{Shared, session_id};
use crate::watches::registry::{Kind, Polled, contents};

/// The time between two polls.
const PERIOD: Duration = Duration::from_secs(1);

/// The time between two polls while notifications prove to arrive.
const LONG_PERIOD: Duration = Duration::from_secs(5);

/// How long notifications are received after the last wait.
const LISTEN_ON: Duration = Duration::from_secs(10);

/// Polls while anything is watched, and sweeps from time to time.
pub(crate) async fn poll_forever(shared: &Arc<Shared>, session: SessionKey) -> Infallible {
    // What was seen before a failover counts no more.
    shared.observed.clear();
    // After a restart of a fleet, not all clients look at the same moment.
    let mut next_sweep = Instant::now() + REST.mul_f64(fastrand::f64() / 10.0);
    let polls = async {
        loop {
            shared.watches.armed().await;
            poll_while_watched(shared, session).await;
        }
    };
    let sweeps = async {
        loop {
            sleep_until(next_sweep).await;
            next_sweep = Instant::now() + REST;
            if shared.sessions.is_connected(session) == Ok(true)
                && let Err(failure) = sweep(shared).await
            {
                tracing::debug!(?failure, "dead sessions could not be looked for");
            }
        }
    };
    tokio::select! {
        biased;
        never = polls => never,
        never = sweeps => never,
    }
}

async fn poll_while_watched(shared: &Arc<Shared>, session: SessionKey) {
    let (mut idle_since, mut next_sweep) = (None, Instant::now());
    loop {
        let now = Instant::now();
        if !shared.watches.is_empty() {
            idle_since = None;
        } else if *idle_since.get_or_insert(now) + LISTEN_ON <= now {
            shared.observed.clear();
            shared.heart.unlisten().await;
            return;
        }
        let period = period(shared);
        // What was observed goes stale when nothing is watched.
        let due = shared.observed.next_due().filter(|_| !shared.watches.is_empty());
        let due = due.map_or(now + period, |due| due.clamp(now, now + period));
        tokio::select! {
            biased;
            () = sleep_until(due) => {}
            // LISTEN first, then read.
            () = shared.heart.broken() => {}
        }
        if shared.watches.is_empty() {
            continue;
        }
        if shared.sessions.is_connected(session) != Ok(true) {
            sleep(period / 10).await;
            continue;
        }
        shared.heart.listen(session).await;
        // A process that waits at a barrier watches the barrier's rounds, but no other member's node.
        let is_member = shared.watches.has(Kind::Value) && !shared.sessions.own().is_empty();
        let polled = async {
            if is_member && next_sweep <= Instant::now() {
                next_sweep = Instant::now() + shared.options.kit.session_timeout;
                sweep(shared).await?;
            }
            poll(shared, session).await
        };
        if let Err(failure) = polled.await {
            tracing::debug!(?failure, "a poll has failed");
            sleep(period / 10).await;
        }
    }
}

fn period(shared: &Shared) -> Duration {
    let longest = if shared.watches.is_notified() { LONG_PERIOD } else { PERIOD };
    longest.min(shared.options.kit.session_timeout / 4)
}

/// Polls once, and ends the sessions that are found dead.
async fn poll(shared: &Arc<Shared>, session: SessionKey) -> Result<(), Failure> {
    let (id, until, is_sync) =
        (session_id(session), Instant::now() + shared.options.answer_time(), shared.is_sync());
    let watched = shared.watches.watched();
    let keys =
        |kind| watched.keys.iter().filter(|key| key.0 == kind).map(|key| key.1.clone()).collect::<Vec<_>>();
    let (nodes, queues, values) = (keys(Kind::Node), keys(Kind::Queue), keys(Kind::Value));
    let groups = keys(Kind::Group);
    let rows =
        shared.send(session, until, &statement::POLL, &[&id, &nodes, &queues, &values, &is_sync]).await?;
    let now = Instant::now();
    let (mut polled, mut suspects, mut owners) = (Vec::new(), Vec::new(), Vec::new());
    let mut look = |owner: i64, state: i32, (beat, ttl): (i64, i64), now: Instant| {
        if state > 0 {
            suspects.push(owner);
        }
        if state < 2 && owner != id {
            shared.observed.note(owner, beat, ttl, now);
            owners.push(owner);
        }
    };
    for row in &rows {
        let get = |n: usize| row.try_get::<_, i64>(n).map_err(Failure::Postgres);
        let kind = match row.try_get::<_, i32>(0).map_err(Failure::Postgres)? {
            0 => Some(Kind::Node),
            1 => Some(Kind::Queue),
            2 => Some(Kind::Value),
            // The session of a node in a queue.
            3 => None,
            _ => return Err(Failure::Malformed),
        };
        let key: String = row.try_get(1).map_err(Failure::Postgres)?;
        let label: String = row.try_get(2).map_err(Failure::Postgres)?;
        if matches!(kind, None | Some(Kind::Node)) {
            let state: i32 = row.try_get(7).map_err(Failure::Postgres)?;
            let beat = if state < 2 { (get(5)?, get(6)?) } else { (0, 0) };
            look(get(4)?, state, beat, now);
        }
        let Some(kind) = kind else { continue };
        polled.push(Polled { key: (kind, key), label, version: get(3)? });
    }
    if !groups.is_empty() {
        let params: Params<'_> = &[&id, &groups, &false, &is_sync];
        let mut numbers = BTreeMap::<String, Vec<i64>>::new();
        let rows = shared.send(session, until, &statement::MEMBERS, params).await?;
        let now = Instant::now();
        for row in &rows {
            let get = |n: usize| row.try_get::<_, i64>(n).map_err(Failure::Postgres);
            let path: String = row.try_get(0).map_err(Failure::Postgres)?;
            let state: i32 = row.try_get(7).map_err(Failure::Postgres)?;
            look(get(4)?, state, (get(5)?, get(6)?), now);
            numbers.entry(path).or_default().push(get(2)?);
        }
        let group = |(path, numbers): (String, Vec<i64>)| {
            let label = contents(numbers.into_iter()).unwrap_or_default();
            Polled { key: (Kind::Group, path), label, version: 0 }
        };
        polled.extend(numbers.into_iter().map(group));
    }
    shared.observed.retain(&owners);
    shared.watches.polled(&watched, &polled);
    for (owner, beat) in shared.observed.dead() {
        finish(expire(shared, owner, beat).await)?;
    }
    suspects.sort_unstable();
    suspects.dedup();
    for owner in suspects.into_iter().filter(|owner| *owner != id) {
        finish(suspect(shared, owner).await.map(drop))?;
    }
    Ok(())
}

/// A node that a fence protects is looked at again with the next poll.
fn finish(ended: Result<(), Failure>) -> Result<(), Failure> {
    match ended {
        Err(Failure::Fenced) => Ok(()),
        ended => ended,
    }
}
