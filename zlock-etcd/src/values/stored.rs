//! Where values and receipts are, and what is there.

use etcd_client::KeyValue;
use zlock_core::{SessionId, Value, Version};

use crate::keys::key::Keys;

/// Returns the key of the value at the path of these keys.
pub(super) fn key(keys: &Keys) -> &str {
    let prefix = keys.prefix();
    prefix.strip_suffix('/').unwrap_or(prefix)
}

/// Returns the key of a receipt.
pub(super) fn receipt_key(prefix: &str, session: SessionId, number: u32) -> String {
    format!("{prefix}//fence/{:x}.r{number}", session.get())
}

pub(super) fn value(kv: &KeyValue) -> Value {
    let version = version(kv.create_revision(), kv.mod_revision());
    Value::new(kv.value(), version)
}

pub(super) fn version(created: i64, modified: i64) -> Version {
    Version::new(created.cast_unsigned(), modified.cast_unsigned())
}
