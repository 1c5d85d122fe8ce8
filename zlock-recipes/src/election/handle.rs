//! An election, as its candidates and those who look for the leader see it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use zlock_core::{Error, ErrorKind, FencingToken, Label, LockPath, Phase, Result, SessionState};

use super::leadership::Leadership;
use super::observe::{self, Leader, LeaderWatch};
use super::step_down;
use super::then::Ends;
use super::view::LiveLeader;
use crate::client::Client;
use crate::locks::handle::LockHandle;
use crate::locks::participants::Participant;

impl Client {
    /// Returns a handle to the election at `path`. Performs no I/O.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidPath`](zlock_core::ErrorKind::InvalidPath), with the offending part in the message.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let election = client.election("/app/leader")?.with_value("10.0.0.7:80")?;
    /// let led = election.campaign().await?;
    /// assert_eq!(election.leader().await?.unwrap().value, b"10.0.0.7:80");
    /// led.resign().await?;
    /// assert_eq!(election.leader().await?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn election(&self, path: impl AsRef<str>) -> Result<Election> {
        let lock = LockHandle::of_kind(self, path, Label::Candidate)?;
        let step_down = step_down::path(lock.path())?;
        Ok(Election { client: self.clone(), lock, step_down, ends: Ends::default() })
    }
}

/// An election of one leader among the clients of a store. Created by [`Client::election`]. Cheap to clone.
///
/// Candidates queue up, and the first one leads, for as long as its session lives and it does not resign. Each term has a
/// number that is larger than those before it, the [fencing token](crate::LockContext::fencing_token) of the leader. Each
/// candidate has a value, such as an address. Anybody can read the leader's.
///
/// On ZooKeeper, the nodes are those of Curator's `LeaderLatch`, and on etcd those of Go's `Election`, of `etcdctl elect` and of
/// the server's election service. All of them can campaign together.
#[derive(Clone)]
pub struct Election {
    pub(super) client: Client,
    pub(super) lock: LockHandle<Label>,
    /// The path of the value that asks a leader to step down.
    pub(super) step_down: LockPath,
    pub(super) ends: Ends,
}

impl Election {
    /// Sets the value that others read while this candidate leads. Defaults to the client's node data.
    ///
    /// # Errors
    /// [`InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) for more than [`MAX_DATA`](zlock_core::MAX_DATA) bytes,
    /// and for `__REVOKE__`.
    ///
    /// # Examples
    /// See [`Client::election`].
    pub fn with_value(mut self, value: impl Into<Vec<u8>>) -> Result<Self> {
        self.lock = self.lock.with_node_data(value)?;
        Ok(self)
    }

    /// Limits each term, as [`LockHandle::max_hold`] does. When it is over, [`lead`](Self::lead) cancels the work and campaigns again, so
    /// another candidate leads next, if there is one.
    ///
    /// # Errors
    /// [`InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) if the time is zero.
    pub fn max_hold(mut self, time: Duration) -> Result<Self> {
        self.lock = self.lock.max_hold(time)?;
        Ok(self)
    }

