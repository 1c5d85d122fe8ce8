//! What a place in a queue is for.

use std::borrow::Cow;

/// What a node in a lock's queue asks for. It stands in the node's name (ZooKeeper, mem) or value (etcd).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Label {
    /// A mutex: nobody beside it. Never relabelled.
    Lock,
    /// The writer of a read/write lock: nobody beside it. May become a [`Read`](Label::Read).
    Write,
    /// A reader of a read/write lock: other readers beside it.
    Read,
    /// `weight` of the `max` permits of a semaphore.
    Permits {
        /// How many permits this node takes.
        weight: u32,
        /// How many there are in all, as this node's client believes.
        max: u32,
        /// Whether it was granted them, and has told the node behind it by becoming this label.
        granted: bool,
    },
}

impl Label {
    /// The part of a node's name that tells the label, as Curator writes it.
    pub(crate) fn marker(self) -> Cow<'static, str> {
        match self {
            Label::Lock => "lock-".into(),
            Label::Write => "__WRIT__".into(),
            Label::Read => "__READ__".into(),
            Label::Permits { weight, max, granted: false } => format!("__PERM__{weight}of{max}__").into(),
            Label::Permits { weight, max, granted: true } => format!("__HELD__{weight}of{max}__").into(),
        }
    }

    /// Reads the label off the end of a name without its sequence: what stands before the label, and the
    /// label. Knows Curator's, kazoo's and our own names.
    pub(crate) fn split(name: &str) -> Option<(&str, Label)> {
        // kazoo's `__rlock__` has to come before `__lock__`, and both before `lock-`.
        for (marker, label) in [
            ("__READ__", Label::Read),
            ("__WRIT__", Label::Write),
            ("__rlock__", Label::Read),
            ("__lock__", Label::Lock),
            ("lock-", Label::Lock),
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

/// Digits only: `str::parse` would also take a sign.
fn number(digits: &str) -> Option<u32> {
    if digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse().ok() } else { None }
}
