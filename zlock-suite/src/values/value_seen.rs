//! `value`, as it was seen.

use zlock_core::Consistency;

use super::written;
use crate::Case;

/// A seen value is one that was written, and later reads never return an older one.
pub async fn never_goes_back(case: &Case<'_>) {
    let (a, b, path) = (case.connect().await, case.connect().await, case.value("value"));
    assert_eq!(a.value(&path, Consistency::Seen).await.unwrap(), None);
    let (mut expected, mut seen) = (None, 0);
    for n in 1..=20_u8 {
        expected = Some(written(&a, &path, expected, &[n]).await);
        // What this client has written, it has seen.
        let own = a.value(&path, Consistency::Seen).await.unwrap().unwrap();
        assert_eq!((own.data, Some(own.version)), (vec![n], expected));
        let other = b.value(&path, Consistency::Seen).await.unwrap().map_or(0, |value| value.data[0]);
        assert!((seen..=n).contains(&other), "{other} after {seen}, {n} was written last");
        seen = other;
    }
    let caught_up =
        async || b.value(&path, Consistency::Seen).await.unwrap().is_some_and(|value| value.data == [20]);
    case.until("the other client sees the last write", caught_up).await;
}
