//! Leaving a group.

use zlock_core::kit::SessionKey;

use super::parts::parts;
use crate::connection::link::Params;
use crate::connection::statement;
use crate::error::Failure;
use crate::operations::operation::Operation;
use crate::session::shared::session_id;
use crate::values::receipt::WriteReceipt;

pub(super) async fn leave(
    operation: &mut Operation<'_>,
    session: SessionKey,
    receipt: &mut WriteReceipt,
) -> Result<(), Failure> {
    let (id, (slot, write)) = (session_id(session), receipt.send(operation, session).await?);
    let path = operation.path.clone();
    let (group, name) = parts(&path);
    let params: Params<'_> = &[&id, &group, &name, &slot, &write];
    match operation.write(session, &statement::LEAVE, params).await {
        Ok(_) => {
            receipt.answered(true);
            Ok(())
        }
        Err(failure) => {
            receipt.failed(&failure);
            Err(failure)
        }
    }
}
