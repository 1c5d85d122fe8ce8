//! A ledger in this process: the test double of a store for tests of the engine.
//!
//! A [`MemStore`] is the server. Each [`MemStore::ledger`] is the access of one client, with a [`MemLink`] of its own for network
//! faults. Requests, answers and hints travel in tokio's time, so tests can run in paused time, and a test with the same
//! [seed](Settings::seed) takes the same course each time.
//!
//! The store does to its clients what a real one may do:
//! - A connection that was given up still delivers what was sent over it, unless its link breaks.
//! - A [`crash`](MemStore::crash) undoes commits that were not durable, and a [`failover`](MemStore::failover) any commits.
//!   After a lossy change, all sessions are over, and nothing is granted until clients have watched for the
//!   [longest](Settings::longest) timeout.
//! - Transactions of [users](MemStore::protect) and [other clients](MemStore::lock_scope) make those of the engine busy.
//! - It honours what a request says of itself: below its [floor](crate::Read::floor), it finds nothing, and data that need not be in
//!   an answer is not there.
//!
//! # Examples
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), zlock_ledger::Fault> {
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use zlock_core::SessionId;
//! use zlock_ledger::mem::MemStore;
//! use zlock_ledger::{Begin, Calm, Kind, Lane, Ledger, Scope, Tx, Wire, Write};
//!
//! let store = MemStore::default();
//! let ledger = store.ledger();
//! let session = SessionId::new(fastrand::u64(..));
//! let calm = ledger.calm(None, Arc::new(|_| {})).await?;
//! let timeout = Duration::from_secs(10);
//! calm.begin(&Begin { session, last: None, timeout, rest: timeout }).await?;
//!
//! let scope = Scope { kind: Kind::Queue, path: "/app/orders".into() };
//! let append = Write::Append { key: "n1".into(), owned: true, label: Some("lock".into()), data: vec![] };
//! let tx = Tx { scope: scope.clone(), when: vec![], then: vec![append], read: vec![] };
//! let lane = ledger.lane(session, Wire::Fast).await?;
//! lane.transact(&[tx]).await?;
//! assert_eq!(store.entries(&scope)[0].owner, Some(session));
//! # Ok(())
//! # }
//! ```

mod connection;
mod fault;
mod ledger;
mod link;
mod server;
mod sessions;
mod settings;
mod signal;
mod state;
mod store;
mod tables;
mod transact;
mod user;

pub use fault::{Arrival, Fate, MemFault, Operation};
pub use ledger::{MemCalm, MemLane, MemLedger};
pub use link::MemLink;
pub use settings::Settings;
pub use store::MemStore;
pub use user::{Protection, ScopeLock};

#[cfg(test)]
mod tests;
