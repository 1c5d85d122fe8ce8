//! The engine for stores without sessions, on its in-memory adapter, in paused time.

mod deaths;
mod fleet;
mod history;
mod patience;
mod polls;

use std::time::Duration;

use zlock::Client;
use zlock_core::kit::Options;
use zlock_ledger::LedgerBackend;
use zlock_ledger::mem::{MemLink, MemStore};

/// The timeout of the sessions.
const TTL: Duration = Duration::from_secs(10);

const SECOND: Duration = Duration::from_secs(1);

/// Connects a client, whose link may break.
async fn client(store: &MemStore) -> (Client, MemLink) {
    client_of(store, TTL).await
}

async fn client_of(store: &MemStore, ttl: Duration) -> (Client, MemLink) {
    let ledger = store.ledger();
    let link = ledger.link();
    let mut options = Options::new(["mem"]);
    options.session_timeout = ttl;
    (Client::new(LedgerBackend::connect((ledger, options)).await.unwrap()), link)
}
