//! The blocking version of elections.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use zlock_core::{Error, FencingToken, LockPath, Result};

use super::client::Client;
use super::guard::BlockingGuard;
use super::lock::LockHandle;
use crate::election::Leading;
use crate::{Leader, LeaderWatch, LiveLeader, Participant, Release, Then};

/// An election of one leader among the clients of a store. The blocking version of [`zlock::Election`](crate::Election).
///
/// # Examples
/// ```
/// # fn main() -> zlock::Result<()> {
/// let client = zlock::blocking::connect("mem://")?;
/// let election = client.election("/app/leader")?.with_value("10.0.0.7:80")?;
/// let led = election.campaign()?;
/// led.proclaim("10.0.0.7:80 ready")?;
/// assert_eq!(election.leader()?.unwrap().term, led.term());
/// led.resign()?;
/// # client.close()?;
/// # Ok(())
/// # }
/// ```
pub type Election = LockHandle<crate::Election>;

/// A term as the leader of an election, which stays on its thread. Dropping it resigns in the background.
pub type Leadership = BlockingGuard<crate::Leadership>;

impl Client {
    /// Returns a handle to the election at `path`, as [`zlock::Client::election`](crate::Client::election) does.
    ///
    /// # Errors
    /// Those of [`zlock::Client::election`](crate::Client::election).
    ///
    /// # Examples
    /// See [`Election`].
    pub fn election(&self, path: impl AsRef<str>) -> Result<Election> {
        self.as_async().election(path).map(|election| self.handle(election))
    }
}

impl LockHandle<crate::Election> {
    /// Sets the value that others read, as [`zlock::Election::with_value`](crate::Election::with_value) does.
    ///
    /// # Errors
    /// Those of [`zlock::Election::with_value`](crate::Election::with_value).
    ///
    /// # Examples
    /// See [`Election`].
    pub fn with_value(self, value: impl Into<Vec<u8>>) -> Result<Self> {
        let driver = self.driver().clone();
        Ok(LockHandle::of(self.into_async().with_value(value)?, &driver))
    }

    fn map(self, change: impl FnOnce(crate::Election) -> crate::Election) -> Self {
        let driver = self.driver().clone();
        LockHandle::of(change(self.into_async()), &driver)
    }

    /// Limits each term, as [`zlock::Election::max_hold`](crate::Election::max_hold) does. A thread is not cancelled:
    /// [`check`](BlockingGuard::check) says that the time is over.
    ///
    /// # Errors
    /// [`InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) if the time is zero.
    pub fn max_hold(self, time: Duration) -> Result<Self> {
        let driver = self.driver().clone();
        Ok(LockHandle::of(self.into_async().max_hold(time)?, &driver))
    }

    /// Sets the name of the election in metrics, as
    /// [`zlock::Election::with_metric_name`](crate::Election::with_metric_name) does.
    ///
    /// # Examples
    /// See [`zlock::Election::with_metric_name`](crate::Election::with_metric_name).
    #[must_use]
    pub fn with_metric_name(self, name: impl Into<Arc<str>>) -> Self {
        self.map(|election| election.with_metric_name(name))
    }

    /// Sets what [`lead`](Self::lead) does after its closure has returned `Ok`. Defaults to [`Then::CampaignAgain`].
    ///
    /// # Examples
    /// See [`lead`](Self::lead).
    #[must_use]
    pub fn after_work(self, then: Then) -> Self {
        self.map(|election| election.after_work(then))
    }

    /// Sets what [`lead`](Self::lead) does after its closure has returned `Err`. Defaults to [`Then::CampaignAgain`], which
    /// logs the error.
    ///
    /// # Examples
    /// See [`lead`](Self::lead).
    #[must_use]
    pub fn after_failure(self, then: Then) -> Self {
        self.map(|election| election.after_failure(then))
    }

    /// Sets what [`lead`](Self::lead) does after its closure has panicked. Defaults to [`Then::Return`].
    ///
    /// # Examples
    /// See [`lead`](Self::lead).
    #[must_use]
    pub fn after_panic(self, then: Then) -> Self {
        self.map(|election| election.after_panic(then))
    }

