//! The members that a client has joined as. A session owns one node of a name, so only one membership may use it at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use zlock_core::{Error, ErrorKind, LockPath, Mutex, Result, Signal};

/// The members of a client, by their paths.
#[derive(Debug, Default)]
pub(crate) struct JoinedIds {
    state: Mutex<BTreeMap<LockPath, Use>>,
    /// Notified when a member has left.
    left: Signal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Joined,
    /// Its node is being removed.
    Leaving,
}

impl JoinedIds {
    /// Takes an ID, once an earlier membership with it has left. An error if there is one that has not begun to leave.
    pub(crate) async fn take(self: &Arc<Self>, member: &LockPath) -> Result<JoinedId> {
        let take = || {
            let mut state = self.state.lock();
            match state.get(member) {
                Some(Use::Joined) => {
                    let message = "this client has joined with this ID already";
                    Some(Err(Error::new(ErrorKind::Taken, "join").with_path(member).with_message(message)))
                }
                Some(Use::Leaving) => None,
                None => {
                    state.insert(member.clone(), Use::Joined);
                    Some(Ok(JoinedId { ids: self.clone(), member: member.clone() }))
                }
            }
        };
        self.left.until(take).await
    }
}

/// An ID in use. Dropping it makes it free.
#[derive(Debug)]
pub(crate) struct JoinedId {
    ids: Arc<JoinedIds>,
    member: LockPath,
}

impl JoinedId {
    /// Records that the node is being removed. A join with the ID waits for that.
    pub(crate) fn mark_leaving(&self) {
        if let Some(state) = self.ids.state.lock().get_mut(&self.member) {
            *state = Use::Leaving;
        }
    }
}

impl Drop for JoinedId {
    fn drop(&mut self) {
        self.ids.state.lock().remove(&self.member);
        self.ids.left.notify();
    }
}
