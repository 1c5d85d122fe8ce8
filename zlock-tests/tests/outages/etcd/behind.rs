//! Servers whose state is older than what a client has seen.

use std::time::Duration;

use etcd_client::GetOptions;
use tokio::time::{sleep, timeout};
use zlock_etcd::EtcdBackend;
use zlock_recipes::{Client, Release};
use zlock_testkit::etcd::{names, observer, options, path};
use zlock_testkit::{EtcdCluster, have_etcd, have_strace, limit_to_if, until};

const LIMIT: Duration = Duration::from_secs(180);
const MOMENT: Duration = Duration::from_millis(500);

/// A member whose disk hangs answers local reads from an old state, if at all, and its watches do not fire. A waiter moves to
/// another member and gets the lock.
#[tokio::test]
async fn a_waiter_leaves_a_member_that_is_behind() {
    limit_to_if(LIMIT, have_etcd() && have_strace(), async {
        let cluster = EtcdCluster::start(3).await;
        let leader = cluster.leader().await;
        let [leader, other, behind] = [0, 1, 2].map(|n| &cluster.members()[(leader + n) % 3]);
        let path = path("behind");
        let mutex = async |hosts: &str| {
            let backend = EtcdBackend::connect(options(hosts)).await.unwrap();
            Client::new(backend).mutex(path.as_str()).unwrap()
        };
        let held = mutex(&leader.connect_string()).await.acquire().await.unwrap();
        let waiter = mutex(&format!("{},{}", behind.connect_string(), other.connect_string())).await;
        let stale = observer(&behind.connect_string()).await;
        let observer = observer(&leader.connect_string()).await;
        let before = behind.metrics().await.watches();
        let waiting = tokio::spawn(async move { waiter.acquire().await.unwrap() });
        until("it waits there", async || behind.metrics().await.watches() > before).await;
        let hung = behind.hang_disk();
        // The disk hangs at the next write.
        observer.kv_client().put("written", "", None).await.unwrap();
        sleep(MOMENT).await;
        assert_eq!(held.release().await.unwrap(), Release::Released);
        let next = waiting.await.unwrap();
        assert!(next.is_held());
        assert_eq!(names(&observer, &path).await.len(), 1);
        let options = GetOptions::new().with_prefix().with_serializable();
        let seen = timeout(MOMENT, stale.kv_client().get(format!("{path}/"), Some(options))).await;
        // The member does not answer at all if it was just writing its state to the disk.
        let seen = seen.map(|seen| seen.unwrap().kvs().len()).ok();
        println!("the member has so many places of one: {seen:?}");
        assert!(seen.is_none_or(|seen| seen == 2), "the member has heard of it");
        assert_eq!(next.release().await.unwrap(), Release::Released);
        drop(hung);
    })
    .await;
}
