//! A value that the clients of a store share.

use std::sync::Arc;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;
use zlock_core::{
    Consistency, CoordinationBackend, Error, ErrorKind, GuardNode, LockPath, Result, Value, Version,
    WriteOutcome,
};

use crate::client::Client;
use crate::guard::context::LockContext;

impl Client {
    /// Returns a handle to the value at `path`, which need not exist. Performs no I/O.
    ///
    /// The path must not be that of a lock or below one.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidPath`]; [`ErrorKind::InvalidArgument`] if the client's backend has no values.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let mode = client.shared_value("/app/mode")?;
    /// mode.update(|_| Some(b"read-only".into())).await?;
    /// assert_eq!(mode.get().await?.map(|value| value.data), Some(b"read-only".into()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn shared_value(&self, path: impl AsRef<str>) -> Result<SharedValue> {
        Ok(SharedValue { client: self.clone(), path: LockPath::new(path)?, turn: Arc::default() })
    }
}

/// A value in the store that outlives its writers. Created by [`Client::shared_value`]. Cheap to clone.
///
/// The data is stored as it is: Curator's `SharedValue` and the stores' own tools read and write the same value. zlock
/// creates a value with its first write and never deletes it.
///
/// A write is never applied twice, and its result is the true one, even if responses are lost. If the session ends before
/// that is certain, the error is [ambiguous](Error::is_ambiguous).
#[derive(Clone, Debug)]
pub struct SharedValue {
    pub(crate) client: Client,
    path: LockPath,
    turn: Arc<Mutex<()>>,
}

/// The outcome of [`SharedValue::compare_and_set`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompareAndSet {
    /// The value was written, and has this version.
    Written(Version),
    /// The value had another version. Nothing was written. This is the value at that moment or later, if there is one.
    Conflict(Option<Value>),
}

