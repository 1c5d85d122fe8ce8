//! A group, as its members and those who look at it see it.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::timeout;
use zlock_core::{Error, ErrorKind, Flag, LockPath, MAX_DATA, Mutex, Result, SessionState};

use super::keep::{Keep, State, register};
use super::membership::{Membership, remove_in_background};
use super::reports::MemberReports;
use super::view::{Group, Member, MembersWatch};
use crate::client::Client;

impl Client {
    /// Returns a handle to the group of members at `path`. Performs no I/O.
    ///
    /// The path must not be that of a lock or a value, or below one.
    ///
    /// # Errors
    /// [`InvalidPath`](ErrorKind::InvalidPath); [`InvalidArgument`](ErrorKind::InvalidArgument) if the client's backend has no
    /// groups.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// let workers = client.members("/app/workers")?;
    /// let me = workers.join("w7", "10.0.0.7:80").await?;
    /// assert!(me.is_registered());
    /// let mut watch = workers.watch();
    /// let view = watch.changed().await?;
    /// assert_eq!(view.members[0].payload, b"10.0.0.7:80");
    /// assert_eq!(view.owner_of("customer 42").unwrap().id, me.id());
    /// me.leave().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn members(&self, path: impl AsRef<str>) -> Result<Members> {
        Ok(Members { client: self.clone(), path: LockPath::new(path)?, name: "".into() })
    }
}

/// A group of members, each with an ID and a payload, such as an address. Created by [`Client::members`]. Cheap to clone.
///
/// A member is there as long as its process keeps its session. Anybody can look without joining.
///
/// On ZooKeeper, the nodes are those of Curator's `GroupMember`, and of the instances of its `ServiceDiscovery`. On etcd, each
/// member is a key, and its value the payload.
#[derive(Clone, Debug)]
pub struct Members {
    client: Client,
    path: LockPath,
    name: Arc<str>,
}

