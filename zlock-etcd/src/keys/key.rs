//! Keys, and how they are parsed as places in a queue.
//!
//! ```text
//! <prefix><path>/<lease>          the session's first place in the queue of <path>, tied to its lease
//! <prefix><path>/<lease>.<n>      its further places there at the same time
//! <prefix>//fence/<lease>.<k>     one of the session's fences, made when it is first needed
//! ```
//!
//! A lease is written in hexadecimal digits. A lock path has no empty segment, so the fences are below no lock.
//!
//! Names are reused (see `names.rs`), so a name does not identify a node. Almost every request and event for a particular node
//! also compares the create revision.
//!
//! | request, event | compares |
//! |---|---|
//! | create | the key does not exist; fence |
//! | first delete of an own node | nothing; without an answer, the name is never used again |
//! | any other delete, hand-over, relabel, write of data | create revision |
//! | delete of a create of unknown outcome | fence, which it raises |
//! | watch | create revision: when it is armed, and of each event |
//! | search for an own node | create revision: of listings, and of each read |
//! | user's write that is guarded by the lock | create revision, which is the fencing token |

use std::fmt;

use etcd_client::KeyValue;
use zlock_core::{FencingToken, LockPath, Node, NodeId, NodeName, Sequence, SessionId};

use crate::keys::value;

/// A range of keys, from `start` up to, but not including, `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: String,
    /// `None` for a single key.
    pub(crate) end: Option<String>,
}

/// The keys of one queue.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// The common prefix of the keys, including the slash at its end.
    prefix: String,
}

impl Keys {
    /// Returns the keys of the queue of `path`, below the backend's prefix.
    pub(crate) fn new(prefix: &str, path: &LockPath) -> Self {
        Keys { prefix: format!("{prefix}{path}/") }
    }

    /// Returns the common prefix of the keys.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the key of a place.
    pub(crate) fn of(&self, name: impl std::fmt::Display) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Returns the range of all keys below the path, which includes those of locks further down.
    pub(crate) fn range(&self) -> Range {
        let mut end = self.prefix.clone();
        // '0' is the character after '/'.
        end.pop();
        end.push('0');
        Range { start: self.prefix.clone(), end: Some(end) }
    }

    /// Returns the name of a direct child. `None` for all other keys.
    pub(crate) fn name<'a>(&self, key: &'a [u8]) -> Option<&'a str> {
        let name = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        (!name.is_empty() && !name.contains('/')).then_some(name)
    }

    /// Parses a key as a place in the queue. `None` if it is not one.
    pub(crate) fn node(&self, kv: &KeyValue) -> Option<Node> {
        let name = self.name(kv.key())?;
        if !is_place(name, kv.lease(), kv.version()) {
            return None;
        }
        let (value, sequence) = (value::read(kv.value()), Sequence::new(kv.create_revision()));
        let node_id = NodeId::new(value.id.unwrap_or(name));
        let node = Node::new(NodeName::new(name), node_id, value.label, sequence);
        Some(node.with_owner(owner(kv), FencingToken::new(kv.create_revision().cast_unsigned())))
    }
}

/// The name of a place: a lease and, from the second place on, a number. Go's `concurrency.Mutex`, which is behind `etcdctl
/// lock` and the server's lock service, names its keys like first places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlaceName {
    pub(crate) lease: SessionId,
    pub(crate) number: u32,
}

impl PlaceName {
    pub(crate) fn new(lease: SessionId, number: u32) -> Self {
        PlaceName { lease, number }
    }

    /// Parses a name. `None` if it is not that of a place, or not in canonical form.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (lease, number) = match name.split_once('.') {
            None => (name, None),
            Some((lease, number)) => (lease, Some(number)),
        };
        let is_hex = lease.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let is_decimal = number.is_none_or(|number| number.bytes().all(|b| b.is_ascii_digit()));
        if !is_hex || !is_decimal || lease.starts_with('0') || number.is_some_and(|n| n.starts_with('0')) {
            return None;
        }
        let lease = SessionId::new(u64::from_str_radix(lease, 16).ok()?);
        Some(PlaceName::new(lease, number.map_or(Ok(0), str::parse).ok()?))
    }
}

impl fmt::Display for PlaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.lease.get())?;
        if self.number == 0 { Ok(()) } else { write!(f, ".{}", self.number) }
    }
}

