//! The blocking version of members.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use zlock_core::{Error, LockPath, Result};

use super::client::Client;
use super::driver::Driver;
use crate::{Member, MembersView, Release};

impl Client {
    /// Returns a handle to the group of members at `path`, as [`zlock::Client::members`](crate::Client::members) does.
    ///
    /// # Errors
    /// Those of [`zlock::Client::members`](crate::Client::members).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// let client = zlock::blocking::connect("mem://")?;
    /// let workers = client.members("/app/workers")?;
    /// let me = workers.join("w7", "10.0.0.7:80")?;
    /// let view = workers.watch().changed()?;
    /// assert_eq!(view.owner_of("customer 42").unwrap().id, me.id());
    /// me.leave()?;
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn members(&self, path: impl AsRef<str>) -> Result<Members> {
        let members = self.as_async().members(path)?;
        Ok(Members { members, driver: self.driver().clone() })
    }
}

/// A group of members, each with an ID and a payload. The blocking version of [`zlock::Members`](crate::Members). All methods that
/// wait also fail with [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused).
#[derive(Clone, Debug)]
pub struct Members {
    members: crate::Members,
    driver: Driver,
}

impl Members {
    /// Returns the path of the group.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.members.path()
    }

    /// Sets the name of the group in measurements, as
    /// [`zlock::Members::with_metric_name`](crate::Members::with_metric_name) does.
    #[must_use]
    pub fn with_metric_name(self, name: impl Into<Arc<str>>) -> Self {
        Members { members: self.members.with_metric_name(name), driver: self.driver }
    }

    /// Joins the group, as [`zlock::Members::join`](crate::Members::join) does.
    ///
    /// # Errors
    /// Those of [`zlock::Members::join`](crate::Members::join).
    ///
    /// # Examples
    /// See [`Client::members`].
    pub fn join(&self, id: impl AsRef<str>, payload: impl Into<Vec<u8>>) -> Result<Membership> {
        let member = self.driver.run("join", self.members.join(id, payload))?;
        Ok(Membership { member, driver: self.driver.clone() })
    }

    /// Joins the group and replaces a member with this ID, as [`zlock::Members::take_over`](crate::Members::take_over) does.
    ///
    /// # Errors
    /// Those of [`zlock::Members::take_over`](crate::Members::take_over).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// let me = client.members("/app/workers")?.take_over("w7", "10.0.0.7:80")?;
    /// me.leave()?;
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn take_over(&self, id: impl AsRef<str>, payload: impl Into<Vec<u8>>) -> Result<Membership> {
        let member = self.driver.run("join", self.members.take_over(id, payload))?;
        Ok(Membership { member, driver: self.driver.clone() })
    }

    /// Returns the members, as [`zlock::Members::list`](crate::Members::list) does.
    ///
    /// # Errors
    /// Those of [`zlock::Members::list`](crate::Members::list).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://")?;
    /// assert_eq!(client.members("/app/workers")?.list()?, []);
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn list(&self) -> Result<Vec<Member>> {
        self.driver.run("list", self.members.list())
    }

    /// Returns a view of the members that follows their changes, without joining. Performs no I/O.
    ///
    /// # Examples
    /// See [`MembersWatch`].
    #[must_use]
    pub fn watch(&self) -> MembersWatch {
        MembersWatch { watch: self.members.watch(), driver: self.driver.clone() }
    }
}

/// A membership in a group. The blocking version of [`zlock::Membership`](crate::Membership). The member leaves when it is dropped.
#[derive(Debug)]
#[must_use = "the member leaves at once if it is dropped"]
pub struct Membership {
    member: crate::Membership,
    driver: Driver,
}

impl Membership {
    /// Returns the ID.
    ///
    /// # Examples
    /// See [`Client::members`].
    #[must_use]
    pub fn id(&self) -> &str {
        self.member.id()
    }

