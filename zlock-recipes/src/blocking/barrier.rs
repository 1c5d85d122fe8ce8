//! Blocking versions of barriers and latches.

use std::time::Duration;

use zlock_core::{LockPath, Result};

use super::client::Client;
use super::driver::Driver;

impl Client {
    /// Returns a handle to the barrier at `path`, as [`zlock::Client::barrier`](crate::Client::barrier) does.
    ///
    /// # Errors
    /// Those of [`zlock::Client::barrier`](crate::Client::barrier).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// let client = zlock::blocking::connect("mem://")?;
    /// let barrier = client.barrier("/app/loaded", 2)?;
    /// std::thread::scope(|threads| {
    ///     let members = [(); 2].map(|()| threads.spawn(|| barrier.wait()));
    ///     members.into_iter().try_for_each(|member| member.join().unwrap().map(drop))
    /// })?;
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn barrier(&self, path: impl AsRef<str>, n: u32) -> Result<Barrier> {
        let barrier = self.as_async().barrier(path, n)?;
        Ok(Barrier { barrier, driver: self.driver().clone() })
    }

    /// Returns a handle to the double barrier at `path`, as [`zlock::Client::double_barrier`](crate::Client::double_barrier)
    /// does.
    ///
    /// # Errors
    /// Those of [`zlock::Client::double_barrier`](crate::Client::double_barrier).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// let client = zlock::blocking::connect("mem://")?;
    /// let entered = client.double_barrier("/app/rebuild", 1)?.enter()?;
    /// entered.leave()?;
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn double_barrier(&self, path: impl AsRef<str>, n: u32) -> Result<DoubleBarrier> {
        let barrier = self.as_async().double_barrier(path, n)?;
        Ok(DoubleBarrier { barrier, driver: self.driver().clone() })
    }

    /// Returns a handle to the latch at `path`, as [`zlock::Client::latch`](crate::Client::latch) does.
    ///
    /// # Errors
    /// Those of [`zlock::Client::latch`](crate::Client::latch).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// let client = zlock::blocking::connect("mem://")?;
    /// let maintenance = client.latch("/app/maintenance")?;
    /// assert!(maintenance.close()?);
    /// assert!(maintenance.open()?);
    /// maintenance.wait()?;
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn latch(&self, path: impl AsRef<str>) -> Result<Latch> {
        let latch = self.as_async().latch(path)?;
        Ok(Latch { latch, driver: self.driver().clone() })
    }
}

/// A point at which `n` members wait for each other. The blocking version of [`zlock::Barrier`](crate::Barrier). All methods
/// that wait also fail with [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused).
#[derive(Clone, Debug)]
pub struct Barrier {
    barrier: crate::Barrier,
    driver: Driver,
}

impl Barrier {
    /// Returns the path of the barrier.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.barrier.path()
    }

    /// Returns how many members a round has.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.barrier.size()
    }

    /// Waits until `n` members wait, as [`zlock::Barrier::wait`](crate::Barrier::wait) does.
    ///
    /// # Errors
    /// Those of [`zlock::Barrier::wait`](crate::Barrier::wait).
    ///
    /// # Examples
    /// See [`Client::barrier`].
    pub fn wait(&self) -> Result<u64> {
        self.driver.run("wait", self.barrier.wait())
    }

    /// Waits for at most `time`, as [`zlock::Barrier::wait_timeout`](crate::Barrier::wait_timeout) does.
    ///
    /// # Errors
    /// Those of [`zlock::Barrier::wait_timeout`](crate::Barrier::wait_timeout).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let barrier = client.barrier("/app/loaded", 2)?;
    /// assert!(barrier.wait_timeout(std::time::Duration::from_millis(10)).is_err());
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_timeout(&self, time: Duration) -> Result<u64> {
        self.driver.run("wait", self.barrier.wait_timeout(time))
    }
}

/// A barrier that `n` members enter together and leave together. The blocking version of
/// [`zlock::DoubleBarrier`](crate::DoubleBarrier).
#[derive(Clone, Debug)]
pub struct DoubleBarrier {
    barrier: crate::DoubleBarrier,
    driver: Driver,
}

