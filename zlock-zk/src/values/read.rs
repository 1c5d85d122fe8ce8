//! Reading a value, and watching it.

use zlock_core::kit::{SessionKey, settled};
use zlock_core::{Consistency, Value, Watch};

use super::stored::value;
use crate::error::Failure;
use crate::operations::operation::Operation;
use crate::operations::watch::{read_all_and_watch, watch_any, watch_missing};

/// Reads once no abandoned write can take effect.
pub(super) async fn read_settled(
    operation: &mut Operation<'_>,
    session: SessionKey,
    consistency: Consistency,
) -> Result<Option<Value>, Failure> {
    settled(&**operation.shared, &operation.budget, session).await?;
    read(operation, session, consistency).await
}

pub(super) async fn read(
    operation: &mut Operation<'_>,
    session: SessionKey,
    consistency: Consistency,
) -> Result<Option<Value>, Failure> {
    let read = operation.data(session, operation.server_path(), consistency).await?;
    read.map(|(data, stat)| value(data, &stat)).transpose()
}

pub(super) async fn watch_value(
    operation: &mut Operation<'_>,
    session: SessionKey,
) -> Result<(Option<Value>, Watch), Failure> {
    let (shared, path) = (operation.shared, operation.server_path());
    loop {
        settled(&**operation.shared, &operation.budget, session).await?;
        if let Some((data, stat, watching)) = read_all_and_watch(operation, session, path.clone()).await? {
            let value = value(data, &stat)?;
            return Ok((Some(value), watch_any(shared, session, watching)));
        }
        if let Some(watching) = watch_missing(operation, session, path.clone()).await? {
            return Ok((None, watch_any(shared, session, watching)));
        }
    }
}
