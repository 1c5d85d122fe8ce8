//! `value`.

use zlock_core::Value;

use super::{read, written};
use crate::Case;

/// The value is the last one written before the call, byte for byte, or a later one.
pub async fn last_one_is_read(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.value("value"));
    let (every_byte, mut expected): (Vec<u8>, _) = ((0..=255).collect(), None);
    for (writer, data) in [(&a, &b"one"[..]), (&b, b""), (&b, &every_byte), (&a, &[7; 4096])] {
        let version = written(writer, &path, expected, data).await;
        for reader in [&a, &b] {
            assert_eq!(read(reader, &path).await, Some(Value::new(data, version)));
        }
        expected = Some(version);
    }
}

/// A missing value is `None`.
pub async fn missing_is_none(case: &Case<'_>) {
    let (a, path) = (case.connect().await, case.value("value"));
    assert_eq!(read(&a, &path).await, None);
    assert_eq!(read(&a, &path.join("below").unwrap()).await, None);
    written(&a, &path, None, b"one").await;
    assert_eq!(read(&a, &path.join("below").unwrap()).await, None);
}
