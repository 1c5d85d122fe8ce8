//! Other users of the same path: `etcdctl lock`, which is Go's `concurrency.Mutex`, and locks further down.

use etcd_client::{Client as Observer, LockOptions};
use zlock_core::LockPath;
use zlock_recipes::{Client, InterProcessMutex, Release};
use zlock_testkit::etcd::{self, names, observer, path};
use zlock_testkit::{Etcd, Process, etcd_or_skip, limit, until};

async fn mutex(server: &Etcd, path: &LockPath) -> InterProcessMutex {
    let backend = etcd::backend(&server.connect_string()).await;
    Client::new(backend).mutex(path.as_str()).unwrap()
}

/// Runs `etcdctl lock PATH`, which prints `held` and holds the lock until the file exists.
fn etcdctl_lock(server: &Etcd, path: &str, file: &std::path::Path) -> Process {
    let script = format!("echo held; while [ ! -e '{}' ]; do sleep 0.02; done", file.display());
    let command = server.etcdctl(&["lock", path, "--", "sh", "-c", &script]);
    Process::spawn(&command[0], &command[1..], &[("ETCDCTL_API", "3")])
}

async fn until_queued(observer: &Observer, path: &LockPath, count: usize) {
    until(&format!("{count} in the queue"), async || names(observer, path).await.len() == count).await;
}

#[tokio::test]
async fn etcdctl_waits_for_us() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let (path, observer) = (path("ours-first"), observer(&server.connect_string()).await);
        let folder = tempfile::tempdir().unwrap();
        let mutex = mutex(server, &path).await;
        let held = mutex.acquire().await.unwrap();
        let mut etcdctl = etcdctl_lock(server, path.as_str(), &folder.path().join("end"));
        until_queued(&observer, &path, 2).await;
        let mut held_by_it = std::pin::pin!(etcdctl.line_after("held"));
        // `etcdctl` cannot acquire the lock while we hold it, and we do not wait for its place behind ours.
        assert!(held.is_held());
        let too_soon = tokio::time::timeout(std::time::Duration::from_millis(300), &mut held_by_it).await;
        assert!(too_soon.is_err());
        assert_eq!(held.release().await.unwrap(), Release::Released);
        held_by_it.await;
        assert!(mutex.try_acquire().await.unwrap().is_none());
    })
    .await;
}

#[tokio::test]
async fn we_wait_for_etcdctl() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let (path, observer) = (path("theirs-first"), observer(&server.connect_string()).await);
        let folder = tempfile::tempdir().unwrap();
        let mutex = mutex(server, &path).await;
        let mut etcdctl = etcdctl_lock(server, path.as_str(), &folder.path().join("end"));
        etcdctl.line_after("held").await;
        assert!(mutex.try_acquire().await.unwrap().is_none());
        let waiting = tokio::spawn({
            let mutex = mutex.clone();
            async move { mutex.acquire().await.unwrap() }
        });
        until_queued(&observer, &path, 2).await;
        assert!(!waiting.is_finished());
        let seen = mutex.participants().await.unwrap();
        assert_eq!(
            seen.iter().map(|p| (p.is_holder, p.is_ours)).collect::<Vec<_>>(),
            [(true, false), (false, true)]
        );
        // `etcdctl` ignores the request, and keeps its lease.
        assert_eq!(mutex.request_revocation().await.unwrap(), 1);
        let seen = mutex.participants().await.unwrap();
        assert_eq!((seen.len(), seen[0].is_revocation_requested()), (2, true));
        assert!(!waiting.is_finished());
        std::fs::write(folder.path().join("end"), "").unwrap();
        let held = waiting.await.unwrap();
        assert_eq!(etcdctl.wait().await, 0);
        assert_eq!(held.release().await.unwrap(), Release::Released);
    })
    .await;
}

/// The server's own lock service creates the same keys.
#[tokio::test]
async fn the_lock_service_and_we() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let (path, observer) = (path("service"), observer(&server.connect_string()).await);
        let mutex = mutex(server, &path).await;
        let lease = observer.lease_client().grant(60, None).await.unwrap().id();
        let options = LockOptions::new().with_lease(lease);
        let locked = observer.lock_client().lock(path.as_str(), Some(options.clone())).await.unwrap();
        assert!(mutex.try_acquire().await.unwrap().is_none());
        observer.lock_client().unlock(locked.key()).await.unwrap();
        let held = mutex.try_acquire().await.unwrap().unwrap();
        let mut client = observer.lock_client();
        let service = tokio::spawn({
            let path = path.to_string();
            async move { client.lock(path, Some(options)).await.unwrap() }
        });
        until_queued(&observer, &path, 2).await;
        assert!(!service.is_finished());
        assert_eq!(held.release().await.unwrap(), Release::Released);
        service.await.unwrap();
        observer.lease_client().revoke(lease).await.unwrap();
    })
    .await;
}

