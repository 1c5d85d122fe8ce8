//! Labels: the kind of lock that a place in a queue asks for.

use std::borrow::Cow;

/// The kind of lock that a node in a queue asks for. It is part of the node's name (ZooKeeper, mem) or value (etcd), or a column
/// (PostgreSQL).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Label {
    /// A mutex, which excludes all other nodes. It is never relabelled.
    Lock,
    /// A candidate of an election, which excludes all other nodes. It is never relabelled, and its data is its value as it is.
    Candidate,
    /// A writer of a read/write lock, which excludes all other nodes. It may become a [`Read`](Label::Read).
    Write,
    /// A reader of a read/write lock, which holds beside other readers.
    Read,
    /// `weight` of the `max` permits of a semaphore.
    Permits {
        /// The number of permits that this node takes.
        weight: u32,
        /// The maximum that this node's client uses for the semaphore. 0 if it is a value that may change.
        max: u32,
        /// Whether the permits were granted. A holder sets it by a relabel, which notifies the node behind it.
        granted: bool,
    },
}

impl Label {
    /// Returns `true` for a label that excludes all other nodes.
    #[must_use]
    pub fn is_exclusive(self) -> bool {
        matches!(self, Label::Lock | Label::Candidate | Label::Write)
    }

    /// Returns `true` for a label that is never changed, so that the name of its node is not, either.
    #[must_use]
    pub fn is_fixed(self) -> bool {
        matches!(self, Label::Lock | Label::Candidate)
    }

    /// Returns the part of a node's name that encodes the label, as Curator writes it.
    pub(crate) fn marker(self) -> Cow<'static, str> {
        match self {
            Label::Lock => "lock-".into(),
            Label::Candidate => "latch-".into(),
            Label::Write => "__WRIT__".into(),
            Label::Read => "__READ__".into(),
            Label::Permits { weight, max, granted: false } => format!("__PERM__{weight}of{max}__").into(),
            Label::Permits { weight, max, granted: true } => format!("__HELD__{weight}of{max}__").into(),
        }
    }

    /// Parses the label at the end of a name without its sequence, and returns the label with the part before it. Accepts the
    /// names of Curator, kazoo and zlock.
    pub(crate) fn split(name: &str) -> Option<(&str, Label)> {
        // kazoo's `__rlock__` has to come before `__lock__`, and both before `lock-`.
        for (marker, label) in [
            ("__READ__", Label::Read),
            ("__WRIT__", Label::Write),
            ("__rlock__", Label::Read),
            ("__lock__", Label::Lock),
            ("lock-", Label::Lock),
            ("latch-", Label::Candidate),
        ] {
            if let Some(before) = name.strip_suffix(marker) {
                return Some((before, label));
            }
        }
        let rest = name.strip_suffix("__")?;
        for (marker, granted) in [("__PERM__", false), ("__HELD__", true)] {
            if let Some(at) = rest.rfind(marker) {
                let (weight, max) = rest[at + marker.len()..].split_once("of")?;
                let label = Label::Permits { weight: number(weight)?, max: number(max)?, granted };
                return Some((&rest[..at], label));
            }
        }
        None
    }
}

/// Accepts only digits; `str::parse` would also accept a sign.
fn number(digits: &str) -> Option<u32> {
    if digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse().ok() } else { None }
}