    /// Sets the name of the election in the measurements of the client's [`Observer`](zlock_core::observer::Observer), as
    /// [`LockHandle::with_metric_name`] does.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let election = client.election("/app/leader")?.with_metric_name("leader");
    /// # let _ = election;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_metric_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.lock = self.lock.with_metric_name(name);
        self
    }

    /// Returns the path of the election.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// assert_eq!(client.election("/app/leader")?.path().as_str(), "/app/leader");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.lock.path()
    }

    /// Waits until this candidate leads. It keeps its place through outages that its session survives.
    ///
    /// # Errors
    /// Those of [`LockHandle::acquire`]. In particular [`SessionLost`](zlock_core::ErrorKind::SessionLost) if the session ends
    /// while the candidate waits; it does not win later. [`lead`](Self::lead) campaigns again by itself.
    ///
    /// # Cancel safety
    /// Dropping the future at any point withdraws the candidacy; no node is left behind.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// See [`Leadership`].
    pub async fn campaign(&self) -> Result<Leadership> {
        self.lock.acquire().await.map(Leadership::new)
    }

    /// Waits until this candidate leads, for at most `time`. A zero duration makes a single attempt.
    ///
    /// # Errors
    /// Those of [`LockHandle::acquire_timeout`]: [`Busy`](zlock_core::ErrorKind::Busy) if another candidate leads.
    ///
    /// # Cancel safety
    /// Same as [`campaign`](Self::campaign).
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
    /// use zlock::ErrorKind;
    ///
    /// let election = client.election("/app/leader")?;
    /// let led = election.campaign().await?;
    /// let error = election.campaign_timeout(Duration::from_millis(10)).await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Busy);
    /// # led.resign().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn campaign_timeout(&self, time: Duration) -> Result<Leadership> {
        self.lock.acquire_timeout(time).await.map(Leadership::new)
    }

    /// Returns the leader, or `None` if nobody leads. Sends one request for the queue and one for the leader's value. A
    /// leader whose session is about to expire is still returned.
    ///
    /// # Errors
    /// [`Unavailable`](zlock_core::ErrorKind::Unavailable), [`NotAuthorized`](zlock_core::ErrorKind::NotAuthorized),
    /// [`Closed`](zlock_core::ErrorKind::Closed), [`Unexpected`](zlock_core::ErrorKind::Unexpected).
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// See [`Client::election`].
    pub async fn leader(&self) -> Result<Option<Leader>> {
        observe::leader(self.client.inner(), self.path()).await
    }

    /// Like [`leader`](Self::leader), within a time. To wait for nothing, use [`view`](Self::view).
    ///
    /// # Errors
    /// Those of [`leader`](Self::leader). After the time, [`Timeout`](ErrorKind::Timeout) while there is no connection, and otherwise
    /// [`Unavailable`](ErrorKind::Unavailable).
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
    /// use std::time::Duration;
    ///
    /// let election = client.election("/app/leader")?;
    /// assert_eq!(election.leader_timeout(Duration::from_secs(1)).await?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn leader_timeout(&self, time: Duration) -> Result<Option<Leader>> {
        timeout(time, self.leader()).await.unwrap_or_else(|_| {
            let kind = match self.client.inner().session.current().state {
                SessionState::Connected => ErrorKind::Unavailable,
                _ => ErrorKind::Timeout(Phase::Connecting),
            };
            let error = Error::new(kind, "leader").with_path(self.path());
            Err(error.with_message(format!("no answer within {time:?}")))
        })
    }

    /// Returns the candidates in the order in which they lead, beginning with the leader. Sends one request for the queue, and
    /// one for the value of each.
    ///
    /// On etcd, a key of another program is shown as a candidate if it has a value, and as a mutex otherwise.
    ///
    /// # Errors
    /// Those of [`leader`](Self::leader).
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
    /// let election = client.election("/app/leader")?;
    /// let led = election.campaign().await?;
    /// assert_eq!(election.candidates().await?.len(), 1);
    /// # led.resign().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn candidates(&self) -> Result<Vec<Participant>> {
        self.lock.participants().await
    }

    /// Returns a view of the leader that follows its changes, without a candidacy. Performs no I/O.
    ///
    /// # Examples
    /// See [`LeaderWatch`].
    #[must_use]
    pub fn observe(&self) -> LeaderWatch {
        LeaderWatch::new(self.client.inner(), self.path())
    }

    /// Returns the current leader for code that must not wait for the store: a task follows it, and reading it sends nothing.
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
    ///
    /// # Examples
    /// See [`LiveLeader`].
    #[must_use]
    pub fn view(&self) -> LiveLeader {
        LiveLeader::new(self.observe())
    }

    /// Asks the current leader to step down, and returns its term. `None` if nobody leads. The leader decides: it learns of the
    /// request through [`LeaderContext::step_down_requested`](crate::LeaderContext::step_down_requested).
    ///
    /// The request is a value beside the queue, at the election's path with `-step-down` appended, and names the term. So it
    /// does not change what observers read, and never reaches a later leader. Other libraries do not know it.
    ///
    /// # Errors
    /// Those of [`leader`](Self::leader) and of [`SharedValue::update`](crate::SharedValue::update).
    ///
    /// # Cancel safety
    /// If the future is dropped, the leader may still be asked.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let election = client.election("/app/leader")?;
    /// let led = election.campaign().await?;
    /// assert_eq!(election.request_step_down().await?, Some(led.term())); // elsewhere
    /// led.step_down_requested().await?;
    /// led.resign().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn request_step_down(&self) -> Result<Option<FencingToken>> {
        let request = self.client.shared_value(self.step_down.as_str())?;
        step_down::request(&request, self.client.inner(), self.path()).await
    }
}

/// Without the value, which may be long or secret.
impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election").field("path", self.lock.path()).finish_non_exhaustive()
    }
}
