//! The plan of a run, derived from a seed.

use std::str::FromStr;
use std::time::Duration;

use zlock::backend::Class;

use super::random::Random;
use super::usage::{Locks, Usage};

/// The kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    Mem,
    Ledger,
}

impl FromStr for StoreKind {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "mem" => Ok(StoreKind::Mem),
            "ledger" => Ok(StoreKind::Ledger),
            _ => Err(()),
        }
    }
}

/// The kinds of locks in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Mutex and template.
    Mutex,
    /// Readers, writers, and downgrades.
    ReadWrite,
    Semaphore,
    /// All of these, each on its own path, and several of them together.
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

/// The parameters of a run that are fixed at its start.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) family: Family,
    pub(crate) clients: usize,
    /// The number of workers of each client.
    pub(crate) workers: u64,
    pub(crate) paths: Vec<Usage>,
    pub(crate) session: Duration,
    /// The number of retries of a backend's operation.
    pub(crate) retries: u32,
    pub(crate) operation_timeout: Duration,
    /// The duration of faults and new work.
    pub(crate) length: Duration,
    /// The maximum number of milliseconds between two faults of links and store; 0 for no faults.
    pub(crate) harm_every: u64,
    /// One in this many requests is lost, or its response; 0 for none.
    pub(crate) lose: u64,
    /// One in this many requests arrives right after another change of the store; 0 for none.
    pub(crate) race: u64,
    /// The maximum latency of a message in milliseconds.
    pub(crate) latency: u64,
    /// The maximum latency in milliseconds on a link that a fault has slowed down.
    pub(crate) delay: u64,
    /// `true` if an operator deletes nodes and ends sessions.
    pub(crate) operator: bool,
    /// `true` if clients are closed and replaced.
    pub(crate) closes: bool,
    /// `true` if acquisitions are not polled for some time.
    pub(crate) stalls: bool,
    /// `true` if the runtime is shut down during the work.
    pub(crate) shutdown: bool,
    pub(crate) first_sequence: i32,
    /// `true` if the clients also have an election with observers, a counter, and values that holders write.
    pub(crate) shares: bool,
    /// A job that runs once per tick, beside the locks.
    pub(crate) job: Option<JobPlan>,
    /// The parameters of a ledger, if the run is on one.
    pub(crate) ledger: Option<LedgerPlan>,
}

impl Plan {
    pub(crate) fn of(store: StoreKind, seed: u64) -> Self {
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
            // From numbers of its own, so that the other seeds stay what they are.
            shares: Random::of(seed, 3).once_in(4),
            job: None,
            ledger: None,
        };
        // In a part of the seeds some paths are also used in ways against which the documentation advises.
        if random.once_in(3) {
            plan.paths.extend(Usage::mistakes(&mut random));
        }
        plan.paths.iter_mut().for_each(|usage| *usage = usage.with_handoff(&mut random));
        if plan.shares && family != Family::Multi {
            plan.paths.push(Usage::of(Locks::Election));
        }
        plan.latency = unless_calm(random.pick(&[0, 0, 4]));
        plan.job = JobPlan::of(seed, plan.clients, calm);
        if store == StoreKind::Ledger {
            let ledger = LedgerPlan::of(seed, plan.session, calm);
            plan.latency = plan.latency.max(ledger.jitter);
            // Where clients only poll, a lock may not change hands in three short periods.
            if let Some(job) =
                plan.job.as_mut().filter(|job| !ledger.hints && job.period < Duration::from_secs(3))
            {
                job.ahead = false;
            }
            plan.ledger = Some(ledger);
        }
        plan
    }
}

/// The parameters of a run with a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobPlan {
    pub(crate) period: Duration,
    pub(crate) attempts: u32,
    /// How many milliseconds a clock may be ahead of another one.
    pub(crate) skew: u64,
    /// `true` if the clock of the first process is a year ahead.
    pub(crate) ahead: bool,
}

impl JobPlan {
    /// A part of the seeds has a job. The others are as they would be without jobs.
    pub(crate) fn of(seed: u64, clients: usize, calm: bool) -> Option<Self> {
        let mut random = Random::of(seed, 4);
        random.once_in(8).then(|| JobPlan {
            period: Duration::from_millis(random.pick(&[300, 1000, 3000])),
            attempts: random.pick(&[1, 1, 2, 3]),
            skew: random.pick(&[0, 500, 5000]),
            // With faults, the others may not run for three periods, and the clock is believed.
            ahead: calm && clients > 2 && random.once_in(2),
        })
    }
}

/// The parameters of a ledger, and its faults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LedgerPlan {
    pub(crate) class: Class,
    pub(crate) longest: Duration,
    pub(crate) overlap: Duration,
    pub(crate) hints: bool,
    /// The maximum by which messages are delayed at random, in milliseconds.
    pub(crate) jitter: u64,
    /// The maximum time that the store takes for each request of a client that a fault has slowed down, in milliseconds; 0 for no such
    /// fault.
    pub(crate) slow: u64,
    /// `true` if open transactions of users protect nodes.
    pub(crate) fences: bool,
    /// `true` if other programs lock scopes.
    pub(crate) locks: bool,
    /// `true` if clients are killed.
    pub(crate) kills: bool,
}

impl LedgerPlan {
    /// The rest of the plan is as on mem.
    fn of(seed: u64, session: Duration, calm: bool) -> Self {
        let mut random = Random::of(seed, 5);
        let unless_calm = |n| if calm { 0 } else { n };
        LedgerPlan {
            class: random.pick(&[Class::Lossy, Class::OneServer, Class::Sync]),
            longest: random.pick(&[session, Duration::from_secs(10)]),
            overlap: Duration::from_secs(random.pick(&[0, 0, 1])),
            hints: !random.once_in(3),
            jitter: unless_calm(random.pick(&[0, 0, 3, 50])),
            slow: unless_calm(random.pick(&[0, 0, 50, 1000, 5000])),
            fences: !calm && random.once_in(2),
            locks: !calm && random.once_in(2),
            kills: !calm && random.once_in(2),
        }
    }
}
