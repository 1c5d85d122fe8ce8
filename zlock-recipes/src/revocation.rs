//! Cooperative revocation: a client asks the holder to release the lock, and the holder decides.

use std::future::Future;
use std::time::Duration;

use tokio::time::sleep;
use zlock_core::{Error, ErrorKind, LockPath, Result, Target};

use crate::client_inner::ClientInner;
use crate::granted::lost_error;
use crate::hold::Hold;
use crate::queue::{Status, holders};

/// What is written into a holder's node, and what Curator's `Revoker` writes.
pub(crate) const REVOKE: &[u8] = b"__REVOKE__";

/// Between two looks at a node that could not be read.
const PAUSE: Duration = Duration::from_millis(500);

/// Waits until the holder was asked, or until `lost`.
pub(crate) async fn requested(hold: &Hold, lost: impl Future<Output = Error>) -> Result<()> {
    tokio::select! {
        biased;
        loss = lost => Err(loss),
        () = hold.client().shutdown.begun() => Ok(()),
        requested = watch(hold) => requested,
    }
}

/// Reads the node's data, and again after each change.
async fn watch(hold: &Hold) -> Result<()> {
    loop {
        // Anew each time: a relabel may have given it another name.
        let Target::Node(node) = hold.target() else { return std::future::pending().await };
        match hold.client().backend.data_with_watch(hold.path(), &node).await {
            Ok(Some((data, _))) if data == REVOKE => {
                hold.is_last_turn();
                return Ok(());
            }
            Ok(Some((_, changed))) => drop(changed.await),
            Ok(None) => {
                hold.removed();
                return Err(lost_error(Status::NodeDeleted, "revocation", hold.path()));
            }
            // An outage is no answer: the lock is held, until `lost` says otherwise.
            Err(e) if e.kind() == ErrorKind::Unavailable => {
                tracing::debug!(path = %hold.path(), error = %e, "cannot tell yet whether the lock was revoked");
                sleep(PAUSE).await;
            }
            Err(e) => return Err(e),
        }
    }
}

/// Asks the present holders of a lock to let it go; returns how many were asked.
pub(crate) async fn request(client: &ClientInner, path: &LockPath) -> Result<usize> {
    let backend = &client.backend;
    let queue = backend.children(path).await?;
    let (mut asked, mut first_error) = (0, None);
    for node in holders(&queue) {
        match backend.set_data(path, node, REVOKE).await {
            Ok(()) => asked += 1,
            // It has left.
            Err(e) if e.kind() == ErrorKind::NodeDeleted => {}
            Err(e) => {
                first_error.get_or_insert(e);
            }
        }
    }
    first_error.map_or(Ok(asked), Err)
}