    /// Waits until this candidate leads, as [`zlock::Election::campaign`](crate::Election::campaign) does.
    ///
    /// # Errors
    /// Those of [`zlock::Election::campaign`](crate::Election::campaign), and
    /// [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused).
    ///
    /// # Examples
    /// See [`Election`].
    pub fn campaign(&self) -> Result<Leadership> {
        self.acquire()
    }

    /// Waits until this candidate leads, for at most `time`. A zero duration makes a single attempt.
    ///
    /// # Errors
    /// Those of [`campaign`](Self::campaign), and [`Busy`](zlock_core::ErrorKind::Busy) if another candidate leads.
    ///
    /// # Examples
    /// See [`zlock::Election::campaign_timeout`](crate::Election::campaign_timeout).
    pub fn campaign_timeout(&self, time: Duration) -> Result<Leadership> {
        self.acquire_timeout(time)
    }

    /// Campaigns, runs the closure on the calling thread while this candidate leads, and campaigns again after each term, until
    /// the client [shuts down](super::Client::shutdown). Then it returns `None`.
    ///
    /// The closure cannot be cancelled. It should call [`check`](BlockingGuard::check) on the term between its steps, which
    /// returns an error once the leadership is lost. A closure that should end when the client shuts down, or when somebody
    /// asks, calls [`step_down_requested_timeout`](BlockingGuard::step_down_requested_timeout) from time to time. If the
    /// leadership is lost when the closure returns, its result is dropped, and the candidate campaigns again.
    ///
    /// # Errors
    /// Those of [`zlock::Election::lead`](crate::Election::lead), and
    /// [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused).
    ///
    /// # Panics
    /// Panics if the closure does, unless it is set to campaign again after that.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// use zlock::Then;
    ///
    /// let election = client.election("/app/leader")?.after_work(Then::Return);
    /// let result: zlock::Result<_> = election.lead(|term| {
    ///     for _step in 0..3 {
    ///         term.check()?; // an error if the leadership is lost
    ///     }
    ///     Ok(term.term())
    /// });
    /// assert!(result?.is_some());
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lead<T, E>(&self, mut work: impl FnMut(&Leadership) -> Result<T, E>) -> Result<Option<T>, E>
    where
        E: From<Error> + fmt::Debug,
    {
        let mut leading = Leading::new(self.as_async());
        while let Some(led) = self.driver().try_acquire("lead", leading.next_term())? {
            let ended = led.span().in_scope(|| catch_unwind(AssertUnwindSafe(|| work(&led))));
            match (led.check(), &ended) {
                (Err(loss), Ok(_)) => {
                    drop(led);
                    if leading.ends_by(loss)? {
                        break;
                    }
                }
                _ => {
                    led.release_or_log();
                    let after = async { Ok(leading.after(ended).await) };
                    if let Some(result) = self.driver().run("lead", after)? {
                        return result.map(Some);
                    }
                }
            }
        }
        Ok(None)
    }

