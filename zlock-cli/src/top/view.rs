//! What `zlock top` shows, without a terminal: the locks, their order, and the one that is selected.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use zlock::{LockPath, Participant};

use crate::output::clean;
use crate::participant::{self, who};
use crate::store::Row;

/// A lock with holders or waiters.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) path: LockPath,
    pub(super) holders: usize,
    pub(super) waiters: usize,
    /// How long its first waiter has been seen waiting.
    pub(super) waited: Option<Duration>,
    /// How long one of its holders has been seen holding, at most.
    pub(super) held: Option<Duration>,
    /// The holder that this lock was seen with, or the first of several.
    pub(super) holder: String,
}

impl Line {
    pub(super) fn cells(&self) -> [String; 6] {
        [
            self.holders.to_string(),
            self.waiters.to_string(),
            shown(self.waited),
            shown(self.held),
            clean(self.path.as_str()),
            self.holder.clone(),
        ]
    }
}

/// Titles of the columns. The second last is the one that may be long.
pub(super) const TITLES: [&str; 6] = ["HOLD", "WAIT", "QUEUED", "HELD", "LOCK", "HOLDER"];

/// Titles of the columns of a queue.
pub(super) const OF_QUEUE: [&str; 7] = ["STATE", "KIND", "TOKEN", "QUEUED", "HELD", "REVOKED", "WHO"];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    Waiters,
    Longest,
    Name,
}

impl Order {
    pub(super) fn next(self) -> Self {
        match self {
            Order::Waiters => Order::Longest,
            Order::Longest => Order::Name,
            Order::Name => Order::Waiters,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Order::Waiters => "waiters",
            Order::Longest => "longest wait",
            Order::Name => "name",
        }
    }
}

/// When each participant was first seen, and first seen holding. etcd does not report when a client joined, and the clocks of servers
/// differ.
#[derive(Debug, Default)]
pub(super) struct Seen(BTreeMap<(LockPath, String), (Instant, Option<Instant>)>);

impl Seen {
    /// Notes a participant. Returns for how long it has been seen in the queue, and holding.
    fn see(&mut self, path: &LockPath, one: &Participant, now: Instant) -> (Duration, Option<Duration>) {
        let key = (path.clone(), one.name.as_str().to_owned());
        let (queued, held) = self.0.entry(key).or_insert((now, None));
        if one.is_holder {
            held.get_or_insert(now);
        }
        let since = |then: Instant| now.saturating_duration_since(then);
        (since(*queued), held.map(since))
    }

    /// Makes a line of a lock, and notes its participants.
    pub(super) fn line(&mut self, row: &Row, queue: &[Participant], now: Instant) -> Line {
        let (mut waited, mut longest) = (None, None);
        for one in queue {
            let (queued, held) = self.see(&row.path, one, now);
            if one.is_holder { longest = longest.max(held) } else { waited = waited.max(Some(queued)) }
        }
        let holder = queue.iter().find(|one| one.is_holder).and_then(who);
        let (path, holder) = (row.path.clone(), holder.unwrap_or_else(|| "-".to_owned()));
        Line { path, holders: row.holders, waiters: row.waiters, waited, held: longest, holder }
    }

    /// Makes the rows of a queue, and notes its participants.
    pub(super) fn rows(&mut self, path: &LockPath, queue: &[Participant], now: Instant) -> Vec<[String; 7]> {
        let row = |one: &Participant| {
            let (queued, held) = self.see(path, one, now);
            let [state, kind, token, _, _, revoked, who] = participant::row(one);
            [state, kind, token, shown(Some(queued)), shown(held), revoked, who]
        };
        queue.iter().map(row).collect()
    }

    /// Forgets participants that have left: those that no queue of this round contains.
    pub(super) fn keep(&mut self, is_there: impl Fn(&LockPath, &str) -> bool) {
        self.0.retain(|(path, node), _| is_there(path, node));
    }
}

/// Sorts the lines, and leaves out those whose path does not contain the filter.
pub(super) fn sorted(mut lines: Vec<Line>, order: Order, filter: &str) -> Vec<Line> {
    lines.retain(|line| line.path.as_str().contains(filter));
    lines.sort_by(|a, b| {
        let by = match order {
            Order::Waiters => b.waiters.cmp(&a.waiters),
            Order::Longest => b.waited.cmp(&a.waited),
            Order::Name => std::cmp::Ordering::Equal,
        };
        by.then_with(|| a.path.cmp(&b.path))
    });
    lines
}

/// Formats a duration in a few characters: `7s`, `12m`, `3h`, or `-`.
fn shown(time: Option<Duration>) -> String {
    let Some(time) = time else { return "-".to_owned() };
    match time.as_secs() {
        seconds @ 0..600 => format!("{seconds}s"),
        seconds @ 600..36_000 => format!("{}m", seconds / 60),
        seconds => format!("{}h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(path: &str, waiters: usize, seconds: Option<u64>) -> Line {
        let path = LockPath::new(path).unwrap();
        let waited = seconds.map(Duration::from_secs);
        Line { path, holders: 1, waiters, waited, held: None, holder: "h".into() }
    }

    #[test]
    fn lines_are_sorted_and_filtered() {
        let lines = || vec![line("/jobs/b", 0, None), line("/jobs/a", 2, Some(5)), line("/x", 1, Some(900))];
        let names = |order, filter: &str| -> Vec<_> {
            sorted(lines(), order, filter).into_iter().map(|line| line.path.as_str().to_owned()).collect()
        };
        assert_eq!(names(Order::Waiters, ""), ["/jobs/a", "/x", "/jobs/b"]);
        assert_eq!(names(Order::Longest, ""), ["/x", "/jobs/a", "/jobs/b"]);
        assert_eq!(names(Order::Name, ""), ["/jobs/a", "/jobs/b", "/x"]);
        assert_eq!(names(Order::Waiters, "jobs"), ["/jobs/a", "/jobs/b"]);
    }

    #[test]
    fn times_are_short() {
        for (seconds, text) in [(0, "0s"), (599, "599s"), (600, "10m"), (36_000, "10h")] {
            assert_eq!(shown(Some(Duration::from_secs(seconds))), text);
        }
        assert_eq!(line("/a", 0, None).cells()[2..4], ["-", "-"]);
    }
}
