//! The members of a group, and the contents of each.

use zlock_core::kit::SessionKey;
use zlock_core::{ListedMember, MemberContents, NodeName, Watch};

use crate::error::Failure;
use crate::operations::operation::{Operation, owner};
use crate::operations::watch::{read_all_and_watch, watch_any, watch_names};

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
    let path = operation.server_path();
    let read = read_all_and_watch(operation, session, path).await?;
    Ok(read.map(|(data, stat, watching)| {
        let contents = MemberContents::new(data, stat.czxid.cast_unsigned(), owner(&stat));
        (contents, watch_any(operation.shared, session, watching))
    }))
}
