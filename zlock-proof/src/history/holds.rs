//! Converts events to holds: the times at which each client was certain that it held a lock.

use std::collections::BTreeMap;

use super::{Event, History, Kind, Ns, What};

/// A lock that a client certainly held, by its own clock: from the return of `acquire` to the deadline or the call of the
/// release, whichever comes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) client: String,
    pub(crate) op: u64,
    pub(crate) worker: u32,
    pub(crate) lock: String,
    pub(crate) kind: Kind,
    /// The fencing token as a single number in the same order, with the turn in the lower bits. Neither part grows too large
    /// for that in a run.
    pub(crate) token: u64,
    pub(crate) session: u64,
    /// When the acquisition began.
    pub(crate) asked: Ns,
    pub(crate) from: Ns,
    pub(crate) until: Ns,
    pub(crate) ended: Ended,
}

/// The number of bits for the turn of a token.
pub(crate) const TURN_BITS: u32 = 20;

/// Why a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Its release was called, or its guard was dropped.
    Released,
    /// Its deadline passed. A killed process counts as holding until then.
    Deadline,
    /// The client noticed the loss before the deadline.
    Told,
}

impl Hold {
    /// For display only.
    pub(crate) fn show(&self) -> String {
        let Hold { client, op, lock, kind, token, from, until, ended, .. } = self;
        format!(
            "{client} op {op} held {lock} as {kind} with token {token} from {from} to {until} ({ended:?})"
        )
    }
}

/// Returns all holds of all clients, ordered by their start.
pub(crate) fn holds(histories: &[History]) -> Vec<Hold> {
    let mut all: Vec<Hold> = histories.iter().flat_map(of_client).collect();
    all.sort_by_key(|hold| hold.from);
    all
}

struct Asked<'a> {
    at: Ns,
    worker: u32,
    lock: &'a str,
    kind: Kind,
}

fn of_client(history: &History) -> Vec<Hold> {
    let mut asked = BTreeMap::new();
    let mut holds: BTreeMap<u64, Hold> = BTreeMap::new();
    for Event { at, what } in &history.events {
        match what {
            What::Ask { op, worker, lock, kind, .. } => {
                asked.insert(*op, Asked { at: *at, worker: *worker, lock, kind: *kind });
            }
            What::Got { op, from, token, session, deadline } => {
                let Some(Asked { at, worker, lock, kind }) = asked.remove(op) else { continue };
                let hold = Hold {
                    client: history.client.clone(),
                    op: *op,
                    worker,
                    lock: lock.to_owned(),
                    kind,
                    token: *token,
                    session: *session,
                    asked: at,
                    from: *from,
                    until: *deadline,
                    ended: Ended::Deadline,
                };
                holds.insert(*op, hold);
            }
            What::Held { op, deadline } => {
                if let Some(hold) = holds.get_mut(op).filter(|hold| hold.ended == Ended::Deadline) {
                    hold.until = hold.until.max(*deadline);
                }
            }
            What::Unheld { op, last } => {
                // Seen after the deadline it says nothing new: it would have been held until then.
                if let Some(hold) = holds.get_mut(op).filter(|hold| *at < hold.until) {
                    (hold.until, hold.ended) = (*last, Ended::Told);
                }
            }
            What::Release { op } => {
                if let Some(hold) = holds.get_mut(op).filter(|hold| *at < hold.until) {
                    (hold.until, hold.ended) = (*at, Ended::Released);
                }
            }
            _ => {}
        }
    }
    holds.into_values().collect()
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// Creates a hold for tests, from `from` to `until`, whose acquisition began right before.
    pub(crate) fn hold(client: &str, kind: Kind, token: u64, from: Ns, until: Ns) -> Hold {
        Hold {
            client: client.to_owned(),
            op: token,
            worker: 0,
            lock: "/l".to_owned(),
            kind,
            token,
            session: client.bytes().map(u64::from).sum(),
            asked: from.saturating_sub(1),
            from,
            until,
            ended: Ended::Released,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(lines: &[&str]) -> Vec<History> {
        let ask = "1 ask op=1 worker=0 lock=/l kind=mutex how=Wait\n3 got op=1 from=3 token=7 session=9 deadline=100\n";
        vec![History::parse("c", &format!("{ask}{}\n", lines.join("\n"))).unwrap()]
    }

    #[test]
    fn a_hold_ends_at_the_earlier_of_release_and_deadline() {
        for (lines, until, ended) in [
            (&["4 bye"][..], 100, Ended::Deadline),
            (&["50 held op=1 deadline=140"], 140, Ended::Deadline),
            (&["50 release op=1", "60 released op=1 outcome=Released"], 50, Ended::Released),
            (&["150 release op=1"], 100, Ended::Deadline),
            (&["70 unheld op=1 last=60", "80 release op=1"], 60, Ended::Told),
            (&["120 unheld op=1 last=60", "130 release op=1"], 100, Ended::Deadline),
            (&["50 release op=1", "60 held op=1 deadline=140"], 50, Ended::Released),
        ] {
            let holds = holds(&history(lines));
            assert_eq!((holds[0].asked, holds[0].from), (1, 3));
            assert_eq!((holds[0].until, holds[0].ended), (until, ended), "{lines:?}");
        }
    }
}
