//! Workers: each round acquires locks in some way, holds them for a while, and releases them in some way.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use zlock::{Error, ErrorKind};

use super::plan::Family;
use super::polls::{cut, stall};
use super::process::{Present, Process};
use super::random::Random;
use super::world::World;
use crate::locks::{Wanted, Way, acquire_all};

pub(crate) struct Worker {
    pub(crate) world: Arc<World>,
    pub(crate) process: Arc<Process>,
    pub(crate) random: Random,
}

/// The client and the locks of a round.
pub(crate) struct Round {
    pub(crate) present: Present,
    /// In the order of their paths.
    pub(crate) locks: Vec<(usize, Wanted)>,
}

impl Round {
    /// Returns the lock, if there is only one.
    pub(crate) fn only(&self) -> Option<(usize, Wanted)> {
        (self.locks.len() == 1).then(|| self.locks[0])
    }
}

impl Worker {
    pub(crate) fn new(world: &Arc<World>, process: &Arc<Process>, number: u64) -> Self {
        let random = Random::of(world.plan.seed, 100 + process.number() * 10 + number);
        Worker { world: world.clone(), process: process.clone(), random }
    }

    pub(crate) fn present(&self) -> Present {
        self.process.present()
    }

    pub(crate) fn process(&self) -> u64 {
        self.process.number()
    }

    pub(crate) async fn work(mut self) {
        while self.world.plan.shutdown || !self.world.is_over() {
            let round = Round { present: self.present(), locks: self.choose() };
            let has_template = round.only().is_some_and(|(_, lock)| lock.for_template().is_some());
            if has_template && self.random.once_in(4) {
                self.run_template(round).await;
            } else {
                self.run_locks(round).await;
            }
            sleep(self.random.millis(200)).await;
        }
    }

    fn choose(&mut self) -> Vec<(usize, Wanted)> {
        let (family, usages) = (self.world.plan.family, &self.world.plan.paths);
        let mut chosen = vec![self.random.place(usages.len())];
        if family == Family::Multi {
            chosen.extend((0..usages.len()).filter(|_| self.random.once_in(3)));
            chosen.sort_unstable();
            chosen.dedup();
        }
        let process = self.process();
        chosen.into_iter().map(|path| (path, usages[path].any(process, &mut self.random))).collect()
    }

    pub(crate) fn patience(&mut self) -> Duration {
        let most = self.random.pick(&[1, 50, 1000, 8000]);
        self.random.millis(most)
    }

    async fn run_locks(&mut self, round: Round) {
        let Round { present, locks } = &round;
        let (world, patience, client) = (self.world.clone(), self.patience(), present.number);
        let mut locks: Vec<_> = locks.iter().map(|(path, kind)| (*kind, &world.paths[*path])).collect();
        if self.random.once_in(2) {
            locks.reverse();
        }
        if self.random.once_in(20)
            && let Err(e) = locks[0].0.revoke(&present.client, locks[0].1).await
        {
            self.check_error(client, &e);
        }
        let way = match self.random.below(4) {
            0 => Way::Try,
            1 => Way::Timed(patience),
            _ => Way::Wait,
        };
        world.note(|| format!("c{client} {way:?} {locks:?}"));
        let acquiring = world.acquiring(client, &round.locks);
        let began = Instant::now();
        let acquire = acquire_all(&locks, &present.client, way);
        let cut_after = self.random.within(1, 12);
        let acquired = match self.random.below(8) {
            0 => cut(cut_after, acquire).await,
            1 if world.plan.stalls => {
                let time = self.random.millis(2 * world.plan.session.as_millis() as u64);
                let pause = || {
                    world.note(|| format!("c{client} is busy elsewhere for {time:?}"));
                    world.disturb(client, Instant::now() + time);
                    time
                };
                Some(stall(cut_after, pause, acquire).await)
            }
            2 | 3 => timeout(patience, acquire).await.ok(),
            _ => {
                let acquired = acquire.await;
                self.check_time(way, began, locks.len() as u32);
                Some(acquired)
            }
        };
        match acquired {
            Some(Ok(Some(holding))) => {
                for held in holding.helds() {
                    let is_it = |(path, _): &&(usize, Wanted)| world.paths[*path] == *held.path();
                    let (path, lock) = *round.locks.iter().find(is_it).expect("it was asked for");
                    world.granted(client, path, lock.kind, held);
                }
                drop(acquiring);
                self.stay(&round, holding).await;
            }
            Some(Ok(None)) => world.note(|| format!("c{client} finds it taken")),
            Some(Err(e)) => {
                if !way.is_one_try() {
                    self.check_place(client, &e);
                }
                self.check_refusal(client, &round.locks, began, &e);
            }
            None => world.note(|| format!("c{client} gives up")),
        }
    }

    fn check_time(&self, way: Way, began: Instant, locks: u32) {
        let limit = match way {
            Way::Wait => return,
            Way::Timed(time) if !time.is_zero() => time,
            // One look at each, and one release of each that was had.
            Way::Timed(_) | Way::Try => self.world.plan.operation_timeout * (2 * locks - 1),
        };
        // The clock counts in milliseconds.
        if began.elapsed() > limit + Duration::from_millis(1) {
            self.world.fail("time", || format!("{way:?} took {:?}", began.elapsed()));
        }
    }

    /// Checks an acquisition that ended because other clients use another maximum.
    pub(crate) fn check_refusal(
        &self,
        client: usize,
        locks: &[(usize, Wanted)],
        began: Instant,
        error: &Error,
    ) {
        if error.kind() != ErrorKind::PermitLimitMismatch {
            return self.check_error(client, error);
        }
        self.world.note(|| format!("c{client} is refused: {error}"));
        self.world.check_mismatch(locks, began, error);
    }

    /// Checks that no queued acquisition ended because the store did not answer. It waits until its session is lost.
    pub(crate) fn check_place(&self, client: usize, error: &Error) {
        let is_read = ["children", "children_with_watch", "exists_with_watch"].contains(&error.operation());
        if is_read && error.kind() == ErrorKind::Unavailable {
            self.world.fail("place given up", || format!("c{client}: {error}"));
        }
    }

    /// Checks that no lock is lost, and no server unreachable, without a reason.
    pub(crate) fn check_error(&self, client: usize, error: &Error) {
        let world = &self.world;
        world.note(|| format!("c{client} fails: {error}"));
        let (disturbed, closed) = world.excuses(client);
        let excused = match error.kind() {
            ErrorKind::Busy => true,
            // The time that the link takes may be all that there was.
            ErrorKind::Timeout(_) if world.plan.latency > 0 => true,
            // A node that an operator deletes is replaced after a pause, which may be all that there was, too.
            ErrorKind::Timeout(_) if is_replaced(error) => world.plan.operator,
            ErrorKind::Timeout(_) | ErrorKind::Unavailable | ErrorKind::SessionLost | ErrorKind::Settling => {
                disturbed
            }
            ErrorKind::Closed => closed,
            ErrorKind::NodeDeleted => world.plan.operator,
            _ => false,
        };
        if !excused {
            world.fail("needless error", || format!("c{client}: {error}"));
        }
    }
}

/// Returns `true` if an acquisition was about to replace its node, which an operator had deleted.
fn is_replaced(error: &Error) -> bool {
    let cause = error.cause().and_then(|cause| cause.downcast_ref::<Error>());
    cause.is_some_and(|cause| cause.kind() == ErrorKind::NodeDeleted)
}
