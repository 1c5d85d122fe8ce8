//! What listings have shown: the nodes that an own node waits behind, and the beats of sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;
use zlock_core::Mutex;

/// The most nodes that are remembered.
const MAX_SEEN: usize = 4096;

/// Nodes ahead of own ones. A client that deletes or relabels one of them sees the own one, and notifies this client. So a watch on a
/// node that was seen while notifications were received needs no request.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<BTreeMap<String, SeenNode>>);

#[derive(Clone, Debug)]
pub(crate) struct SeenNode {
    pub(crate) label: String,
    /// The connection that received notifications when the listing was requested.
    pub(crate) listener: usize,
    /// The mark from before the listing was requested.
    pub(crate) mark: u64,
}

impl Seen {
    pub(crate) fn note(&self, node: &str, seen: SeenNode) {
        let mut nodes = self.0.lock();
        if nodes.len() >= MAX_SEEN {
            nodes.clear();
        }
        nodes.insert(node.to_owned(), seen);
    }

    /// Returns what was seen of a node, and forgets it.
    pub(crate) fn take(&self, node: &str) -> Option<SeenNode> {
        self.0.lock().remove(node)
    }
}

/// The last beat of each session that owns a watched node, and since when no other was seen, by the clock of this process.
#[derive(Debug, Default)]
pub(crate) struct Observed(Mutex<BTreeMap<i64, Observation>>);

#[derive(Clone, Copy, Debug)]
struct Observation {
    beat: i64,
    ttl: Duration,
    since: Instant,
}

impl Observation {
    fn due(&self) -> Instant {
        self.since + self.ttl
    }
}

impl Observed {
    /// Records a beat that was in an answer received now.
    pub(crate) fn note(&self, session: i64, beat: i64, ttl_millis: i64, now: Instant) {
        let ttl = Duration::from_millis(ttl_millis.max(0).cast_unsigned());
        let mut observed = self.0.lock();
        match observed.get(&session) {
            Some(known) if known.beat >= beat => {}
            _ => {
                observed.insert(session, Observation { beat, ttl, since: now });
            }
        }
    }

    /// Forgets all sessions but these.
    pub(crate) fn retain(&self, sessions: &[i64]) {
        let sessions: BTreeSet<_> = sessions.iter().collect();
        self.0.lock().retain(|session, _| sessions.contains(session));
    }

    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }

    /// Returns when the next session is dead unless it beats.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.0.lock().values().map(Observation::due).min()
    }

    /// Returns the sessions that have not beaten for their timeout, with their last beats.
    pub(crate) fn dead(&self) -> Vec<(i64, i64)> {
        let now = Instant::now();
        let observed = self.0.lock();
        let dead = observed.iter().filter(|(_, seen)| seen.due() <= now);
        dead.map(|(session, seen)| (*session, seen.beat)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_session_is_dead_after_its_timeout_without_another_beat() {
        let (observed, second) = (Observed::default(), Duration::from_secs(1));
        observed.note(1, 5, 3000, Instant::now());
        observed.note(2, 5, 3000, Instant::now());
        tokio::time::advance(2 * second).await;
        observed.note(1, 5, 3000, Instant::now());
        observed.note(2, 6, 3000, Instant::now());
        assert_eq!(observed.dead(), []);
        tokio::time::advance(second).await;
        assert_eq!(observed.dead(), [(1, 5)]);
        // An answer that was late shows an older beat.
        observed.note(2, 5, 3000, Instant::now());
        tokio::time::advance(2 * second).await;
        assert_eq!(observed.dead(), [(1, 5), (2, 6)]);
        observed.retain(&[2]);
        assert_eq!(observed.dead(), [(2, 6)]);
    }
}
