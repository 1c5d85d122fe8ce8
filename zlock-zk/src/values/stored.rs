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

pub(super) fn version(czxid: i64, number: i32) -> Version {
    Version::new(czxid.cast_unsigned(), number.cast_unsigned().into())
}