    /// Returns the path of the election.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.as_async().path()
    }

    /// Returns the leader, or `None` if nobody leads, as [`zlock::Election::leader`](crate::Election::leader) does.
    ///
    /// # Errors
    /// Those of [`zlock::Election::leader`](crate::Election::leader).
    ///
    /// # Examples
    /// See [`Election`].
    pub fn leader(&self) -> Result<Option<Leader>> {
        self.driver().run("leader", self.as_async().leader())
    }

    /// Like [`leader`](Self::leader), within a time, as [`zlock::Election::leader_timeout`](crate::Election::leader_timeout) does.
    ///
    /// # Errors
    /// Those of [`zlock::Election::leader_timeout`](crate::Election::leader_timeout).
    pub fn leader_timeout(&self, time: Duration) -> Result<Option<Leader>> {
        self.driver().run("leader", self.as_async().leader_timeout(time))
    }

    /// Returns the current leader for code that must not wait, as [`zlock::Election::view`](crate::Election::view) does.
    ///
    /// # Errors
    /// [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused) on a thread of an async runtime.
    pub fn view(&self) -> Result<LiveLeader> {
        self.driver().run("view", async { Ok(self.as_async().view()) })
    }

    /// Returns the candidates, as [`zlock::Election::candidates`](crate::Election::candidates) does.
    ///
    /// # Errors
    /// Those of [`zlock::Election::candidates`](crate::Election::candidates).
    ///
    /// # Examples
    /// See [`zlock::Election::candidates`](crate::Election::candidates).
    pub fn candidates(&self) -> Result<Vec<Participant>> {
        self.driver().run("candidates", self.as_async().candidates())
    }

    /// Returns a view of the leader that follows its changes, for [`Client::wait`]. Performs no I/O.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// use std::time::Duration;
    ///
    /// let mut leaders = client.election("/app/leader")?.observe();
    /// assert_eq!(client.wait(leaders.changed())?.leader, None);
    /// assert_eq!(client.wait_timeout(leaders.changed(), Duration::from_millis(10))?, None);
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn observe(&self) -> LeaderWatch {
        self.as_async().observe()
    }

    /// Asks the leader to step down, as [`zlock::Election::request_step_down`](crate::Election::request_step_down) does.
    ///
    /// # Errors
    /// Those of [`zlock::Election::request_step_down`](crate::Election::request_step_down).
    ///
    /// # Examples
    /// See [`zlock::Election::request_step_down`](crate::Election::request_step_down).
    pub fn request_step_down(&self) -> Result<Option<FencingToken>> {
        self.driver().run("request_step_down", self.as_async().request_step_down())
    }
}

impl BlockingGuard<crate::Leadership> {
    /// Returns the number of the term, as [`LeaderContext::term`](crate::LeaderContext::term) does.
    ///
    /// # Examples
    /// See [`Election`].
    #[must_use]
    pub fn term(&self) -> FencingToken {
        self.inner().term()
    }

    /// Writes the value that others read, as [`LeaderContext::proclaim`](crate::LeaderContext::proclaim) does.
    ///
    /// # Errors
    /// Those of [`LeaderContext::proclaim`](crate::LeaderContext::proclaim), and
    /// [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused).
    ///
    /// # Examples
    /// See [`Election`].
    pub fn proclaim(&self, value: impl Into<Vec<u8>>) -> Result<()> {
        self.driver().run("proclaim", self.inner().proclaim(value))
    }

    /// Waits until somebody asks this leader to step down, as
    /// [`LeaderContext::step_down_requested`](crate::LeaderContext::step_down_requested) does.
    ///
    /// # Errors
    /// Those of [`LeaderContext::step_down_requested`](crate::LeaderContext::step_down_requested), and
    /// [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused).
    ///
    /// # Examples
    /// See [`step_down_requested_timeout`](Self::step_down_requested_timeout).
    pub fn step_down_requested(&self) -> Result<()> {
        self.revocation_requested()
    }

    /// Waits for a request to step down for at most `time`. Returns `false` if there was none.
    ///
    /// # Errors
    /// Those of [`step_down_requested`](Self::step_down_requested).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// use std::time::Duration;
    ///
    /// let election = client.election("/app/leader")?;
    /// let led = election.campaign()?;
    /// assert!(!led.step_down_requested_timeout(Duration::from_millis(10))?);
    /// election.request_step_down()?; // elsewhere
    /// led.step_down_requested()?;
    /// led.resign()?;
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn step_down_requested_timeout(&self, time: Duration) -> Result<bool> {
        self.revocation_requested_timeout(time)
    }

    /// Resigns, as [`zlock::Leadership::resign`](crate::Leadership::resign) does.
    ///
    /// # Errors
    /// Those of [`release`](Self::release).
    ///
    /// # Examples
    /// See [`Election`].
    pub fn resign(self) -> Result<Release> {
        self.release()
    }
}
