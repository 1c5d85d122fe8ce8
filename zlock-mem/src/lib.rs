#![doc = include_str!("../README.md")]

mod armed;
mod backend;
mod control;
mod create;
mod error;
mod fault;
mod fenced_row;
mod groups;
mod link;
mod manager;
mod mem_link;
mod operation;
mod options;
mod request;
mod server;
mod session;
mod state;
mod tree;
mod values;
mod watch;

pub use backend::MemBackend;
pub use fault::{Arrival, Fate, Fault};
pub use fenced_row::FencedRow;
pub use mem_link::MemLink;
pub use options::MemOptions;
pub use request::Operation;
pub use server::MemServer;
