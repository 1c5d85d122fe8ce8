//! The blocking lock template.

use std::sync::Arc;
use std::time::Duration;

use zlock_core::{Error, LockPath, Result};

use super::client::Client;
use super::driver::Driver;
use super::guard::Guard;
use crate::Handoff;
use crate::kind::Kind;

/// Runs closures while holding a lock that is named below a common root. The blocking version of
/// [`zlock::LockTemplate`](crate::LockTemplate).
///
/// # Examples
/// ```
/// # fn main() -> zlock::Result<()> {
/// # let client = zlock::blocking::connect("mem://")?;
/// let template = client.lock_template("/app/locks")?;
/// let mut numbers = vec![1];
/// let next: zlock::Result<usize> = template.execute_fallible("create-order", |lock| {
///     numbers.push(2);
///     lock.check()?; // between the steps
///     Ok(numbers.len())
/// });
/// assert_eq!(next?, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LockTemplate {
    template: crate::LockTemplate,
    driver: Driver,
}

impl Client {
    /// Returns a template for locks below `root`, such as `/app/locks`. By default, the template waits for the lock for 2
    /// seconds, twice; see [`with_wait`](LockTemplate::with_wait). Performs no I/O.
    ///
    /// # Errors
    /// [`InvalidPath`](zlock_core::ErrorKind::InvalidPath), with the offending part in the message.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let template = client.lock_template("/app/locks")?;
    /// let token = template.execute("create-order", |lock| lock.fencing_token())?;
    /// # assert!(token.number() > 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock_template(&self, root: impl AsRef<str>) -> Result<LockTemplate> {
        let template = self.as_async().lock_template(root)?;
        Ok(LockTemplate { template, driver: self.driver().clone() })
    }
}

impl LockTemplate {
    fn map(self, change: impl FnOnce(crate::LockTemplate) -> Result<crate::LockTemplate>) -> Result<Self> {
        Ok(LockTemplate { template: change(self.template)?, driver: self.driver })
    }

    /// Sets the kind of lock to acquire. Defaults to [`Mutex`](crate::kind::Mutex).
    ///
    /// # Errors
    /// Those of [`zlock::LockTemplate::with_kind`](crate::LockTemplate::with_kind).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// use zlock::locks::Read;
    ///
    /// let read = client.lock_template("/app/prices")?.with_kind(Read)?;
    /// read.execute("tea", |_lock| { /* alongside other readers */ })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_kind(self, kind: impl Kind) -> Result<Self> {
        self.map(|template| template.with_kind(kind))
    }

    /// Enables hand-off between the threads of this client, as
    /// [`zlock::LockTemplate::with_handoff`](crate::LockTemplate::with_handoff) does.
    ///
    /// # Errors
    /// [`InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) if the template's kind is not [`Mutex`](crate::kind::Mutex).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// use std::time::Duration;
    ///
    /// use zlock::Handoff;
    ///
    /// let handoff = Handoff::within(Duration::from_millis(10));
    /// let template = client.lock_template("/app/locks")?.with_handoff(handoff)?;
    /// template.execute("create-order", |_lock| { /* the work */ })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_handoff(self, handoff: Handoff) -> Result<Self> {
        self.map(|template| template.with_handoff(handoff))
    }

    /// Limits how long a closure holds its lock, as [`LockHandle::max_hold`](super::LockHandle::max_hold) does.
    ///
    /// # Errors
    /// [`InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) if the time is zero.
    pub fn max_hold(self, time: Duration) -> Result<Self> {
        self.map(|template| template.max_hold(time))
    }

    /// Sets the name of the template's locks in metrics, as
    /// [`zlock::LockTemplate::with_metric_name`](crate::LockTemplate::with_metric_name) does. Defaults to the template's root.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let template = client.lock_template("/app/locks")?.with_metric_name("orders");
    /// # let _ = template;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_metric_name(self, name: impl Into<Arc<str>>) -> Self {
        LockTemplate { template: self.template.with_metric_name(name), driver: self.driver }
    }

    /// Sets how long to wait and how many times, `wait * attempts` in total. The place in the queue is kept between the
    /// attempts. Defaults to 2 seconds, twice. A zero duration makes a single attempt.
    ///
    /// # Errors
    /// [`InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) for 0 attempts.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// use std::time::Duration;
    ///
    /// // Waits for 15 seconds in total, and logs after 5 and 10.
    /// let template = client.lock_template("/app/locks")?.with_wait(Duration::from_secs(5), 3)?;
    /// # let _ = template;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_wait(self, wait: Duration, attempts: u32) -> Result<Self> {
        self.map(|template| template.with_wait(wait, attempts))
    }

    /// Acquires the lock of this name, runs the closure, and releases the lock, even if the closure panics. Inside the
    /// closure, its thread may enter the lock again. Returns the closure's output in `Ok`, even if that is an `Err`.
    ///
    /// The closure cannot be cancelled. It should call [`check`](super::BlockingGuard::check) on the guard between its steps,
    /// which returns an error once the lock is lost.
    ///
    /// # Errors
    /// - Those of [`zlock::LockTemplate::execute`](crate::LockTemplate::execute).
    /// - The loss of the lock, if it is lost when the closure returns. The lock may have had another holder during the last
    ///   steps.
    /// - [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let template = client.lock_template("/app/locks")?;
    /// let token = template.execute("create-order", |lock| lock.fencing_token())?;
    /// assert!(token.number() > 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn execute<T>(&self, name: &str, closure: impl FnOnce(&Guard) -> T) -> Result<T> {
        self.driver.acquire("acquire", self.template.acquire(name))?.run_and_release(closure)
    }

    /// Does the same as [`execute`](Self::execute), for a closure that returns a `Result`. Errors of the closure and of the
    /// lock are returned alike: an error of the lock is converted into the closure's error type.
    ///
    /// # Errors
    /// Those of the closure and of [`execute`](Self::execute).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let template = client.lock_template("/app/locks")?;
    /// let number = template.execute_fallible("create-order", |_lock| {
    ///     let number: u32 = "42".parse()?;
    ///     Ok::<_, Box<dyn std::error::Error>>(number)
    /// })?;
    /// assert_eq!(number, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub fn execute_fallible<T, E: From<Error>>(
        &self,
        name: &str,
        closure: impl FnOnce(&Guard) -> Result<T, E>,
    ) -> Result<T, E> {
        self.execute(name, closure)?
    }

    /// Returns the path of the lock that [`execute`](Self::execute) acquires for this name.
    ///
    /// # Errors
    /// [`InvalidPath`](zlock_core::ErrorKind::InvalidPath), with the offending part in the message.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let template = client.lock_template("/app/locks")?;
    /// assert_eq!(template.path("create-order")?.as_str(), "/app/locks/create-order");
    /// # Ok(())
    /// # }
    /// ```
    pub fn path(&self, name: &str) -> Result<LockPath> {
        self.template.path(name)
    }
}
