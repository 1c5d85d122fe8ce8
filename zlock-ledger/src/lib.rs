#![doc = include_str!("../README.md")]

mod backend;
mod deaths;
mod floors;
mod groups;
mod hub;
mod keeper;
mod lanes;
pub mod mem;
mod ledger;
mod observe;
mod operation;
mod poll;
mod requests;
mod shared;
mod values;
mod watched;

pub use backend::LedgerBackend;
pub use floors::Floors;
pub use lanes::{Fit, Lanes};
pub use ledger::*;
pub use watched::Watched;