impl DoubleBarrier {
    /// Returns the path of the barrier.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.barrier.path()
    }

    /// Returns how many members a round has.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.barrier.size()
    }

    /// Waits until `n` members want to enter, as [`zlock::DoubleBarrier::enter`](crate::DoubleBarrier::enter) does.
    ///
    /// # Errors
    /// Those of [`zlock::DoubleBarrier::enter`](crate::DoubleBarrier::enter).
    ///
    /// # Examples
    /// See [`Client::double_barrier`].
    pub fn enter(&self) -> Result<Entered> {
        let entered = self.driver.run("enter", self.barrier.enter())?;
        Ok(Entered { entered, driver: self.driver.clone() })
    }

    /// Waits for at most `time`, as [`zlock::DoubleBarrier::enter_timeout`](crate::DoubleBarrier::enter_timeout) does.
    ///
    /// # Errors
    /// Those of [`zlock::DoubleBarrier::enter_timeout`](crate::DoubleBarrier::enter_timeout).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let barrier = client.double_barrier("/app/rebuild", 2)?;
    /// assert!(barrier.enter_timeout(std::time::Duration::from_millis(10)).is_err());
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn enter_timeout(&self, time: Duration) -> Result<Entered> {
        let entered = self.driver.run("enter", self.barrier.enter_timeout(time))?;
        Ok(Entered { entered, driver: self.driver.clone() })
    }
}

/// A member that has entered a [`DoubleBarrier`]. The blocking version of [`zlock::Entered`](crate::Entered). It leaves when
/// this is dropped, without waiting for the others.
#[derive(Debug)]
#[must_use = "the member leaves at once if it is dropped"]
pub struct Entered {
    entered: crate::Entered,
    driver: Driver,
}

impl Entered {
    /// Returns the number of the round, which begins with 1.
    #[must_use]
    pub fn round(&self) -> u64 {
        self.entered.round()
    }

    /// Leaves, and waits until all members of the round have left, as [`zlock::Entered::leave`](crate::Entered::leave) does.
    ///
    /// # Errors
    /// Those of [`zlock::Entered::leave`](crate::Entered::leave).
    ///
    /// # Examples
    /// See [`Client::double_barrier`].
    pub fn leave(self) -> Result<()> {
        self.driver.run("leave", self.entered.leave())
    }

    /// Leaves, and waits for the others for at most `time`, as [`zlock::Entered::leave_timeout`](crate::Entered::leave_timeout)
    /// does.
    ///
    /// # Errors
    /// Those of [`zlock::Entered::leave_timeout`](crate::Entered::leave_timeout).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let entered = client.double_barrier("/app/rebuild", 1)?.enter()?;
    /// entered.leave_timeout(std::time::Duration::from_secs(5))?;
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn leave_timeout(self, time: Duration) -> Result<()> {
        self.driver.run("leave", self.entered.leave_timeout(time))
    }
}

/// A gate that clients close and open for each other. The blocking version of [`zlock::Latch`](crate::Latch). All methods that
/// wait also fail with [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused).
#[derive(Clone, Debug)]
pub struct Latch {
    latch: crate::Latch,
    driver: Driver,
}

impl Latch {
    /// Returns the path of the latch.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.latch.path()
    }

    /// Closes the latch, as [`zlock::Latch::close`](crate::Latch::close) does.
    ///
    /// # Errors
    /// Those of [`zlock::Latch::close`](crate::Latch::close).
    ///
    /// # Examples
    /// See [`Client::latch`].
    pub fn close(&self) -> Result<bool> {
        self.driver.run("close", self.latch.close())
    }

    /// Opens the latch, as [`zlock::Latch::open`](crate::Latch::open) does.
    ///
    /// # Errors
    /// Those of [`zlock::Latch::open`](crate::Latch::open).
    ///
    /// # Examples
    /// See [`Client::latch`].
    pub fn open(&self) -> Result<bool> {
        self.driver.run("open", self.latch.open())
    }

    /// Returns `true` if the latch is open.
    ///
    /// # Errors
    /// Those of [`zlock::Latch::is_open`](crate::Latch::is_open).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// assert!(client.latch("/app/maintenance")?.is_open()?);
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_open(&self) -> Result<bool> {
        self.driver.run("is_open", self.latch.is_open())
    }

    /// Waits until the latch is open, as [`zlock::Latch::wait`](crate::Latch::wait) does.
    ///
    /// # Errors
    /// Those of [`zlock::Latch::wait`](crate::Latch::wait).
    ///
    /// # Examples
    /// See [`Client::latch`].
    pub fn wait(&self) -> Result<()> {
        self.driver.run("wait", self.latch.wait())
    }

    /// Waits for at most `time`, as [`zlock::Latch::wait_timeout`](crate::Latch::wait_timeout) does.
    ///
    /// # Errors
    /// Those of [`zlock::Latch::wait_timeout`](crate::Latch::wait_timeout).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let maintenance = client.latch("/app/maintenance")?;
    /// maintenance.close()?;
    /// assert!(maintenance.wait_timeout(std::time::Duration::from_millis(10)).is_err());
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_timeout(&self, time: Duration) -> Result<()> {
        self.driver.run("wait", self.latch.wait_timeout(time))
    }
}