/// Go's mutex on `app` also waits for a lock on `app/db`. Ours does not.
#[tokio::test]
async fn a_lock_does_not_wait_for_one_further_down() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let app = path("nested");
        let folder = tempfile::tempdir().unwrap();
        let below = mutex(server, &app.join("db").unwrap()).await;
        let held_below = below.acquire().await.unwrap();
        let theirs = app.join("theirs").unwrap();
        let mut etcdctl = etcdctl_lock(server, theirs.as_str(), &folder.path().join("end"));
        etcdctl.line_after("held").await;
        let above = mutex(server, &app).await;
        assert_eq!(above.acquire().await.unwrap().release().await.unwrap(), Release::Released);
        let held_above = above.try_acquire().await.unwrap().unwrap();
        assert_eq!(above.participants().await.unwrap().len(), 1);
        assert!(below.try_acquire().await.unwrap().is_none() && held_below.is_held());
        assert_eq!(held_above.release().await.unwrap(), Release::Released);
        assert_eq!(held_below.release().await.unwrap(), Release::Released);
    })
    .await;
}

/// Other keys directly under the path are not locks.
#[tokio::test]
async fn other_keys_are_no_locks() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let (path, mut observer) = (path("others"), observer(&server.connect_string()).await);
        for name in ["config", "", "lock-0000000001"] {
            observer.put(format!("{path}/{name}"), "text", None).await.unwrap();
        }
        observer.put(path.as_str(), "text", None).await.unwrap();
        observer.put([path.as_str().as_bytes(), b"/\xff"].concat(), "text", None).await.unwrap();
        let mutex = mutex(server, &path).await;
        let held = mutex.try_acquire().await.unwrap().unwrap();
        // An operator overwrites the value of the holder's key. The holder keeps the lock.
        let key = format!("{path}/{}", names_of_ours(&observer, &path).await);
        let options = etcd_client::PutOptions::new().with_ignore_lease();
        observer.put(key, "overwritten", Some(options)).await.unwrap();
        assert!(mutex.try_acquire().await.unwrap().is_none());
        assert_eq!(held.release().await.unwrap(), Release::Released);
    })
    .await;
}

async fn names_of_ours(observer: &Observer, path: &LockPath) -> String {
    let mut kv = observer.kv_client();
    let prefix = format!("{path}/");
    let options = etcd_client::GetOptions::new().with_prefix();
    let answer = kv.get(prefix.as_str(), Some(options)).await.unwrap();
    let ours = answer.kvs().iter().find(|kv| kv.lease() != 0).unwrap();
    ours.key_str().unwrap()[prefix.len()..].to_owned()
}

/// Runs `etcdctl elect PATH VALUE`, which prints its key and value once it leads, until it is ended.
fn etcdctl_elect(server: &Etcd, args: &[&str]) -> Process {
    let command = server.etcdctl(&[&["elect"], args].concat());
    Process::spawn(&command[0], &command[1..], &[("ETCDCTL_API", "3")])
}

/// `etcdctl elect` is Go's `Election`. Each side waits for the other, and finds the other's leader and its value.
#[tokio::test]
async fn candidates_of_etcdctl_and_ours_are_in_one_queue() {
    limit(async {
        let Some(server) = etcd_or_skip().await else { return };
        let (path, observer) = (path("elect"), observer(&server.connect_string()).await);
        let client = Client::new(etcd::backend(&server.connect_string()).await);
        let election = client.election(path.as_str()).unwrap().with_value("ours").unwrap();
        let led = election.campaign().await.unwrap();
        let mut listens = etcdctl_elect(server, &["--listen", path.as_str()]);
        listens.line_after("ours").await;
        let mut theirs = etcdctl_elect(server, &[path.as_str(), "theirs"]);
        until_queued(&observer, &path, 2).await;
        assert_eq!(election.leader().await.unwrap().unwrap().value, b"ours");
        led.proclaim("ours, ready").await.unwrap();
        listens.line_after("ours, ready").await;
        // An empty value would make it a mutex, which can be asked to release by what observers read.
        led.proclaim("").await.unwrap();
        listens.line_after("zlock1 candidate").await;
        assert_eq!(client.mutex(path.as_str()).unwrap().request_revocation().await.unwrap(), 0);
        assert_eq!(election.leader().await.unwrap().unwrap().value, b"");
        led.proclaim("ours, ready").await.unwrap();
        listens.line_after("ours, ready").await;
        let mut leaders = election.observe();
        assert_eq!(leaders.changed().await.unwrap().leader.unwrap().value, b"ours, ready");
        let term = led.term();
        led.resign().await.unwrap();
        theirs.line_after("theirs").await;
        let leader = loop {
            if let Some(leader) = leaders.changed().await.unwrap().leader.filter(|l| l.value == b"theirs") {
                break leader;
            }
        };
        assert!(leader.term > term);
        let waits = tokio::spawn({
            let election = election.clone();
            async move { election.campaign().await.unwrap() }
        });
        until_queued(&observer, &path, 2).await;
        assert!(!waits.is_finished());
        // It resigns.
        theirs.terminate();
        let led = waits.await.unwrap();
        assert!(led.term() > leader.term);
        listens.line_after("ours").await;
        listens.terminate();
        led.resign().await.unwrap();
    })
    .await;
}
