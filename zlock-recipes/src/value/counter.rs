//! A number that the clients of a store count on together.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use zlock_core::{Consistency, Error, ErrorKind, LockPath, Mutex, Result, Value, Version};

use super::format::CounterFormat;
use super::shared_value::{CompareAndSet, SharedValue};
use super::watch::ValueWatch;
use crate::client::Client;

impl Client {
    /// Returns a handle to the counter at `path`, which is 0 until it is first written. Performs no I/O.
    ///
    /// The path must not be that of a lock or below one.
    ///
    /// # Errors
    /// Those of [`shared_value`](Self::shared_value).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let visits = client.counter("/app/visits")?;
    /// assert_eq!(visits.add(2).await?, 2);
    /// assert_eq!(visits.add(-3).await?, -1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn counter(&self, path: impl AsRef<str>) -> Result<Counter> {
        let (value, format) = (self.shared_value(path)?, CounterFormat::default());
        Ok(Counter { value, format, last: Arc::default() })
    }
}

/// A number of 64 bits in the store. Created by [`Client::counter`]. Cheap to clone.
///
/// An addition writes what it expects the number to be, and succeeds at once if no other client has written it since. Clones
/// share what they know and take turns, so use one handle for one counter.
///
/// Under heavy contention, additions of one process are better collected in the process and added together.
#[derive(Clone, Debug)]
pub struct Counter {
    value: SharedValue,
    format: CounterFormat,
    /// The number as last seen.
    last: Arc<Mutex<Option<Known>>>,
}

/// A number, and the version of its value; `None` if the value does not exist.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) number: i64,
    pub(crate) version: Option<Version>,
}

