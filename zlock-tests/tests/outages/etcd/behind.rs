//! Servers whose state is older than what a client has seen.

use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::time::Duration;

use etcd_client::GetOptions;
use futures_util::FutureExt;
use tokio::time::{sleep, timeout};
use zlock_core::{
    CoordinationBackend, Deletion, ErrorKind, Existence, Label, LockPath, Result, RetryPolicy, Target,
    WatchEvent,
};
use zlock_etcd::EtcdBackend;
use zlock_recipes::{Client, Release};
use zlock_testkit::etcd::{connected, create, give_up, linked_with, names, observer, options, path, token};
use zlock_testkit::{Etcd, EtcdCluster, Flow, have_etcd, have_strace, limit_to, until};

const LIMIT: Duration = Duration::from_secs(180);
/// Longer than the server is down.
const LONG: Duration = Duration::from_secs(60);
const MOMENT: Duration = Duration::from_millis(500);

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-r").args([from, to]).status().unwrap().success());
}

/// Arms a watch on the first node of a queue, and reads the node after the server was restored to an older state. That state
/// includes the session and the nodes, but its revision is below that of the watch.
async fn look_after_a_restore(retry: Option<RetryPolicy>) -> Result<Existence> {
    let server = Etcd::start().await;
    let with = |options: zlock_etcd::EtcdOptions| match retry {
        Some(retry) => options.with_ttl(LONG).with_retry(retry),
        None => options.with_ttl(LONG),
    };
    let mut l = linked_with(&server, with).await;
    let (path, elsewhere) = (path("restored"), LockPath::new("/elsewhere").unwrap());
    let first = create(&l.backend, &path, Label::Lock).await;
    create(&l.backend, &path, Label::Lock).await;
    let (folder, data) = (tempfile::tempdir().unwrap(), server.folder().join("data"));
    server.pause();
    copy(&data, &folder.path().join("data"));
    server.resume();
    // Makes the watch's revision later than that of the node's last listing, so that the client reads the node.
    for _ in 0..100 {
        l.observer.put("key", "", None).await.unwrap();
    }

    // The client receives the watch's confirmation, but the task that waits for it is not polled.
    l.proxy.to_client(Flow::Hold);
    let mut looking = pin!(l.backend.exists_with_watch(&path, &first.node));
    until("the server has the watch", async || {
        assert!(looking.as_mut().now_or_never().is_none());
        server.metrics().await.watches() > 0
    })
    .await;
    l.proxy.to_client(Flow::Pass);
    for _ in 0..2 {
        l.backend.children(&elsewhere).await.unwrap();
    }
    server.stop();
    std::fs::remove_dir_all(&data).unwrap();
    copy(&folder.path().join("data"), &data);
    server.restart().await;
    until("the client asks it", async || l.backend.children(&elsewhere).await.is_ok()).await;
    connected(&l.backend, 1).await;
    let looked = looking.await;
    if let Ok(Existence::Watching(mut watch)) = looked {
        assert!((&mut watch).now_or_never().is_none());
        let target = Target::Node(first.node.clone());
        assert_eq!(l.backend.delete(&path, &target).await.unwrap(), Deletion::Deleted);
        assert_eq!(watch.await, WatchEvent::Deleted);
        return l.backend.exists_with_watch(&path, &first.node).await;
    }
    looked
}

/// The client gives up a read whose revision never reaches that of the watch, and makes a new watch.
#[tokio::test]
async fn a_watch_from_before_a_restore_is_made_again() {
    if !have_etcd() {
        return;
    }
    limit_to(LIMIT, async {
        let error = look_after_a_restore(Some(RetryPolicy::never())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("restored to an older state"), "{error}");
        assert!(matches!(look_after_a_restore(None).await, Ok(Existence::Deleted)));
    })
    .await;
}

/// A member whose disk hangs answers local reads from an old state, if at all, and its watches do not fire. A waiter moves to
/// another member and gets the lock.
#[tokio::test]
async fn a_waiter_leaves_a_member_that_is_behind() {
    if !have_etcd() || !have_strace() {
        return;
    }
    limit_to(LIMIT, async {
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

/// A server that was restored to an older state keeps the session, but its fence was raised again in the meantime. The client
/// cannot create or remove anything behind that fence any more, so it begins a new session instead of repeating the request.
#[tokio::test]
async fn a_fence_from_before_a_restore_ends_the_session() {
    if !have_etcd() {
        return;
    }
    limit_to(LIMIT, async {
        let server = Etcd::start().await;
        let backend = EtcdBackend::connect(options(&server.connect_string()).with_ttl(LONG)).await.unwrap();
        let path = path("restored");
        give_up(&backend, &path).await;
        let (folder, data) = (tempfile::tempdir().unwrap(), server.folder().join("data"));
        server.pause();
        copy(&data, &folder.path().join("data"));
        server.resume();
        give_up(&backend, &path).await;
        server.stop();
        std::fs::remove_dir_all(&data).unwrap();
        copy(&folder.path().join("data"), &data);
        server.restart().await;
        connected(&backend, 1).await;
        let before = server.metrics().await.messages();
        let created = backend.create_ephemeral_sequential(&path, Label::Lock, &token(), b"").await;
        let txns = server.metrics().await.messages()["Txn"] - before.get("Txn").copied().unwrap_or(0);
        println!("{txns} transactions");
        assert_eq!(created.unwrap().epoch, 2);
    })
    .await;
}
