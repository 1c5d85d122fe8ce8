//! A view of a value that follows its changes.

use zlock_core::{Result, Value, Watch};

use super::shared_value::SharedValue;
use crate::view::{Follower, Freshness, Source};

impl SharedValue {
    /// Returns a view of the value that follows its changes. Performs no I/O.
    ///
    /// # Examples
    /// See [`ValueWatch`].
    #[must_use]
    pub fn watch(&self) -> ValueWatch {
        ValueWatch(Follower::new(self.clone(), self.client.session_events()))
    }
}

/// A value as a [`ValueWatch`] sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueView {
    /// The value, or `None` if there is none.
    pub value: Option<Value>,
    /// Whether the value may have changed unnoticed.
    pub freshness: Freshness,
}

/// A view of a value that follows its changes. Created by [`SharedValue::watch`].
///
/// It shows the latest value and may skip earlier ones, but never goes back to one, unless the store does, as in a failover that loses
/// commits. It survives reconnections, new sessions, and the deletion of the value by another program. Each change costs one read. On
/// ZooKeeper, a read after an interruption has to bring the server up to date first.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock::Result<()> {
/// # let client = zlock::connect("mem://").await?;
/// use zlock::Freshness;
///
/// let mode = client.shared_value("/app/mode")?;
/// let mut watch = mode.watch();
/// assert_eq!(watch.changed().await?.value, None);
/// mode.compare_and_set(None, b"read-only").await?;
/// let view = watch.changed().await?;
/// assert_eq!(view.value.unwrap().data, b"read-only");
/// assert_eq!(view.freshness, Freshness::Fresh);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ValueWatch(Follower<SharedValue>);

impl Source for SharedValue {
    type Seen = Option<Value>;

    async fn read(&mut self) -> Result<(Option<Value>, Watch)> {
        self.values().value_with_watch(self.path()).await
    }
}

impl ValueWatch {
    /// Waits until the view differs from the one that was returned last, and returns it. The first call returns the current
    /// value. The view changes when the value does, and when its [`Freshness`] does.
    ///
    /// Nothing is followed between two calls, so a view that was returned long ago may be out of date.
    ///
    /// # Errors
    /// [`Closed`](zlock_core::ErrorKind::Closed), [`NotAuthorized`](zlock_core::ErrorKind::NotAuthorized),
    /// [`InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) if a lock uses the path,
    /// [`Unexpected`](zlock_core::ErrorKind::Unexpected). While no server answers, the view is stale, which is not an error.
    ///
    /// # Cancel safety
    /// Safe: a view that was not returned is returned by the next call.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// See [`ValueWatch`].
    pub async fn changed(&mut self) -> Result<ValueView> {
        let (value, freshness) = self.0.changed().await?;
        Ok(ValueView { value, freshness })
    }
}