impl Counter {
    /// Sets how the number is stored, for a counter that another program uses, too. Defaults to [`CounterFormat::Long`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// use zlock::CounterFormat;
    ///
    /// let visits = client.counter("/app/visits")?.with_format(CounterFormat::Text);
    /// visits.add(42).await?;
    /// assert_eq!(client.shared_value("/app/visits")?.get().await?.unwrap().data, b"42");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_format(mut self, format: CounterFormat) -> Self {
        (self.format, self.last) = (format, Arc::default());
        self
    }

    /// Returns the path of the counter.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// assert_eq!(client.counter("/app/visits")?.path().as_str(), "/app/visits");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.value.path()
    }

    /// Reads the number.
    ///
    /// # Errors
    /// Those of [`SharedValue::get`]; [`InvalidArgument`](ErrorKind::InvalidArgument) if the value is not a number in the
    /// counter's format.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// assert_eq!(client.counter("/app/visits")?.get().await?, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn get(&self) -> Result<i64> {
        self.read().await.map(|known| known.number)
    }

    /// Adds `n`, which may be negative, and returns the number after that: exactly the result of this addition.
    ///
    /// Sends one request if no other client has written the number since this handle last saw it. Each write of another
    /// client that comes in between costs another attempt.
    ///
    /// # Errors
    /// - [`InvalidArgument`](ErrorKind::InvalidArgument) if the result does not fit, or if the value is not a number in the
    ///   counter's format. Nothing was added.
    /// - Those of [`SharedValue::compare_and_set`]. If the error is [ambiguous](Error::is_ambiguous), the addition may have
    ///   been made, once.
    ///
    /// # Cancel safety
    /// If the future is dropped, the addition may still be made, but not after a later call on this path has returned `Ok`.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let visits = client.counter("/app/visits")?;
    /// assert_eq!(visits.add(1).await?, 1);
    /// assert!(visits.add(i64::MAX).await.is_err());
    /// assert_eq!(visits.get().await?, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn add(&self, n: i64) -> Result<i64> {
        self.added(n, i64::MAX).await.map(|range| range.end)
    }

    /// Takes the next `n` numbers, which no other call returns: IDs that are unique as long as the counter only grows. The last
    /// one is the number after the call, as the result of [`add`](Self::add) is. So `add(1)`, Curator's
    /// `increment().postValue()` and `reserve` may be mixed.
    ///
    /// # Errors
    /// Those of [`add`](Self::add); also if the last number would be the largest of all, which no range can contain. If the error is
    /// ambiguous, the numbers may be lost: nobody gets them.
    ///
    /// # Cancel safety
    /// If the future is dropped, the numbers may be lost.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let ids = client.counter("/app/ids")?;
    /// assert_eq!(ids.reserve(1000).await?, 1..1001);
    /// assert_eq!(ids.add(1).await?, 1001);
    /// assert_eq!(ids.reserve(1000).await?, 1002..2002);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn reserve(&self, n: u32) -> Result<Range<i64>> {
        // The range ends with the number after the last one, which has to exist.
        let Range { start, end } = self.added(n.into(), i64::MAX - 1).await?;
        Ok(start + 1..end + 1)
    }

    /// Replaces the number by what `update` makes of it, and returns the number that is there afterwards. `update` gets the current
    /// number, 0 if there is none, and returns `None` to leave it unchanged. It is called again after each write of another client
    /// that comes in between.
    ///
    /// # Errors
    /// - [`InvalidArgument`](ErrorKind::InvalidArgument) if the new number does not fit into the counter's format, or if the value
    ///   is not a number in that format. Nothing was written.
    /// - Those of [`SharedValue::compare_and_set`].
    ///
    /// # Cancel safety
    /// As for [`add`](Self::add).
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let limit = client.counter("/app/limit")?;
    /// assert_eq!(limit.update(|_| Some(7)).await?, 7);
    /// assert_eq!(limit.update(|now| Some(now.max(5))).await?, 7);
    /// // Only if it is 7, as a compare-and-set.
    /// assert_eq!(limit.update(|now| (now == 7).then_some(8)).await?, 8);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn update(&self, update: impl FnMut(i64) -> Option<i64>) -> Result<i64> {
        let (before, after) = self.change("update", update).await?;
        Ok(after.unwrap_or(before))
    }

    /// Adds `n`, and returns the numbers before and after. The one after is at most `most`.
    async fn added(&self, n: i64, most: i64) -> Result<Range<i64>> {
        let add = |now: i64| now.checked_add(n).filter(|after| *after <= most);
        let (before, after) = self.change("add", add).await?;
        let overflow = || self.does_not_fit("add", format_args!("{before} plus {n}"));
        after.map(|after| before..after).ok_or_else(overflow)
    }

    /// Replaces the number by what `change` makes of it. Returns the number before and the one after. The latter is `None` if `change`
    /// refuses the current number.
    async fn change(
        &self,
        operation: &'static str,
        mut change: impl FnMut(i64) -> Option<i64>,
    ) -> Result<(i64, Option<i64>)> {
        let _turn = self.value.turn().await;
        // What was seen before this operation may be out of date.
        let cached = self.last_seen();
        let mut is_current = cached.is_none();
        let mut now = match cached {
            Some(known) => known,
            None => self.read().await?,
        };
        loop {
            let after = change(now.number);
            match (after, after.and_then(|after| self.format.write(after))) {
                (Some(after), Some(data)) => match self.value.compare_and_set(now.version, data).await? {
                    CompareAndSet::Written(version) => {
                        *self.last.lock() = Some(Known { number: after, version: Some(version) });
                        return Ok((now.number, Some(after)));
                    }
                    CompareAndSet::Conflict(other) => {
                        (now, is_current) = (self.saw(other)?, true);
                    }
                },
                _ if !is_current => (now, is_current) = (self.read().await?, true),
                (Some(after), None) => return Err(self.does_not_fit(operation, format_args!("{after}"))),
                (None, _) => return Ok((now.number, None)),
            }
        }
    }

    /// Reads the number and its version.
    pub(crate) async fn read(&self) -> Result<Known> {
        self.saw(self.value.get().await?)
    }

    /// Reads the number, at least as it was when the last request of this session was answered.
    pub(crate) async fn read_seen(&self) -> Result<Known> {
        self.saw(self.value.values().value(self.path(), Consistency::Seen).await?)
    }

    /// Returns the number as this handle last saw it, and reads it if it has not.
    pub(crate) async fn known(&self) -> Result<Known> {
        let known = self.last_seen();
        match known {
            Some(known) => Ok(known),
            None => self.read().await,
        }
    }

    /// Returns the number as this handle last saw it. Performs no I/O.
    pub(crate) fn last_seen(&self) -> Option<Known> {
        *self.last.lock()
    }

    /// Returns a view of the number's value.
    pub(crate) fn watch(&self) -> ValueWatch {
        self.value.watch()
    }

    /// Returns `true` if the counter is in the session of this client.
    pub(crate) fn is_of(&self, client: &Client) -> bool {
        self.value.client.inner().session.is_same(&client.inner().session)
    }

    /// Remembers a value that was read.
    pub(crate) fn saw(&self, value: Option<Value>) -> Result<Known> {
        let known = match value {
            None => Known { number: 0, version: None },
            Some(value) => {
                let number = self.format.parse(&value.data, self.path())?;
                Known { number, version: Some(value.version) }
            }
        };
        *self.last.lock() = Some(known);
        Ok(known)
    }

    fn does_not_fit(&self, operation: &'static str, what: fmt::Arguments<'_>) -> Error {
        let message = format!("{what} does not fit in the format {:?}", self.format);
        Error::new(ErrorKind::InvalidArgument, operation).with_path(self.path()).with_message(message)
    }
}
