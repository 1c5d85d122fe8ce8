//! A backend's runtime ends while tasks on other runtimes wait for the backend.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use zlock_core::{CoordinationBackend, Error, ErrorKind, Label, LockPath, Node};
use zlock_testkit::zk::{create, options, path};
use zlock_testkit::{limit_to, zookeeper_or_skip};
use zlock_zk::ZkBackend;

const ROUNDS: usize = 30;
const WAITERS: usize = 64;

/// Waits for changes of the node or the queue until that fails. Returns the error.
async fn wait(backend: Arc<ZkBackend>, path: LockPath, node: Option<Node>) -> Error {
    loop {
        let armed = match &node {
            None => backend.children_with_watch(&path).await.map(|(_, watch)| Some(watch)),
            Some(node) => backend.exists_with_watch(&path, node).await.map(|existence| match existence {
                zlock_core::Existence::Watching(watch) => Some(watch),
                _ => None,
            }),
        };
        match armed {
            Ok(Some(watch)) => drop(watch.await),
            Ok(None) => {}
            Err(error) => return error,
        }
    }
}

/// Connects on a separate runtime, waits on the test's, ends the first one with `end`, and expects that all waiters get an
/// error.
async fn waiters_get_an_error(runtime: fn() -> Runtime, end: fn(Runtime)) {
    let Some(server) = zookeeper_or_skip().await else { return };
    for round in 0..ROUNDS {
        let hosts = server.connect_string();
        let (connected, backend) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let home = thread::spawn(move || {
            let runtime = runtime();
            runtime.block_on(async {
                let backend = ZkBackend::connect(options(&hosts)).await.unwrap();
                drop(connected.send(Arc::new(backend)));
                stopped.await.unwrap();
            });
            end(runtime);
        });
        let backend = backend.await.unwrap();
        let path = path("runtime");
        let made = create(&*backend, &path, Label::Lock).await;
        let mut waiters = JoinSet::new();
        for number in 0..WAITERS {
            let node = (number % 2 == 0).then(|| made.node.clone());
            waiters.spawn(wait(backend.clone(), path.clone(), node));
        }
        while server.mntr().await["watch_count"] < 2.0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        stop.send(()).unwrap();
        while let Some(ended) = waiters.join_next().await {
            let error = ended.unwrap_or_else(|e| panic!("round {round}: {e}"));
            assert_eq!(error.kind(), ErrorKind::Closed, "round {round}: {error}");
        }
        home.join().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_elsewhere_get_an_error_when_a_runtime_of_threads_is_shut_down() {
    let threads = || Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    limit_to(Duration::from_secs(120), waiters_get_an_error(threads, Runtime::shutdown_background)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_elsewhere_get_an_error_when_a_runtime_of_one_thread_is_dropped() {
    let thread = || Builder::new_current_thread().enable_all().build().unwrap();
    limit_to(Duration::from_secs(120), waiters_get_an_error(thread, drop)).await;
}