impl SharedValue {
    /// Returns the path of the value.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// assert_eq!(client.shared_value("/app/mode")?.path().as_str(), "/app/mode");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn path(&self) -> &LockPath {
        &self.path
    }

    /// Reads the value: the last one written before the call, or a later one. `None` if there is none. Sends one request, and
    /// one more on ZooKeeper to bring the server up to date.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable), [`NotAuthorized`](ErrorKind::NotAuthorized), [`Closed`](ErrorKind::Closed),
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if a lock uses the path.
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
    /// assert_eq!(client.shared_value("/app/mode")?.get().await?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn get(&self) -> Result<Option<Value>> {
        self.values().value(&self.path, Consistency::Latest).await
    }

    /// Writes the value if its version is still `expected`. `None` creates a value that must not exist yet.
    ///
    /// # Errors
    /// Those of [`get`](Self::get). If the error is [ambiguous](Error::is_ambiguous), the value may have been written: read it
    /// before you decide what to do. One of these is [`SessionLost`](ErrorKind::SessionLost), if the session ended before the outcome
    /// was known. [`is_lock_lost`](Error::is_lock_lost) is `true` for it, although no lock is involved.
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may still take effect, but not after a later call on this path has returned `Ok`.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// use zlock::CompareAndSet;
    ///
    /// let mode = client.shared_value("/app/mode")?;
    /// let CompareAndSet::Written(version) = mode.compare_and_set(None, b"normal").await? else {
    ///     panic!("another client has created it");
    /// };
    /// mode.compare_and_set(Some(version), b"read-only").await?;
    /// assert!(matches!(mode.compare_and_set(Some(version), b"x").await?, CompareAndSet::Conflict(_)));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn compare_and_set(
        &self,
        expected: Option<Version>,
        data: impl AsRef<[u8]>,
    ) -> Result<CompareAndSet> {
        match self.values().write_value(&self.path, expected, data.as_ref(), None).await? {
            WriteOutcome::Written(version) => Ok(CompareAndSet::Written(version)),
            WriteOutcome::Conflict(now) => Ok(CompareAndSet::Conflict(now)),
            _ => Err(self.unexpected("compare_and_set")),
        }
    }

    /// Replaces the value by what `update` makes of it, and returns the value that is there afterwards. `update` gets the
    /// current data, or `None` if there is no value, and returns `None` to leave it unchanged. It is called again after each
    /// write of another client that comes in between. Tasks that update by clones of one handle take turns.
    ///
    /// # Errors
    /// Those of [`compare_and_set`](Self::compare_and_set).
    ///
    /// # Cancel safety
    /// As for [`compare_and_set`](Self::compare_and_set).
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let log = client.shared_value("/app/log")?;
    /// for line in ["one\n", "two\n"] {
    ///     log.update(|now| Some([now.unwrap_or_default(), line.as_bytes()].concat())).await?;
    /// }
    /// assert_eq!(log.get().await?.unwrap().data, b"one\ntwo\n");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn update(
        &self,
        mut update: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Value>> {
        let _turn = self.turn().await;
        let mut now = self.get().await?;
        loop {
            let Some(data) = update(now.as_ref().map(|value| &*value.data)) else { return Ok(now) };
            match self.replace(now, data).await? {
                Ok(value) => return Ok(Some(value)),
                Err(other) => now = other,
            }
        }
    }

    /// Waits until no other task changes the value by this handle, since they would all refuse each other's writes. A store that does
    /// not answer keeps no task waiting for more than the response timeout.
    pub(super) async fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        timeout(self.client.inner().response_timeout, self.turn.lock()).await.ok()
    }

    /// Replaces the value as it was seen. Returns the value after that, or what it is if it is another one by now.
    pub(crate) async fn replace(
        &self,
        seen: Option<Value>,
        data: Vec<u8>,
    ) -> Result<std::result::Result<Value, Option<Value>>> {
        match self.compare_and_set(seen.map(|value| value.version), &data).await? {
            CompareAndSet::Written(version) => Ok(Ok(Value::new(data, version))),
            CompareAndSet::Conflict(now) => Ok(Err(now)),
        }
    }

    /// Writes the value only while a lock is held, whatever its version: the store checks the node of the lock in the same
    /// transaction. So the write of a holder that has not noticed the loss of its lock is refused.
    ///
    /// Other clients that write the value without the lock are overwritten. Use
    /// [`compare_and_set_under`](Self::compare_and_set_under) if there are any.
    ///
    /// # Errors
    /// - [`InvalidArgument`](ErrorKind::InvalidArgument) if the lock was acquired with
    ///   [hand-off](crate::LockHandle::with_handoff): later holders of this client have the same node, so the store cannot refuse
    ///   the write of one whose turn is over.
    /// - What [`LockContext::check`] returns, or [`NodeDeleted`](ErrorKind::NodeDeleted), if the lock is lost.
    ///   [`Error::is_lock_lost`] is `true` for these. Nothing was written unless the error is ambiguous.
    /// - Those of [`compare_and_set`](Self::compare_and_set).
    ///
    /// # Cancel safety
    /// As for [`compare_and_set`](Self::compare_and_set).
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let guard = client.mutex("/app/locks/import")?.acquire().await?;
    /// let position = client.shared_value("/app/import-position")?;
    /// position.write_under(&guard, b"line 4711").await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn write_under(&self, lock: &LockContext, data: impl AsRef<[u8]>) -> Result<Version> {
        has_own_node(lock)?;
        let mut expected = self.get().await?.map(|value| value.version);
        loop {
            match self.compare_and_set_under(lock, expected, data.as_ref()).await? {
                CompareAndSet::Written(version) => return Ok(version),
                CompareAndSet::Conflict(now) => expected = now.map(|value| value.version),
            }
        }
    }

    /// Writes the value if its version is still `expected`, and only while a lock is held, as
    /// [`write_under`](Self::write_under) does.
    ///
    /// # Errors
    /// Those of [`write_under`](Self::write_under).
    ///
    /// # Cancel safety
    /// As for [`compare_and_set`](Self::compare_and_set).
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let guard = client.mutex("/app/locks/import")?.acquire().await?;
    /// let position = client.shared_value("/app/import-position")?;
    /// let now = position.get().await?.map(|value| value.version);
    /// position.compare_and_set_under(&guard, now, b"line 4711").await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn compare_and_set_under(
        &self,
        lock: &LockContext,
        expected: Option<Version>,
        data: impl AsRef<[u8]>,
    ) -> Result<CompareAndSet> {
        has_own_node(lock)?;
        self.compare_and_set_held(lock, expected, data).await
    }

    /// Writes as [`compare_and_set_under`](Self::compare_and_set_under) does, also with hand-off. The caller has a guard of the lock,
    /// and keeps it until this has returned.
    pub(crate) async fn compare_and_set_held(
        &self,
        lock: &LockContext,
        expected: Option<Version>,
        data: impl AsRef<[u8]>,
    ) -> Result<CompareAndSet> {
        loop {
            lock.check()?;
            let guard = GuardNode::new(lock.path().clone(), lock.node(), lock.fencing_token());
            let values = self.values();
            match values.write_value(&self.path, expected, data.as_ref(), Some(&guard)).await? {
                WriteOutcome::Written(version) => return Ok(CompareAndSet::Written(version)),
                WriteOutcome::Conflict(now) => return Ok(CompareAndSet::Conflict(now)),
                WriteOutcome::GuardGone => {
                    // A relabel whose answer was lost may have renamed the node. Once more, it says so.
                    if let Some(hold) = lock.hold()
                        && let Some((node, label)) = hold.pending_relabel()
                    {
                        let result = hold.client().backend().relabel(hold.path(), &node, label).await;
                        hold.relabelled(&result);
                        result?;
                    }
                    if lock.node() != guard.name {
                        continue;
                    }
                    // The holder may not know yet that its lock is lost. A lock of another client may be in another store.
                    let session = &self.client.inner().session;
                    if let Some(hold) = lock.hold().filter(|hold| hold.client().session.is_same(session)) {
                        hold.removed();
                    }
                    lock.check()?;
                    let gone = Error::new(ErrorKind::NodeDeleted, "write_under").with_path(lock.path());
                    return Err(
                        gone.with_message("the node of the lock does not exist in the store of the value")
                    );
                }
                _ => return Err(self.unexpected("write_under")),
            }
        }
    }

    pub(crate) fn values(&self) -> &dyn CoordinationBackend {
        self.client.inner().backend()
    }

    fn unexpected(&self, operation: &'static str) -> Error {
        Error::new(ErrorKind::Unexpected, operation).with_path(&self.path)
    }
}

/// Refuses a lock whose node does not show which of several holders has it. A lock whose turn is over fails the check that follows.
fn has_own_node(lock: &LockContext) -> Result<()> {
    if !lock.shares_node() {
        return Ok(());
    }
    let why =
        "the lock was acquired with hand-off, and its node shows no holder in particular: acquire it without";
    let error = Error::new(ErrorKind::InvalidArgument, "write_under").with_path(lock.path());
    Err(error.with_message(why))
}
