//! Leaving a group.

use zlock_core::kit::{SessionKey, WriteReceipt};

use super::parts::parts;
use crate::connection::link::Params;
use crate::connection::statement;
use crate::error::Failure;
use crate::operations::operation::Operation;
use crate::session::shared::{Shared, session_id};
use crate::values::write::numbers;

pub(super) async fn leave(
    operation: &mut Operation<'_>,
    session: SessionKey,
    receipt: &mut WriteReceipt<Shared>,
) -> Result<(), Failure> {
    let (receipt, unknown) = receipt.begin(&operation.budget, session).await?;
    let (id, (slot, write)) = (session_id(session), numbers(receipt));
    let path = operation.path.clone();
    let (group, name) = parts(&path);
    let params: Params<'_> = &[&id, &group, &name, &slot, &write];
    unknown.send(operation.write(session, &statement::LEAVE, params)).await?;
    unknown.took_effect();
    Ok(())
}
