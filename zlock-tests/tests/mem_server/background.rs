//! The list of background jobs: how they are run, and what the list keeps alive.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};
use zlock_core::{CoordinationBackend, ErrorKind, Job, Label, Needs, NodeIds};
use zlock_mem::MemServer;

use crate::common::{limit, path};

const SECOND: Duration = Duration::from_secs(1);

type Log = Arc<Mutex<Vec<String>>>;

/// A job that takes some time, and logs its start and its end.
#[derive(Debug)]
struct Logged {
    name: &'static str,
    time: Duration,
    panics: bool,
    log: Log,
}

#[async_trait]
impl Job for Logged {
    async fn run(&self, _backend: &dyn CoordinationBackend) {
        self.log.lock().unwrap().push(self.name.to_owned());
        assert!(!self.panics, "on purpose");
        sleep(self.time).await;
        self.log.lock().unwrap().push(format!("{} done", self.name));
    }
}

fn push(backend: &Arc<dyn CoordinationBackend>, log: &Log, name: &'static str, time: Duration) {
    let job = Logged { name, time, panics: false, log: log.clone() };
    backend.background().push(backend.clone(), job);
}

fn said(log: &Log) -> Vec<String> {
    std::mem::take(&mut log.lock().unwrap())
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn jobs_begin_in_order_and_run_beside_each_other() {
    limit(async {
        let (backend, log): (Arc<dyn CoordinationBackend>, _) =
            (Arc::new(MemServer::new().connect()), Log::default());
        for (name, seconds) in [("a", 3), ("b", 1), ("c", 2)] {
            push(&backend, &log, name, seconds * SECOND);
        }
        assert_eq!(backend.background().len(), 3);
        sleep(SECOND / 2).await;
        assert_eq!(said(&log), ["a", "b", "c"]);
        sleep(3 * SECOND).await;
        assert_eq!(said(&log), ["b done", "c done", "a done"]);
        assert!(backend.background().is_empty());
    })
    .await;
}

/// A job that panics does not stop the others, and does not keep the runtime busy.
#[tokio::test(start_paused = true)]
async fn job_that_panics_is_run_again_after_a_pause() {
    limit(async {
        let (backend, log): (Arc<dyn CoordinationBackend>, _) =
            (Arc::new(MemServer::new().connect()), Log::default());
        let panicking = Logged { name: "panics", time: SECOND, panics: true, log: log.clone() };
        backend.background().push(backend.clone(), panicking);
        sleep(3 * SECOND + SECOND / 2).await;
        assert_eq!(said(&log), ["panics", "panics", "panics", "panics"]);
        push(&backend, &log, "other", Duration::ZERO);
        sleep(SECOND).await;
        assert!(said(&log).contains(&"other done".to_owned()));
    })
    .await;
}

/// Only the job that panicked is paused.
#[tokio::test(start_paused = true)]
async fn job_that_panics_delays_no_other() {
    limit(async {
        let (backend, log): (Arc<dyn CoordinationBackend>, _) =
            (Arc::new(MemServer::new().connect()), Log::default());
        let panicking = Logged { name: "panics", time: SECOND, panics: true, log: log.clone() };
        backend.background().push(backend.clone(), panicking);
        sleep(SECOND / 2).await;
        push(&backend, &log, "other", Duration::ZERO);
        sleep(SECOND / 10).await;
        assert_eq!(said(&log), ["panics", "other", "other done"]);
    })
    .await;
}

/// A backend that was created outside any runtime runs its jobs on the first one that it is used on. They end with it.
#[test]
fn jobs_end_with_their_runtime() {
    let server = MemServer::new();
    let (backend, log): (Arc<dyn CoordinationBackend>, _) = (Arc::new(server.connect()), Log::default());
    push(&backend, &log, "early", Duration::ZERO);
    assert!(said(&log).is_empty(), "there is no runtime yet");
    runtime().block_on(async {
        backend.children(&path(), None).await.unwrap();
        push(&backend, &log, "cut off", SECOND);
        sleep(SECOND / 10).await;
        push(&backend, &log, "waiting", Duration::ZERO);
        assert_eq!(backend.background().len(), 2);
    });
    push(&backend, &log, "late", Duration::ZERO);
    assert!(backend.background().is_empty());
    let error = runtime().block_on(backend.children(&path(), None)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert_eq!(said(&log), ["early", "early done", "cut off"]);
}

/// A job keeps its backend alive, but only while there is a runtime to run the job.
#[test]
fn job_that_nobody_runs_keeps_no_backend() {
    let server = MemServer::new();
    for before_the_end in [true, false] {
        let runtime = runtime();
        let (backend, log): (Arc<dyn CoordinationBackend>, _) =
            runtime.block_on(async { (Arc::new(server.connect()) as _, Log::default()) });
        if before_the_end {
            push(&backend, &log, "pending", SECOND);
            drop(backend);
            assert_eq!(server.sessions().len(), 1, "kept");
            drop(runtime);
        } else {
            drop(runtime);
            push(&backend, &log, "pending", SECOND);
            assert_eq!(Arc::strong_count(&log), 1, "dropped at once");
            assert_eq!(server.sessions().len(), 1);
            drop(backend);
        }
        assert!(server.sessions().is_empty(), "let go");
        assert_eq!(Arc::strong_count(&log), 1, "the job is dropped");
    }
}

/// A backend runs no jobs if its runtime exists but is not driven. Calls from another runtime do not keep its session alive.
#[test]
fn session_of_a_runtime_that_is_not_driven_ends() {
    let (server, log, idle) = (MemServer::new(), Log::default(), runtime());
    let backend: Arc<dyn CoordinationBackend> = idle.block_on(async { Arc::new(server.connect()) as _ });
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(async {
        let other = server.connect();
        let token = NodeIds::seeded(1).next();
        backend.create_ephemeral_sequential(&path(), Label::Lock, &token, b"", Needs::Queue).await.unwrap();
        push(&backend, &log, "pending", Duration::ZERO);
        let (_, watch) = backend.children_with_watch(&path()).await.unwrap();
        for _ in 0..10 {
            sleep(SECOND).await;
            // Fails once the session is lost.
            let _ = backend.children(&path(), None).await;
        }
        assert!(other.children(&path(), None).await.unwrap().is_empty());
        assert!(said(&log).is_empty());
        assert!(timeout(SECOND, watch).await.is_ok(), "the watch ends with the session");
    });
}

/// Jobs do not prevent the end of their runtime, and are dropped with it.
#[test]
fn runtime_with_pending_jobs_ends() {
    let (ended, all_ended) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for _ in 0..200 {
            let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            let backend: Arc<dyn CoordinationBackend> =
                runtime.block_on(async { Arc::new(MemServer::new().connect()) });
            for _ in 0..50 {
                push(&backend, &Log::default(), "pending", 60 * SECOND);
            }
            drop(runtime);
            assert!(backend.background().is_empty());
        }
        ended.send(()).unwrap();
    });
    all_ended.recv_timeout(60 * SECOND).unwrap();
}
