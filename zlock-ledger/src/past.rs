//! What a session has seen of the store's history.

use std::time::Duration;

use tokio::time::Instant;

use crate::ledger::History;
use crate::watched::Watched;

/// What a session has seen of the store's history, and for how long it has watched an incarnation in quiet time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Past {
    /// The number of the heartbeat whose answer was seen.
    beat: u64,
    history: History,
    /// The watched time of the incarnation, in quiet time.
    quiet: Option<Watched>,
}

impl Past {
    /// Begins with what the session began with.
    #[must_use]
    pub fn new(history: History, received: Instant) -> Self {
        Past { beat: 0, history, quiet: history.watched.map(|watched| Watched::new(watched, received)) }
    }

    /// Returns `true` in quiet time.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.quiet.is_some()
    }

    /// Returns what a heartbeat that is sent at `sent` adds to the watched time: the incarnation, the time that its row must have, and
    /// the span.
    pub fn span(&mut self, sent: Instant) -> Option<(u64, Duration, Duration)> {
        let (seen, span) = self.quiet.as_mut()?.send(sent)?;
        Some((self.history.incarnation, seen, span))
    }

    /// Returns what was seen last. Any request that is sent now finds that, or what came later.
    #[must_use]
    pub fn history(&self) -> History {
        self.history
    }

    /// Records the answer to a heartbeat, and whether the time that it was to add was added.
    pub fn saw(&mut self, beat: u64, history: History, added: bool, received: Instant) {
        if beat < self.beat {
            return;
        }
        let is_same = self.history.incarnation == history.incarnation;
        self.quiet = match (self.quiet, history.watched) {
            (Some(mut quiet), Some(watched)) if is_same => {
                quiet.saw(watched, received, added);
                Some(quiet)
            }
            (_, watched) => watched.map(|watched| Watched::new(watched, received)),
        };
        (self.beat, self.history) = (beat, history);
    }
}
