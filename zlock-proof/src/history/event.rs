//! The events that a client process records, one on each line: `TIME NAME FIELD=VALUE ..`.

use std::fmt;
use std::str::FromStr;

use super::Ns;
use crate::kind::Kind;

/// An event in a client process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) at: Ns,
    pub(crate) what: What,
}

/// The kind of an event. `op` is the number of an acquisition, unique in the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// An acquisition begins.
    Ask { op: u64, worker: u32, lock: String, kind: Kind, how: How },
    /// The lock is held, certainly since `from`, and for now until `deadline`.
    Got { op: u64, from: Ns, token: u64, session: u64, deadline: Ns },
    /// An acquisition returned a guard that was already lost.
    Stale { op: u64, token: u64 },
    /// `try_acquire` found the lock held.
    Taken { op: u64 },
    /// An acquisition failed.
    Failed { op: u64, error: String },
    /// An acquisition was cancelled by dropping its future.
    Dropped { op: u64 },
    /// The lock is still held, now until this deadline.
    Held { op: u64, deadline: Ns },
    /// The lock is no longer held. It was last seen held at `last`.
    Unheld { op: u64, last: Ns },
    /// `lost()` completed, for the first time since the lock was last seen held.
    Lost { op: u64 },
    /// The release of the lock began: the call, or the drop of the guard.
    Release { op: u64 },
    /// The release returned.
    Released { op: u64, outcome: String },
    /// The storage rejected this token at this time, because it had seen a newer one.
    Refused { op: u64, at: Ns, newer: u64 },
    /// The process has a new session.
    Session { epoch: u64, session: u64, state: String, deadline: Ns },
    /// The process has sent this many batches of more than one write, with this many writes together.
    Batches { batches: u64, writes: u64 },
    /// The process ends.
    Bye,
}

/// The way to acquire it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Without a time limit.
    Wait,
    /// With a time limit.
    Timeout,
    /// Only if it is free.
    Try,
    /// Cancelled after some time by dropping the future.
    Cancel,
    /// By a downgrade from write to read.
    Downgrade,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.at)?;
        match &self.what {
            What::Ask { op, worker, lock, kind, how } => {
                write!(f, "ask op={op} worker={worker} lock={lock} kind={kind} how={how:?}")
            }
            What::Got { op, from, token, session, deadline } => {
                write!(f, "got op={op} from={from} token={token} session={session} deadline={deadline}")
            }
            What::Stale { op, token } => write!(f, "stale op={op} token={token}"),
            What::Taken { op } => write!(f, "taken op={op}"),
            What::Failed { op, error } => write!(f, "failed op={op} error={error}"),
            What::Dropped { op } => write!(f, "dropped op={op}"),
            What::Held { op, deadline } => write!(f, "held op={op} deadline={deadline}"),
            What::Unheld { op, last } => write!(f, "unheld op={op} last={last}"),
            What::Lost { op } => write!(f, "lost op={op}"),
            What::Release { op } => write!(f, "release op={op}"),
            What::Released { op, outcome } => write!(f, "released op={op} outcome={outcome}"),
            What::Refused { op, at, newer } => write!(f, "refused op={op} at={at} newer={newer}"),
            What::Session { epoch, session, state, deadline } => {
                write!(f, "session epoch={epoch} session={session} state={state} deadline={deadline}")
            }
            What::Batches { batches, writes } => write!(f, "batches batches={batches} writes={writes}"),
            What::Bye => f.write_str("bye"),
        }
    }
}

