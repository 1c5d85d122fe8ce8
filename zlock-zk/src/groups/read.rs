//! The members of a group, and the contents of each.

use zlock_core::kit::SessionKey;
use zlock_core::{ListedMember, MemberContents, NodeName, SessionId, Watch};
use zookeeper_client::Error;

use crate::error::Failure;
use crate::operations::operation::Operation;
use crate::operations::watch::arm::read_armed;
use crate::operations::watch::{watch_any, watch_names};
use crate::watches::watchers::Watched;

/// Lists a group, and arms a watch on its changes. A listing has names alone.
pub(super) async fn watch_members(
    operation: &mut Operation<'_>,
    session: SessionKey,
) -> Result<(Vec<ListedMember>, Watch), Failure> {
    let (names, watching) = loop {
        if let Some(watched) = watch_names(operation, session).await? {
            break watched;
        }
    };
    let members = names.into_iter().filter(|name| NodeName::parse(name).is_none());
    let members = members.map(|name| ListedMember::new(name, None)).collect();
    Ok((members, watch_any(operation.shared, session, watching)))
}

/// Reads a member, and arms a watch on its change.
pub(super) async fn watch_member(
    operation: &mut Operation<'_>,
    session: SessionKey,
) -> Result<Option<(MemberContents, Watch)>, Failure> {
    let (shared, path) = (operation.shared, operation.server_path());
    let read = read_armed(operation, session, Watched::Node(path), |client, path| {
        Box::pin(async move {
            let (data, stat, watcher) = client.get_and_watch_data(path).await?;
            Ok(((data, stat), watcher))
        })
    });
    match read.await {
        Ok(((data, stat), watching)) => {
            let owner = stat.ephemeral_owner.cast_unsigned();
            let owner = (owner != 0).then(|| SessionId::new(owner));
            let contents = MemberContents::new(data, stat.czxid.cast_unsigned(), owner);
            Ok(Some((contents, watch_any(shared, session, watching))))
        }
        Err(Failure::Zk(Error::NoNode)) => Ok(None),
        Err(failure) => Err(failure),
    }
}
