//! The cases of [`Values`](zlock_core::Values), one or more modules for each of its methods. The doc of a case is the bullet that it tests.

pub mod value;
pub mod value_seen;
pub mod value_with_watch;
pub mod write_value;

use zlock_core::{Consistency, LockPath, Value, Version, Watch, WriteOutcome};

use crate::{Case, Connection};

async fn read(connection: &Connection, path: &LockPath) -> Option<Value> {
    connection.value(path, Consistency::Latest).await.expect("value")
}

async fn watch(connection: &Connection, path: &LockPath) -> (Option<Value>, Watch) {
    connection.value_with_watch(path).await.expect("value_with_watch")
}

async fn write(
    connection: &Connection,
    path: &LockPath,
    expected: Option<Version>,
    data: &[u8],
) -> WriteOutcome {
    connection.write_value(path, expected, data, None).await.expect("write_value")
}

async fn written(
    connection: &Connection,
    path: &LockPath,
    expected: Option<Version>,
    data: &[u8],
) -> Version {
    match write(connection, path, expected, data).await {
        WriteOutcome::Written(version) => version,
        other => panic!("not written: {other:?}"),
    }
}

/// Deletes the value and creates it again, as another program would.
async fn recreate(case: &Case<'_>, path: &LockPath) {
    let (parent, name) = (path.parent().unwrap(), path.as_str().rsplit('/').next().unwrap());
    case.store.remove(&parent, name).await;
    case.store.put(&parent, name).await;
}
