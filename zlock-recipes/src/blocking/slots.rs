//! Blocking versions of slots.

use std::time::Duration;

use zlock_core::{LockPath, Result};

use super::client::Client;
use super::driver::{Driver, may_block};
use super::guard::HeldLock;
use super::guard::sealed::Single;
use crate::Release;

impl Client {
    /// Returns a handle to the slots at `path`, as [`zlock::Client::slots`](crate::Client::slots) does.
    ///
    /// # Errors
    /// Those of [`zlock::Client::slots`](crate::Client::slots).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// let client = zlock::blocking::connect("mem://")?;
    /// let slot = client.slots("/app/worker-ids", 1024)?.acquire()?;
    /// assert_eq!(slot.number(), 0);
    /// slot.check()?; // before each use of the number
    /// slot.release()?;
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn slots(&self, path: impl AsRef<str>, n: u32) -> Result<Slots> {
        let slots = self.as_async().slots(path, n)?;
        Ok(Slots { slots, driver: self.driver().clone() })
    }
}

/// A number of slots, each of which one client at a time has. The blocking version of [`zlock::Slots`](crate::Slots). All
/// methods that wait also fail with [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused).
#[derive(Clone, Debug)]
pub struct Slots {
    slots: crate::Slots,
    driver: Driver,
}

impl Slots {
    /// Returns the path of the slots.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.slots.path()
    }

    /// Returns how many slots there are.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.slots.size()
    }

    /// Acquires the smallest free number, as [`zlock::Slots::acquire`](crate::Slots::acquire) does.
    ///
    /// # Errors
    /// Those of [`zlock::Slots::acquire`](crate::Slots::acquire).
    ///
    /// # Examples
    /// See [`Client::slots`].
    pub fn acquire(&self) -> Result<Slot> {
        let slot = self.driver.run("acquire", self.slots.acquire())?;
        Ok(Slot { slot, driver: self.driver.clone() })
    }

    /// Acquires the smallest free number, waiting for at most `time`, as
    /// [`zlock::Slots::acquire_timeout`](crate::Slots::acquire_timeout) does.
    ///
    /// # Errors
    /// Those of [`zlock::Slots::acquire_timeout`](crate::Slots::acquire_timeout).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let slot = client.slots("/app/worker-ids", 1)?.acquire_timeout(std::time::Duration::from_secs(2))?;
    /// slot.release()?;
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn acquire_timeout(&self, time: Duration) -> Result<Slot> {
        let slot = self.driver.run("acquire", self.slots.acquire_timeout(time))?;
        Ok(Slot { slot, driver: self.driver.clone() })
    }
}

/// A number that no other client has while this is held. The blocking version of [`zlock::Slot`](crate::Slot). It is released
/// when it is dropped.
#[derive(Debug)]
#[must_use = "the slot is released at once if it is dropped"]
pub struct Slot {
    slot: crate::Slot,
    driver: Driver,
}

impl Slot {
    /// Returns the number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.slot.number()
    }

    /// Returns the async guard of the slot's permit, which has its node and its fencing token. In a forked child it still reports
    /// the slot as held: ask [`is_held`](Self::is_held) there.
    pub fn guard(&self) -> &crate::Guard {
        self.slot.guard()
    }

    /// Returns `true` if no other client has the number at this moment. Performs no I/O.
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.driver.is_forked() && self.slot.is_held()
    }

    /// Returns an error if the number is lost, as [`Guard::check`](super::Guard::check) does.
    ///
    /// # Errors
    /// Those of [`Guard::check`](super::Guard::check).
    pub fn check(&self) -> Result<()> {
        if self.driver.is_forked() {
            return may_block("check", self.driver.process());
        }
        self.slot.check()
    }

    /// Releases the number, as [`zlock::Slot::release`](crate::Slot::release) does.
    ///
    /// # Errors
    /// Those of [`zlock::Slot::release`](crate::Slot::release).
    ///
    /// # Examples
    /// See [`Client::slots`].
    pub fn release(self) -> Result<Release> {
        self.driver.run("release", self.slot.release())
    }
}

impl HeldLock for Slot {}

impl Single for Slot {
    fn single(&self) -> &crate::Guard {
        self.slot.guard()
    }
}
