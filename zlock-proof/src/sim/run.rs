//! Runs one seed, from an empty store to an empty store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use zlock::{SessionId, SessionState};

use super::faults::{hook, nemesis};
use super::jobs::{MACHINE, path};
use super::plan::Plan;
use super::process::Process;
use super::truth::recovery;
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

pub(crate) fn run(seed: u64, tracing: bool) -> Outcome {
    // Pauses are random.
    fastrand::seed(seed);
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    let (world, processes) = runtime.block_on(async {
        let world = World::new(Plan::of(seed), tracing);
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
    world.server.on_request(hook(world));
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
    world.server.clear_faults();
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

/// Waits until all released nodes are removed, and checks what is left.
async fn settle(world: &World, processes: &[Arc<Process>]) {
    let limit = Instant::now() + recovery(world.plan.session);
    let pending = || processes.iter().map(|p| p.present().client.pending_cleanups()).sum::<usize>();
    let connected = || processes.iter().filter_map(|p| p.session()).collect::<BTreeSet<_>>();
    // The session of a client that was dropped while the server could not be reached has to time out, and a client
    // whose session an operator ended may not know it yet.
    let sessions = || world.server.sessions().into_iter().collect::<BTreeSet<_>>();
    let is_settled = || connected().len() == processes.len() && connected() == sessions();
    let is_quiet = || world.nodes() == 0 && pending() == 0 && is_settled();
    while !is_quiet() && Instant::now() < limit {
        sleep(Duration::from_millis(100)).await;
        world.survey();
    }
    let (nodes, pending, watches) = (world.nodes(), pending(), world.server.watches());
    if nodes + pending > 0 {
        world.fail("orphan", || format!("{nodes} nodes and {pending} removals at the end"));
    }
    if !is_settled() {
        let (clients, connected, sessions) = (processes.len(), connected(), sessions());
        world.fail("session", || {
            format!("{clients} clients with {connected:?}, but the server has {sessions:?}")
        });
    }
    if watches > 0 {
        world.fail("watch left", || format!("{watches} watches at the end"));
    }
    if world.lock().clients.iter().any(|c| c.acquiring.values().any(|n| *n > 0)) {
        world.fail("hang", || "an acquisition is under way at the end".into());
    }
}

/// Checks the store after the last handle of every client is dropped: no session, no node, no parent, no watch.
fn nothing_left(world: &World, plan: &Plan) -> Option<Violation> {
    // A parent that never had a child stays, as on ZooKeeper.
    world.paths.iter().for_each(|path| world.server.remove_parent(path));
    world.remove_values();
    world.forget_job();
    world.server.reap_containers();
    let (sessions, paths, watches) = (world.server.sessions(), world.server.paths(), world.server.watches());
    let nothing = sessions.is_empty() && paths.is_empty() && watches == 0;
    let what = format!("sessions {sessions:?}, nodes {paths:?}, {watches} watches, {}", plan.shutdown);
    (!nothing).then_some(Violation { check: "left behind", what, at: plan.length })
}

impl World {
    fn nodes(&self) -> usize {
        let job = self.plan.job.map(|_| path());
        self.paths.iter().chain(&job).map(|path| self.places(path).len()).sum()
    }
}

impl Process {
    /// Returns the session, as the client sees it.
    fn session(&self) -> Option<SessionId> {
        let session = self.present().client.session_events().current();
        (session.state == SessionState::Connected).then_some(session.id)
    }
}
