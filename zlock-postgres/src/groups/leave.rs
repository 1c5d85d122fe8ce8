//! Leaving a group.

use std::ops::ControlFlow::Break;

use zlock_core::kit::{Attempt, SessionKey};

use super::parts::parts;
use crate::connection::link::Params;
use crate::connection::statement;
use crate::error::Failure;
use crate::operations::operation::{Attempted, Operation};
use crate::session::shared::session_id;
use crate::values::read::settled;

pub(super) struct Leave;

impl<'o> Attempt<Operation<'o>, Failure> for Leave {
    type Output = ();

    async fn attempt(&mut self, operation: &mut Operation<'o>, session: SessionKey) -> Attempted<()> {
        // No abandoned join can take effect after that.
        settled(operation, session).await?;
        let (id, path) = (session_id(session), operation.path.clone());
        let (group, name) = parts(&path);
        let params: Params<'_> = &[&id, &group, &name];
        operation.write(session, &statement::LEAVE, params).await?;
        Ok(Break(()))
    }
}
