//! Blocking versions of values and counters.

use std::ops::Range;
use std::time::Duration;

use tokio::time::timeout;
use zlock_core::{LockPath, Result, Value, Version};

use super::client::Client;
use super::driver::Driver;
use super::guard::HeldLock;
use crate::{CompareAndSet, CounterFormat, ValueView};

impl Client {
    /// Returns a handle to the value at `path`, as [`zlock::Client::shared_value`](crate::Client::shared_value) does.
    ///
    /// # Errors
    /// Those of [`zlock::Client::shared_value`](crate::Client::shared_value).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// let client = zlock::blocking::connect("mem://")?;
    /// let mode = client.shared_value("/app/mode")?;
    /// mode.update(|_| Some(b"read-only".into()))?;
    /// assert_eq!(mode.get()?.map(|value| value.data), Some(b"read-only".into()));
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn shared_value(&self, path: impl AsRef<str>) -> Result<SharedValue> {
        let value = self.as_async().shared_value(path)?;
        Ok(SharedValue { value, driver: self.driver().clone() })
    }

    /// Returns a handle to the counter at `path`, as [`zlock::Client::counter`](crate::Client::counter) does.
    ///
    /// # Errors
    /// Those of [`zlock::Client::counter`](crate::Client::counter).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// let client = zlock::blocking::connect("mem://")?;
    /// assert_eq!(client.counter("/app/visits")?.add(2)?, 2);
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn counter(&self, path: impl AsRef<str>) -> Result<Counter> {
        let counter = self.as_async().counter(path)?;
        Ok(Counter { counter, driver: self.driver().clone() })
    }
}

/// A value in the store that outlives its writers. The blocking version of [`zlock::SharedValue`](crate::SharedValue). All
/// methods also fail with [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused).
#[derive(Clone, Debug)]
pub struct SharedValue {
    value: crate::SharedValue,
    driver: Driver,
}

impl SharedValue {
    /// Returns the path of the value.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.value.path()
    }

    /// Reads the value, as [`zlock::SharedValue::get`](crate::SharedValue::get) does.
    ///
    /// # Errors
    /// Those of [`zlock::SharedValue::get`](crate::SharedValue::get).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// assert_eq!(client.shared_value("/app/mode")?.get()?, None);
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn get(&self) -> Result<Option<Value>> {
        self.driver.run("get", self.value.get())
    }

    /// Writes the value if its version is still `expected`, as
    /// [`zlock::SharedValue::compare_and_set`](crate::SharedValue::compare_and_set) does.
    ///
    /// # Errors
    /// Those of [`zlock::SharedValue::compare_and_set`](crate::SharedValue::compare_and_set).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let mode = client.shared_value("/app/mode")?;
    /// let version = mode.get()?.map(|value| value.version);
    /// mode.compare_and_set(version, b"read-only")?;
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn compare_and_set(
        &self,
        expected: Option<Version>,
        data: impl AsRef<[u8]>,
    ) -> Result<CompareAndSet> {
        self.driver.run("compare_and_set", self.value.compare_and_set(expected, data))
    }

    /// Replaces the value by what `update` makes of it, as [`zlock::SharedValue::update`](crate::SharedValue::update) does. The
    /// closure runs on the calling thread, and may block.
    ///
    /// # Errors
    /// Those of [`zlock::SharedValue::update`](crate::SharedValue::update).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let log = client.shared_value("/app/log")?;
    /// log.update(|now| Some([now.unwrap_or_default(), b"one\n"].concat()))?;
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn update(&self, mut update: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>) -> Result<Option<Value>> {
        let mut now = self.get()?;
        loop {
            let Some(data) = update(now.as_ref().map(|value| &*value.data)) else { return Ok(now) };
            match self.driver.run("update", self.value.replace(now, data))? {
                Ok(value) => return Ok(Some(value)),
                Err(other) => now = other,
            }
        }
    }

    /// Writes the value only while a lock is held, as [`zlock::SharedValue::write_under`](crate::SharedValue::write_under)
    /// does.
    ///
    /// # Errors
    /// Those of [`zlock::SharedValue::write_under`](crate::SharedValue::write_under).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let guard = client.mutex("/app/locks/import")?.acquire()?;
    /// client.shared_value("/app/import-position")?.write_under(&guard, b"line 4711")?;
    /// guard.release()?;
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn write_under(&self, lock: &impl HeldLock, data: impl AsRef<[u8]>) -> Result<Version> {
        self.driver.run("write_under", self.value.write_under(lock.single(), data))
    }

    /// Writes the value if its version is still `expected`, and only while a lock is held, as
    /// [`zlock::SharedValue::compare_and_set_under`](crate::SharedValue::compare_and_set_under) does.
    ///
    /// # Errors
    /// Those of [`zlock::SharedValue::compare_and_set_under`](crate::SharedValue::compare_and_set_under).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let guard = client.mutex("/app/locks/import")?.acquire()?;
    /// let position = client.shared_value("/app/import-position")?;
    /// let version = position.get()?.map(|value| value.version);
    /// position.compare_and_set_under(&guard, version, b"line 4711")?;
    /// guard.release()?;
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn compare_and_set_under(
        &self,
        lock: &impl HeldLock,
        expected: Option<Version>,
        data: impl AsRef<[u8]>,
    ) -> Result<CompareAndSet> {
        self.driver.run("write_under", self.value.compare_and_set_under(lock.single(), expected, data))
    }

    /// Returns a view of the value that follows its changes. Performs no I/O.
    ///
    /// # Examples
    /// See [`ValueWatch`].
    #[must_use]
    pub fn watch(&self) -> ValueWatch {
        ValueWatch { watch: self.value.watch(), driver: self.driver.clone() }
    }
}

