//! Histories recorded by clients of a real cluster, and checks of these histories.
//!
//! Every check is a pure function of the histories. All times are nanoseconds of the machine's monotonic clock, which all
//! processes of a machine share, so that their histories can be compared.

mod errors;
mod event;
mod fencing;
mod holds;
mod linear;
mod liveness;
mod overlap;
mod picture;
mod signal;

use std::fmt;

pub(crate) use crate::kind::Kind;
pub(crate) use errors::errors;
pub(crate) use event::{Event, How, What};
pub(crate) use fencing::{Write, fencing, storage};
pub(crate) use holds::{Ended, Hold, TURN_BITS, holds};
pub(crate) use linear::linear;
pub(crate) use liveness::{Alive, CROWD, Healed, liveness, pauses};
pub(crate) use overlap::overlap;
pub(crate) use picture::picture;
pub(crate) use signal::{Disturbance, signal};

/// Nanoseconds of the machine's monotonic clock.
pub(crate) type Ns = u64;

/// The number of nanoseconds in a millisecond.
pub(crate) const MS: Ns = 1_000_000;

/// The history of a client process, with the name of the process.
#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) client: String,
    pub(crate) events: Vec<Event>,
}

impl History {
    /// Parses a history, with one event on each line. The last line of a killed process may be truncated.
    pub(crate) fn parse(client: &str, text: &str) -> Result<Self, String> {
        let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        let events = whole.lines().map(Event::parse).collect::<Result<_, _>>();
        Ok(History { client: client.to_owned(), events: events.map_err(|why| format!("{client}: {why}"))? })
    }
}

/// A session that was ended early at the server, by an operator or by a faulty server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) session: u64,
    /// When the end was requested.
    pub(crate) asked: Ns,
    /// When the server had confirmed it.
    pub(crate) done: Ns,
    /// The time by which the client must have noticed.
    pub(crate) until: Ns,
}

impl Ending {
    /// Returns `true` if this explains that the session was over for others at this moment, but not for its client.
    fn explains(&self, session: u64, at: Ns) -> bool {
        self.session == session && self.asked <= at && at <= self.until
    }

    /// Returns `true` if the session was over by this moment. On PostgreSQL, the client of a session at rest may learn that with its
    /// next request only, which is later than a holder must.
    fn ends(&self, session: u64, at: Ns) -> bool {
        self.session == session && self.asked <= at
    }

    /// For tables: a session that was ended by hand.
    #[cfg(test)]
    fn by_hand(session: u64, asked: Ns) -> Self {
        Ending { session, asked, done: asked, until: Ns::MAX }
    }
}

/// The findings of a check.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Violations of promises.
    pub(crate) violations: Vec<String>,
    /// Statements about what was checked, with figures.
    pub(crate) figures: Vec<String>,
}

impl Findings {
    fn violation(&mut self, what: impl fmt::Display) {
        self.violations.push(what.to_string());
    }

    fn figure(&mut self, what: impl fmt::Display) {
        self.figures.push(what.to_string());
    }
}

/// Formats a time in seconds, for display only.
pub(crate) fn seconds(ns: Ns) -> String {
    format!("{:.3}s", ns as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_cut_off_is_left_out() {
        let history = History::parse("c1", "5 dropped op=1\n9 lost op=").unwrap();
        assert_eq!(history.events, [Event { at: 5, what: What::Dropped { op: 1 } }]);
        assert!(History::parse("c1", "5 dropped op=x\n").unwrap_err().contains("c1"));
    }
}
