//! Cases that need a path which no other client uses.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use zlock_recipes::Release;

use crate::{Case, Mutual, TestGuard, TestLock};

/// MX-04: many fresh locks at once; their parents are removed a little later.
pub async fn mx_04_fresh_names<M: Mutual>(case: &Case<'_>) {
    let process = case.process().await;
    let mut tasks = JoinSet::new();
    for i in 0..100 {
        let lock = case.lock::<M>(&process, &format!("fresh-{i}"));
        tasks.spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() });
    }
    assert!(tasks.join_all().await.into_iter().all(|r| r == Release::Released));
    // By default, servers look for empty containers once a minute.
    let gone = timeout(Duration::from_secs(150), async {
        while !case.store.names(case.root()).await.is_empty() {
            sleep(Duration::from_millis(100)).await;
        }
    });
    assert!(gone.await.is_ok(), "parents are left: {:?}", case.store.names(case.root()).await);
}

/// T58: a lock that was never used has no participants; holder and waiters are distinguished, in order.
pub async fn t58_participants<M: Mutual>(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    let (mine, others) = (case.lock::<M>(&a, "lock"), case.lock::<M>(&b, "lock"));
    assert_eq!(mine.participants().await.unwrap(), []);
    let guard = mine.acquire().await.unwrap();
    let waiter = tokio::spawn(async move { others.acquire().await });
    case.until_queued(&path, 2).await;
    let participants = mine.participants().await.unwrap();
    assert_eq!(participants[..2].iter().map(|p| p.is_holder).collect::<Vec<_>>(), [true, false]);
    assert_eq!(participants.iter().filter(|p| p.is_holder).count(), M::NODES);
    let mut names = Vec::new();
    for path in M::paths(&path) {
        names.append(&mut case.store.names(&path).await);
    }
    names.sort_unstable();
    let mut listed: Vec<_> = participants.iter().map(|p| p.name.as_str().to_owned()).collect();
    listed.sort_unstable();
    assert_eq!(listed, names);
    waiter.abort();
    case.until_queued(&path, 1).await;
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    assert_eq!(mine.participants().await.unwrap(), []);
}
