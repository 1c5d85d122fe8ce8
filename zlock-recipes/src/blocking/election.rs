//! The blocking version of elections.

use std::time::Duration;

use tokio::time::timeout;
use zlock_core::{FencingToken, LockPath, Result};

use super::client::Client;
use super::driver::Driver;
use super::guard::BlockingGuard;
use super::lock::LockHandle;
use crate::{Leader, LeaderView, Participant};

/// An election of one leader among the clients of a store. The blocking version of [`zlock::Election`](crate::Election). To
/// [acquire](LockHandle::acquire) it is to campaign.
///
/// # Examples
/// ```
/// # fn main() -> zlock::Result<()> {
/// let client = zlock::blocking::connect("mem://")?;
/// let election = client.election("/app/leader")?.with_value("10.0.0.7:80")?;
/// let led = election.acquire()?;
/// led.proclaim("10.0.0.7:80 ready")?;
/// assert_eq!(election.leader()?.unwrap().term, led.term());
/// led.release()?;
/// # client.close()?;
/// # Ok(())
/// # }
/// ```
pub type Election = LockHandle<crate::Election>;

/// A term as the leader of an election, which stays on its thread. Releasing it is to resign.
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

    /// Returns a view of the leader that follows its changes. Performs no I/O.
    ///
    /// # Examples
    /// See [`LeaderWatch`].
    #[must_use]
    pub fn observe(&self) -> LeaderWatch {
        LeaderWatch { watch: self.as_async().observe(), driver: self.driver().clone() }
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
}

/// A view of an election's leader that follows its changes. The blocking version of
/// [`zlock::LeaderWatch`](crate::LeaderWatch).
///
/// # Examples
/// ```
/// # fn main() -> zlock::Result<()> {
/// # let client = zlock::blocking::connect("mem://")?;
/// use std::time::Duration;
///
/// let mut leaders = client.election("/app/leader")?.observe();
/// assert_eq!(leaders.changed()?.leader, None);
/// assert_eq!(leaders.changed_within(Duration::from_millis(10))?, None);
/// # client.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LeaderWatch {
    watch: crate::LeaderWatch,
    driver: Driver,
}

impl LeaderWatch {
    /// Waits until the view differs from the one that was returned last, as
    /// [`zlock::LeaderWatch::changed`](crate::LeaderWatch::changed) does.
    ///
    /// # Errors
    /// Those of [`zlock::LeaderWatch::changed`](crate::LeaderWatch::changed).
    ///
    /// # Examples
    /// See [`LeaderWatch`].
    pub fn changed(&mut self) -> Result<LeaderView> {
        self.driver.run("observe", self.watch.changed())
    }

    /// Waits for at most `time`. Returns `None` if the view has not changed by then.
    ///
    /// # Errors
    /// Those of [`changed`](Self::changed).
    ///
    /// # Examples
    /// See [`LeaderWatch`].
    pub fn changed_within(&mut self, time: Duration) -> Result<Option<LeaderView>> {
        let changed = async {
            match timeout(time, self.watch.changed()).await {
                Ok(view) => view.map(Some),
                Err(_) => Ok(None),
            }
        };
        self.driver.run("observe", changed)
    }
}
