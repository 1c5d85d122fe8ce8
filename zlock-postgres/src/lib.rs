#![doc = include_str!("../README.md")]

mod config;

pub use config::{PostgresOptions, Replication};
