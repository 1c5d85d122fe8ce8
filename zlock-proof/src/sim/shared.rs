//! What clients share beside locks: an election that others observe, a counter, and values that holders write.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use zlock::{Counter, Error, FencingToken, Freshness, LeaderView, LockContext, LockPath};

use super::polls::cut;
use super::truth::recovery;
use super::usage::Locks;
use super::worker::{Round, Worker};
use super::world::World;
use crate::locks::Holding;

/// The path of the counter.
pub(crate) fn count() -> LockPath {
    value("count")
}

/// Returns the path of a value.
fn value(name: &str) -> LockPath {
    LockPath::new(format!("/app/{name}")).expect("a path")
}

impl Worker {
    /// Adds to the counter, in various ways.
    pub(crate) async fn count(mut self) {
        let mut counter: Option<(usize, Counter)> = None;
        while self.world.plan.shutdown || !self.world.is_over() {
            let present = self.present();
            let (number, counts) = match counter.take() {
                Some((number, counts)) if number == present.number => (number, counts),
                _ => (present.number, present.client.counter(count()).expect("a counter")),
            };
            drop(present);
            let (cut_after, patience) = (self.random.within(1, 12), self.patience());
            let added = match self.random.below(6) {
                0 => cut(cut_after, counts.add(1)).await,
                1 => timeout(patience, counts.add(1)).await.ok(),
                _ => Some(counts.add(1).await),
            };
            self.added(number, added);
            counter = Some((number, counts));
            sleep(self.random.millis(600)).await;
        }
    }

    fn added(&self, client: usize, added: Option<Result<i64, Error>>) {
        let world = &self.world;
        world.note(|| format!("c{client} counts {added:?}"));
        match added {
            Some(Ok(sum)) => {
                let is_new = world.lock().shared.sums.insert(sum);
                if !is_new && !world.lock().shared.is_lost {
                    world.fail("counted twice", || format!("{sum} is the result of two additions"));
                }
            }
            Some(Err(error)) => {
                world.lock().shared.unknown += i64::from(error.is_ambiguous());
                self.check_error(client, &error);
            }
            None => world.lock().shared.unknown += 1,
        }
    }

    /// Follows the leader, and checks that no view is older than the one before.
    pub(crate) async fn observe(self, path: usize) {
        let mut newest = None;
        loop {
            let present = self.present();
            let number = present.number;
            let election = present.client.election(&self.world.paths[path]).expect("an election");
            let mut leaders = election.observe();
            drop((present, election));
            while self.present().number == number {
                // From time to time, so that the watch of a client that was replaced ends.
                match timeout(Duration::from_secs(1), leaders.changed()).await {
                    Err(_) => {}
                    Ok(Err(error)) => {
                        self.check_error(number, &error);
                        sleep(Duration::from_millis(100)).await;
                    }
                    Ok(Ok(view)) => self.saw(view, &mut newest),
                }
            }
        }
    }

    fn saw(&self, view: LeaderView, newest: &mut Option<(FencingToken, u64)>) {
        let world = &self.world;
        // Without the instant, which differs from run to run.
        let is_fresh = view.freshness == Freshness::Fresh;
        world.note(|| format!("p{} sees {:?}, fresh: {is_fresh}", self.process(), view.leader));
        if let Some(leader) = &view.leader {
            let seen = (
                leader.term,
                proclaimed(&leader.value, leader.term).unwrap_or_else(|| {
                    world.fail("leader's value", || format!("{leader:?}"));
                    0
                }),
            );
            // A crash may bring back a leader that has stepped down, or lose the one that was seen.
            let is_back = world.lock().past.was_undone(leader.term.number());
            if !is_back && newest.is_some_and(|newest| seen < newest) {
                world.fail("observer", || format!("went back from {newest:?} to {seen:?}"));
            }
            *newest = (*newest).max(Some(seen));
        }
        world.lock().shared.views.insert(self.process(), view);
    }

