//! Bad input is refused before anything is sent.

use std::time::Duration;

use tokio::time::timeout;
use zlock_core::{ErrorKind, MAX_DATA, Result};
use zlock_recipes::{Client, InterProcessMutex, Release};

use crate::case::LONG;
use crate::{Case, Process};

/// Paths that every store refuses, with the text that the message must contain.
const PATHS: &[(&str, &str)] = &[
    ("", "start with '/'"),
    ("app", "start with '/'"),
    ("/", "root"),
    ("//", "segment 1"),
    ("/app/", "segment 2"),
    ("/app//x", "segment 2"),
    ("/app/./x", "\".\""),
    ("/app/../x", "\"..\""),
    ("/app/\0", "\\0"),
    ("/app/a\u{7f}", "\\u{7f}"),
    ("/app/a\nb", "\\n"),
    ("/app/a\u{fff1}", "\\u{fff1}"),
    ("/app/lock-0000000001", "looks like a place"),
    ("/app/_c_0123abcd-4567-89ab-cdef-0123456789ab-lock-0000000001", "looks like a place"),
];

/// Names below a valid root.
const NAMES: &[(&str, &str)] = &[
    ("", "is empty"),
    ("/x", "is empty"),
    ("x/", "is empty"),
    ("a//b", "is empty"),
    (".", "\".\""),
    ("../x", "\"..\""),
    ("a\u{0}", "\\0"),
    ("lock-0000000001", "looks like a place"),
];

fn nothing_was_sent(process: &Process) {
    assert_eq!(process.faults.total(), 0);
}

/// Paths of mutexes and roots of templates, with the offending part in the message.
pub async fn paths(case: &Case<'_>) {
    let a = case.process().await;
    let long = format!("/{}", "x".repeat(5000));
    for &(path, part) in PATHS.iter().chain(&[(long.as_str(), "the limit is 4096")]) {
        let mutex = a.client.mutex(path).unwrap_err();
        assert_eq!(mutex.kind(), ErrorKind::InvalidPath, "{path:?}");
        assert!(mutex.to_string().contains(part), "{path:?}: {mutex}");
        // The store's root is a valid root, and a root may end in a slash.
        if !["/", "/app/"].contains(&path) {
            let root = a.client.lock_template(path).unwrap_err();
            assert_eq!(root.kind(), ErrorKind::InvalidPath, "{path:?}");
        }
    }
    nothing_was_sent(&a);
}

/// Names given to a template.
pub async fn names(case: &Case<'_>) {
    let a = case.process().await;
    let template = a.client.lock_template(case.root()).unwrap();
    for &(name, part) in NAMES {
        let error = template.execute(name, |_| async { unreachable!() }).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidPath, "{name:?}");
        assert!(error.to_string().contains(part), "{name:?}: {error}");
        assert_eq!(template.path(name).unwrap_err().kind(), ErrorKind::InvalidPath, "{name:?}");
    }
    nothing_was_sent(&a);
}

/// Node data that is too large, for the client and for one mutex; the maximum is accepted.
pub async fn data(case: &Case<'_>) {
    let a = case.process().await;
    let mutex = || case.lock::<InterProcessMutex>(&a, "lock");
    let error = mutex().with_node_data(vec![0; MAX_DATA + 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains(&(MAX_DATA + 1).to_string()), "{error}");
    let builder = Client::builder(a.connection.backend.clone());
    assert_eq!(builder.with_node_data(vec![0; MAX_DATA + 1]).unwrap_err().kind(), ErrorKind::InvalidArgument);
    nothing_was_sent(&a);
    let largest = mutex().with_node_data(vec![7; MAX_DATA]).unwrap();
    let guard = largest.acquire().await.unwrap();
    assert_eq!(largest.participants().await.unwrap()[0].data.len(), MAX_DATA);
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// Node data that would request revocation of the node's own holder is refused.
pub async fn data_that_revokes(case: &Case<'_>) {
    const REVOKE: &str = "__REVOKE__";
    let a = case.process().await;
    let path = case.path("lock");
    let path = path.as_str();
    let refused = |result: Result<()>| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(REVOKE) && error.to_string().contains("revocation"), "{error}");
    };
    let mutex = a.client.mutex(path).unwrap();
    let both = a.client.read_write_lock(path).unwrap();
    refused(Client::builder(a.connection.backend.clone()).with_node_data(REVOKE).map(drop));
    refused(mutex.with_node_data(REVOKE).map(drop));
    refused(both.read().with_node_data(REVOKE).map(drop));
    refused(both.write().with_node_data(REVOKE).map(drop));
    refused(both.with_node_data(REVOKE).map(drop));
    refused(a.client.semaphore(path, 2).unwrap().with_node_data(REVOKE).map(drop));
    nothing_was_sent(&a);
    let mutex = a.client.mutex(path).unwrap();
    let guard = mutex.with_node_data("__REVOKE__ ").unwrap().acquire().await.unwrap();
    assert!(
        timeout(Duration::from_millis(100), guard.revocation_requested()).await.is_err(),
        "nobody has asked"
    );
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// A client with a response timeout of zero.
pub async fn response_timeout(case: &Case<'_>) {
    let a = case.process().await;
    let builder = Client::builder(a.connection.backend.clone());
    let error = builder.with_response_timeout(Duration::ZERO).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("response timeout is 0"), "{error}");
    nothing_was_sent(&a);
}

/// A template with zero attempts is refused.
pub async fn attempts(case: &Case<'_>) {
    let a = case.process().await;
    let template = a.client.lock_template(case.root()).unwrap();
    let error = template.with_wait(Duration::from_secs(1), 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    nothing_was_sent(&a);
}

/// Durations beyond the range of the clock mean no limit, and nothing panics; the shortest ones are timeouts.
pub async fn extreme_times(case: &Case<'_>) {
    let huge = [Duration::MAX, Duration::MAX - LONG, Duration::from_secs(u64::MAX / 2), LONG * 1_000_000_000];
    let b = case.process().await;
    let path = case.path("lock");
    for time in huge {
        let a = case.process_with(|builder| builder.with_response_timeout(time).unwrap()).await;
        let lock = case.lock::<InterProcessMutex>(&a, "lock");
        let guard = lock.acquire_timeout(time).await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        let guard = lock.try_acquire().await.unwrap().unwrap();
        let template = b.client.lock_template(case.root()).unwrap();
        let template = template.with_wait(time, u32::MAX).unwrap();
        let other = case.lock::<InterProcessMutex>(&b, "lock");
        let waiters = [
            tokio::spawn(async move { other.acquire_timeout(time).await.map(drop) }),
            tokio::spawn(async move { template.execute("lock", |_| async {}).await }),
        ];
        case.until_queued(&path, 3).await;
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        for waiter in waiters {
            waiter.await.unwrap().unwrap();
        }
        case.until_free(&path).await;
    }
    let guard = case.lock::<InterProcessMutex>(&b, "lock").acquire().await.unwrap();
    let a = case.process().await;
    let lock = case.lock::<InterProcessMutex>(&a, "lock");
    for time in [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(1)] {
        assert!(lock.acquire_timeout(time).await.unwrap_err().is_timeout());
    }
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}