impl Event {
    /// Parses a line.
    pub(crate) fn parse(line: &str) -> Result<Self, String> {
        let mut words = line.splitn(3, ' ');
        let (at, name, rest) = (words.next(), words.next(), words.next().unwrap_or_default());
        let fields = Fields { line, rest };
        let at = at.and_then(|at| at.parse().ok()).ok_or_else(|| fields.bad("time"))?;
        let op = || fields.number("op");
        let what = match name.unwrap_or_default() {
            "ask" => What::Ask {
                op: op()?,
                worker: fields.number("worker")?,
                lock: fields.text("lock")?.to_owned(),
                kind: fields.number("kind")?,
                how: fields.number("how")?,
            },
            "got" => What::Got {
                op: op()?,
                from: fields.number("from")?,
                token: fields.number("token")?,
                session: fields.number("session")?,
                deadline: fields.number("deadline")?,
            },
            "stale" => What::Stale { op: op()?, token: fields.number("token")? },
            "taken" => What::Taken { op: op()? },
            "failed" => What::Failed { op: op()?, error: fields.rest_of("error")?.to_owned() },
            "dropped" => What::Dropped { op: op()? },
            "held" => What::Held { op: op()?, deadline: fields.number("deadline")? },
            "unheld" => What::Unheld { op: op()?, last: fields.number("last")? },
            "lost" => What::Lost { op: op()? },
            "release" => What::Release { op: op()? },
            "released" => What::Released { op: op()?, outcome: fields.rest_of("outcome")?.to_owned() },
            "refused" => {
                What::Refused { op: op()?, at: fields.number("at")?, newer: fields.number("newer")? }
            }
            "session" => What::Session {
                epoch: fields.number("epoch")?,
                session: fields.number("session")?,
                state: fields.text("state")?.to_owned(),
                deadline: fields.number("deadline")?,
            },
            "batches" => {
                What::Batches { batches: fields.number("batches")?, writes: fields.number("writes")? }
            }
            "bye" => What::Bye,
            _ => return Err(fields.bad("name")),
        };
        Ok(Event { at, what })
    }
}

/// The fields of a line.
struct Fields<'a> {
    line: &'a str,
    rest: &'a str,
}

impl<'a> Fields<'a> {
    fn bad(&self, what: &str) -> String {
        format!("no {what} in {:?}", self.line)
    }

    fn text(&self, name: &str) -> Result<&'a str, String> {
        let found = self.rest.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        found.ok_or_else(|| self.bad(name))
    }

    fn number<T: FromStr>(&self, name: &str) -> Result<T, String> {
        self.text(name)?.parse().map_err(|_| self.bad(name))
    }

    /// Returns the last field, which may contain blanks.
    fn rest_of(&self, name: &str) -> Result<&'a str, String> {
        let found = self.rest.split_once(&format!("{name}=")).map(|(_, text)| text);
        found.ok_or_else(|| self.bad(name))
    }
}

impl FromStr for How {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [How::Wait, How::Timeout, How::Try, How::Cancel, How::Downgrade]
            .into_iter()
            .find(|how| format!("{how:?}") == text)
            .ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let (op, lock, how) = (7, "/a".to_owned(), How::Try);
        for what in [
            What::Ask { op, worker: 2, lock: lock.clone(), kind: Kind::Mutex, how },
            What::Ask { op, worker: 2, lock, kind: Kind::Permits { n: 2, max: 5 }, how: How::Downgrade },
            What::Got { op, from: 1, token: 2, session: u64::MAX, deadline: 3 },
            What::Stale { op, token: 2 },
            What::Taken { op },
            What::Failed { op, error: "a = b c".to_owned() },
            What::Dropped { op },
            What::Held { op, deadline: 4 },
            What::Unheld { op, last: 3 },
            What::Lost { op },
            What::Release { op },
            What::Released { op, outcome: "Released".to_owned() },
            What::Refused { op, at: 1, newer: 9 },
            What::Session { epoch: 1, session: 2, state: "Lost".to_owned(), deadline: 3 },
            What::Batches { batches: 2, writes: 9 },
            What::Bye,
        ] {
            let event = Event { at: 12, what };
            assert_eq!(Event::parse(&event.to_string()), Ok(event));
        }
    }

    #[test]
    fn a_bad_line_says_what_is_missing() {
        for (line, part) in
            [("x bye", "time"), ("1 gone", "name"), ("1 lost op=", "op"), ("1 stale op=1", "token")]
        {
            assert!(Event::parse(line).unwrap_err().contains(part), "{line}");
        }
    }
}
