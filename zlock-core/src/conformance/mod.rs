//! The suite that every backend runs: each bullet of a `# Behavior` list of
//! [`CoordinationBackend`](crate::CoordinationBackend) is at least one case.
//!
//! A backend implements [`Store`] and calls the macro in a test file:
//!
//! ```ignore
//! async fn store() -> Option<MyStore> { /* start or find a server; None: skipped, and said so */ }
//!
//! zlock_core::conformance!(real, store(), [contract, numbers, watches, links]);
//! ```
//!
//! Each case is one `#[tokio::test]` named `<group>::<method>::<case>`, so the crate needs `tokio` with `macros` and
//! `rt` itself. `real` runs in real time, `paused` in paused time. A group that is not named is not generated:
//! a store that lacks what a group needs leaves it out, and its list of tests shows it.
//!
//! | group | needs |
//! |---|---|
//! | `contract` | nothing more |
//! | `numbers` | children named as [`NodeName`](crate::NodeName) does, with numbers that wrap: ZooKeeper, mem |
//! | `watches` | [`Store::watches`] |
//! | `links` | [`Store::links`] |
//!
//! Each case is under a timeout. After it no watch is left under its root, and once its backends are closed
//! no node.

mod case;
pub mod cases;
#[cfg(test)]
mod listed;
mod macros;
mod store;

pub use case::{Case, run};
pub use store::{Connection, Links, Store};
