//! Creating the parents of a queue.

use zlock_core::kit::SessionKey;
use zookeeper_client::{CreateMode, Error};

use crate::error::Failure;
use crate::operations::operation::{Leaves, Operation};

/// Creates the path of the operation and everything that is missing above it, as container nodes: the server removes them by
/// itself some time after their last child is gone.
///
/// It begins at the bottom and goes up only while the server reports a missing parent. So an ancestor that exists needs no
/// permission of ours, and one that disappears meanwhile is created again.
pub(crate) async fn make(operation: &mut Operation<'_>, session: SessionKey) -> Result<(), Failure> {
    let path = operation.server_path();
    make_path(operation, session, &path).await
}

/// Does the same with everything above the path of the operation.
pub(crate) async fn make_above(operation: &mut Operation<'_>, session: SessionKey) -> Result<(), Failure> {
    let path = operation.server_path();
    match path.rfind('/') {
        None | Some(0) => Ok(()),
        Some(end) => make_path(operation, session, &path[..end]).await,
    }
}

async fn make_path(operation: &mut Operation<'_>, session: SessionKey, path: &str) -> Result<(), Failure> {
    let mut end = path.len();
    loop {
        let ancestor = path[..end].to_owned();
        let made = operation.create(session, Leaves::Nothing, ancestor, b"", CreateMode::Container);
        match made.await {
            Ok(_) | Err(Failure::Zk(Error::NodeExists)) if end == path.len() => return Ok(()),
            Ok(_) | Err(Failure::Zk(Error::NodeExists)) => {
                end = path[end + 1..].find('/').map_or(path.len(), |next| end + 1 + next);
            }
            Err(Failure::Zk(Error::NoNode)) if path[..end].rfind('/') > Some(0) => {
                end = path[..end].rfind('/').unwrap_or(end);
            }
            Err(failure) => return Err(failure),
        }
    }
}
