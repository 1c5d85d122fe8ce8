//! Reading without a watch.

use zlock_core::{LockPath, Node, Queue, Result};

use crate::key::Range;
use crate::operation::Operation;
use crate::session::Shared;
use crate::value;

/// The queue of a path.
pub(crate) async fn children(session: &Shared, parent: &LockPath) -> Result<Queue> {
    let mut operation = Operation::new(session, "children", parent);
    loop {
        let lease = operation.lease().await?;
        match operation.list(lease).await {
            Ok(answer) => return Ok(operation.keys.queue(answer.kvs())),
            Err(failure) => operation.again(failure).await?,
        }
    }
}

/// The data of a node.
pub(crate) async fn data(session: &Shared, parent: &LockPath, node: &Node) -> Result<Option<Vec<u8>>> {
    let mut operation = Operation::new(session, "data", parent);
    loop {
        let lease = operation.lease().await?;
        let key = operation.keys.of(&node.name);
        match operation.read(lease, Range { start: key, end: None }).await {
            Ok(answer) => {
                let kv = answer.kvs().first().filter(|kv| kv.create_revision() == node.sequence.get());
                return Ok(kv.map(|kv| value::read(kv.value()).data.to_owned()));
            }
            Err(failure) => operation.again(failure).await?,
        }
    }
}
