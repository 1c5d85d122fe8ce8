//! A worker: acquires locks in all ways, holds them, uses the storage, and records events.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep, timeout};
use zlock::{Client, Error, Session, SessionState};

use super::clock::now;
use super::locks::{Lock, Manner};
use super::record::Record;
use super::storage::{Visited, Visitor};
use super::told::{Told, stop_file, storm_file};
use crate::history::{How, Kind, Ns, TURN_BITS, What};
use crate::locks::Holding;

/// The pause between two checks of a held lock.
const LOOK: Duration = Duration::from_millis(2);

/// The time limit for `lost()` once the lock is known to be lost. It should be ready at once.
const READY: Duration = Duration::from_secs(1);

pub(crate) struct Worker {
    number: u32,
    manner: Manner,
    client: Client,
    record: Arc<Record>,
    storage: Visitor,
    rng: Rng,
    folder: PathBuf,
    session: Duration,
}

impl Worker {
    pub(crate) fn new(
        number: u32,
        told: &Told,
        client: Client,
        record: Arc<Record>,
        storage: Visitor,
    ) -> Self {
        let rng = Rng::with_seed(told.seed.wrapping_mul(31).wrapping_add(number.into()));
        let (manner, folder, session) = (told.manner, told.folder.clone(), told.session);
        Worker { number, manner, client, record, storage, rng, folder, session }
    }

    pub(crate) async fn run(mut self) {
        while !stop_file(&self.folder).exists() {
            self.once().await;
            self.rest().await;
        }
    }

    /// Owns no node for a while.
    async fn rest(&mut self) {
        let time = match self.manner {
            Manner::Idle => self.session.mul_f64(1.0 + self.rng.f64()),
            Manner::Busy | Manner::Quiet | Manner::Crowd => Duration::from_millis(self.rng.u64(0..40)),
        };
        let until = Instant::now() + time;
        while Instant::now() < until && !stop_file(&self.folder).exists() {
            sleep((until - Instant::now()).min(Duration::from_millis(100))).await;
        }
    }

    /// Acquires a lock once, and uses it.
    pub(crate) async fn once(&mut self) {
        let lock = Lock::any(self.manner, &mut self.rng);
        let how = match self.rng.u32(..100) {
            _ if self.manner != Manner::Busy => How::Wait,
            0..60 => How::Wait,
            60..75 => How::Timeout,
            75..85 => How::Try,
            _ => How::Cancel,
        };
        // Some cancelled acquisitions are cancelled while a request is in flight.
        let most = if how == How::Cancel && self.rng.bool() { 6_000 } else { 600_000 };
        let time = Duration::from_micros(self.rng.u64(1..most));
        let op = self.ask(now(), lock, how);
        let acquired = if self.rng.u32(..4) == 0 {
            let client = self.client.clone();
            on_a_short_runtime(async move { lock.acquire(&client, how, time).await }).await
        } else {
            lock.acquire(&self.client, how, time).await
        };
        match acquired {
            Ok(Some(guard)) => self.hold(op, lock, guard).await,
            Ok(None) if how == How::Cancel => self.record.write(What::Dropped { op }),
            Ok(None) => self.record.write(What::Taken { op }),
            Err(error) => {
                self.record.write(What::Failed { op, error: show(&error) });
                // Without a store, every call returns at once.
                sleep(Duration::from_millis(100)).await;
            }
        }
    }

    fn ask(&self, at: Ns, lock: Lock, how: How) -> u64 {
        let (op, worker) = (self.record.op(), self.number);
        self.record
            .write_at(at, What::Ask { op, worker, lock: lock.path.to_owned(), kind: lock.wanted.kind, how });
        op
    }

    /// Increments the counter in the storage, if the lock protects one: reads, holds for a while, writes. Then releases.
    async fn hold(&mut self, op: u64, lock: Lock, guard: Holding) {
        let Some(mut look) = self.got(op, now(), &guard) else { return };
        let token = token(&guard);
        let value =
            if lock.wanted.kind.is_exclusive() { self.visit(op, lock, token, None).await } else { None };
        let held = self.stay(op, &guard, &mut look).await;
        // Sometimes a worker writes although it has lost the lock: the storage must reject that.
        if let Some(value) = value.filter(|_| held || self.rng.bool()) {
            self.visit(op, lock, token, Some(value + 1)).await;
        }
        match &guard {
            Holding::Write(_) if self.rng.bool() => self.downgrade(op, lock, guard).await,
            _ => self.release(op, guard).await,
        }
    }