    /// Returns the path of the member: that of its group, with the ID.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        self.member.path()
    }

    /// Returns `true` if others certainly see the member, as [`zlock::Membership::is_registered`](crate::Membership::is_registered)
    /// does. `false` in a forked child.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        !self.driver.is_forked() && self.member.is_registered()
    }

    /// Waits until the member is no longer registered, as [`zlock::Membership::lost`](crate::Membership::lost) does, but for at
    /// most `time`. Returns `None` if it still is by then. Sends no request.
    ///
    /// A loss after which the member was registered again before the call is not reported. To miss none, make one call for the
    /// whole work, on a thread of its own.
    ///
    /// # Errors
    /// [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused).
    pub fn lost_timeout(&self, time: Duration) -> Result<Option<Error>> {
        self.driver.run("lost", async { Ok(timeout(time, self.member.lost()).await.ok()) })
    }

    /// Waits until the membership has ended for good, as [`zlock::Membership::ended`](crate::Membership::ended) does, but for at
    /// most `time`. Returns `None` if it has not by then. Sends no request.
    ///
    /// # Errors
    /// [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused).
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// # let client = zlock::blocking::connect("mem://ended")?;
    /// use std::time::Duration;
    ///
    /// use zlock::ErrorKind;
    ///
    /// let member = client.members("/app/workers")?.join("w7", "10.0.0.7:80")?;
    /// assert!(member.ended_timeout(Duration::ZERO)?.is_none());
    /// let other = zlock::blocking::connect("mem://ended")?;
    /// let successor = other.members("/app/workers")?.take_over("w7", "10.0.0.8:80")?;
    /// let ended = member.ended_timeout(Duration::from_secs(10))?;
    /// assert_eq!(ended.map(|error| error.kind()), Some(ErrorKind::Taken));
    /// successor.leave()?;
    /// # client.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn ended_timeout(&self, time: Duration) -> Result<Option<Error>> {
        self.driver.run("ended", async { Ok(timeout(time, self.member.ended()).await.ok()) })
    }

    /// Leaves the group, as [`zlock::Membership::leave`](crate::Membership::leave) does.
    ///
    /// # Errors
    /// Those of [`zlock::Membership::leave`](crate::Membership::leave), and
    /// [`BlockingRefused`](zlock_core::ErrorKind::BlockingRefused).
    ///
    /// # Examples
    /// See [`Client::members`].
    pub fn leave(self) -> Result<Release> {
        self.driver.run("leave", self.member.leave())
    }
}

/// A view of a group's members that follows their changes. The blocking version of [`zlock::MembersWatch`](crate::MembersWatch).
///
/// # Examples
/// ```
/// # fn main() -> zlock::Result<()> {
/// # let client = zlock::blocking::connect("mem://")?;
/// use std::time::Duration;
///
/// let mut watch = client.members("/app/workers")?.watch();
/// assert!(watch.changed()?.members.is_empty());
/// assert_eq!(watch.changed_within(Duration::from_millis(10))?, None);
/// # client.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MembersWatch {
    watch: crate::MembersWatch,
    driver: Driver,
}

impl MembersWatch {
    /// Waits until the view differs from the one that was returned last, as
    /// [`zlock::MembersWatch::changed`](crate::MembersWatch::changed) does.
    ///
    /// # Errors
    /// Those of [`zlock::MembersWatch::changed`](crate::MembersWatch::changed).
    ///
    /// # Examples
    /// See [`MembersWatch`].
    pub fn changed(&mut self) -> Result<MembersView> {
        self.driver.run("watch", self.watch.changed())
    }

    /// Waits for at most `time`. Returns `None` if the view has not changed by then.
    ///
    /// # Errors
    /// Those of [`changed`](Self::changed).
    ///
    /// # Examples
    /// See [`MembersWatch`].
    pub fn changed_within(&mut self, time: Duration) -> Result<Option<MembersView>> {
        let changed = async {
            match timeout(time, self.watch.changed()).await {
                Ok(view) => view.map(Some),
                Err(_) => Ok(None),
            }
        };
        self.driver.run("watch", changed)
    }
}
