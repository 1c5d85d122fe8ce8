//! Several stores in one process, each at the same path.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use zlock::{Client, InterProcessMutex, MultiLock, Release};
use zlock_testkit::{etcd_or_skip, limit, postgres_or_skip, zookeeper_or_skip};

const PATH: &str = "/app/lock";

/// The URLs of four stores, with a prefix of the test's own.
async fn urls(prefix: &str) -> Option<[String; 4]> {
    let (zookeeper, etcd) = (zookeeper_or_skip().await?, etcd_or_skip().await?);
    let postgres = postgres_or_skip().await?;
    Some([
        format!("mem://{prefix}"),
        format!("zk://{}/{prefix}", zookeeper.addr()),
        format!("etcd://{}/{prefix}", etcd.addr()),
        format!("{}?create_schema=true&prefix=/{prefix}", postgres.url()),
    ])
}

async fn connect(urls: &[String]) -> Vec<Client> {
    join_all(urls.iter().map(async |url| zlock::connect(url).await.unwrap())).await
}

fn mutexes(clients: &[Client]) -> Vec<InterProcessMutex> {
    clients.iter().map(|client| client.mutex(PATH).unwrap()).collect()
}

/// The same path is another lock in each store. A set of all four excludes whoever holds one of them.
#[tokio::test]
async fn one_set_of_four_stores() {
    limit(async {
        let Some(urls) = urls("four_stores").await else { return };
        let (ours, theirs) = (mutexes(&connect(&urls).await), mutexes(&connect(&urls).await));
        let sets = [&ours, &theirs].map(|parts| MultiLock::new(parts).unwrap());
        let guard = sets[0].acquire().await.unwrap();
        assert!(guard.guards().iter().all(|part| part.is_held()) && guard.guards().len() == urls.len());
        for lock in &theirs {
            assert!(lock.try_acquire().await.unwrap().is_none(), "{lock:?}");
        }
        let waiting = tokio::spawn({
            let other = sets[1].clone();
            async move { other.acquire().await.unwrap() }
        });
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        let guard = waiting.await.unwrap();
        assert!(guard.is_held() && sets[0].try_acquire().await.unwrap().is_none());
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    })
    .await;
}

/// Clients of four stores work side by side: each store has one holder at a time, and holders of different stores do not wait for
/// each other.
#[tokio::test]
async fn fleets_of_four_stores_in_one_process() {
    const CLIENTS: usize = 3;
    const ROUNDS: usize = 10;
    limit(async {
        let Some(urls) = urls("four_fleets").await else { return };
        let mut work = Vec::new();
        for url in urls {
            let (holders, grants) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
            let clients = connect(&vec![url; CLIENTS]).await;
            work.push(async move {
                let rounds = clients.iter().map(async |client| {
                    let lock = client.mutex(PATH).unwrap();
                    for _ in 0..ROUNDS {
                        let guard = lock.acquire().await.unwrap();
                        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                        tokio::task::yield_now().await;
                        grants.fetch_add(1, Ordering::SeqCst);
                        holders.fetch_sub(1, Ordering::SeqCst);
                        assert_eq!(guard.release().await.unwrap(), Release::Released);
                    }
                    client.close().await.unwrap();
                });
                join_all(rounds).await;
                assert_eq!(grants.load(Ordering::SeqCst), CLIENTS * ROUNDS);
            });
        }
        join_all(work).await;
    })
    .await;
}
