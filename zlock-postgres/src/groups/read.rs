//! The members of a group.

use tokio_postgres::Row;
use zlock_core::kit::SessionKey;
use zlock_core::{ListedMember, MemberContents, SessionId, Watch};

use crate::connection::statement;
use crate::error::Failure;
use crate::operations::operation::Operation;
use crate::operations::watch::watch;
use crate::session::death::suspect;
use crate::session::shared::session_id;
use crate::watches::registry::{Expected, Kind, contents};

/// Lists a group with the contents of its members, and arms a watch. A poll compares the group with what was listed, so nothing in
/// between is missed.
pub(super) async fn arm_members(
    operation: &Operation<'_>,
    session: SessionKey,
) -> Result<(Vec<ListedMember>, Watch), Failure> {
    let shared = operation.shared;
    let (id, groups, is_sync) = (session_id(session), vec![operation.path.clone()], shared.is_sync());
    loop {
        let rows = operation.read(session, &statement::MEMBERS, &[&id, &groups, &true, &is_sync]).await?;
        let mut is_any_over = false;
        for row in &rows {
            let (owner, state): (i64, i32) =
                (row.try_get(4).map_err(Failure::Postgres)?, row.try_get(7).map_err(Failure::Postgres)?);
            if state > 0 && owner != id {
                is_any_over |= suspect(shared, owner).await?;
            }
        }
        if is_any_over {
            continue;
        }
        let members: Result<Vec<_>, _> = rows.iter().map(member).collect();
        let members = members.map_err(Failure::Postgres)?;
        let label = contents(members.iter().map(|(number, _)| *number));
        let expected = Expected { label, version: None };
        let watching = shared.watches.arm((Kind::Group, operation.path.clone()), expected);
        let members = members.into_iter().map(|(_, member)| member).collect();
        return Ok((members, watch(operation, session, watching)));
    }
}

fn member(row: &Row) -> Result<(i64, ListedMember), tokio_postgres::Error> {
    let (name, number): (String, i64) = (row.try_get(1)?, row.try_get(2)?);
    let (data, owner): (Vec<u8>, i64) = (row.try_get(3)?, row.try_get(4)?);
    let session = Some(SessionId::new(owner.cast_unsigned()));
    let contents = MemberContents::new(data, number.cast_unsigned(), session);
    Ok((number, ListedMember::new(name, Some(contents))))
}
