//! A grant, and its status.

use std::sync::Arc;

use zlock_core::{
    CloseReason, DeletionNotice, Error, ErrorKind, FencingToken, LockPath, Node, Session, SessionEvents,
    SessionState,
};

use crate::place::succession::PlaceHandle;
use crate::queue::Status;

/// The node, the session and the notice that a grant relies on.
#[derive(Clone, Debug)]
pub(crate) struct Granted {
    pub(crate) node: Node,
    pub(crate) epoch: u64,
    pub(crate) fencing_token: FencingToken,
    pub(crate) deletion: DeletionNotice,
    pub(crate) handle: Option<Arc<PlaceHandle>>,
}

impl Granted {
    /// The status of the grant in this snapshot of the session.
    pub(crate) fn status(&self, session: Session) -> Status {
        status(session, self.epoch, &self.deletion)
    }
}

/// The status of a node of `epoch`.
pub(crate) fn status(session: Session, epoch: u64, deletion: &DeletionNotice) -> Status {
    match closed(session) {
        Some(closed) => closed,
        None if session.epoch != epoch || !session.is_live() => Status::SessionLost,
        None if deletion.is_deleted() => Status::NodeDeleted,
        None => Status::Live,
    }
}

/// Waits until the session of `epoch` is over, or another client has deleted the node.
pub(crate) fn lost(
    session: &SessionEvents,
    epoch: u64,
    deletion: &DeletionNotice,
) -> impl Future<Output = ()> + Send + use<> {
    let (mut session, mut deletion) = (session.clone(), deletion.clone());
    async move {
        tokio::select! {
            biased;
            _ = session.ended(epoch) => {}
            () = deletion.deleted() => {}
        }
    }
}

/// The status of every node once the client is closed.
pub(crate) fn closed(session: Session) -> Option<Status> {
    match session.state {
        SessionState::Closed(CloseReason::AuthFailed) => Some(Status::NotAuthorized),
        SessionState::Closed(_) => Some(Status::Closed),
        _ => None,
    }
}

/// Returns the error for a status. [`Status::Live`] means that the holder has released the lock.
pub(crate) fn lost_error(status: Status, operation: &'static str, path: &LockPath) -> Error {
    let error = Error::new(lost_kind(status), operation).with_path(path);
    if status == Status::Live { error } else { error.lock_lost() }
}

/// The error for a backend that does not report the fencing token of a holder's node.
pub(crate) fn no_token(operation: &'static str, path: &LockPath) -> Error {
    let message = "the backend returned no fencing token";
    Error::new(ErrorKind::Unexpected, operation).with_path(path).with_message(message)
}

/// The kind of error for a status.
pub(crate) fn lost_kind(status: Status) -> ErrorKind {
    match status {
        Status::Closed => ErrorKind::Closed,
        Status::NotAuthorized => ErrorKind::NotAuthorized,
        Status::NodeDeleted => ErrorKind::NodeDeleted,
        Status::SessionLost => ErrorKind::SessionLost,
        Status::Live => ErrorKind::Released,
    }
}
