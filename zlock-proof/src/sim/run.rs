//! Runs one seed, from an empty store to an empty store.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::faults::{hook, nemesis};
use super::jobs::MACHINE;
use super::leftovers::{nothing_left, runtime, settle};
use super::plan::Plan;
use super::plan::StoreKind;
use super::process::Process;
use super::worker::Worker;
use super::world::{Counts, Violation, World};

/// The time limit for all workers to finish once there are no more faults.
const END: Duration = Duration::from_secs(300);

/// The result of a seed.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) counts: Counts,
    pub(crate) violation: Option<Violation>,
    pub(crate) trace: Vec<String>,
}

pub(crate) fn run(store: StoreKind, seed: u64, tracing: bool) -> Outcome {
    // Pauses are random.
    fastrand::seed(seed);
    let runtime = runtime();
    let (world, processes) = runtime.block_on(async {
        let world = World::new(Plan::of(store, seed), tracing);
        let processes = (0..world.plan.clients as u64).map(|n| Process::new(&world, n)).collect();
        play(&world, &processes).await;
        (world, processes)
    });
    let trace = world.trace();
    // Work in progress is dropped with the runtime, and some guards after it.
    let plan = world.plan.clone();
    drop(runtime);
    drop(world.kept());
    drop(processes);
    world.forget_all();
    let mut state = world.lock();
    let (counts, violation) = (state.counts, state.violation.take());
    drop(state);
    let violation = violation.or_else(|| nothing_left(&world, &plan));
    Outcome { counts, violation, trace }
}

async fn play(world: &Arc<World>, processes: &Vec<Arc<Process>>) {
    world.store.on_request(hook(world));
    let survey = tokio::spawn(world.clone().watch_lateness());
    let mut workers = JoinSet::new();
    for process in processes {
        for number in 0..world.plan.workers {
            workers.spawn(Worker::new(world, process, number).work());
        }
        if world.plan.shares {
            workers.spawn(Worker::new(world, process, 8).count());
        }
        if let Some(plan) = world.plan.job {
            workers.spawn(Worker::new(world, process, MACHINE).run_jobs(plan));
        }
    }
    let mut observers = JoinSet::new();
    for process in processes {
        if let Some(path) = world.election() {
            observers.spawn(Worker::new(world, process, 9).observe(path));
        }
    }
    tokio::select! {
        biased;
        () = world.broken.notified() => {}
        () = to_the_end(world, processes, &mut workers, &mut observers) => {}
    }
    survey.abort();
    world.store.clear_faults();
}

async fn to_the_end(
    world: &Arc<World>,
    processes: &[Arc<Process>],
    workers: &mut JoinSet<()>,
    observers: &mut JoinSet<()>,
) {
    nemesis(world.clone(), processes.to_vec()).await;
    tokio::time::sleep_until(world.end).await;
    let links: Vec<_> = world.lock().clients.iter().map(|c| c.link.clone()).collect();
    for link in links {
        link.delay(Duration::ZERO, Duration::ZERO);
    }
    // What is on its way still takes its time, and what is sent after it arrives after it.
    sleep(2 * Duration::from_millis(world.plan.delay.max(world.plan.latency))).await;
    world.note(|| "no more faults".into());
    if world.plan.shutdown {
        // Everybody is connected again by then; the work goes on.
        sleep(2 * world.plan.session).await;
        return;
    }
    let all = async {
        while let Some(done) = workers.join_next().await {
            if let Err(e) = done {
                world.fail("panic", || e.to_string());
            }
        }
    };
    if timeout(END, all).await.is_err() {
        world.fail("hang", || format!("{} workers do not end", workers.len()));
    }
    world.check_sum();
    world.check_views(processes.len()).await;
    observers.shutdown().await;
    settle(world, processes).await;
    world.check_progress();
}