/// A view of a value that follows its changes. The blocking version of [`zlock::ValueWatch`](crate::ValueWatch).
///
/// # Examples
/// ```
/// # fn main() -> zlock::Result<()> {
/// # let client = zlock::blocking::connect("mem://")?;
/// use std::time::Duration;
///
/// let mut watch = client.shared_value("/app/mode")?.watch();
/// assert_eq!(watch.changed()?.value, None);
/// assert_eq!(watch.changed_within(Duration::from_millis(10))?, None);
/// # client.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ValueWatch {
    watch: crate::ValueWatch,
    driver: Driver,
}

impl ValueWatch {
    /// Waits until the view differs from the one that was returned last, as
    /// [`zlock::ValueWatch::changed`](crate::ValueWatch::changed) does.
    ///
    /// # Errors
    /// Those of [`zlock::ValueWatch::changed`](crate::ValueWatch::changed).
    ///
    /// # Examples
    /// See [`ValueWatch`].
    pub fn changed(&mut self) -> Result<ValueView> {
        self.driver.run("watch", self.watch.changed())
    }

    /// Waits for at most `time`. Returns `None` if the view has not changed by then.
    ///
    /// # Errors
    /// Those of [`changed`](Self::changed).
    ///
    /// # Examples
    /// See [`ValueWatch`].
    pub fn changed_within(&mut self, time: Duration) -> Result<Option<ValueView>> {
        let changed = async {
            match timeout(time, self.watch.changed()).await {
                Ok(view) => view.map(Some),
                Err(_) => Ok(None),
            }
        };
        self.driver.run("watch", changed)
    }
}

/// A number of 64 bits in the store. The blocking version of [`zlock::Counter`](crate::Counter). All methods that wait also
/// fail with [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused).
#[derive(Clone, Debug)]
pub struct Counter {
    counter: crate::Counter,
    driver: Driver,
}

impl Counter {
    pub(super) fn as_async(&self) -> &crate::Counter {
        &self.counter
    }

    /// Sets how the number is stored, as [`zlock::Counter::with_format`](crate::Counter::with_format) does.
    #[must_use]
    pub fn with_format(mut self, format: CounterFormat) -> Self {
        self.counter = self.counter.with_format(format);
        self
    }

    /// Returns the path of the counter.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.counter.path()
    }

    /// Reads the number, as [`zlock::Counter::get`](crate::Counter::get) does.
    ///
    /// # Errors
    /// Those of [`zlock::Counter::get`](crate::Counter::get).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// assert_eq!(client.counter("/app/visits")?.get()?, 0);
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn get(&self) -> Result<i64> {
        self.driver.run("get", self.counter.get())
    }

    /// Adds `n`, and returns the number after that, as [`zlock::Counter::add`](crate::Counter::add) does.
    ///
    /// # Errors
    /// Those of [`zlock::Counter::add`](crate::Counter::add).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// assert_eq!(client.counter("/app/visits")?.add(1)?, 1);
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn add(&self, n: i64) -> Result<i64> {
        self.driver.run("add", self.counter.add(n))
    }

    /// Takes the next `n` numbers, as [`zlock::Counter::reserve`](crate::Counter::reserve) does.
    ///
    /// # Errors
    /// Those of [`zlock::Counter::reserve`](crate::Counter::reserve).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// assert_eq!(client.counter("/app/ids")?.reserve(10)?, 1..11);
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reserve(&self, n: u32) -> Result<Range<i64>> {
        self.driver.run("reserve", self.counter.reserve(n))
    }

    /// Replaces the number by what `update` makes of it, as [`zlock::Counter::update`](crate::Counter::update) does. The closure
    /// runs on the calling thread, and may block.
    ///
    /// # Errors
    /// Those of [`zlock::Counter::update`](crate::Counter::update).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// assert_eq!(client.counter("/app/limit")?.update(|_| Some(7))?, 7);
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn update(&self, mut update: impl FnMut(i64) -> Option<i64>) -> Result<i64> {
        let mut change = self.driver.run("update", self.counter.begin("update"))?;
        loop {
            let after = update(change.number());
            if let Some((before, after)) = self.driver.run("update", change.attempt(after))? {
                return Ok(after.unwrap_or(before));
            }
        }
    }
}
