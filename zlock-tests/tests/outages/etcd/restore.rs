//! A server whose state is put back under live clients.

use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::time::Duration;

use futures_util::FutureExt;
use tempfile::TempDir;
use zlock_core::{CoordinationBackend, ErrorKind, Existence, Label, LockPath, Needs, SessionEvents};
use zlock_etcd::EtcdBackend;
use zlock_recipes::{Client, InterProcessMutex, Release};
use zlock_suite::Log;
use zlock_testkit::etcd::{connected, create, give_up, linked_with, names, observer, options, path, token};
use zlock_testkit::{Cut, Etcd, FaultProxy, Flow, have_etcd, limit_to_if, until};

const LIMIT: Duration = Duration::from_secs(180);
/// Longer than the server is down.
const LONG: Duration = Duration::from_secs(60);
/// What the log of a client says whose session ends with a restore.
const REASON: &str = "restored to an older state";

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

fn copy(from: &Path, to: &Path) {
    run(Command::new("cp").arg("-r").args([from, to]));
}

/// The state of a server at one moment.
struct State(TempDir);

impl State {
    fn of(server: &Etcd) -> Self {
        let folder = tempfile::tempdir().unwrap();
        server.pause();
        copy(&server.folder().join("data"), folder.path());
        server.resume();
        State(folder)
    }

    /// Puts it back. The cluster keeps its ID.
    async fn put_back(self, server: &Etcd) {
        server.stop();
        std::fs::remove_dir_all(server.folder().join("data")).unwrap();
        copy(&self.0.path().join("data"), server.folder());
        server.restart().await;
    }

    /// Puts it back, and writes so much that the client behind the proxy sees no revision go back.
    async fn put_back_unseen(self, server: &Etcd, proxy: &FaultProxy) {
        proxy.refuse().await;
        proxy.cut(Cut::Fin);
        self.put_back(server).await;
        let mut observer = observer(&server.connect_string()).await;
        for _ in 0..100 {
            observer.put("key", "", None).await.unwrap();
        }
    }
}

/// The state includes the session and the nodes, but its revision is below that of the watch.
#[tokio::test]
async fn a_watch_from_before_a_restore_is_not_kept() {
    limit_to_if(LIMIT, have_etcd(), async {
        let server = Etcd::start().await;
        let mut l = linked_with(&server, |options| options.with_ttl(LONG)).await;
        let (path, elsewhere) = (path("restored"), LockPath::new("/elsewhere").unwrap());
        let first = create(&l.backend, &path, Label::Lock).await;
        create(&l.backend, &path, Label::Lock).await;
        let state = State::of(&server);
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
            l.backend.children(&elsewhere, None).await.unwrap();
        }
        state.put_back(&server).await;
        connected(&l.backend, 2).await;
        assert!(matches!(looking.await, Ok(Existence::Deleted)));
    })
    .await;
}

/// The session goes on, but its fence was raised again since the state that was put back. The client cannot create or remove
/// anything behind that fence any more, so it begins a new session instead of repeating the request.
#[tokio::test]
async fn a_fence_from_before_a_restore_ends_the_session() {
    limit_to_if(LIMIT, have_etcd(), async {
        let (server, path) = (Etcd::start().await, path("restored"));
        let l = linked_with(&server, |options| options.with_ttl(LONG)).await;
        give_up(&l.backend, &path).await;
        let state = State::of(&server);
        give_up(&l.backend, &path).await;
        state.put_back_unseen(&server, &l.proxy).await;
        l.proxy.heal().await;
        connected(&l.backend, 1).await;
        let created =
            l.backend.create_ephemeral_sequential(&path, Label::Lock, &token(), b"", Needs::Queue).await;
        assert_eq!(created.unwrap().epoch, 2);
    })
    .await;
}

/// A client of the server, which survives its restart.
async fn mutex(hosts: &str, path: &LockPath) -> (InterProcessMutex, SessionEvents) {
    let (client, events) = client(hosts).await;
    (client.mutex(path.as_str()).unwrap(), events)
}

async fn client(hosts: &str) -> (Client, SessionEvents) {
    let backend = EtcdBackend::connect(options(hosts).with_ttl(LONG)).await.unwrap();
    let events = backend.session_events();
    (Client::new(backend), events)
}

async fn epoch(events: &SessionEvents, epoch: u64) {
    let mut events = events.clone();
    while events.current().epoch < epoch {
        events.changed().await;
    }
}

/// The node of the first holder is in the snapshot, and belongs to a session that its process keeps alive. The process does
/// not know the node any more.
#[tokio::test]
async fn a_snapshot_that_is_put_back_blocks_no_lock() {
    limit_to_if(LIMIT, have_etcd(), async {
        let log = Log::of_this_thread();
        let (server, path) = (Etcd::start().await, path("restored"));
        let hosts = server.connect_string();
        let (first, of_first) = mutex(&hosts, &path).await;
        let (second, of_second) = mutex(&hosts, &path).await;
        let held = first.acquire().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("snapshot");
        let mut etcdctl = server.etcdctl(&["snapshot", "save"]).into_iter();
        let program = etcdctl.next().unwrap();
        run(Command::new(&program).args(etcdctl).arg(&file));
        drop(held);
        let held = second.acquire().await.unwrap();
        server.stop();
        let data = server.folder().join("data");
        std::fs::remove_dir_all(&data).unwrap();
        run(Command::new(&program).args(["snapshot", "restore"]).arg(&file).arg("--data-dir").arg(&data));
        server.restart().await;
        assert_eq!(held.lost().await.kind(), ErrorKind::SessionLost);
        let (third, _) = mutex(&hosts, &path).await;
        let next = third.acquire().await.unwrap();
        println!("tokens {:?}, then {:?}", held.fencing_token(), next.fencing_token());
        assert_eq!(next.release().await.unwrap(), Release::Released);
        epoch(&of_first, 2).await;
        epoch(&of_second, 2).await;
        assert_eq!(log.with(REASON).len(), 2);
        for mutex in [first, second] {
            assert_eq!(mutex.acquire().await.unwrap().release().await.unwrap(), Release::Released);
        }
    })
    .await;
}

/// Other clients have written so much since the restore that the client sees no revision go back, and the cluster has kept its
/// ID.
#[tokio::test]
async fn a_place_that_a_restore_has_brought_back_is_removed() {
    limit_to_if(LIMIT, have_etcd(), async {
        let log = Log::of_this_thread();
        let (server, path) = (Etcd::start().await, path("restored"));
        let proxy = FaultProxy::start(server.addr()).await;
        let observer = observer(&server.connect_string()).await;
        let (client, of_first) = client(&proxy.connect_string()).await;
        // The snapshot has this place, too, and the client knows it.
        let other = client.mutex("/other").unwrap().acquire().await.unwrap();
        let held = client.mutex(path.as_str()).unwrap().acquire().await.unwrap();
        let state = State::of(&server);
        drop(held);
        until("it is released", async || names(&observer, &path).await.is_empty()).await;
        state.put_back_unseen(&server, &proxy).await;
        let (second, _) = mutex(&server.connect_string(), &path).await;
        let waiting = tokio::spawn(async move { second.acquire().await.unwrap().release().await.unwrap() });
        until("it waits", async || server.metrics().await.watches() > 0).await;
        proxy.heal().await;
        assert_eq!(waiting.await.unwrap(), Release::Released);
        epoch(&of_first, 2).await;
        assert_eq!(other.lost().await.kind(), ErrorKind::SessionLost);
        assert_eq!(log.with(REASON).len(), 1, "{:?}", log.with(REASON));
    })
    .await;
}
