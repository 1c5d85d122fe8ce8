//! Reading a value, and watching it.

use zlock_core::kit::{SessionKey, settled};
use zlock_core::{Value, Watch, WatchEvent};

use super::stored::{key, value};
use crate::error::Failure;
use crate::keys::key::Range;
use crate::keys::revision;
use crate::operations::operation::Operation;
use crate::operations::watch::arm_and_read;

pub(super) async fn read(operation: &Operation<'_>, lease: SessionKey) -> Result<Option<Value>, Failure> {
    settled(&**operation.shared, &operation.budget, lease).await?;
    let read = operation.read(lease, range(operation)).await?;
    read.kvs().first().map(value).transpose()
}

pub(super) async fn arm(
    operation: &Operation<'_>,
    lease: SessionKey,
) -> Result<(Option<Value>, Watch), Failure> {
    settled(&**operation.shared, &operation.budget, lease).await?;
    let (mut armed, read) = arm_and_read(operation, lease, range(operation)).await?;
    let (seen, value) = (revision::of(read.header()), read.kvs().first().map(value).transpose()?);
    let mut events = operation.shared.sessions.events();
    let watch = Watch::new(async move {
        tokio::select! {
            biased;
            _ = armed.next_after(seen) => {}
            _ = events.ended(lease.epoch) => {}
        }
        WatchEvent::Changed
    });
    Ok((value, watch))
}

fn range(operation: &Operation<'_>) -> Range {
    Range { start: key(&operation.keys).to_owned(), end: None }
}
