//! Being the leader: a guard, and a view of it.

use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;

use tokio::sync::Mutex;
use zlock_core::{DataWrite, Error, ErrorKind, FencingToken, Result, Target};

use super::step_down;
use crate::client::check_node_data;
use crate::guard::Guard;
use crate::guard::context::LockContext;
use crate::release::Release;

/// A term as the leader of an election. Created by [`Election::campaign`](crate::Election::campaign). Dropping it resigns in the
/// background.
///
/// It derefs to [`LeaderContext`].
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock::Result<()> {
/// # let client = zlock::connect("mem://").await?;
/// let election = client.election("/app/leader")?.with_value("starting")?;
/// let led = election.campaign().await?;
/// let work = async {
///     led.proclaim("ready").await?; // observers see it
///     // UPDATE jobs SET term = :term, .. WHERE term <= :term
///     let term = led.term().to_be_bytes();
///     # let _ = term;
///     Ok::<_, zlock::Error>(())
/// };
/// led.run(work).await??; // cancelled if another leader may exist
/// led.resign().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a leadership that is dropped is resigned"]
pub struct Leadership {
    guard: Guard,
    pub(super) context: LeaderContext,
}

impl Leadership {
    pub(super) fn new(guard: Guard) -> Self {
        let context = LeaderContext { lock: guard.context(), writes: Arc::default() };
        Leadership { guard, context }
    }

    /// Returns a view of the term that cannot end it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let led = client.election("/app/leader")?.campaign().await?;
    /// let context = led.context();
    /// led.resign().await?;
    /// assert!(!context.is_held());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn context(&self) -> LeaderContext {
        self.context.clone()
    }

    /// Runs a future as the leader. If the leadership is lost, the future is cancelled at its current await point, and the
    /// result is the loss. As [`Guard::run`].
    ///
    /// # Errors
    /// What [`lost`](LockContext::lost) returns.
    ///
    /// # Cancel safety
    /// Dropping the future drops `future`. The leadership remains.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// See [`Leadership`].
    pub async fn run<F: Future>(&self, future: F) -> Result<F::Output> {
        self.guard.run(future).await
    }

    pub(crate) fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Ends the term. The next candidate leads.
    ///
    /// # Errors
    /// Those of [`Guard::release`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the client resigns in the background.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// See [`Leadership`].
    pub async fn resign(self) -> Result<Release> {
        self.guard.release().await
    }

    /// Returns another guard of the same term.
    pub(super) fn reenter(&self) -> Result<Self> {
        let (guard, context) = (self.guard.reenter()?, self.context());
        Ok(Leadership { guard, context })
    }
}

/// Converts into the guard of the leader's node. Releasing it resigns.
impl From<Leadership> for Guard {
    fn from(led: Leadership) -> Guard {
        led.guard
    }
}

impl Deref for Leadership {
    type Target = LeaderContext;

    fn deref(&self) -> &LeaderContext {
        &self.context
    }
}

/// A view of a leader's term that cannot end it. [`Election::lead`](crate::Election::lead) passes one to its closure. Cheap to
/// clone. A clone may outlive the term, and does not keep the client's session alive.
///
/// It dereferences to the [`LockContext`] of the leader's node: [`is_held`](LockContext::is_held) is `true` while this client
/// certainly leads.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock::Result<()> {
/// # let client = zlock::connect("mem://").await?;
/// let led = client.election("/app/leader")?.campaign().await?;
/// assert!(led.is_held());
/// // Written only while this client leads.
/// client.shared_value("/app/position")?.write_under(&led, b"line 4711").await?;
/// # led.resign().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LeaderContext {
    lock: LockContext,
    /// How often the value was written, as far as is known. Locked during a write.
    writes: Arc<Mutex<u64>>,
}

impl Deref for LeaderContext {
    type Target = LockContext;

    fn deref(&self) -> &LockContext {
        &self.lock
    }
}

