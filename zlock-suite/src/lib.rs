#![doc = include_str!("../README.md")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the suites are test code")]

mod backends;
#[cfg(test)]
mod bullets;
mod case;
pub mod conformance;
mod cut;
mod fault;
pub mod groups;
mod inside;
mod log;
mod macros;
mod mutual;
mod occupied;
pub mod outage;
pub mod overload;
mod processes;
pub mod proxy;
pub mod recipes;
mod store;
mod test_lock;
mod threads;
pub mod values;
mod wrapped;

pub use case::{Case, run, timed};
pub use cut::{Cut, Drop, sweep, sweep_together};
pub use fault::{Faults, Gate, Side};
pub use inside::Inside;
pub use log::Log;
pub use mutual::{GuardOf, HandedOn, Mutual, OnePermit, Pair, Tasks};
pub use occupied::Occupied;
pub use processes::Process;
pub use store::{Connection, Links, Store};
pub use test_lock::{TestGuard, TestLock};
pub use threads::{Blocking, ThreadGuard, ThreadLock, Threads};
pub use wrapped::Call;

include!(concat!(env!("OUT_DIR"), "/cases.rs"));
