//! Reading a value, and watching it.

use zlock_core::kit::{SessionKey, settled};
use zlock_core::{Consistency, Value, Watch};
use zookeeper_client::Error;

use super::stored::value;
use crate::error::Failure;
use crate::operations::operation::{Leaves, Operation};
use crate::operations::watch::arm::read_armed;
use crate::operations::watch::watch_any;
use crate::session::catch_up;
use crate::watches::watchers::Watched;

/// Reads once no abandoned write can take effect.
pub(super) async fn read_settled(
    operation: &mut Operation<'_>,
    session: SessionKey,
    consistency: Consistency,
) -> Result<Option<Value>, Failure> {
    settled(&**operation.shared, &operation.budget, session).await?;
    read(operation, session, consistency).await
}

pub(super) async fn read(
    operation: &mut Operation<'_>,
    session: SessionKey,
    consistency: Consistency,
) -> Result<Option<Value>, Failure> {
    let path = operation.server_path();
    let read = operation.send(session, Leaves::Nothing, move |live| async move {
        let (synced, read) = tokio::join!(catch_up(&live, consistency), live.client.get_data(&path));
        synced.and(read)
    });
    match read.await {
        Ok((data, stat)) => value(data, &stat).map(Some),
        Err(Failure::Zk(Error::NoNode)) => Ok(None),
        Err(failure) => Err(failure),
    }
}

pub(super) async fn watch_value(
    operation: &mut Operation<'_>,
    session: SessionKey,
) -> Result<(Option<Value>, Watch), Failure> {
    let (shared, path) = (operation.shared, operation.server_path());
    loop {
        settled(&**operation.shared, &operation.budget, session).await?;
        let read = read_armed(operation, session, Watched::Node(path.clone()), |client, path| {
            Box::pin(async move {
                let (data, stat, watcher) = client.get_and_watch_data(path).await?;
                Ok(((data, stat), watcher))
            })
        });
        match read.await {
            Ok(((data, stat), watching)) => {
                let value = value(data, &stat)?;
                return Ok((Some(value), watch_any(shared, session, watching)));
            }
            Err(Failure::Zk(Error::NoNode)) => {}
            Err(failure) => return Err(failure),
        }
        let watched = read_armed(operation, session, Watched::Missing(path.clone()), |client, path| {
            Box::pin(client.check_and_watch_stat(path))
        });
        // Otherwise it was created in between.
        if let (None, watching) = watched.await? {
            return Ok((None, watch_any(shared, session, watching)));
        }
    }
}
