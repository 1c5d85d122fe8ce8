#![doc = include_str!("../README.md")]

mod ledger;

pub use ledger::*;
