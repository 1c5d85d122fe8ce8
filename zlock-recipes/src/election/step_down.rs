//! Requests to step down: a value beside the queue, with the number of the term that is meant.

use std::future::pending;
use std::sync::Arc;

use zlock_core::{FencingToken, LockPath, Result};

use crate::client::Client;
use crate::client::inner::ClientInner;
use crate::value::SharedValue;

/// Returns the path of the value of an election.
pub(super) fn path(election: &LockPath) -> Result<LockPath> {
    LockPath::new(format!("{election}-step-down"))
}

/// Asks the leader of this term, unless a later one was asked already.
pub(super) async fn request(value: &SharedValue, term: FencingToken) -> Result<()> {
    let text = term.number().to_string();
    value
        .update(|now| (now.and_then(number) < Some(term.number())).then(|| text.clone().into_bytes()))
        .await?;
    Ok(())
}

/// Waits until the leader of this term is asked. For ever if the backend has no values.
pub(super) async fn requested(client: &Arc<ClientInner>, path: &LockPath, term: FencingToken) -> Result<()> {
    if client.backend().values().is_none() {
        return pending().await;
    }
    let mut requests = Client::of(client).shared_value(path.as_str())?.watch();
    loop {
        let asked = requests.changed().await?.value;
        if asked.and_then(|value| number(&value.data)) == Some(term.number()) {
            return Ok(());
        }
    }
}

fn number(data: &[u8]) -> Option<u64> {
    std::str::from_utf8(data).ok()?.trim_end().parse().ok()
}