impl LeaderContext {
    /// Returns the number of the term, which is larger than those of all terms before. It is the leader's
    /// [fencing token](LockContext::fencing_token): storage that refuses smaller ones is safe from a former leader.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let election = client.election("/app/leader")?;
    /// let first = election.campaign().await?;
    /// let term = first.term();
    /// first.resign().await?;
    /// let second = election.campaign().await?;
    /// assert!(second.term() > term);
    /// # second.resign().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn term(&self) -> FencingToken {
        self.fencing_token()
    }

    /// Writes the value that others read. Takes effect only while this client leads. An earlier call, even one whose future was
    /// dropped or whose response was lost, never undoes a later one. Calls on one term take turns.
    ///
    /// # Errors
    /// - What [`lost`](LockContext::lost) returns if the leadership is lost. Observers do not see the value.
    /// - [`InvalidArgument`](ErrorKind::InvalidArgument) as for [`Election::with_value`](crate::Election::with_value).
    /// - [`Unavailable`](ErrorKind::Unavailable), [`NotAuthorized`](ErrorKind::NotAuthorized),
    ///   [`Unexpected`](ErrorKind::Unexpected). The value may have been written if the error is
    ///   [ambiguous](Error::is_ambiguous).
    ///
    /// # Cancel safety
    /// If the future is dropped, the value may still be written, but not after a later call has returned `Ok`.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// See [`Leadership`].
    pub async fn proclaim(&self, value: impl Into<Vec<u8>>) -> Result<()> {
        let value = check_node_data(value.into())?;
        let mut writes = self.writes.lock().await;
        loop {
            self.check()?;
            let Some(hold) = self.hold() else { return Err(self.lost().await) };
            let Target::Node(node) = hold.target() else { return Err(hold.loss("lock")) };
            match hold.client().backend().write_data(hold.path(), &node, Some(*writes), &value).await {
                Ok(DataWrite::Written) => {
                    *writes += 1;
                    return Ok(());
                }
                // By a call that was dropped, or by another program.
                Ok(DataWrite::Conflict(now)) => *writes = now,
                Ok(_) => return Err(Error::new(ErrorKind::Unexpected, "proclaim").with_path(hold.path())),
                Err(error) => {
                    if error.kind() == ErrorKind::NodeDeleted {
                        hold.removed();
                        // It went with its session, if that has ended.
                        self.check()?;
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Completes when another client [asks](crate::Election::request_step_down) the leader of this term to step down,
    /// immediately if one already has. Also completes when this client [shuts down](crate::Client::shutdown). The leader decides
    /// how to respond. A leader that never calls this sends no request and does not learn of any.
    ///
    /// Reads a value with a watch, which costs one request for the call and one for each change. Outages that the leadership
    /// survives do not end the wait.
    ///
    /// # Errors
    /// What [`lost`](LockContext::lost) returns; [`NotAuthorized`](ErrorKind::NotAuthorized) or [`Unexpected`](ErrorKind::Unexpected)
    /// if the value may not be read.
    ///
    /// # Cancel safety
    /// Safe: dropping the future removes the watch.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// See [`Election::request_step_down`](crate::Election::request_step_down).
    pub async fn step_down_requested(&self) -> Result<()> {
        let Some(hold) = self.hold() else { return Err(self.lost().await) };
        let path = step_down::path(self.path())?;
        tokio::select! {
            biased;
            loss = self.lost() => Err(loss),
            () = hold.client().shutdown.begun.raised() => Ok(()),
            requested = step_down::requested(hold.client(), &path, self.term()) => requested,
        }
    }

    /// Same as [`step_down_requested`](Self::step_down_requested), under the name that locks use. The leader's node has no request
    /// of its own, because its data is the value.
    ///
    /// # Errors
    /// Those of [`step_down_requested`](Self::step_down_requested).
    ///
    /// # Cancel safety
    /// Safe: dropping the future removes the watch.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// See [`Election::request_step_down`](crate::Election::request_step_down).
    pub async fn revocation_requested(&self) -> Result<()> {
        self.step_down_requested().await
    }
}