    /// Writes values as a holder: a leader proclaims, and any exclusive holder writes its token under its lock.
    pub(crate) async fn share(&mut self, round: &Round, holding: &Holding) {
        let (client, cut_after) = (round.present.number, self.random.within(1, 12));
        let Some((path, lock)) = round.only().filter(|_| self.random.once_in(2)) else { return };
        if let Holding::Leader(led) = holding {
            for n in 1..=self.random.within(1, 3) {
                let text = format!("{} {n}", led.term().number());
                let proclaims = led.proclaim(text.clone());
                let written = if self.random.once_in(3) {
                    cut(cut_after, proclaims).await
                } else {
                    Some(proclaims.await)
                };
                match written {
                    Some(Ok(())) => self.world.check_proclaimed(led, &text),
                    Some(Err(error)) => self.check_error(client, &error),
                    None => {}
                }
            }
        }
        let held = holding.helds().remove(0);
        // With hand-off, the store could not tell the writes of two holders apart.
        if lock.kind.is_exclusive() && !held.shares_node() {
            let value = round.present.client.shared_value(fenced(path)).expect("a value");
            let writes = value.write_under(&held, held.fencing_token().to_be_bytes());
            let written =
                if self.random.once_in(3) { cut(cut_after, writes).await } else { Some(writes.await) };
            if let Some(Err(error)) = written {
                self.check_error(client, &error);
            }
        }
    }
}

/// Returns the path of the value that holders of this lock write.
fn fenced(path: usize) -> LockPath {
    value(&format!("fenced{path}"))
}

/// Returns the number of the proclamation in a leader's value: 0 for the value with which it began. `None` if it is another
/// term's.
fn proclaimed(value: &[u8], term: FencingToken) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    match text.split_once(' ') {
        None => Some(0),
        Some((number, n)) => {
            let n = n.parse().ok()?;
            (number.parse() == Ok(term.number())).then_some(n)
        }
    }
}

impl World {
    /// Returns the path of the election.
    pub(crate) fn election(&self) -> Option<usize> {
        self.plan.paths.iter().position(|usage| usage.locks == Locks::Election)
    }

    /// Returns the number of observers of a path.
    pub(crate) fn observers(&self, path: usize) -> usize {
        if self.election() == Some(path) { self.plan.clients } else { 0 }
    }

    /// Checks that a proclamation that was confirmed is in the leader's node, if that still exists.
    fn check_proclaimed(&self, led: &LockContext, text: &str) {
        let data = self.store.node_data(led.path(), &led.node());
        if let Some(data) = data.filter(|data| data != text.as_bytes()) {
            self.fail("proclamation", || {
                format!("{text:?} was undone by {:?}", data.escape_ascii().to_string())
            });
        }
    }

    /// Checks that the token in a value that only holders write never decreases.
    pub(crate) fn check_fenced(&self) {
        if !self.plan.shares {
            return;
        }
        for path in 0..self.paths.len() {
            let Some(now) = self.store.value(&fenced(path)) else { continue };
            let before = self.lock().shared.fenced.insert(path, now.clone());
            if before.is_some_and(|before| before > now) {
                self.fail("guarded write", || format!("{} has an earlier holder's token", fenced(path)));
            }
        }
    }

    /// Checks that each addition counts once, and that no other does.
    pub(crate) fn check_sum(&self) {
        let data = self.store.value(&count());
        let sum = data.map_or(0, |data| i64::from_be_bytes(data.try_into().expect("eight bytes")));
        let state = self.lock();
        let (known, unknown) = (state.shared.sums.len() as i64, state.shared.unknown);
        let is_lost = state.shared.is_lost;
        drop(state);
        if !is_lost && !(known..=known + unknown).contains(&sum) {
            self.fail("sum", || format!("{sum} after {known} additions and {unknown} that may have failed"));
        }
    }

    /// Waits until every observer knows that nobody leads.
    pub(crate) async fn check_views(&self, observers: usize) {
        if self.election().is_none() {
            return;
        }
        let limit = Instant::now() + 2 * recovery(self.plan.session);
        let late = || {
            let views = self.lock().shared.views.clone();
            let is_late = |view: &LeaderView| view.leader.is_some() || view.freshness != Freshness::Fresh;
            (views.len() < observers || views.values().any(is_late)).then_some(views)
        };
        while late().is_some() && Instant::now() < limit {
            sleep(Duration::from_millis(100)).await;
        }
        if let Some(views) = late() {
            self.fail("late view", || format!("nobody leads, but {views:?}"));
        }
    }

    /// Removes the values, which zlock never does.
    pub(crate) fn remove_values(&self) {
        let paths = (0..self.paths.len()).flat_map(|n| [fenced(n), value(&format!("lock{n}-step-down"))]);
        for path in paths.chain([count()]) {
            self.store.remove_value(&path);
        }
    }
}
