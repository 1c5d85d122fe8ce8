//! What a session remembers of its requests: creates that may be executed later, and where queues begin.

use std::collections::BTreeMap;

use zlock_core::{Mutex, NodeId};

/// The creates that may not have been executed yet, with the connections over which they were sent.
///
/// The server executes the requests of one connection in their order. So after a create over a connection that still exists,
/// a delete over the same one finds the node if it was created, and nothing needs to be voided.
#[derive(Debug, Default)]
pub(crate) struct Creates(Mutex<BTreeMap<NodeId, Sent>>);

/// Over which connections a create was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Over this one.
    Once(usize),
    /// Over several, or one that is closed.
    Anywhere,
}

impl Creates {
    /// Records that a create is about to be sent over a connection.
    pub(crate) fn sent(&self, node_id: &NodeId, link: usize) {
        let mut creates = self.0.lock();
        let sent = creates.entry(node_id.clone()).or_insert(Sent::Once(link));
        if *sent != Sent::Once(link) {
            *sent = Sent::Anywhere;
        }
    }

    /// Records that a create was answered. If it was sent only once, it is not executed again.
    pub(crate) fn answered(&self, node_id: &NodeId) {
        let mut creates = self.0.lock();
        if matches!(creates.get(node_id), Some(Sent::Once(_))) {
            creates.remove(node_id);
        }
    }

    /// Returns over which connections a create was sent that may not have been executed yet.
    pub(crate) fn get(&self, node_id: &NodeId) -> Option<Sent> {
        self.0.lock().get(node_id).copied()
    }

    /// Forgets a create that has no effect from now on.
    pub(crate) fn forget(&self, node_id: &NodeId) {
        self.0.lock().remove(node_id);
    }
}

/// The number below which a queue certainly has no node, which spares the server to look at nodes that were deleted.
///
/// It holds as long as no failover takes deletes back, so for one session.
#[derive(Debug, Default)]
pub(crate) struct Hints(Mutex<BTreeMap<String, i64>>);

/// The most queues whose beginnings are remembered.
const MAX_HINTS: usize = 4096;

impl Hints {
    /// Returns the number of a queue.
    pub(crate) fn get(&self, path: &str) -> i64 {
        self.0.lock().get(path).copied().unwrap_or(0)
    }

    /// Records the head of a queue.
    pub(crate) fn note(&self, path: &str, head: i64) {
        let mut hints = self.0.lock();
        if let Some(hint) = hints.get_mut(path) {
            *hint = head.max(*hint);
            return;
        }
        if hints.len() >= MAX_HINTS {
            hints.clear();
        }
        hints.insert(path.to_owned(), head);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_create_that_was_sent_twice_may_be_executed_later() {
        let (creates, one, two) = (Creates::default(), NodeId::new("one"), NodeId::new("two"));
        creates.sent(&one, 1);
        creates.sent(&two, 1);
        assert_eq!(creates.get(&one), Some(Sent::Once(1)));
        creates.sent(&one, 1);
        assert_eq!(creates.get(&one), Some(Sent::Once(1)));
        creates.sent(&one, 2);
        for node in [&one, &two] {
            creates.answered(node);
        }
        assert_eq!((creates.get(&one), creates.get(&two)), (Some(Sent::Anywhere), None));
        creates.forget(&one);
        assert_eq!(creates.get(&one), None);
    }

    #[test]
    fn a_hint_never_falls() {
        let hints = Hints::default();
        for head in [7, 9, 8] {
            hints.note("/a", head);
        }
        assert_eq!((hints.get("/a"), hints.get("/b")), (9, 0));
        for n in 0..=MAX_HINTS {
            hints.note(&n.to_string(), 1);
        }
        assert_eq!((hints.get("/a"), hints.get(&MAX_HINTS.to_string())), (0, 1));
    }
}
