//! The members of a group.

use etcd_client::KeyValue;
use zlock_core::kit::SessionKey;
use zlock_core::{ListedMember, MemberContents, Watch, WatchEvent};

use crate::error::Failure;
use crate::keys::key::{Keys, owner};
use crate::keys::revision;
use crate::operations::operation::Operation;
use crate::operations::watch::arm_and_read;

/// Lists a group with the contents of its members, and arms a watch on all of it.
pub(super) async fn arm_members(
    operation: &Operation<'_>,
    lease: SessionKey,
) -> Result<(Vec<ListedMember>, Watch), Failure> {
    let (mut armed, read) = arm_and_read(operation, lease, operation.keys.range()).await?;
    let (seen, keys) = (revision::of(read.header()), operation.keys.clone());
    let members = read.kvs().iter().filter_map(|kv| member(&keys, kv)).collect();
    let mut events = operation.shared.sessions.events();
    let watch = Watch::new(async move {
        let changed = async {
            while let Some(change) = armed.next_after(seen).await {
                // Changes further down do not count.
                if keys.name(&change.key).is_some() {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            () = changed => {}
            _ = events.ended(lease.epoch) => {}
        }
        WatchEvent::Changed
    });
    Ok((members, watch))
}

/// Parses a key as a member.
fn member(keys: &Keys, kv: &KeyValue) -> Option<ListedMember> {
    let name = keys.name(kv.key())?;
    if keys.node(kv).is_some() {
        return None;
    }
    let contents = MemberContents::new(kv.value(), kv.mod_revision().cast_unsigned(), owner(kv));
    contents.session.is_some().then(|| ListedMember::new(name, Some(contents)))
}
