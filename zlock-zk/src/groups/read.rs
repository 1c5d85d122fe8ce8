//! The members of a group, and the contents of each.

use std::ops::ControlFlow::{Break, Continue};

use zlock_core::kit::{Attempt, SessionKey};
use zlock_core::{ListedMember, MemberContents, NodeName, SessionId, Watch};
use zookeeper_client::Error;

use crate::error::Failure;
use crate::operations::operation::{Attempted, Operation};
use crate::operations::watch::arm::read_armed;
use crate::operations::watch::{Names, watch_any, watch_names};
use crate::watches::watchers::Watched;

/// Lists a group, and arms a watch on its changes. A listing has names alone.
pub(super) struct WatchMembers;

impl<'o> Attempt<Operation<'o>, Failure> for WatchMembers {
    type Output = (Vec<ListedMember>, Watch);

    async fn attempt(
        &mut self,
        operation: &mut Operation<'o>,
        session: SessionKey,
    ) -> Attempted<(Vec<ListedMember>, Watch)> {
        let shared = operation.shared;
        let (names, watching) = match watch_names(operation, session).await? {
            Names::Listed(names, watching) => (names, watching),
            Names::Missing(watching) => (Vec::new(), watching),
            Names::CreatedMeanwhile => return Ok(Continue(())),
        };
        let members = names.into_iter().filter(|name| NodeName::parse(name).is_none());
        let members = members.map(|name| ListedMember::new(name, None)).collect();
        Ok(Break((members, watch_any(shared, session, watching))))
    }
}

/// Reads a member, and arms a watch on its change.
pub(super) struct WatchMember;

impl<'o> Attempt<Operation<'o>, Failure> for WatchMember {
    type Output = Option<(MemberContents, Watch)>;

    async fn attempt(
        &mut self,
        operation: &mut Operation<'o>,
        session: SessionKey,
    ) -> Attempted<Option<(MemberContents, Watch)>> {
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
                Ok(Break(Some((contents, watch_any(shared, session, watching)))))
            }
            Err(Failure::Zk(Error::NoNode)) => Ok(Break(None)),
            Err(failure) => Err(failure),
        }
    }
}
