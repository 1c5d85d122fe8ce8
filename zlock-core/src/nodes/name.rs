//! Names of nodes, as Curator and kazoo write them, so that clients of all three see each other.

use std::fmt;
use std::sync::Arc;

use crate::nodes::label::Label;
use crate::nodes::node_id::{NodeId, is_uuid};
use crate::nodes::sequence::Sequence;

/// Curator's mark of a protected create: `_c_<uuid>-`.
const PROTECTED: &str = "_c_";

/// The last segment of a node's path, such as `_c_<uuid>-lock-0000000007`.
///
/// Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeName(Arc<str>);

/// The parts of a node's name.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedName {
    /// The ID that the creator chose. A name without one (Curator's unprotected `lock-0000000007`) is its own ID.
    pub id: NodeId,
    /// The kind of lock that it asks for.
    pub label: Label,
    /// The place in the queue.
    pub sequence: Sequence,
}

impl NodeName {
    /// Creates a name from its text.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        NodeName(name.into())
    }

    /// Returns the name up to its sequence, as passed to a sequential create.
    #[must_use]
    pub fn prefix(node_id: &NodeId, label: Label) -> String {
        [PROTECTED, node_id.as_str(), "-", &label.marker()].concat()
    }

    /// Returns the complete name of a node that zlock creates.
    #[must_use]
    pub fn of(node_id: &NodeId, label: Label, sequence: Sequence) -> Self {
        NodeName(sequence.appended_to(&Self::prefix(node_id, label)).into())
    }

    /// Parses the name of a place in a lock's queue, and returns `None` for any other name.
    ///
    /// A name is a place if it is one of these, followed by the sequence:
    /// - `_c_<uuid>-` or nothing, and `lock-`, `latch-`, `__READ__`, `__WRIT__`, `__PERM__<n>of<max>__` or
    ///   `__HELD__<n>of<max>__`;
    /// - nothing or kazoo's 32 hex digits, and `__lock__` or `__rlock__`.
    ///
    /// A name without an ID, such as `lock-0000000000`, is a place, too. Curator without protection writes such names,
    /// and overlooking a holder is worse than waiting for a stray node. For the same reason `__lock__0000000000` is one,
    /// although kazoo always writes an ID before it.
    #[must_use]
    pub fn parse(name: &str) -> Option<ParsedName> {
        let (id, label, sequence) = Self::split(name)?;
        Some(ParsedName { id: NodeId::new(id), label, sequence })
    }

    /// Returns `true` for the name of a place in a lock's queue, as [`parse`](Self::parse) describes it.
    pub(crate) fn is_place(name: &str) -> bool {
        Self::split(name).is_some()
    }

    fn split(name: &str) -> Option<(&str, Label, Sequence)> {
        let (rest, sequence) = Sequence::split(name)?;
        let (before, label) = Label::split(rest)?;
        let node_id = if before.is_empty() {
            name
        } else if let Some(protected) = before.strip_prefix(PROTECTED) {
            protected.strip_suffix('-').filter(|t| is_uuid(t))?
        } else if rest.ends_with("lock__") && before.len() == 32 && is_hex(before) {
            before
        } else {
            return None;
        };
        Some((node_id, label, sequence))
    }

    /// Returns the name from the ID of a protected create on.
    pub(crate) fn from_id_on(name: &str) -> Option<&str> {
        name.strip_prefix(PROTECTED)
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_hex(s: &str) -> bool {
    s.bytes().all(|b| b.is_ascii_hexdigit())
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "0123abcd-4567-89ab-cdef-0123456789ab";

    #[test]
    fn our_names_read_back() {
        let node_id = NodeId::new(UUID);
        for label in [
            Label::Lock,
            Label::Candidate,
            Label::Read,
            Label::Write,
            Label::Permits { weight: 3, max: 10, granted: false },
            Label::Permits { weight: 1, max: u32::MAX, granted: true },
        ] {
            for n in [0, 7, i32::MAX, i32::MIN, -1] {
                let sequence = Sequence::new(n.into());
                let name = NodeName::of(&node_id, label, sequence);
                let parsed = NodeName::parse(name.as_str()).unwrap();
                assert_eq!(parsed, ParsedName { id: node_id.clone(), label, sequence }, "{name}");
            }
        }
        assert_eq!(
            NodeName::of(&node_id, Label::Lock, Sequence::new(7)).as_str(),
            format!("_c_{UUID}-lock-0000000007")
        );
    }

    #[test]
    fn curator_and_kazoo_names_are_known() {
        for (name, label, node_id) in [
            (format!("_c_{UUID}-lock-0000000001"), Label::Lock, UUID),
            (format!("_c_{UUID}-latch-0000000001"), Label::Candidate, UUID),
            (format!("_c_{UUID}-__READ__0000000001"), Label::Read, UUID),
            (format!("_c_{UUID}-__WRIT__0000000001"), Label::Write, UUID),
            ("lock-0000000001".into(), Label::Lock, "lock-0000000001"),
            (
                "0123456789abcdef0123456789abcdef__lock__0000000001".into(),
                Label::Lock,
                "0123456789abcdef0123456789abcdef",
            ),
            (
                "0123456789abcdef0123456789abcdef__rlock__0000000001".into(),
                Label::Read,
                "0123456789abcdef0123456789abcdef",
            ),
        ] {
            let parsed = NodeName::parse(&name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!((parsed.label, parsed.id.as_str()), (label, node_id), "{name}");
        }
    }

    #[test]
    fn foreign_names_are_not() {
        for name in [
            "",
            "db",
            "lock-",
            "lock-1",
            "lock-00000000011111111111",
            "mylock-0000000001",
            "_c_nouuid-lock-0000000001",
            "0123456789abcdef0123456789abcde__lock__0000000001",
            "__PERM__of__0000000001",
            "__PERM__+1of2__0000000001",
            "0000000001",
            "lock-+000000001",
            "lock-99999999999",
        ] {
            assert_eq!(NodeName::parse(name), None, "{name}");
        }
    }
}
