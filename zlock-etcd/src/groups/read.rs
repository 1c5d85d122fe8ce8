//! The members of a group.

use etcd_client::KeyValue;
use zlock_core::kit::SessionKey;
use zlock_core::{ListedMember, MemberContents, Watch};

use crate::error::Failure;
use crate::keys::key::{Keys, owner};
use crate::keys::revision;
use crate::operations::operation::Operation;
use crate::operations::watch::{arm_and_read, watch_below};

/// Lists a group with the contents of its members, and arms a watch on all of it.
pub(super) async fn arm_members(
    operation: &Operation<'_>,
    lease: SessionKey,
) -> Result<(Vec<ListedMember>, Watch), Failure> {
    let (armed, read) = arm_and_read(operation, lease, operation.keys.range()).await?;
    let members = read.kvs().iter().filter_map(|kv| member(&operation.keys, kv)).collect();
    Ok((members, watch_below(operation, lease, armed, revision::of(read.header()))))
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