/// Returns the session that owns a key.
pub(crate) fn owner(kv: &KeyValue) -> Option<SessionId> {
    (kv.lease() != 0).then(|| SessionId::new(kv.lease().cast_unsigned()))
}

/// The smallest lease ID that servers choose by themselves has 12 digits.
const MIN_LEASE: u64 = 1 << 44;

/// Returns `true` if a direct child is a place in a queue: it is named after its lease. All other keys belong to no lock, whatever
/// their values.
///
/// A key without a lease may have lost it through a `put` without a lease. Such a key was written at least twice. See
/// `detached.rs`.
fn is_place(name: &str, lease: i64, version: i64) -> bool {
    PlaceName::parse(name).is_some_and(|place| match lease {
        0 => version > 1 && place.lease.get() >= MIN_LEASE,
        lease => place.lease.get() == lease.cast_unsigned(),
    })
}

/// Returns the key that a session raises to void its older creates; see `fence.rs`.
pub(crate) fn fence(prefix: &str, session: SessionId, number: usize) -> String {
    format!("{prefix}//fence/{:x}.{number}", session.get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EtcdOptions;

    #[test]
    fn direct_children_only() {
        let options = EtcdOptions::new(["h"]).with_prefix(LockPath::new("/prod").unwrap());
        let keys = Keys::new(options.prefix(), &LockPath::new("/app").unwrap());
        assert_eq!(keys.of("x"), "/prod/app/x");
        let range = Range { start: "/prod/app/".into(), end: Some("/prod/app0".into()) };
        assert_eq!(keys.range(), range);
        for (key, name) in [
            ("/prod/app/x", Some("x")),
            ("/prod/app/694d7a", Some("694d7a")),
            ("/prod/app/db/x", None),
            ("/prod/app//x", None),
            ("/prod/app/", None),
            ("/prod/apple/x", None),
            ("/app/x", None),
        ] {
            assert_eq!(keys.name(key.as_bytes()), name, "{key}");
        }
        assert_eq!(keys.name(b"/prod/app/\xff"), None);
    }

    #[test]
    fn ours_and_gos_are_places() {
        let (uuid, lease) = ("0123abcd-4567-89ab-cdef-0123456789ab", 0x694d_7a3c_2f1b_5e05);
        for (name, lease, version, is) in [
            ("694d7a3c2f1b5e05", lease, 1, true),
            ("694d7a3c2f1b5e05.12", lease, 2, true),
            ("694d7a3c2f1b5e05", 7, 1, false),
            ("694d7a3c2f1b5e05.12", 7, 1, false),
            // Detached from its lease, unless it never had one.
            ("694d7a3c2f1b5e05", 0, 2, true),
            ("694d7a3c2f1b5e05.12", 0, 2, true),
            ("694d7a3c2f1b5e05", 0, 1, false),
            ("db", 0, 2, false),
            ("db", 0xdb, 1, true),
            ("0", 0, 2, false),
            ("config", 7, 2, false),
            // Members and values.
            (uuid, 7, 1, false),
            (uuid, 0, 2, false),
        ] {
            assert_eq!(is_place(name, lease, version), is, "{name} {lease:x} {version}");
        }
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for (lease, number, text) in [(0xdb, 0, "db"), (0x694d_7a3c_2f1b_5e05, 12, "694d7a3c2f1b5e05.12")] {
            let name = PlaceName::new(SessionId::new(lease), number);
            assert_eq!((name.to_string().as_str(), PlaceName::parse(text)), (text, Some(name)));
        }
        for text in ["", ".", "db.", ".1", "db.0", "db.01", "0db", "DB", "+db", "db.+1", "db.1.1", "config"] {
            assert_eq!(PlaceName::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_fence_is_below_no_lock() {
        let options = EtcdOptions::new(["h"]);
        assert_eq!(fence(options.prefix(), SessionId::new(0xab), 0), "//fence/ab.0");
        let options = options.with_prefix(LockPath::new("/prod").unwrap());
        let fence = fence(options.prefix(), SessionId::new(0xab), 7);
        assert_eq!(fence, "/prod//fence/ab.7");
        let whole = Keys::new("", &LockPath::new("/prod").unwrap());
        assert_eq!(whole.name(fence.as_bytes()), None);
    }
}
