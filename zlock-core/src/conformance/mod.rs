//! The suite that every backend runs: each bullet of a `# Behavior` list of
//! [`CoordinationBackend`](crate::CoordinationBackend) has at least one case.
//!
//! A backend implements [`Store`] and calls the macro in a test file:
//!
//! ```ignore
//! async fn store() -> Option<MyStore> { /* start or find a server; None: skipped, and said so */ }
//!
//! zlock_core::conformance!(real, store(), [contract, numbers, watches, links]);
//! ```
//!
//! Each case is one `#[tokio::test]` named `<group>::<method>::<case>`, so the crate itself needs `tokio` with `macros` and
//! `rt`. `real` runs in real time, `paused` in paused time. Only the named groups are generated: a store that lacks what a
//! group needs omits it, which is visible in its list of tests.
//!
//! | group | needs |
//! |---|---|
//! | `contract` | nothing else |
//! | `numbers` | children named as [`NodeName`](crate::NodeName) does, with numbers that wrap: ZooKeeper, mem |
//! | `watches` | [`Store::watches`] |
//! | `links` | [`Store::links`] |
//!
//! Each case runs under a timeout. When it ends, no watch is left under its root, and once its backends are closed, no node
//! is left.

mod case;
pub mod cases;
#[cfg(test)]
mod listed;
mod macros;
mod store;

pub use case::{Case, run};
pub use store::{Connection, Links, Store};
