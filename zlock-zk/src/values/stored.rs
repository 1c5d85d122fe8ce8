//! What the server says of a value.

use zlock_core::{Value, Version};
use zookeeper_client::Stat;

use crate::error::Failure;

/// Returns the value in an answer. Fails for a node that the server removes by itself.
pub(super) fn value(data: Vec<u8>, stat: &Stat) -> Result<Value, Failure> {
    if stat.ephemeral_owner != 0 {
        return Err(Failure::NotAValue);
    }
    Ok(Value::new(data, version(stat.czxid, stat.version)))
}

/// Returns `true` if the node may be a container, which the server removes when it has no children, as the parents of locks and of
/// other values are. The server does not say so in its answers. But a container is created without data.
pub(super) fn may_be_a_container(value: &Value) -> bool {
    value.data.is_empty() && value.version.number() == 0
}

pub(super) fn version(czxid: i64, number: i32) -> Version {
    Version::new(czxid.cast_unsigned(), number.cast_unsigned().into())
}
