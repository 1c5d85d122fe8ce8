//! Leaving a group.

use zlock_core::Consistency;
use zlock_core::kit::SessionKey;
use zookeeper_client::Error;

use crate::error::Failure;
use crate::operations::operation::{Leaves, Operation, owner};
use crate::session::catch_up;

/// Leaves. `is_known` is whether the session is known to own the member.
pub(super) async fn leave(
    operation: &mut Operation<'_>,
    session: SessionKey,
    is_known: &mut bool,
) -> Result<(), Failure> {
    loop {
        // Requests of one session take effect in the order in which they were sent, so no earlier join of this session can take
        // effect after the server has caught up.
        let consistency = if std::mem::take(is_known) { Consistency::Seen } else { Consistency::Latest };
        let path = operation.server_path();
        let stat = operation.send(session, Leaves::Nothing, move |live| async move {
            let (synced, stat) = tokio::join!(catch_up(&live, consistency), live.client.check_stat(&path));
            synced.and(stat)
        });
        let stat = stat.await?;
        let Some(stat) = stat.filter(|stat| owner(stat) == Some(session.id)) else {
            return Ok(());
        };
        let path = operation.server_path();
        let deleted = operation.send(session, Leaves::Change, move |live| async move {
            live.client.delete(&path, Some(stat.version)).await
        });
        match deleted.await {
            // Another client has replaced it, or has written its data. Or a value has its place, and a receipt below it.
            Err(Failure::Zk(Error::BadVersion | Error::NotEmpty)) => {}
            Err(Failure::Zk(Error::NoNode)) => return Ok(()),
            deleted => return deleted,
        }
    }
}
