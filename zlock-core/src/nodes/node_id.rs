//! The IDs of nodes, and their generator.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

/// The identity of a node: a UUID that its creator chooses, new for each create. Equal IDs mean the same place in the
/// queue, whatever the node's current label.
///
/// Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(Arc<str>);

impl NodeId {
    /// Creates an ID from its text.
    #[must_use]
    pub fn new(node_id: impl Into<Arc<str>>) -> Self {
        NodeId(node_id.into())
    }

    /// Returns the ID as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns `true` if the ID is a UUID. Only such an ID can be parsed from the name of the node that is created with
    /// it.
    #[must_use]
    pub fn is_uuid(&self) -> bool {
        is_uuid(&self.0)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns `true` if a text is a UUID in its usual form, as in [`NodeId::is_uuid`].
#[must_use]
pub fn is_uuid(s: &str) -> bool {
    s.len() == 36
        && s.bytes().enumerate().all(|(i, b)| match i {
            8 | 13 | 18 | 23 => b == b'-',
            _ => b.is_ascii_hexdigit(),
        })
}

/// Generates the IDs of new nodes: UUIDs.
///
/// The first ID is random or comes from a seed. Each further one adds a fixed odd number modulo 2^128, so IDs never repeat,
/// differ from the first character on, and only the first one needs a system call.
#[derive(Debug)]
pub struct NodeIds {
    first: u128,
    made: AtomicU64,
}

/// 2^128 divided by the golden ratio, which spreads the multiples evenly.
const STEP: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;

impl NodeIds {
    /// Creates a generator from the operating system's randomness. No other process generates the same IDs.
    #[must_use]
    pub fn random() -> Self {
        NodeIds::from_first(Uuid::new_v4().as_u128())
    }

    /// Creates a generator from a seed, for tests on mem. Never use it on a store that other processes use.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        NodeIds::from_first(fastrand::Rng::with_seed(seed).u128(..))
    }

    /// Returns the next ID.
    #[must_use]
    pub fn next(&self) -> NodeId {
        let made = self.made.fetch_add(1, Ordering::Relaxed);
        let id = self.first.wrapping_add(STEP.wrapping_mul(made.into()));
        let mut text = Uuid::encode_buffer();
        NodeId::new(&*Uuid::from_u128(id).hyphenated().encode_lower(&mut text))
    }

    fn from_first(first: u128) -> Self {
        NodeIds { first, made: AtomicU64::new(0) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_repeats_and_chance_does_not() {
        let draw = |node_ids: NodeIds| (0..3).map(|_| node_ids.next()).collect::<Vec<_>>();
        assert_eq!(draw(NodeIds::seeded(1)), draw(NodeIds::seeded(1)));
        assert_ne!(draw(NodeIds::seeded(1)), draw(NodeIds::seeded(2)));
        assert_ne!(draw(NodeIds::random()), draw(NodeIds::random()));
        assert!(NodeIds::random().next().is_uuid());
    }

    #[test]
    fn only_uuids_are_uuids() {
        let uuid = "0123abcd-4567-89ab-cdef-0123456789ab";
        assert!(is_uuid(uuid));
        for other in ["694d7a3c2f1b5e05.1", "", &uuid[1..], &uuid.replace('-', "0"), &uuid.replace('b', "g")]
        {
            assert!(!is_uuid(other), "{other}");
        }
    }

    #[test]
    fn tokens_spread_from_the_first_characters_on() {
        let node_ids = NodeIds::seeded(1);
        let beginnings: BTreeSet<_> = (0..256).map(|_| node_ids.next().as_str()[..3].to_owned()).collect();
        assert!(beginnings.len() > 200, "{}", beginnings.len());
    }
}
