//! Writes that come in bursts, so that those of the workers leave with others in one batch. Only etcd has batches.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record as Values};
use tracing::{Event, Metadata, Subscriber};
use zlock::{Client, Result};

use super::record::Record;
use super::told::stop_file;
use crate::history::What;

/// The number of locks that are acquired at the same moment. No other client uses them.
const BURST: u32 = 8;

const PAUSE: Duration = Duration::from_millis(100);

/// Longer than this, the servers have faults enough.
const LIMIT: Duration = Duration::from_secs(1);

/// Acquires and releases locks in bursts, and records how many batches the process has sent.
pub(crate) async fn run(client: Client, name: &str, folder: &Path, record: Arc<Record>) -> Result<()> {
    let sent = Arc::new(Sent::default());
    tracing::subscriber::set_global_default(Batches(sent.clone())).expect("the only subscriber");
    let lock = |number| client.mutex(format!("/chaos/bursts/{name}/{number}"));
    let locks = (0..BURST).map(lock).collect::<Result<Vec<_>>>()?;
    while !stop_file(folder).exists() {
        let mut burst = JoinSet::new();
        for lock in locks.clone() {
            // The session may be lost, or no server may respond.
            burst.spawn(async move { lock.acquire_timeout(LIMIT).await?.release().await });
        }
        burst.join_all().await;
        let (batches, writes) = (sent.batches.load(Ordering::Relaxed), sent.writes.load(Ordering::Relaxed));
        record.write(What::Batches { batches, writes });
        sleep(PAUSE).await;
    }
    Ok(())
}

/// What the process has sent so far.
#[derive(Debug, Default)]
struct Sent {
    batches: AtomicU64,
    writes: AtomicU64,
}

/// Counts the batches that the backend traces.
struct Batches(Arc<Sent>);

impl Subscriber for Batches {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let is_of_batches = metadata.fields().field("writes").is_some();
        metadata.is_event() && metadata.target().starts_with("zlock_etcd::") && is_of_batches
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut &*self.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Values<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl Visit for &Sent {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "writes" && value > 1 {
            self.batches.fetch_add(1, Ordering::Relaxed);
            self.writes.fetch_add(value, Ordering::Relaxed);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}