impl Members {
    /// Returns the path of the group.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        &self.path
    }

    /// Sets the name of the group in the measurements of the client's [`Observer`](zlock_core::observer::Observer). Defaults to
    /// no name, with which nothing is measured. Use names from a small fixed set.
    #[must_use]
    pub fn with_metric_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Joins the group with an ID that no other member has, and a payload that others read. The member is registered again in
    /// each new session until it [leaves](Membership::leave).
    ///
    /// A process that was killed is a member for another session timeout. If it starts again in this time, use
    /// [`take_over`](Self::take_over).
    ///
    /// Clients that share a backend share its session, so that the store cannot tell them apart. Join with an ID through one
    /// of them only.
    ///
    /// # Errors
    /// - [`Taken`](ErrorKind::Taken) if there is a member with this ID, or if a value or the parent of a lock has the name.
    /// - [`InvalidPath`](ErrorKind::InvalidPath) if the ID cannot be a segment of a path.
    /// - [`InvalidArgument`](ErrorKind::InvalidArgument) for more than [`MAX_DATA`] bytes, and on etcd for the hexadecimal ID of the
    ///   client's own session, after which its places in queues are named.
    /// - [`Unavailable`](ErrorKind::Unavailable), [`NotAuthorized`](ErrorKind::NotAuthorized),
    ///   [`Closed`](ErrorKind::Closed), [`ShuttingDown`](ErrorKind::ShuttingDown), [`Unexpected`](ErrorKind::Unexpected).
    ///
    /// # Cancel safety
    /// Dropping the future at any point gives up; no node is left behind.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// See [`Client::members`].
    pub async fn join(&self, id: impl AsRef<str>, payload: impl Into<Vec<u8>>) -> Result<Membership> {
        self.register(id.as_ref(), payload.into(), false).await
    }

    /// Joins as [`join`](Self::join) does, and replaces a member with this ID, but nothing else that has the name. The group is never without the member in between,
    /// and the end of the earlier session does not remove it.
    ///
    /// For a process that knows that no other has its ID, because whatever starts it runs one at a time: a StatefulSet, or a
    /// service of systemd. If the earlier process is alive all the same, its membership [ends](Membership::ended) within about
    /// half a session timeout.
    ///
    /// # Errors
    /// Those of [`join`](Self::join).
    ///
    /// # Cancel safety
    /// As for [`join`](Self::join). The earlier member may have been replaced.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// See [`Membership::ended`].
    pub async fn take_over(&self, id: impl AsRef<str>, payload: impl Into<Vec<u8>>) -> Result<Membership> {
        self.register(id.as_ref(), payload.into(), true).await
    }

    async fn register(&self, id: &str, payload: Vec<u8>, replaces: bool) -> Result<Membership> {
        let member = self.member(id)?;
        if payload.len() > MAX_DATA {
            let message = format!("{} bytes of payload; the limit is {MAX_DATA}", payload.len());
            return Err(Error::new(ErrorKind::InvalidArgument, "join")
                .with_path(member)
                .with_message(message));
        }
        let client = self.client.inner();
        if client.shutdown.begun.is_raised() {
            return Err(Error::new(ErrorKind::ShuttingDown, "join").with_path(member));
        }
        let taken =
            timeout(client.response_timeout, client.joined.take(&member)).await.unwrap_or_else(|_| {
                let message = "an earlier member of this client with this ID could not be removed yet";
                Err(Error::new(ErrorKind::Unavailable, "join").with_path(&member).with_message(message))
            })?;
        let keep = Arc::new(Keep {
            member,
            payload,
            session: client.session.clone(),
            state: watch::Sender::new(State::Missing),
            reports: MemberReports::new(client, &self.name),
            client: Arc::downgrade(client),
            leaving: Flag::default(),
            stopped: Flag::default(),
            id: Mutex::new(Some(taken)),
        });
        // Whatever is registered from now on is removed, unless the caller gets the membership.
        let mut abandoned = Abandoned { members: self, keep: Some(keep.clone()) };
        let registration = register(client.backend(), &keep, replaces, &mut Vec::new()).await;
        if registration.as_ref().is_err_and(|error| error.kind() == ErrorKind::Taken) {
            // Nothing was registered.
            abandoned.keep = None;
        }
        let registration = registration?;
        abandoned.keep = None;
        Ok(Membership::new(client, &keep, registration))
    }

    /// Returns the members, in the order of their IDs. Sends one request for the group, and on ZooKeeper one for each member.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable), [`NotAuthorized`](ErrorKind::NotAuthorized),
    /// [`Closed`](ErrorKind::Closed), [`Unexpected`](ErrorKind::Unexpected).
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
    /// assert_eq!(client.members("/app/workers")?.list().await?, []);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn list(&self) -> Result<Vec<Member>> {
        Group::new(&self.client, &self.path).read_now().await
    }

    /// Returns a view of the members that follows their changes, without joining. Performs no I/O.
    ///
    /// # Examples
    /// See [`MembersWatch`].
    #[must_use]
    pub fn watch(&self) -> MembersWatch {
        MembersWatch::new(&self.client, &self.path)
    }

    /// Returns the path of a member.
    fn member(&self, id: &str) -> Result<LockPath> {
        if id.contains('/') {
            let message = format!("the ID {id:?} has a slash");
            return Err(Error::new(ErrorKind::InvalidPath, "join")
                .with_path(&self.path)
                .with_message(message));
        }
        self.path.join(id)
    }
}

/// A join that was given up, unless its node is `None`.
struct Abandoned<'a> {
    members: &'a Members,
    keep: Option<Arc<Keep>>,
}

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        let Some(keep) = self.keep.take() else { return };
        keep.stop();
        if !matches!(self.members.client.inner().session.current().state, SessionState::Closed(_)) {
            remove_in_background(self.members.client.inner(), &keep);
        }
    }
}
