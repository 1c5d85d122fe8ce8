//! Restarts of a ledger: what they undo, and what that excuses.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;
use zlock::backend::Class;

use super::jobs::path;
use super::plan::LedgerPlan;
use super::random::Random;
use super::record::{Fence, Past};
use super::store::Store;
use super::truth::Place;
use super::world::World;

impl World {
    /// Starts the store, with what a crash has left of a ledger, or a failover if it has stood still: what was answered before has
    /// arrived then.
    pub(crate) fn start(&self, random: &mut Random, stood_still: bool) {
        let (store, plan) = match (&self.store, self.plan.ledger) {
            (Store::Ledger(store), Some(plan)) => (store, plan),
            (Store::Mem(server), _) => return server.start(),
            (Store::Ledger(store), None) => return store.restart(),
        };
        let fails_over = random.once_in(if plan.class == Class::OneServer { 6 } else { 2 });
        let fails_over =
            stood_still && fails_over && (plan.class != Class::OneServer || !self.was_lossy_lately());
        let most = random.pick(&[0, 1, 1, 2, 5, 50]);
        let before = self.numbers();
        let undone = if fails_over { store.failover(most) } else { store.crash(most) };
        let after = self.numbers();
        let is_lossy = plan.class == Class::Lossy || fails_over && plan.class != Class::Sync;
        let what = if fails_over { "fails over" } else { "restarts" };
        self.note(|| {
            let (back, lost): (Vec<_>, Vec<_>) =
                (after.difference(&before).collect(), before.difference(&after).collect());
            format!(
                "the store {what}, undoes {undone} commits, lossy: {is_lossy}; back {back:?}, lost {lost:?}"
            )
        });
        if !is_lossy && let Some(lost) = before.difference(&after).next() {
            self.fail("commit lost", || format!("#{lost} is lost by a crash"));
        }
        self.record_start(plan, is_lossy, undone > 0, before, after);
    }

    fn record_start(
        &self,
        plan: LedgerPlan,
        is_lossy: bool,
        has_lost: bool,
        before: BTreeSet<u64>,
        after: BTreeSet<u64>,
    ) {
        let now = Instant::now();
        let mut state = self.lock();
        let past = &mut state.past;
        past.fences.clear();
        past.ghosts.extend(after.difference(&before));
        if is_lossy {
            past.lossy = Some(now);
            for number in before.union(&after) {
                past.over.entry(*number).or_insert(now);
            }
        }
        drop(state);
        if is_lossy && has_lost && plan.class != Class::Sync {
            self.forget_values();
        }
    }

    /// Forgets what the values were, since writes of them may be lost.
    fn forget_values(&self) {
        let record = self.record();
        let mut state = self.lock();
        (state.shared.is_lost, state.jobs.record) = (true, record);
        state.shared.fenced.clear();
        state.jobs.begun.clear();
        state.jobs.done.clear();
    }

    /// Returns `true` if all sessions have ended so recently that another such change would leave no time for anything else.
    pub(crate) fn was_lossy_lately(&self) -> bool {
        let Some(plan) = self.plan.ledger else { return false };
        let quiet = plan.longest + plan.overlap;
        self.lock().past.lossy.is_some_and(|at| at.elapsed() < quiet * 2 + Duration::from_secs(2))
    }

    fn numbers(&self) -> BTreeSet<u64> {
        let job = self.plan.job.map(|_| path());
        let paths = self.paths.iter().chain(&job);
        paths.flat_map(|path| self.places(path)).map(|place| place.number).collect()
    }

    /// Records that a user's transaction protects a node, and checks that no other client holds the lock. Returns the number of the
    /// transaction.
    pub(crate) fn fence(&self, path: usize, place: &Place) -> u64 {
        let number = place.number;
        let (fence, is_granted) = {
            let mut state = self.lock();
            let is_granted = state.holds.granted.contains(&number);
            let past = &mut state.past;
            past.transactions += 1;
            let fence = past.transactions;
            if is_granted {
                past.fences.insert(fence, Fence { path, number, kind: place.kind });
            }
            (fence, is_granted)
        };
        self.note(|| format!("FAULT transaction {fence} protects #{number}, granted: {is_granted}"));
        self.check();
        fence
    }

    /// Returns `true` if no client keeps the session of a node any more. Whoever waits for the node's removal has to see to that.
    pub(crate) fn is_orphaned(&self, place: &Place) -> bool {
        if self.plan.ledger.is_none() {
            return false;
        }
        let client = place.session.and_then(|session| self.client_of(session));
        let state = self.lock();
        client.and_then(|client| state.clients.get(client)).is_none_or(|known| {
            let is_gone = known.killed || known.closed || known.link.is_dropped();
            is_gone || known.link.session() != place.session
        })
    }

    /// Returns `true` if a node will be removed without its owner, or because a crash has undone its deletion.
    pub(crate) fn is_dead(&self, place: &Place) -> bool {
        let state = self.lock();
        let is_fenced = state.past.fences.values().any(|fence| fence.number == place.number);
        let is_back = state.past.ghosts.contains(&place.number);
        drop(state);
        !is_fenced && (is_back || self.is_orphaned(place))
    }
}

impl Past {
    /// Returns `true` for a node whose deletion or whose session was undone.
    pub(crate) fn was_undone(&self, number: u64) -> bool {
        self.ghosts.contains(&number) || self.over.contains_key(&number)
    }

    /// Returns when the session of a node has ended with all others.
    pub(crate) fn over(&self, number: u64) -> Option<Instant> {
        self.over.get(&number).copied()
    }
}
