//! Requests to step down: a value beside the queue, with the number of the term that is meant.

use std::sync::Arc;

use zlock_core::{FencingToken, LockPath, Result};

use super::observe::{Leader, leader};
use crate::client::Client;
use crate::client::inner::ClientInner;
use crate::value::SharedValue;

/// Returns the path of the value of an election.
pub(super) fn path(election: &LockPath) -> Result<LockPath> {
    LockPath::new(format!("{election}-step-down"))
}

/// Asks the leader, and returns its term. `None` if nobody leads.
pub(super) async fn request(
    value: &SharedValue,
    client: &ClientInner,
    path: &LockPath,
) -> Result<Option<FencingToken>> {
    let mut seen = value.get().await?;
    loop {
        // Read after the value. So a number of another term is that of an earlier one, or none that a client has written.
        let Some(Leader { term, .. }) = leader(client, path).await? else { return Ok(None) };
        if seen.as_ref().and_then(|value| number(&value.data)) == Some(term.number()) {
            return Ok(Some(term));
        }
        match value.replace(seen, term.number().to_string().into()).await? {
            Ok(_) => return Ok(Some(term)),
            Err(now) => seen = now,
        }
    }
}

/// Waits until the leader of this term is asked.
pub(super) async fn requested(client: &Arc<ClientInner>, path: &LockPath, term: FencingToken) -> Result<()> {
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
