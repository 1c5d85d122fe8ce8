//! The locks that clients of each role acquire.

use std::time::Duration;

use fastrand::Rng;
use tokio::time::timeout;
use zlock::{Client, Handoff, Result};

use crate::history::{CROWD, How, Kind};
use crate::locks::{Holding, Wanted, Way};

/// The paths that busy clients lock.
const BUSY: [&str; 5] = ["/chaos/mutex", "/chaos/other", "/chaos/rw", "/chaos/permits", "/chaos/leader"];
/// The path whose mutex clients mostly acquire with hand-off.
const HANDED: &str = "/chaos/other";
/// The duration of a hand-off. Holders in busy clients keep a lock for about 20 ms.
const HANDOFF: Handoff = Handoff::within(Duration::from_millis(60));
/// The path of quiet clients.
const QUIET: [&str; 1] = ["/chaos/quiet"];
/// The path of idle clients, which is rarely free.
const IDLE: [&str; 1] = ["/chaos/mutex"];

/// The role of a client.
///
/// A busy client sends requests all the time, so it soon notices missing responses. A quiet client holds a mutex for a long
/// time or waits for it, so only its session shows it a failure; it also waits on many bytes of paths. An idle client owns no
/// node for longer than a session timeout between two acquisitions. Its session may have ended unnoticed, so its next lock
/// depends on what the first create proves. A crowd is what a client of any other role becomes for a moment: many tasks that each
/// acquire one lock once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Busy,
    Quiet,
    Idle,
    Crowd,
}

impl Manner {
    /// Returns the role of a client by its number. Two clients are quiet, so that one holds and one waits, and two are idle.
    pub(crate) fn of(number: usize) -> Self {
        match number {
            0 | 1 => Manner::Quiet,
            2 | 3 => Manner::Idle,
            _ => Manner::Busy,
        }
    }

    /// Parses the name in its `Debug` format.
    pub(crate) fn named(name: &str) -> Option<Self> {
        [Manner::Busy, Manner::Quiet, Manner::Idle].into_iter().find(|manner| format!("{manner:?}") == name)
    }

    /// Returns the paths that such a client locks.
    pub(crate) fn locks(self) -> &'static [&'static str] {
        match self {
            Manner::Busy => &BUSY,
            Manner::Quiet => &QUIET,
            Manner::Idle => &IDLE,
            Manner::Crowd => &[CROWD],
        }
    }
}

/// The maximum of the semaphore.
const MAX: u32 = 5;

/// A lock to acquire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lock {
    pub(crate) path: &'static str,
    pub(crate) wanted: Wanted,
}

impl Lock {
    pub(crate) fn any(manner: Manner, rng: &mut Rng) -> Self {
        let path = manner.locks()[rng.usize(..manner.locks().len())];
        let kind = match path {
            "/chaos/rw" if rng.u32(..5) < 2 => Kind::Write,
            "/chaos/rw" => Kind::Read,
            "/chaos/leader" => Kind::Leader,
            "/chaos/permits" => Kind::Permits { n: rng.u32(1..=3), max: MAX },
            _ => Kind::Mutex,
        };
        let handoff = (path == HANDED && rng.u32(..4) > 0).then_some(HANDOFF);
        Lock { path, wanted: Wanted { kind, handoff } }
    }

    /// Acquires the lock. Returns `None` if the attempt was cancelled after `time`, or if `try_acquire` found the lock held.
    pub(crate) async fn acquire(self, client: &Client, how: How, time: Duration) -> Result<Option<Holding>> {
        let acquire = |way| self.wanted.acquire(client, self.path, way);
        match how {
            How::Wait | How::Downgrade => acquire(Way::Wait).await,
            How::Timeout => acquire(Way::Timed(time)).await,
            How::Try => acquire(Way::Try).await,
            How::Cancel => timeout(time, acquire(Way::Wait)).await.unwrap_or(Ok(None)),
        }
    }
}
