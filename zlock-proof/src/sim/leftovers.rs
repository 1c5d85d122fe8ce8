//! What is left at the end of a run, and after it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep, timeout};
use zlock::{Client, SessionId, SessionState};

use super::jobs::path;
use super::plan::Plan;
use super::process::Process;
use super::truth::recovery;
use super::world::{Violation, World};

/// Waits until all released nodes are removed, and checks what is left.
pub(crate) async fn settle(world: &World, processes: &[Arc<Process>]) {
    let limit = Instant::now() + recovery(world.plan.session);
    let pending = || processes.iter().map(|p| p.present().client.pending_cleanups()).sum::<usize>();
    let connected = || processes.iter().filter_map(|p| p.session()).collect::<BTreeSet<_>>();
    // The session of a client that was dropped while the server could not be reached has to time out, and a client
    // whose session an operator ended may not know it yet.
    let sessions = || {
        let mut sessions: BTreeSet<_> = world.store.sessions().into_iter().collect();
        if world.plan.ledger.is_some() {
            // There, a session times out when somebody waits for what it owns.
            sessions.retain(|session| connected().contains(session));
        }
        sessions
    };
    // There, a client at rest does not ask whether an operator has ended its session, or a restart has: it has no connection.
    let ends_unseen = || world.plan.operator || world.lock().past.lossy.is_some();
    let is_unaware = world.plan.ledger.is_some() && ends_unseen();
    let is_settled = || connected().len() == processes.len() && (is_unaware || connected() == sessions());
    let is_quiet = || world.nodes() == 0 && pending() == 0 && is_settled();
    while !is_quiet() && Instant::now() < limit {
        sleep(Duration::from_millis(100)).await;
        world.survey();
    }
    let (nodes, pending, watches) = (world.nodes(), pending(), world.watches());
    if nodes + pending > 0 {
        world.fail("orphan", || format!("{nodes} nodes and {pending} removals at the end"));
    }
    if !is_settled() {
        let (clients, connected, sessions) = (processes.len(), connected(), sessions());
        world.fail("session", || {
            format!("{clients} clients with {connected:?}, but the store has {sessions:?}")
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
pub(crate) fn nothing_left(world: &World, plan: &Plan) -> Option<Violation> {
    let mut sessions = world.store.sessions();
    if plan.ledger.is_some() {
        runtime().block_on(visit(world));
        // Those of dead clients that own nothing stay until somebody looks for them.
        sessions.clear();
    }
    if let Some(violation) = world.lock().violation.take() {
        return Some(violation);
    }
    world.remove_values();
    world.forget_job();
    let parents: Vec<_> = world.paths.iter().cloned().chain(plan.job.map(|_| path())).collect();
    let (left, watches) = (world.store.left(&parents), world.watches());
    let nothing = sessions.is_empty() && left.is_empty() && watches == 0;
    let what = format!("sessions {sessions:?}, nodes {left:?}, {watches} watches, {}", plan.shutdown);
    (!nothing).then_some(Violation { check: "left behind", what, at: plan.length })
}

/// Acquires each lock as a client of a ledger that has known nothing of the others, which are all dead by now. That ends their
/// sessions.
async fn visit(world: &World) {
    let Some(ledger) = world.plan.ledger else { return };
    let limit = ledger.longest + ledger.overlap + 2 * recovery(world.plan.session);
    let client = Client::new(world.store.connect(&world.plan).0);
    let until = Instant::now() + limit;
    for path in world.paths.iter().cloned().chain(world.plan.job.map(|_| path())) {
        let acquires = async {
            loop {
                match client.mutex(&path)?.acquire().await {
                    Ok(guard) => return guard.release().await,
                    Err(error) if error.is_retryable() => sleep(Duration::from_millis(500)).await,
                    Err(error) => return Err(error),
                }
            }
        };
        let acquired = timeout(until.saturating_duration_since(Instant::now()), acquires).await;
        if !matches!(acquired, Ok(Ok(_))) {
            let places = world.places(&path);
            world.fail("left behind", || {
                format!("{path} is not free after {limit:?}: {acquired:?}, {places:?}")
            });
            break;
        }
    }
    if let Err(error) = client.close().await {
        world.fail("left behind", || format!("{error}"));
    }
}

impl World {
    /// Returns the number of nodes that a living client has to remove.
    fn nodes(&self) -> usize {
        let job = self.plan.job.map(|_| path());
        let places = self.paths.iter().chain(&job).flat_map(|path| self.places(path));
        places.filter(|place| !self.is_orphaned(place)).count()
    }
}

impl Process {
    /// Returns the session, as the client sees it.
    fn session(&self) -> Option<SessionId> {
        let session = self.present().client.session_events().current();
        (session.state == SessionState::Connected).then_some(session.id)
    }
}

/// Returns a runtime in paused time.
pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime")
}
