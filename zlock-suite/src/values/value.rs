//! `value`.

use zlock_core::{Consistency, ErrorKind, Joined, Value};

use super::{read, written};
use crate::Case;

/// The latest value is the last one written before the call, byte for byte, or a later one.
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

/// A member is no value: the result is `None`, or the error is `InvalidArgument`.
pub async fn member_is_no_value(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.path("w7"));
    let joined = a.join(&path, b"payload", false).await.unwrap();
    assert!(matches!(joined, Joined::Joined(_)), "{joined:?}");
    for reader in [&a, &b] {
        let read = reader.value(&path, Consistency::Latest).await;
        let watched = reader.value_with_watch(&path).await.map(|(value, _)| value);
        for value in [read, watched] {
            assert!(
                value.as_ref().map_or_else(|e| e.kind() == ErrorKind::InvalidArgument, Option::is_none),
                "{value:?}"
            );
        }
    }
}
