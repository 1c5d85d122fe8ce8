//! One worker: takes locks in all ways, holds them, visits the storage, and records what happens.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use zlock::{Client, Error, Guard, InterProcessMutex, Result};

use super::clock::now;
use super::record::Record;
use super::storage::{Visited, Visitor};
use crate::history::{How, Kind, What};

/// Between two looks at a held lock.
const LOOK: Duration = Duration::from_millis(5);

/// How long `lost()` may take once the lock is known not to be held. It is ready then.
const READY: Duration = Duration::from_secs(1);

/// All locks that clients take.
pub(crate) const LOCKS: [&str; 2] = ["/chaos/mutex", "/chaos/other"];

pub(crate) struct Worker {
    number: u32,
    client: Client,
    record: Arc<Record>,
    storage: Visitor,
    rng: Rng,
    stop: PathBuf,
}

impl Worker {
    pub(crate) fn new(
        number: u32,
        client: Client,
        record: Arc<Record>,
        storage: Visitor,
        seed: u64,
        stop: PathBuf,
    ) -> Self {
        Worker { number, client, record, storage, rng: Rng::with_seed(seed), stop }
    }

    pub(crate) async fn run(mut self) {
        while !self.stop.exists() {
            self.once().await;
            sleep(Duration::from_millis(self.rng.u64(0..40))).await;
        }
    }

    /// One acquisition, and what follows.
    async fn once(&mut self) {
        let lock = LOCKS[self.rng.usize(..LOCKS.len())];
        let how = match self.rng.u32(..100) {
            0..60 => How::Wait,
            60..75 => How::Timeout,
            75..85 => How::Try,
            _ => How::Cancel,
        };
        let op = self.record.op();
        let worker = self.number;
        self.record.write(What::Ask { op, worker, lock: lock.to_owned(), kind: Kind::Mutex, how });
        match self.acquire(lock, how).await {
            Ok(Some(guard)) => self.hold(op, lock, guard).await,
            Ok(None) if how == How::Cancel => self.record.write(What::Dropped { op }),
            Ok(None) => self.record.write(What::Taken { op }),
            Err(error) => {
                self.record.write(What::Failed { op, error: show(&error) });
                // Without a store every answer comes at once.
                sleep(Duration::from_millis(100)).await;
            }
        }
    }

    async fn acquire(&mut self, lock: &str, how: How) -> Result<Option<Guard>> {
        let mutex = InterProcessMutex::new(&self.client, lock)?;
        let time = Duration::from_millis(self.rng.u64(1..400));
        match how {
            How::Timeout => mutex.acquire_timeout(time * 3).await.map(Some),
            How::Try => mutex.try_acquire().await,
            How::Cancel => match timeout(time, mutex.acquire()).await {
                Ok(acquired) => acquired.map(Some),
                Err(_) => Ok(None),
            },
            How::Wait | How::Downgrade => mutex.acquire().await.map(Some),
        }
    }

    /// Counts in the storage: reads, holds for a while, writes. Then lets go.
    async fn hold(&mut self, op: u64, lock: &str, guard: Guard) {
        let Some(mut look) = self.got(op, &guard) else { return };
        let token = guard.fencing_token().get();
        let value = self.visit(op, lock, token, None).await;
        let time = Duration::from_millis(if self.rng.u32(..10) == 0 { 800 } else { self.rng.u64(0..50) });
        let until = Instant::now() + time;
        let mut held = true;
        while held && Instant::now() < until {
            held = self.look(op, &guard, &mut look);
            // Told at once, if at all.
            let _ = timeout_at(until.min(Instant::now() + LOOK), guard.lost()).await;
        }
        held = held && self.look(op, &guard, &mut look);
        if !held {
            self.lost(op, &guard).await;
        }
        // Whoever has lost the lock writes, too, now and then: that is what the storage is for.
        if let Some(value) = value.filter(|_| held || self.rng.bool()) {
            self.visit(op, lock, token, Some(value + 1)).await;
        }
        self.release(op, guard).await;
    }

    /// Records that the lock is held, if it is.
    fn got(&self, op: u64, guard: &Guard) -> Option<Look> {
        let token = guard.fencing_token().get();
        let from = now();
        // Looked at before `is_held`: if that is true no epoch has begun since the grant, and this one is the
        // guard's.
        let session = self.client.session_events().current();
        if !guard.is_held() {
            self.record.write(What::Stale { op, token });
            return None;
        }
        let deadline = self.record.clock.number(session.deadline);
        self.record.write(What::Got { op, from, token, session: session.id.get(), deadline });
        Some(Look { last: from, deadline })
    }

    /// Whether the lock is still held; records a later deadline, and the end.
    fn look(&self, op: u64, guard: &Guard, before: &mut Look) -> bool {
        let at = now();
        let session = self.client.session_events().current();
        let held = guard.is_held();
        if held {
            before.last = at;
            let deadline = self.record.clock.number(session.deadline);
            if deadline > before.deadline {
                before.deadline = deadline;
                self.record.write(What::Held { op, deadline });
            }
        } else {
            self.record.write(What::Unheld { op, last: before.last });
        }
        held
    }

    async fn lost(&self, op: u64, guard: &Guard) {
        if timeout(READY, guard.lost()).await.is_ok() {
            self.record.write(What::Lost { op });
        }
    }

    /// Visits the storage. The value, unless it was refused.
    async fn visit(&mut self, op: u64, lock: &str, token: u64, value: Option<u64>) -> Option<u64> {
        match self.storage.visit(lock, token, value).await.expect("an answer of the storage") {
            Visited::Value(value) => Some(value),
            Visited::Refused(at, newer) => {
                self.record.write(What::Refused { op, at, newer });
                None
            }
        }
    }

    async fn release(&mut self, op: u64, guard: Guard) {
        self.record.write(What::Release { op });
        if self.rng.u32(..4) == 0 {
            drop(guard);
            return;
        }
        let outcome = match guard.release().await {
            Ok(release) => format!("{release:?}"),
            Err(error) => format!("Err({})", show(&error)),
        };
        self.record.write(What::Released { op, outcome });
    }
}

/// What the last look at a held lock said.
struct Look {
    last: u64,
    deadline: u64,
}

/// An error in one line.
fn show(error: &Error) -> String {
    format!("{:?}: {error}", error.kind()).replace('\n', " ")
}
