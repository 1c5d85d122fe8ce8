//! The session's own members of groups, each with a key that is its name.

use std::collections::BTreeMap;

use zlock_core::NodeId;

/// The members that the session has joined as, by the IDs of their nodes: their keys.
#[derive(Debug, Default)]
pub(crate) struct OwnMembers(BTreeMap<NodeId, State>);

#[derive(Clone, Copy, Debug)]
struct State {
    /// The revision at which the key was written. `None` while that is not known.
    written: Option<i64>,
    /// The number of requests without an answer, which may still be executed.
    unanswered: u32,
}

impl OwnMembers {
    /// Records that a join is about to be sent.
    pub(crate) fn sent(&mut self, id: &NodeId) {
        self.0.entry(id.clone()).or_insert(State { written: None, unanswered: 0 }).unanswered += 1;
    }

    /// Records that one was answered.
    pub(crate) fn answered(&mut self, id: &NodeId) {
        if let Some(state) = self.0.get_mut(id) {
            state.unanswered = state.unanswered.saturating_sub(1);
        }
    }

    /// Returns `true` if a join has no answer, and may still be executed.
    pub(crate) fn is_unanswered(&self, id: &NodeId) -> bool {
        self.0.get(id).is_some_and(|state| state.unanswered > 0)
    }

    /// Records that no join that was sent before is executed any more.
    pub(crate) fn forget_unanswered(&mut self, id: &NodeId) {
        if let Some(state) = self.0.get_mut(id) {
            state.unanswered = 0;
        }
    }

    /// Records at which revision the key of the session's member was written.
    pub(crate) fn joined(&mut self, id: &NodeId, revision: i64) {
        if let Some(state) = self.0.get_mut(id) {
            state.written = Some(revision);
        }
    }

    /// Forgets a member that does not exist, and will not.
    pub(crate) fn forget(&mut self, id: &NodeId) {
        self.0.remove(id);
    }

    /// Returns the revision at which the key of the session's member was written.
    pub(crate) fn revision(&self, id: &NodeId) -> Option<i64> {
        self.0.get(id)?.written
    }

    /// Returns how to remove the member. `None` if there is none, and will be none.
    pub(crate) fn removal(&self, id: &NodeId) -> Option<Removal> {
        let state = self.0.get(id)?;
        Some(match state.written {
            Some(revision) if state.unanswered == 0 => Removal::Known(revision),
            _ => Removal::Unknown,
        })
    }
}

/// How to remove a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// By the revision at which it was written.
    Known(i64),
    /// By voiding the joins that have no answer, and then looking.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_join_without_an_answer_may_take_effect_later() {
        let (mut members, id) = (OwnMembers::default(), NodeId::new("/app/workers/w7"));
        assert_eq!(members.removal(&id), None);
        members.sent(&id);
        assert_eq!((members.removal(&id), members.revision(&id)), (Some(Removal::Unknown), None));
        members.answered(&id);
        members.joined(&id, 7);
        assert_eq!((members.removal(&id), members.revision(&id)), (Some(Removal::Known(7)), Some(7)));
        // The first one has no answer, the second finds what it left.
        members.forget(&id);
        members.sent(&id);
        members.sent(&id);
        members.answered(&id);
        members.joined(&id, 9);
        assert_eq!((members.removal(&id), members.revision(&id)), (Some(Removal::Unknown), Some(9)));
        assert!(members.is_unanswered(&id));
        members.forget_unanswered(&id);
        assert!(!members.is_unanswered(&id));
        assert_eq!(members.removal(&id), Some(Removal::Known(9)));
        members.forget(&id);
        assert_eq!((members.removal(&id), members.revision(&id)), (None, None));
    }
}
