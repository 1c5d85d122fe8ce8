#![doc = include_str!("../README.md")]

mod backend;
mod calm;
mod deaths;
mod floors;
mod groups;
mod history;
mod hub;
mod keeper;
mod lanes;
mod ledger;
pub mod mem;
mod observe;
mod opening;
mod operation;
mod past;
mod poll;
mod requests;
mod sender;
mod shared;
pub mod tables;
mod values;
mod watched;

pub use backend::LedgerBackend;
#[doc(hidden)]
pub use deaths::Deaths;
pub use floors::Floors;
#[doc(hidden)]
pub use hub::{Asked, Hub, Watching};
pub use lanes::{Fit, Lanes};
pub use ledger::*;
#[doc(hidden)]
pub use past::Past;
pub use watched::Watched;
