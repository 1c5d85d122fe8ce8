//! Which children of a lock's path are places in its queue, on stores that identify places by their names.

use zlock_recipes::{InterProcessMutex, Release};

use crate::Case;
use crate::case::LONG;

/// Names without an ID, as Curator writes them without protection: such a node holds or waits.
const PLACES: &[&str] = &["lock-0000000000", "__WRIT__0000000000", "__READ__0000000000", "lock--000000005"];

/// Names that no lock recipe writes.
const FOREIGN: &[&str] =
    &["config", "lock-", "lock-1", "mylock-0000000000", "0000000000", "lease-0000000000"];

/// A child with a lock recipe's name excludes others although it has no ID, until it is removed.
pub async fn a_place_needs_no_token(case: &Case<'_>) {
    let a = case.process().await;
    let path = case.path("lock");
    let mutex = case.lock::<InterProcessMutex>(&a, "lock");
    for name in PLACES {
        case.store.put(&path, name).await;
        assert!(mutex.try_acquire().await.unwrap().is_none(), "{name}");
        let participants = mutex.participants().await.unwrap();
        assert_eq!(participants.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), [*name]);
        let reads = a.client.read_write_lock(path.as_str()).unwrap().read().try_acquire().await.unwrap();
        assert_eq!(reads.is_some(), name.contains("READ"), "{name}");
        drop(reads);
        let waiter = tokio::spawn({
            let mutex = mutex.clone();
            async move { mutex.acquire_timeout(LONG).await.unwrap() }
        });
        case.until_queued(&path, 2).await;
        case.store.remove(&path, name).await;
        assert_eq!(waiter.await.unwrap().release().await.unwrap(), Release::Released, "{name}");
    }
}

/// A child with any other name is not a place, and no client waits for it.
pub async fn a_foreign_name_is_no_place(case: &Case<'_>) {
    let a = case.process().await;
    let path = case.path("lock");
    let mutex = case.lock::<InterProcessMutex>(&a, "lock");
    for name in FOREIGN {
        case.store.put(&path, name).await;
        let guard = mutex.try_acquire().await.unwrap();
        assert_eq!(guard.expect(name).release().await.unwrap(), Release::Released);
        assert_eq!(mutex.participants().await.unwrap(), [], "{name}");
        case.store.remove(&path, name).await;
    }
}
