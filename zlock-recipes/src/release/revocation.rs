//! Cooperative revocation: a client asks the holder to release the lock, and the holder decides.
//!
//! Nothing is read or watched for a holder that does not await requests.

use std::future::Future;
use std::time::Duration;

use tokio::time::sleep;
use zlock_core::{Error, ErrorKind, Label, LockPath, REVOKE, Result, Target};

use crate::client::inner::ClientInner;
use crate::hold::Hold;
use crate::place::granted::lost_error;
use crate::queue::{Status, holders};

/// The time between two reads of a node that could not be read.
const PAUSE: Duration = Duration::from_millis(500);

/// Waits until revocation is requested, or until `lost`.
pub(crate) async fn requested(hold: &Hold, lost: impl Future<Output = Error>) -> Result<()> {
    tokio::select! {
        biased;
        loss = lost => Err(loss),
        () = hold.client().shutdown.begun.raised() => Ok(()),
        requested = watch(hold) => requested,
    }
}

/// Reads the node's data, and again after each change.
async fn watch(hold: &Hold) -> Result<()> {
    loop {
        // Determined anew each time, because a relabel may have renamed the node.
        let Target::Node(node) = hold.target() else { return std::future::pending().await };
        match hold.client().backend().data_with_watch(hold.path(), &node).await {
            Ok(Some((data, _))) if data == REVOKE => {
                hold.make_turn_last();
                return Ok(());
            }
            Ok(Some((_, changed))) => drop(changed.await),
            Ok(None) => {
                hold.removed();
                return Err(lost_error(Status::NodeDeleted, "revocation", hold.path()));
            }
            // An outage says nothing about the lock, which is held until `lost` completes.
            Err(e) if e.kind() == ErrorKind::Unavailable => {
                tracing::debug!(path = %hold.path(), error = %e, "cannot tell yet whether the lock was revoked");
                sleep(PAUSE).await;
            }
            Err(e) => return Err(e),
        }
    }
}

/// Asks the current holders of a lock to release it. Returns how many were asked. The leader of an election is not, because its
/// data is the value that others read.
pub(crate) async fn request(client: &ClientInner, path: &LockPath) -> Result<usize> {
    let backend = client.backend();
    let queue = backend.children(path, None).await?;
    let (mut asked, mut first_error) = (0, None);
    for node in holders(&queue).filter(|node| node.label != Label::Candidate) {
        match backend.write_data(path, node, None, REVOKE).await {
            Ok(_) => asked += 1,
            // The holder has released the lock.
            Err(e) if e.kind() == ErrorKind::NodeDeleted => {}
            Err(e) => {
                first_error.get_or_insert(e);
            }
        }
    }
    first_error.map_or(Ok(asked), Err)
}
