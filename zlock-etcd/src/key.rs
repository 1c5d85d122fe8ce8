//! Where things are: keys, and how they are read as places in a queue.
//!
//! ```text
//! <prefix><path>/<node ID>        a place in the queue of <path>, tied to the session's lease
//! <prefix>//fence/<lease>         the session's fence, made when it is first needed
//! ```
//!
//! A lock path has no empty segment, so the fence is below no lock.

use etcd_client::KeyValue;
use zlock_core::{FencingToken, LockPath, Node, NodeId, NodeName, Queue, Sequence, SessionId};

use crate::value;

/// The keys that a queue's are among: from the first to the one after the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: String,
    /// `None` is one key.
    pub(crate) end: Option<String>,
}

/// The keys of one queue.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// What they begin with, the slash at its end.
    prefix: String,
}

impl Keys {
    /// The keys of the queue of `path`, below the backend's prefix.
    pub(crate) fn new(prefix: &str, path: &LockPath) -> Self {
        Keys { prefix: format!("{prefix}{path}/") }
    }

    /// The key of a place.
    pub(crate) fn of(&self, name: impl std::fmt::Display) -> String {
        format!("{}{name}", self.prefix)
    }

    /// All keys below the path: those of locks further down are among them.
    pub(crate) fn range(&self) -> Range {
        let mut end = self.prefix.clone();
        // '0' comes right after '/'.
        end.pop();
        end.push('0');
        Range { start: self.prefix.clone(), end: Some(end) }
    }

    /// The name of a direct child; `None` for all other keys.
    pub(crate) fn name<'a>(&self, key: &'a [u8]) -> Option<&'a str> {
        let name = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        (!name.is_empty() && !name.contains('/')).then_some(name)
    }

    /// Reads a key as a place in the queue; `None` if it is none.
    pub(crate) fn node(&self, kv: &KeyValue) -> Option<Node> {
        let name = self.name(kv.key())?;
        if !is_place(name, kv.lease(), kv.value()) {
            return None;
        }
        let (label, sequence) = (value::read(kv.value()).label, Sequence::new(kv.create_revision()));
        let node = Node::new(NodeName::new(name), NodeId::new(name), label, sequence);
        Some(node.with_owner(owner(kv), FencingToken::new(kv.create_revision().cast_unsigned())))
    }

    /// Reads a listing of the range.
    pub(crate) fn queue(&self, kvs: &[KeyValue]) -> Queue {
        Queue::linear(kvs.iter().filter_map(|kv| self.node(kv)).collect())
    }
}

/// The session that a key goes with.
pub(crate) fn owner(kv: &KeyValue) -> Option<SessionId> {
    (kv.lease() != 0).then(|| SessionId::new(kv.lease().cast_unsigned()))
}

/// Whether a direct child is a place in a queue: ours by its name, also when an operator has overwritten its
/// value, or by its value; Go's `concurrency.Mutex`, which `etcdctl lock` and the server's lock service
/// are, by its name, which is its lease. Whatever else is there is nobody's lock.
fn is_place(name: &str, lease: i64, value: &[u8]) -> bool {
    NodeId::new(name).is_uuid() || value::is_ours(value) || (lease != 0 && name == format!("{lease:x}"))
}

/// The key that a session raises to make its older creates void; see `fence.rs`.
pub(crate) fn fence(prefix: &str, session: SessionId) -> String {
    format!("{prefix}//fence/{:x}", session.get())
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
        let uuid = "0123abcd-4567-89ab-cdef-0123456789ab";
        for (name, lease, value, is) in [
            (uuid, 7, "zlock1 lock\nx", true),
            (uuid, 7, "overwritten", true),
            ("anything", 7, "zlock1 read\nx", true),
            ("694d7a3c2f1b5e05", 0x694d_7a3c_2f1b_5e05, "", true),
            ("694d7a3c2f1b5e05", 7, "", false),
            ("db", 0, "", false),
            ("db", 0xdb, "", true),
            ("0", 0, "", false),
            ("config", 7, "text", false),
        ] {
            assert_eq!(is_place(name, lease, value.as_bytes()), is, "{name} {lease:x} {value}");
        }
    }

    #[test]
    fn the_fence_is_below_no_lock() {
        let options = EtcdOptions::new(["h"]);
        assert_eq!(fence(options.prefix(), SessionId::new(0xab)), "//fence/ab");
        let options = options.with_prefix(LockPath::new("/prod").unwrap());
        let fence = fence(options.prefix(), SessionId::new(0xab));
        assert_eq!(fence, "/prod//fence/ab");
        let whole = Keys::new("", &LockPath::new("/prod").unwrap());
        assert_eq!(whole.name(fence.as_bytes()), None);
    }
}