    /// Holds the lock for a while. Returns `true` if it is still held then.
    async fn stay(&mut self, op: u64, guard: &Holding, look: &mut Look) -> bool {
        let time = Duration::from_millis(match self.manner {
            Manner::Quiet => self.rng.u64(500..3000),
            Manner::Idle if self.rng.bool() => self.rng.u64(300..1500),
            Manner::Busy if self.rng.u32(..12) == 0 => 1500,
            Manner::Busy | Manner::Idle => self.rng.u64(0..40),
            Manner::Crowd => self.rng.u64(0..10),
        });
        let until = Instant::now() + time;
        // Sometimes until the loss: a worker that releases before a fault cannot lose its lock.
        let stays = self.manner == Manner::Quiet || self.manner != Manner::Crowd && self.rng.bool();
        while self.look(op, guard, look) {
            if Instant::now() >= until && !(stays && self.is_stormy()) {
                return true;
            }
            // If it is notified, it is notified at once.
            let _ = timeout(LOOK, guard.lost()).await;
        }
        if timeout(READY, guard.lost()).await.is_ok() {
            self.record.write(What::Lost { op });
        }
        false
    }

    /// Returns `true` if this client is cut off, or a fault affects the cluster.
    fn is_stormy(&self) -> bool {
        let connected = self.client.session_events().current().state == SessionState::Connected;
        !connected || storm_file(&self.folder).exists()
    }

    /// Downgrades from write to read. From the call on, the lock counts as a read lock.
    async fn downgrade(&mut self, op: u64, lock: Lock, guard: Holding) {
        let at = now();
        self.record.write_at(at, What::Release { op });
        let op = self.ask(at, Lock { wanted: Kind::Read.into(), ..lock }, How::Downgrade);
        match guard.downgrade().await {
            Ok(guard) => {
                let Some(mut look) = self.got(op, at, &guard) else { return };
                self.stay(op, &guard, &mut look).await;
                self.release(op, guard).await;
            }
            Err(e) => self.record.write(What::Failed { op, error: show(&e.error) }),
        }
    }

    /// Records that the lock has been held since `from`, if it is held.
    fn got(&self, op: u64, from: Ns, guard: &Holding) -> Option<Look> {
        let token = token(guard);
        // Read before `is_held`: if that returns `true`, no epoch has begun since the grant, so this one is the guard's.
        let session = self.client.session_events().current();
        if !guard.is_held() {
            self.record.write(What::Stale { op, token });
            return None;
        }
        let deadline = self.deadline(session);
        self.record.write(What::Got { op, from, token, session: session.id.get(), deadline });
        Some(Look { last: from, deadline })
    }

    /// Returns the instant until which the session of a held lock is guaranteed to last.
    fn deadline(&self, session: Session) -> Ns {
        self.record.clock.number(session.deadline.expect("a session that owns a node has a deadline"))
    }

    /// Returns `true` if the lock is still held. Records a later deadline, or the loss.
    fn look(&self, op: u64, guard: &Holding, before: &mut Look) -> bool {
        let at = now();
        let session = self.client.session_events().current();
        let held = guard.is_held();
        if held {
            before.last = at;
            let deadline = self.deadline(session);
            if deadline > before.deadline {
                before.deadline = deadline;
                self.record.write(What::Held { op, deadline });
            }
        } else {
            self.record.write(What::Unheld { op, last: before.last });
        }
        held
    }

    /// Uses the storage. Returns the value, or `None` if the token was rejected.
    async fn visit(&mut self, op: u64, lock: Lock, token: u64, value: Option<u64>) -> Option<u64> {
        match self.storage.visit(lock.path, token, value).await.expect("an answer of the storage") {
            Visited::Value(value) => Some(value),
            Visited::Refused(at, newer) => {
                self.record.write(What::Refused { op, at, newer });
                None
            }
        }
    }

    async fn release(&mut self, op: u64, guard: Holding) {
        self.record.write(What::Release { op });
        match self.rng.u32(..8) {
            0 => return drop(guard),
            1 => return on_a_short_runtime(async { drop(guard) }).await,
            _ => {}
        }
        let outcome = match guard.release().await {
            Ok(release) => format!("{release:?}"),
            Err(error) => format!("Err({})", show(&error)),
        };
        self.record.write(What::Released { op, outcome });
    }
}

/// Runs a future on a runtime that ends as soon as the future does. Remaining background work must not end with it.
async fn on_a_short_runtime<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    let run = || Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future);
    tokio::task::spawn_blocking(run).await.expect("a thread")
}

/// The result of the last check of a held lock.
struct Look {
    last: Ns,
    deadline: Ns,
}

/// Returns the fencing token in the format of histories.
fn token(guard: &Holding) -> u64 {
    let token = guard.tokens()[0];
    (token.number() << TURN_BITS) + u64::from(token.turn())
}

/// Formats an error on one line.
fn show(error: &Error) -> String {
    format!("{:?}: {error}", error.kind()).replace('\n', " ")
}
