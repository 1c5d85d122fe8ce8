//! The suite that the recipes run on every backend: one abstract set of cases, each one a `#[tokio::test]`.
//!
//! A backend already has a [`Store`](zlock_core::conformance::Store) for its conformance suite; the same one is used here:
//!
//! ```ignore
//! zlock_recipes::mutual_suite!(paused, store(), InterProcessMutex, [mutual, faults, links, sweep]);
//! zlock_recipes::recipe_suite!(paused, store(), [template, guard, input]);
//! ```
//!
//! `paused` runs in paused time, `real` in real time. [`mutual_suite!`](crate::mutual_suite) runs on everything that can act
//! as a mutex ([`Mutual`]): a new kind of lock implements that trait and gets every case.
//!
//! Faults come from two places: [`Faults`] is between a client and its backend and works on every store. Groups whose name
//! contains `links` need [`Store::links`](zlock_core::conformance::Store::links).
//!
//! Each case runs under a timeout. When it ends, no node and no watch is left under its root while its clients are still
//! open, and every client's reaper is idle.

mod case;
pub mod cases;
mod cut;
mod fault;
mod inside;
#[cfg(test)]
mod listed;
mod log;
mod macros;
mod mutual;
mod occupied;
pub mod outage;
pub mod overload;
mod threads;

pub use case::{Case, Process, run};
pub use cut::{Cut, Drop, sweep, sweep_together};
pub use fault::{Call, Faults, Gate, Side};
pub use inside::Inside;
pub use log::Log;
pub use mutual::{GuardOf, HandedOn, Mutual, OnePermit, Pair};
pub use occupied::Occupied;
pub use threads::{ThreadGuard, ThreadLock, Threads};
