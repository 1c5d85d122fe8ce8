//! What a seed does.

use std::time::Duration;

use super::random::Random;
use super::usage::{Locks, Usage};

/// The locks that a seed is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Mutex and template.
    Mutex,
    /// Readers and writers, and writers that become readers.
    ReadWrite,
    Semaphore,
    /// All of these, each on its path, and several of them at a time.
    Multi,
}

impl Family {
    fn paths(self, random: &mut Random) -> Vec<Usage> {
        let locks = match self {
            Family::Mutex => Locks::Mutex,
            Family::ReadWrite => Locks::ReadWrite,
            Family::Semaphore => Locks::Semaphore,
            Family::Multi => return [Locks::Mutex, Locks::ReadWrite, Locks::Semaphore].map(Usage::of).into(),
        };
        vec![Usage::of(locks); random.pick(&[1, 1, 2])]
    }
}

const FAMILIES: [Family; 4] = [Family::Mutex, Family::ReadWrite, Family::Semaphore, Family::Multi];

/// The shape of one run: everything that is not decided on the way.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) family: Family,
    pub(crate) clients: usize,
    /// Of each client.
    pub(crate) workers: u64,
    pub(crate) paths: Vec<Usage>,
    pub(crate) session: Duration,
    /// Of a backend's operation, before it gives up.
    pub(crate) retries: u32,
    pub(crate) operation_timeout: Duration,
    /// How long there are faults and new work.
    pub(crate) length: Duration,
    /// Milliseconds between two faults of links and server, at most; 0 for none.
    pub(crate) harm_every: u64,
    /// One request in so many is lost, or its answer; 0 for none.
    pub(crate) lose: u64,
    /// One request in so many comes right behind something that happens to the store; 0 for none.
    pub(crate) race: u64,
    /// Milliseconds that a message takes on any link, at most.
    pub(crate) latency: u64,
    /// Milliseconds that a message takes on a link that a fault has made slow, at most.
    pub(crate) delay: u64,
    /// Whether an operator deletes nodes and ends sessions.
    pub(crate) operator: bool,
    /// Whether clients are closed, and others come in their place.
    pub(crate) closes: bool,
    /// Whether acquisitions are left unpolled for a while.
    pub(crate) stalls: bool,
    /// Whether the runtime is shut down in the middle of the work.
    pub(crate) shutdown: bool,
    pub(crate) first_sequence: i32,
}

impl Plan {
    pub(crate) fn of(seed: u64) -> Self {
        let mut random = Random::of(seed, 0);
        // A part of the seeds has no fault at all: there, everything happens at once or is an error.
        let calm = random.once_in(6);
        let unless_calm = |n| if calm { 0 } else { n };
        let family = random.pick(&FAMILIES);
        let mut plan = Plan {
            seed,
            family,
            clients: random.within(2, 5) as usize,
            workers: random.within(1, 3),
            paths: family.paths(&mut random),
            session: Duration::from_secs(random.pick(&[3, 10])),
            retries: random.pick(&[2, 30]),
            operation_timeout: Duration::from_secs(random.pick(&[2, 15])),
            length: Duration::from_secs(random.pick(&[3, 12, 40])),
            harm_every: unless_calm(random.pick(&[0, 400, 3000, 20_000])),
            lose: unless_calm(random.pick(&[0, 100, 30, 8])),
            race: unless_calm(random.pick(&[0, 100, 20])),
            latency: 0,
            delay: unless_calm(random.pick(&[0, 5, 400])),
            operator: !calm && random.once_in(3),
            closes: !calm && random.once_in(3),
            stalls: !calm && random.once_in(3),
            shutdown: random.once_in(8),
            first_sequence: random.pick(&[0, 0, i32::MAX - 3]),
        };
        // In a part of the seeds some paths are also used in ways against which the documentation advises.
        if random.once_in(3) {
            plan.paths.extend(Usage::mistakes(&mut random));
        }
        plan.paths.iter_mut().for_each(|usage| *usage = usage.with_handoff(&mut random));
        plan.latency = unless_calm(random.pick(&[0, 0, 4]));
        plan
    }
}
