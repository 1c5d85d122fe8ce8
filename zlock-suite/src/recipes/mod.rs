//! The cases, one module for each group. An ID at the beginning of a name refers to that line of the scenarios.

pub mod alone;
pub mod cost;
pub mod downgrade;
pub mod faults;
pub mod guard;
pub mod handed_over;
pub mod handoff;
pub mod input;
pub mod kinds;
pub mod links;
pub mod multi;
pub mod mutual;
pub mod names;
pub mod outlast;
pub mod participants;
pub mod promotion;
pub mod read_write;
pub mod reentry;
pub mod revocation;
pub mod safety;
pub mod semaphore;
pub mod shutdown;
pub mod strict;
pub mod succession;
pub mod sweep;
pub mod template;
