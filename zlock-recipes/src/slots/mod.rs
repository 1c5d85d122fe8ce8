//! Numbers that one client at a time has.
//!
//! A slot is a permit of a semaphore, whose holders are at most as many as there are numbers, and an entry in a value
//! (`table.rs`), which is written while the permit is held.

mod table;

use std::ops::Deref;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use zlock_core::{Error, ErrorKind, LockPath, Phase, Result};

use self::table::Table;
use crate::client::Client;
use crate::guard::Guard;
use crate::guard::context::LockContext;
use crate::locks::semaphore::PermitRequest;
use crate::release::Release;
use crate::value::{CompareAndSet, SharedValue};

/// The most slots. All numbers in use are in one value.
const MOST: u32 = 10_000;

impl Client {
    /// Returns a handle to the slots at `path`, which have the numbers from 0 to `n` - 1. Performs no I/O.
    ///
    /// The path must not be that of a lock or a value, or below one. All clients must use the same `n`.
    ///
    /// # Errors
    /// [`InvalidPath`](ErrorKind::InvalidPath); [`InvalidArgument`](ErrorKind::InvalidArgument) if `n` is 0 or more than 10,000,
    /// or if the client's backend has no values.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let workers = client.slots("/app/worker-ids", 1024)?;
    /// let slot = workers.acquire().await?;
    /// assert!(slot.number() < 1024);
    /// slot.check()?; // before each use of the number
    /// slot.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn slots(&self, path: impl AsRef<str>, n: u32) -> Result<Slots> {
        let path = LockPath::new(path)?;
        if !(1..=MOST).contains(&n) {
            let message = format!("{n} slots; there must be at least 1 and at most {MOST}");
            return Err(Error::new(ErrorKind::InvalidArgument, "slots")
                .with_path(&path)
                .with_message(message));
        }
        let permits = self.semaphore(path.join("holders")?, n)?.permits(1)?;
        let numbers = self.shared_value(path.join("numbers")?)?;
        Ok(Slots { path, permits, numbers, n })
    }
}

/// A number of slots, each of which one client at a time has. Created by [`Client::slots`]. Cheap to clone.
///
/// For worker IDs, such as those in Snowflake IDs: small numbers that no two live processes share.
#[derive(Clone, Debug)]
pub struct Slots {
    path: LockPath,
    permits: PermitRequest,
    numbers: SharedValue,
    n: u32,
}

impl Slots {
    /// Returns the path of the slots.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        &self.path
    }

    /// Returns how many slots there are.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.n
    }

    /// Acquires the smallest free number, waiting without a time limit until one is free, first come, first served.
    ///
    /// # Errors
    /// Those of [`LockHandle::acquire`](crate::LockHandle::acquire) and of
    /// [`SharedValue::compare_and_set_under`]. [`PermitLimitMismatch`](ErrorKind::PermitLimitMismatch) if the clients that have
    /// slots use another `n`.
    ///
    /// # Cancel safety
    /// Dropping the future gives up; no node is left behind.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// See [`Client::slots`].
    pub async fn acquire(&self) -> Result<Slot> {
        let guard = self.permits.acquire().await?;
        self.take(guard).await
    }

    /// Acquires the smallest free number, waiting for at most `time`. A zero duration makes a single attempt.
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy) if no number is free by then, [`Timeout`](ErrorKind::Timeout) if it could not be taken in time, and
    /// those of [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As for [`acquire`](Self::acquire).
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// use std::time::Duration;
    ///
    /// let workers = client.slots("/app/worker-ids", 1)?;
    /// let slot = workers.acquire_timeout(Duration::from_secs(2)).await?;
    /// assert_eq!(slot.number(), 0);
    /// assert!(workers.acquire_timeout(Duration::from_millis(50)).await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire_timeout(&self, time: Duration) -> Result<Slot> {
        // A deadline that the clock cannot represent means no time limit.
        let Some(deadline) = Instant::now().checked_add(time) else { return self.acquire().await };
        let guard = self.permits.acquire_timeout(time).await?;
        if time.is_zero() {
            // A single attempt, as with a lock.
            return self.take(guard).await;
        }
        timeout_at(deadline, self.take(guard)).await.unwrap_or_else(|_| {
            let message = "timed out while a free number was looked for";
            let kind = ErrorKind::Timeout(Phase::Queueing);
            Err(Error::new(kind, "acquire").with_path(&self.path).with_message(message))
        })
    }

    /// Takes a number with a permit, which shows that one is free.
    ///
    /// A client that writes the table gives a number to every node with a permit. A write that is refused twice was overtaken by one
    /// whose client has read the table after the first refusal, and so listed this node. So clients that take numbers together need
    /// no turns and no pauses.
    async fn take(&self, guard: Guard) -> Result<Slot> {
        let (hold, backend) = (guard.hold().clone(), guard.hold().client().backend());
        let me = hold.record().node_id();
        let mut now = self.numbers.get().await?;
        loop {
            let (version, data) = (now.as_ref().map(|now| now.version), now.as_ref().map(|now| &*now.data));
            let mut table = Table::parse(data, self.numbers.path())?;
            if let Some(number) = table.of(&me) {
                guard.check()?;
                return Ok(Slot { guard, number });
            }
            // Listed after the table was read: a number whose node is missing now is free.
            let queue = backend.children(guard.path(), None).await?;
            table.fill(&queue, self.n);
            let Some(number) = table.of(&me) else {
                if queue.iter().all(|node| node.id != me) {
                    hold.removed();
                }
                guard.check()?;
                return Err(self.none_free());
            };
            match self.numbers.compare_and_set_under(&guard, version, table.text()).await? {
                CompareAndSet::Written(_) => return Ok(Slot { guard, number }),
                CompareAndSet::Conflict(other) => now = other,
            }
        }
    }

    fn none_free(&self) -> Error {
        let message = "the nodes of all numbers exist, although a permit is held: another program has written the value";
        Error::new(ErrorKind::Unexpected, "acquire").with_path(self.numbers.path()).with_message(message)
    }
}

/// A number that no other client has while this is held. It dereferences to the [`LockContext`] of its node, and is released
/// when it is dropped.
///
/// As with any lock, a process that has lost its session may not have noticed yet. Call [`check`](LockContext::check) before
/// each use of the number, or run the work in [`Guard::run`].
#[derive(Debug)]
#[must_use = "the slot is released at once if it is dropped"]
pub struct Slot {
    guard: Guard,
    number: u32,
}

impl Slot {
    /// Returns the number.
    ///
    /// # Examples
    /// See [`Client::slots`].
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the guard that holds the number.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Releases the number.
    ///
    /// # Errors
    /// Those of [`Guard::release`].
    ///
    /// # Cancel safety
    /// As for [`Guard::release`].
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// See [`Client::slots`].
    pub async fn release(self) -> Result<Release> {
        self.guard.release().await
    }
}

impl Deref for Slot {
    type Target = LockContext;

    fn deref(&self) -> &LockContext {
        &self.guard
    }
}
