//! `background`

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

use async_trait::async_trait;
use tokio::runtime::Builder;
use tokio::time::sleep;
use zlock_core::{CoordinationBackend, Job};

use crate::case::MOMENT;
use crate::{Case, Connection};

/// A job that ends, or never does.
#[derive(Debug)]
struct Counted {
    runs: Arc<AtomicUsize>,
    ends: bool,
    _kept: Arc<()>,
}

#[async_trait]
impl Job for Counted {
    async fn run(&self, backend: &dyn CoordinationBackend) {
        // The job has what a request needs: a backend, and a runtime with a clock.
        assert!(backend.session_events().current().is_live());
        sleep(MOMENT / 10).await;
        self.runs.fetch_add(1, Ordering::Relaxed);
        if !self.ends {
            pending::<()>().await;
        }
    }
}

/// The visible state of a job.
struct Pushed {
    runs: Arc<AtomicUsize>,
    kept: Weak<()>,
}

impl Pushed {
    fn new(backend: &Arc<dyn CoordinationBackend>, ends: bool) -> Self {
        let (runs, kept) = (Arc::default(), Arc::default());
        let pushed = Pushed { runs: Arc::clone(&runs), kept: Arc::downgrade(&kept) };
        backend.background().push(backend.clone(), Counted { runs, ends, _kept: kept });
        pushed
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }

    fn is_kept(&self) -> bool {
        self.kept.strong_count() > 0
    }

    async fn until_dropped(&self, case: &Case<'_>, a: &Connection) {
        case.until("no job is left", async || !self.is_kept() && a.background().is_empty()).await;
    }
}

/// A job that is pushed from a thread without a runtime is run.
pub async fn pushed_without_a_runtime(case: &Case<'_>) {
    let a = case.connect().await;
    let backend = a.backend.clone();
    let job = thread::spawn(move || Pushed::new(&backend, true)).join().expect("a thread");
    job.until_dropped(case, &a).await;
    assert_eq!(job.runs(), 1);
}

/// A job that is pushed from a runtime is run even if that runtime then ends.
pub async fn pushed_from_a_runtime_that_ends(case: &Case<'_>) {
    let a = case.connect().await;
    let backend = a.backend.clone();
    let pushed = thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async { Pushed::new(&backend, true) })
    });
    let job = pushed.join().expect("a thread");
    job.until_dropped(case, &a).await;
    assert_eq!(job.runs(), 1);
}

/// After `close` no job is run, and none is kept.
pub async fn closed_keeps_none(case: &Case<'_>) {
    let a = case.connect().await;
    let active = Pushed::new(&a.backend, false);
    case.until("the job is run", async || active.runs() == 1).await;
    assert!(active.is_kept() && a.background().len() == 1);
    let waiting = Pushed::new(&a.backend, true);
    a.close().await.unwrap();
    let late = Pushed::new(&a.backend, true);
    assert!(!late.is_kept(), "dropped at once");
    for job in [&active, &waiting] {
        job.until_dropped(case, &a).await;
    }
    assert_eq!((active.runs(), late.runs()), (1, 0));
}
