//! Leaving a group.

use std::ops::ControlFlow::Break;
use std::sync::Arc;

use zlock_core::kit::{Attempt, SessionKey};

use super::parts::parts;
use crate::connection::link::Params;
use crate::connection::statement;
use crate::error::Failure;
use crate::operations::operation::{Attempted, Operation};
use crate::session::shared::{Shared, session_id};
use crate::values::receipt::WriteReceipt;

pub(super) struct Leave {
    receipt: WriteReceipt,
}

impl Leave {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Leave { receipt: WriteReceipt::new(shared) }
    }
}

impl<'o> Attempt<Operation<'o>, Failure> for Leave {
    type Output = ();

    async fn attempt(&mut self, operation: &mut Operation<'o>, session: SessionKey) -> Attempted<()> {
        let (id, (slot, write)) = (session_id(session), self.receipt.send(operation, session).await?);
        let path = operation.path.clone();
        let (group, name) = parts(&path);
        let params: Params<'_> = &[&id, &group, &name, &slot, &write];
        match operation.write(session, &statement::LEAVE, params).await {
            Ok(_) => {
                self.receipt.answered(true);
                Ok(Break(()))
            }
            Err(failure) => {
                self.receipt.failed(&failure);
                Err(failure)
            }
        }
    }
}
