//! Joining a group.

use std::sync::Arc;

use tokio::time::Instant;
use zlock_core::kit::{SessionKey, WriteReceipt};
use zlock_core::{Joined, NodeId, Registration, SessionId};

use super::parts::parts;
use crate::connection::link::Params;
use crate::connection::statement;
use crate::error::Failure;
use crate::operations::create::own;
use crate::operations::operation::Operation;
use crate::session::death::suspect;
use crate::session::shared::{Shared, session_id};
use crate::values::write::numbers;

pub(super) struct Join<'a> {
    data: &'a [u8],
    replaces: bool,
    receipt: WriteReceipt<Shared>,
}

impl<'a> Join<'a> {
    pub(super) fn new(shared: Arc<Shared>, data: &'a [u8], replaces: bool) -> Self {
        Join { data, replaces, receipt: WriteReceipt::new(shared) }
    }

    pub(super) async fn attempt(
        &mut self,
        operation: &mut Operation<'_>,
        session: SessionKey,
    ) -> Result<Joined, Failure> {
        loop {
            let shared = operation.shared;
            let (receipt, unknown) = self.receipt.begin(&operation.budget, session).await?;
            let (id, (slot, write)) = (session_id(session), numbers(receipt));
            // At rest, the session is renewed with the join. That proves until when it lives.
            let renews = shared.sessions.session().deadline.is_none();
            let (path, ttl, is_sync) =
                (operation.path.clone(), shared.options.ttl_millis(), shared.is_sync());
            let (group, name) = parts(&path);
            let params: Params<'_> =
                &[&id, &group, &name, &self.data, &self.replaces, &slot, &write, &ttl, &renews, &is_sync];
            let sent = Instant::now();
            let rows = unknown.send(operation.write(session, &statement::JOIN, params)).await?;
            let row = rows.first().ok_or(Failure::Malformed)?;
            let outcome: i32 = row.try_get(0).map_err(Failure::Postgres)?;
            return match outcome {
                0 => {
                    unknown.took_effect();
                    let number: i64 = row.try_get(1).map_err(Failure::Postgres)?;
                    // Until the caller knows the member.
                    operation.budget.ambiguous = true;
                    let proof = renews.then(|| sent + shared.options.life());
                    let deletion = own(operation, session, &NodeId::new(&*path), proof).await?;
                    let number = number.cast_unsigned();
                    Ok(Joined::Joined(Registration::new(session.id, session.epoch, number, deletion)))
                }
                1 => {
                    operation.budget.ambiguous = false;
                    let owner: Option<i64> = row.try_get(2).map_err(Failure::Postgres)?;
                    // A value has the name.
                    let Some(owner) = owner else { return Ok(Joined::Taken(None)) };
                    let state: i32 = row.try_get(3).map_err(Failure::Postgres)?;
                    if state > 0 && suspect(shared, owner).await? {
                        continue;
                    }
                    Ok(Joined::Taken(Some(SessionId::new(owner.cast_unsigned()))))
                }
                _ => Err(Failure::Malformed),
            };
        }
    }
}
