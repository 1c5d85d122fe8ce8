//! Reading a value, and watching it.

use zlock_core::kit::{SessionKey, settled};
use zlock_core::{Value, Version, Watch};

use crate::connection::statement;
use crate::error::Failure;
use crate::operations::operation::Operation;
use crate::operations::watch::watch;
use crate::watches::registry::{Expected, Kind};

pub(super) async fn arm(
    operation: &Operation<'_>,
    session: SessionKey,
) -> Result<(Option<Value>, Watch), Failure> {
    let value = read(operation, session).await?;
    // A poll compares the value with what was read, so nothing in between is missed.
    let version = value.as_ref().map(|value| value.version.number().cast_signed());
    let expected = Expected { label: None, version };
    let watching = operation.shared.watches.arm((Kind::Value, operation.path.clone()), expected);
    Ok((value, watch(operation, session, watching)))
}

pub(super) async fn read(operation: &Operation<'_>, session: SessionKey) -> Result<Option<Value>, Failure> {
    settled(&**operation.shared, &operation.budget, session).await?;
    let rows = operation.read(session, &statement::VALUE, &[&operation.path]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let number = |n| row.try_get::<_, i64>(n).map_err(Failure::Postgres);
    let data: Vec<u8> = row.try_get(2).map_err(Failure::Postgres)?;
    Ok(Some(Value::new(data, version(number(0)?, number(1)?))))
}

pub(super) fn version(created: i64, number: i64) -> Version {
    Version::new(created.cast_unsigned(), number.cast_unsigned())
}
