//! A gate that clients close and open for each other.

use std::time::Duration;

use tokio::time::timeout;
use zlock_core::{Error, ErrorKind, LockPath, Result, Value};

use crate::client::Client;
use crate::place::pauses::PAUSES;
use crate::value::SharedValue;

const OPEN: &[u8] = b"open";
const CLOSED: &[u8] = b"closed";

impl Client {
    /// Returns a handle to the latch at `path`, which is open until it is first closed. Performs no I/O.
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
    /// let maintenance = client.latch("/app/maintenance")?;
    /// maintenance.close().await?;
    /// let waiter = maintenance.clone();
    /// let waiting = tokio::spawn(async move { waiter.wait().await });
    /// maintenance.open().await?;
    /// waiting.await.unwrap()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn latch(&self, path: impl AsRef<str>) -> Result<Latch> {
        self.shared_value(path).map(|value| Latch { value })
    }
}

/// A gate that holds waiters back until it is open. Created by [`Client::latch`]. Cheap to clone.
///
/// A latch outlives its clients: one that was closed by a process that has died stays closed until another opens it. It is a
/// value, `open` or `closed`. A value with any other data is a closed latch, and a missing one an open latch. Clients that wait take
/// any write for an opening, even one by another program that leaves the latch closed.
#[derive(Clone, Debug)]
pub struct Latch {
    value: SharedValue,
}

impl Latch {
    /// Returns the path of the latch.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.value.path()
    }

    /// Closes the latch. Returns `false` if it was closed already.
    ///
    /// # Errors
    /// Those of [`SharedValue::compare_and_set`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the latch may still be closed.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// See [`Client::latch`].
    pub async fn close(&self) -> Result<bool> {
        self.set(CLOSED).await
    }

    /// Opens the latch. Returns `false` if it was open already.
    ///
    /// # Errors
    /// Those of [`SharedValue::compare_and_set`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the latch may still be opened.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// See [`Client::latch`].
    pub async fn open(&self) -> Result<bool> {
        self.set(OPEN).await
    }

    /// Returns `true` if the latch is open.
    ///
    /// # Errors
    /// Those of [`SharedValue::get`].
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
    /// assert!(client.latch("/app/maintenance")?.is_open().await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn is_open(&self) -> Result<bool> {
        let value = self.value.get().await?;
        Ok(is_open(data(value.as_ref())))
    }

    /// Waits until the latch is open. Also returns if the latch was opened after the call and has been closed again
    /// since, so no opening is missed, however short. An outage does not end the wait.
    ///
    /// # Errors
    /// Those of [`ValueWatch::changed`](crate::ValueWatch::changed); [`ShuttingDown`](ErrorKind::ShuttingDown).
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// See [`Client::latch`].
    pub async fn wait(&self) -> Result<()> {
        self.value.client.inner().unless_shut_down(("wait", self.path()), self.until_open()).await
    }

    async fn until_open(&self) -> Result<()> {
        let now = self.now().await?;
        let closed = now.as_ref().map(|value| value.version);
        if is_open(data(now.as_ref())) {
            return Ok(());
        }
        let mut watch = self.value.watch();
        loop {
            let value = watch.changed().await?.value;
            // A closed latch is not closed again, so one of another version was open in between.
            if is_open(data(value.as_ref())) || value.map(|value| value.version) != closed {
                return Ok(());
            }
        }
    }

    /// Reads the value as it is. The first look of a view may be older.
    async fn now(&self) -> Result<Option<Value>> {
        let mut pauses = PAUSES.start();
        loop {
            match self.value.get().await {
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Unavailable | ErrorKind::Settling | ErrorKind::SessionLost
                    ) =>
                {
                    pauses.sleep().await;
                }
                read => return read,
            }
        }
    }

    /// Waits as [`wait`](Self::wait) does, for at most `time`.
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy) if the latch is still closed then, or could not be read by then, and those of `wait`.
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
    /// let maintenance = client.latch("/app/maintenance")?;
    /// maintenance.close().await?;
    /// let waited = maintenance.wait_timeout(std::time::Duration::from_millis(50)).await;
    /// assert_eq!(waited.unwrap_err().kind(), zlock::ErrorKind::Busy);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait_timeout(&self, time: Duration) -> Result<()> {
        timeout(time, self.wait()).await.unwrap_or_else(|_| {
            let message = "the latch is not known to have opened";
            Err(Error::new(ErrorKind::Busy, "wait").with_path(self.path()).with_message(message))
        })
    }

    async fn set(&self, wanted: &[u8]) -> Result<bool> {
        let mut changes = false;
        let update = |now: Option<&[u8]>| {
            changes = is_open(now) != is_open(Some(wanted));
            changes.then(|| wanted.to_owned())
        };
        self.value.update(update).await.map(|_| changes)
    }
}

fn data(value: Option<&Value>) -> Option<&[u8]> {
    value.map(|value| &*value.data)
}

fn is_open(data: Option<&[u8]>) -> bool {
    data.is_none_or(|data| data.trim_ascii_end() == OPEN)
}
