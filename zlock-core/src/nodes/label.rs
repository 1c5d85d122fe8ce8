//! Labels: the kind of lock that a place in a queue asks for.

use std::borrow::Cow;
use std::fmt;

/// The kind of lock that a node in a queue asks for.
///
/// A store keeps it in one of two ways:
/// - In the node's name, as Curator does (ZooKeeper, mem). [`NodeName::of`](crate::NodeName::of) writes it, and
///   [`NodeName::parse`](crate::NodeName::parse) reads it; where the store appends the sequence itself,
///   [`NodeName::prefix`](crate::NodeName::prefix) is what to create. A relabel renames the node.
/// - Beside the name, as text: in the node's value (etcd), or a column (PostgreSQL). `Display` writes it, and
///   [`parse`](Self::parse) reads it.
///
/// # Examples
/// ```
/// use zlock_core::{Label, NodeId, NodeName, Sequence};
///
/// let label = Label::Permits { weight: 2, max: 5, granted: false };
/// let id = NodeId::new("0123abcd-4567-89ab-cdef-0123456789ab");
/// let name = NodeName::of(&id, label, Sequence::new(7));
/// assert_eq!(name.as_str(), "_c_0123abcd-4567-89ab-cdef-0123456789ab-__PERM__2of5__0000000007");
/// assert_eq!(NodeName::parse(name.as_str()).map(|parsed| parsed.label), Some(label));
/// assert_eq!(label.to_string(), "permits 2of5");
/// assert_eq!(Label::parse("permits 2of5"), label);
/// ```
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

    /// Parses the text that `Display` writes. One that this version does not know excludes all other nodes, since overlooking a
    /// holder is worse than waiting for one.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text {
            "write" => return Label::Write,
            "read" => return Label::Read,
            "candidate" => return Label::Candidate,
            _ => {}
        }
        let permits = |numbers, granted| permits(numbers, granted).unwrap_or(Label::Lock);
        match text.split_once(' ') {
            Some(("permits", numbers)) => permits(numbers, false),
            Some(("granted", numbers)) => permits(numbers, true),
            _ => Label::Lock,
        }
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
                return Some((&rest[..at], permits(&rest[at + marker.len()..], granted)?));
            }
        }
        None
    }
}

/// Writes the label as a word, and the numbers of permits behind it.
impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Label::Lock => "lock",
            Label::Candidate => "candidate",
            Label::Write => "write",
            Label::Read => "read",
            Label::Permits { weight, max, granted } => {
                return write!(f, "{} {weight}of{max}", if *granted { "granted" } else { "permits" });
            }
        })
    }
}

fn permits(numbers: &str, granted: bool) -> Option<Label> {
    let (weight, max) = numbers.split_once("of")?;
    Some(Label::Permits { weight: number(weight)?, max: number(max)?, granted })
}

/// Accepts only digits; `str::parse` would also accept a sign.
fn number(digits: &str) -> Option<u32> {
    if digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_read_as_it_was_written() {
        let permits = |granted| Label::Permits { weight: 2, max: 5, granted };
        for (label, expected) in [
            (Label::Lock, "lock"),
            (Label::Write, "write"),
            (Label::Read, "read"),
            (Label::Candidate, "candidate"),
            (permits(false), "permits 2of5"),
            (permits(true), "granted 2of5"),
        ] {
            assert_eq!(label.to_string(), expected);
            assert_eq!(Label::parse(expected), label);
        }
        for unknown in ["", "locks", "permits", "permits 2", "permits 2of", "permits -1of5", "barred 2of5"] {
            assert_eq!(Label::parse(unknown), Label::Lock, "{unknown}");
        }
    }
}
