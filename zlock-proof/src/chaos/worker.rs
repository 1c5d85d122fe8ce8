//! One worker: takes locks in all ways, holds them, visits the storage, and records what happens.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep, timeout};
use zlock::{Client, Error, Guard, Session, SessionState, WriteGuard};

use super::client::{Told, stop_file, storm_file};
use super::clock::now;
use super::locks::{Grip, Lock, Manner};
use super::record::Record;
use super::storage::{Visited, Visitor};
use crate::history::{How, Kind, Ns, TURN_BITS, What};

/// Between two looks at a held lock.
const LOOK: Duration = Duration::from_millis(2);

/// How long `lost()` may take once the lock is known not to be held. It is ready then.
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

    /// Owns nothing for a while.
    async fn rest(&mut self) {
        let time = match self.manner {
            Manner::Idle => self.session.mul_f64(1.0 + self.rng.f64()),
            Manner::Busy | Manner::Quiet => Duration::from_millis(self.rng.u64(0..40)),
        };
        let until = Instant::now() + time;
        while Instant::now() < until && !stop_file(&self.folder).exists() {
            sleep((until - Instant::now()).min(Duration::from_millis(100))).await;
        }
    }

    /// One acquisition, and what follows.
    async fn once(&mut self) {
        let lock = Lock::any(self.manner, &mut self.rng);
        let how = match self.rng.u32(..100) {
            _ if self.manner != Manner::Busy => How::Wait,
            0..60 => How::Wait,
            60..75 => How::Timeout,
            75..85 => How::Try,
            _ => How::Cancel,
        };
        // Some of those that are given up are given up on their way.
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
                // Without a store every answer comes at once.
                sleep(Duration::from_millis(100)).await;
            }
        }
    }

    fn ask(&self, at: Ns, lock: Lock, how: How) -> u64 {
        let (op, worker) = (self.record.op(), self.number);
        self.record.write_at(at, What::Ask { op, worker, lock: lock.path.to_owned(), kind: lock.kind, how });
        op
    }

    /// Counts in the storage, if the lock protects one: reads, holds for a while, writes. Then lets go.
    async fn hold(&mut self, op: u64, lock: Lock, guard: Grip) {
        let Some(mut look) = self.got(op, now(), &guard) else { return };
        let token = token(&guard);
        let value = if lock.is_exclusive() { self.visit(op, lock, token, None).await } else { None };
        let held = self.stay(op, &guard, &mut look).await;
        // Whoever has lost the lock writes, too, now and then: that is what the storage is for.
        if let Some(value) = value.filter(|_| held || self.rng.bool()) {
            self.visit(op, lock, token, Some(value + 1)).await;
        }
        match guard {
            Grip::Write(guard) if self.rng.bool() => self.downgrade(op, lock, guard).await,
            guard => self.release(op, guard).await,
        }
    }

    /// Holds for a while. Whether the lock is still held then.
    async fn stay(&mut self, op: u64, guard: &Grip, look: &mut Look) -> bool {
        let time = Duration::from_millis(match self.manner {
            Manner::Quiet => self.rng.u64(500..3000),
            Manner::Idle if self.rng.bool() => self.rng.u64(300..1500),
            Manner::Busy if self.rng.u32(..12) == 0 => 1500,
            Manner::Busy | Manner::Idle => self.rng.u64(0..40),
        });
        let until = Instant::now() + time;
        // Now and then to the very end: who has let go when a fault comes has nothing to lose.
        let stays = self.manner == Manner::Quiet || self.rng.bool();
        while self.look(op, guard, look) {
            if Instant::now() >= until && !(stays && self.is_stormy()) {
                return true;
            }
            // Told at once, if at all.
            let _ = timeout(LOOK, guard.lost()).await;
        }
        if timeout(READY, guard.lost()).await.is_ok() {
            self.record.write(What::Lost { op });
        }
        false
    }

    /// Whether this client is cut off, or something happens to the cluster.
    fn is_stormy(&self) -> bool {
        let connected = self.client.session_events().current().state == SessionState::Connected;
        !connected || storm_file(&self.folder).exists()
    }

    /// From write to read: from the call on it counts as read.
    async fn downgrade(&mut self, op: u64, lock: Lock, guard: WriteGuard) {
        let at = now();
        self.record.write_at(at, What::Release { op });
        let op = self.ask(at, Lock { kind: Kind::Read, ..lock }, How::Downgrade);
        match guard.downgrade().await {
            Ok(guard) => {
                let guard = Grip::Guard(guard);
                let Some(mut look) = self.got(op, at, &guard) else { return };
                self.stay(op, &guard, &mut look).await;
                self.release(op, guard).await;
            }
            Err(e) => self.record.write(What::Failed { op, error: show(&e.error) }),
        }
    }

    /// Records that the lock is held since `from`, if it is.
    fn got(&self, op: u64, from: Ns, guard: &Grip) -> Option<Look> {
        let token = token(guard);
        // Looked at before `is_held`: if that is true no epoch has begun since the grant, and this one is the
        // guard's.
        let session = self.client.session_events().current();
        if !guard.is_held() {
            self.record.write(What::Stale { op, token });
            return None;
        }
        let deadline = self.deadline(session);
        self.record.write(What::Got { op, from, token, session: session.id.get(), deadline });
        Some(Look { last: from, deadline })
    }

    /// Until when the session that a lock is held in lasts for certain.
    fn deadline(&self, session: Session) -> Ns {
        self.record.clock.number(session.deadline.expect("a session that owns a node has a deadline"))
    }

    /// Whether the lock is still held; records a later deadline, and the end.
    fn look(&self, op: u64, guard: &Grip, before: &mut Look) -> bool {
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

    /// Visits the storage. The value, unless it was refused.
    async fn visit(&mut self, op: u64, lock: Lock, token: u64, value: Option<u64>) -> Option<u64> {
        match self.storage.visit(lock.path, token, value).await.expect("an answer of the storage") {
            Visited::Value(value) => Some(value),
            Visited::Refused(at, newer) => {
                self.record.write(What::Refused { op, at, newer });
                None
            }
        }
    }

    async fn release(&mut self, op: u64, guard: Grip) {
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

/// Runs a future on a runtime that ends as soon as the future does: what is left to do in the background must not
/// end with it.
async fn on_a_short_runtime<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    let run = || Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future);
    tokio::task::spawn_blocking(run).await.expect("a thread")
}

/// What the last look at a held lock said.
struct Look {
    last: Ns,
    deadline: Ns,
}

/// The fencing token as a history has it.
fn token(guard: &Guard) -> u64 {
    let token = guard.fencing_token();
    (token.number() << TURN_BITS) + u64::from(token.turn())
}

/// An error in one line.
fn show(error: &Error) -> String {
    format!("{:?}: {error}", error.kind()).replace('\n', " ")
}
