//! The locks that clients take, and all ways to take them.

use std::ops::Deref;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::timeout;
use zlock::{
    Client, Guard, Handoff, InterProcessMutex, ReadWriteLock, Release, Result, Semaphore, WriteGuard,
};

use crate::history::{How, Kind};

/// The paths that busy clients take.
const BUSY: [&str; 4] = ["/chaos/mutex", "/chaos/other", "/chaos/rw", "/chaos/permits"];
/// The path whose mutex clients hand over inside, most of the time.
const HANDED: &str = "/chaos/other";
/// The holders of busy clients keep a lock for some 20 ms.
const HANDOFF: Handoff = Handoff::within(Duration::from_millis(60));
/// The path of quiet clients.
const QUIET: [&str; 1] = ["/chaos/quiet"];
/// The path of idle clients: one that is seldom free.
const IDLE: [&str; 1] = ["/chaos/mutex"];

/// What a client does. Who sends requests all the time finds out soon that nobody answers them; a quiet client holds a
/// mutex for long, or waits for it, and has only its session to find out by. It also waits on many bytes of paths. An idle
/// client owns no node for longer than its session between two acquisitions: so its session may have ended unnoticed, and
/// its next lock lives by what the first create proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Busy,
    Quiet,
    Idle,
}

impl Manner {
    /// Of a client by its number: two are quiet, so that one holds and one waits, and two are idle.
    pub(crate) fn of(number: usize) -> Self {
        match number {
            0 | 1 => Manner::Quiet,
            2 | 3 => Manner::Idle,
            _ => Manner::Busy,
        }
    }

    /// From the name that its `Debug` form is.
    pub(crate) fn named(name: &str) -> Option<Self> {
        [Manner::Busy, Manner::Quiet, Manner::Idle].into_iter().find(|manner| format!("{manner:?}") == name)
    }

    /// The paths that such a client takes.
    pub(crate) fn locks(self) -> &'static [&'static str] {
        match self {
            Manner::Busy => &BUSY,
            Manner::Quiet => &QUIET,
            Manner::Idle => &IDLE,
        }
    }
}

/// Of the semaphore.
const MAX: u32 = 5;

/// One of the ways. Futures that are not polled do nothing.
macro_rules! take {
    ($how:expr, $time:expr, $wait:expr, $limited:expr, $once:expr, $grip:expr) => {
        match $how {
            How::Wait | How::Downgrade => $wait.await.map(|guard| Some($grip(guard))),
            How::Timeout => $limited.await.map(|guard| Some($grip(guard))),
            How::Try => Ok($once.await?.map($grip)),
            How::Cancel => match timeout($time, $wait).await {
                Ok(acquired) => acquired.map(|guard| Some($grip(guard))),
                Err(_) => Ok(None),
            },
        }
    };
}
/// Something to take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lock {
    pub(crate) path: &'static str,
    pub(crate) kind: Kind,
    /// Of a mutex.
    pub(crate) handoff: Option<Handoff>,
}

impl Lock {
    pub(crate) fn any(manner: Manner, rng: &mut Rng) -> Self {
        let path = manner.locks()[rng.usize(..manner.locks().len())];
        let kind = match path {
            "/chaos/rw" if rng.u32(..5) < 2 => Kind::Write,
            "/chaos/rw" => Kind::Read,
            "/chaos/permits" => Kind::Permits { n: rng.u32(1..=3), max: MAX },
            _ => Kind::Mutex,
        };
        let handoff = (path == HANDED && rng.u32(..4) > 0).then_some(HANDOFF);
        Lock { path, kind, handoff }
    }

    /// Whether a storage can be protected with it: who holds it holds it alone.
    pub(crate) fn is_exclusive(self) -> bool {
        matches!(self.kind, Kind::Mutex | Kind::Write)
    }

    /// Takes it; `None` if it was given up after `time`, or a try found it taken.
    pub(crate) async fn acquire(self, client: &Client, how: How, time: Duration) -> Result<Option<Grip>> {
        match self.kind {
            Kind::Mutex => {
                let mut lock = InterProcessMutex::new(client, self.path)?;
                if let Some(handoff) = self.handoff {
                    lock = lock.with_handoff(handoff);
                }
                take!(how, time, lock.acquire(), lock.acquire_timeout(time), lock.try_acquire(), Grip::Guard)
            }
            Kind::Read => {
                let lock = ReadWriteLock::new(client, self.path)?.read();
                take!(how, time, lock.acquire(), lock.acquire_timeout(time), lock.try_acquire(), Grip::Guard)
            }
            Kind::Write => {
                let lock = ReadWriteLock::new(client, self.path)?.write();
                take!(how, time, lock.acquire(), lock.acquire_timeout(time), lock.try_acquire(), Grip::Write)
            }
            Kind::Permits { n, max } => {
                let lock = Semaphore::new(client, self.path, max)?;
                let (wait, limited, once) =
                    (lock.acquire(n), lock.acquire_timeout(n, time), lock.try_acquire(n));
                take!(how, time, wait, limited, once, Grip::Guard)
            }
        }
    }
}

/// A held lock of any kind.
#[derive(Debug)]
pub(crate) enum Grip {
    Guard(Guard),
    Write(WriteGuard),
}

impl Deref for Grip {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        match self {
            Grip::Guard(guard) => guard,
            Grip::Write(guard) => guard,
        }
    }
}

impl Grip {
    pub(crate) async fn release(self) -> Result<Release> {
        match self {
            Grip::Guard(guard) => guard.release().await,
            Grip::Write(guard) => guard.release().await,
        }
    }
}
