//! Histories that clients of a real cluster recorded, and what must be true of them.
//!
//! Every check is a pure function of what was recorded. All times are nanoseconds of the machine's monotonic
//! clock: that is one clock for all processes of a machine, so that histories of several can be compared.

mod errors;
mod event;
mod fencing;
mod holds;
mod linear;
mod liveness;
mod overlap;
mod signal;

use std::fmt;

pub(crate) use errors::errors;
pub(crate) use event::{Event, How, Kind, What};
pub(crate) use fencing::{Write, fencing, storage};
pub(crate) use holds::{Ended, Hold, TURN_BITS, holds};
pub(crate) use linear::linear;
pub(crate) use liveness::{Alive, Healed, liveness};
pub(crate) use overlap::overlap;
pub(crate) use signal::{Disturbance, signal};

/// Nanoseconds of the machine's monotonic clock.
pub(crate) type Ns = u64;

/// Nanoseconds of a millisecond.
pub(crate) const MS: Ns = 1_000_000;

/// What one client process recorded. Its name is that of the process.
#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) client: String,
    pub(crate) events: Vec<Event>,
}

impl History {
    /// Reads what a process wrote, a line an event. The last line of a process that was killed may be cut off.
    pub(crate) fn parse(client: &str, text: &str) -> Result<Self, String> {
        let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        let events = whole.lines().map(Event::parse).collect::<Result<_, _>>();
        Ok(History { client: client.to_owned(), events: events.map_err(|why| format!("{client}: {why}"))? })
    }
}

/// A session that was ended at the server before its time: by hand, or by a server that should not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) session: u64,
    /// When it was asked for.
    pub(crate) asked: Ns,
    /// When the server had done it.
    pub(crate) done: Ns,
    /// By when the client knows it.
    pub(crate) until: Ns,
}

impl Ending {
    /// Whether it explains that the session was over for others at this moment, and not for its client.
    fn explains(&self, session: u64, at: Ns) -> bool {
        self.session == session && self.asked <= at && at <= self.until
    }

    /// For tables: a session that was ended by hand.
    #[cfg(test)]
    fn by_hand(session: u64, asked: Ns) -> Self {
        Ending { session, asked, done: asked, until: Ns::MAX }
    }
}

/// What a check found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// What must not be.
    pub(crate) violations: Vec<String>,
    /// What was checked, with figures.
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

/// A time as seconds, for people.
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
