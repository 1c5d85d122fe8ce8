//! Where values and receipts are, and what is there.

use etcd_client::KeyValue;
use zlock_core::kit::Receipt;
use zlock_core::{Value, Version};

use crate::error::Failure;
use crate::keys::key::Keys;

/// Returns the key of the value at the path of these keys.
pub(super) fn key(keys: &Keys) -> &str {
    let prefix = keys.prefix();
    prefix.strip_suffix('/').unwrap_or(prefix)
}

/// Returns the key of a receipt.
pub(super) fn receipt_key(prefix: &str, receipt: &Receipt<i64>) -> String {
    format!("{prefix}//fence/{:x}.r{}", receipt.session.id.get(), receipt.number)
}

/// Returns the value in an answer. Fails for a key that is removed with a session.
pub(super) fn value(kv: &KeyValue) -> Result<Value, Failure> {
    if kv.lease() != 0 {
        return Err(Failure::NotAValue);
    }
    Ok(Value::new(kv.value(), version(kv.create_revision(), kv.mod_revision())))
}

pub(super) fn version(created: i64, modified: i64) -> Version {
    Version::new(created.cast_unsigned(), modified.cast_unsigned())
}
