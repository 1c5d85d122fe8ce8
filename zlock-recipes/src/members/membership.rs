//! A member's own view of its membership.

use std::fmt;
use std::sync::Arc;

use tokio::time::timeout;
use zlock_core::{Error, ErrorKind, LockPath, Registration, Result, SessionState};

use super::keep::{Keep, KeepJob, LeaveJob, State};
use crate::client::inner::ClientInner;
use crate::release::Release;

/// A membership in a group. Created by [`Members::join`](crate::Members::join). The member leaves when it is dropped.
///
/// The member is registered again in each new session, and after an operator has deleted its node. Until then, which is about a
/// session timeout after a client was cut off, others do not see it, and another client may join with its ID. The membership then
/// [ends](Self::ended).
#[must_use = "the member leaves at once if it is dropped"]
pub struct Membership {
    client: Arc<ClientInner>,
    keep: Arc<Keep>,
    has_left: bool,
}

impl Membership {
    pub(super) fn new(client: &Arc<ClientInner>, keep: &Arc<Keep>, registration: Registration) -> Self {
        keep.set(State::Registered(registration));
        let background = client.backend().background();
        background.push_lasting(client.backend.clone(), KeepJob(keep.clone()));
        Membership { client: client.clone(), keep: keep.clone(), has_left: false }
    }

    /// Returns the ID.
    ///
    /// # Examples
    /// See [`Client::members`](crate::Client::members).
    #[must_use]
    pub fn id(&self) -> &str {
        let path = self.keep.member.as_str();
        path.rsplit('/').next().unwrap_or(path)
    }

    /// Returns the path of the member: that of its group, with the ID.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        &self.keep.member
    }

    /// Returns `true` if others certainly see the member. Performs no I/O.
    ///
    /// # Examples
    /// See [`Client::members`](crate::Client::members).
    #[must_use]
    pub fn is_registered(&self) -> bool {
        match self.keep.state() {
            State::Registered(Registration { epoch, deletion, .. }) => {
                !deletion.is_deleted() && self.keep.session.is_live(epoch)
            }
            State::Missing | State::Ended(_) => false,
        }
    }

    /// Waits until the member is no longer registered, because its session ended or its node was deleted or replaced. It may be
    /// registered again by the time this returns.
    ///
    /// Use it to stop code that must not run while another client may have the ID.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    pub async fn lost(&self) -> Error {
        let error = |kind| Error::new(kind, "join").with_path(&self.keep.member);
        match self.keep.state() {
            State::Registered(Registration { epoch, mut deletion, .. }) => {
                let mut session = self.keep.session.clone();
                tokio::select! {
                    biased;
                    session = session.ended(epoch) => match session.state {
                        SessionState::Closed(_) => error(ErrorKind::Closed),
                        _ => error(ErrorKind::SessionLost),
                    },
                    () = deletion.deleted() => error(ErrorKind::NodeDeleted),
                }
            }
            State::Missing => error(ErrorKind::SessionLost),
            State::Ended(error) => error,
        }
    }

    /// Waits until the membership has ended for good, and returns why: [`Taken`](ErrorKind::Taken) if another client has the ID by
    /// now, [`Closed`](ErrorKind::Closed), or the error with which the store refuses the registration, such as
    /// [`NotAuthorized`](ErrorKind::NotAuthorized) or [`Unexpected`](ErrorKind::Unexpected). An outage does not end it.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// use zlock::mem::MemServer;
    /// use zlock::{Client, ErrorKind};
    ///
    /// let server = MemServer::new();
    /// let (old, new) = (Client::new(server.connect()), Client::new(server.connect()));
    /// let member = old.members("/app/workers")?.join("w7", "10.0.0.7:80").await?;
    /// let successor = new.members("/app/workers")?.take_over("w7", "10.0.0.8:80").await?;
    /// assert_eq!(member.ended().await.kind(), ErrorKind::Taken);
    /// # successor.leave().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn ended(&self) -> Error {
        self.keep.ended().await
    }

    /// Leaves the group. If the server does not confirm that within the client's response timeout, the background continues, and
    /// the result is [`Pending`](Release::Pending). [`AlreadyLost`](Release::AlreadyLost) if the membership has
    /// [ended](Self::ended).
    ///
    /// # Errors
    /// [`NotAuthorized`](ErrorKind::NotAuthorized), [`Unexpected`](ErrorKind::Unexpected).
    ///
    /// # Cancel safety
    /// If the future is dropped, the member leaves in the background.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// See [`Client::members`](crate::Client::members).
    pub async fn leave(mut self) -> Result<Release> {
        self.keep.leave();
        let state = self.client.session.current().state;
        let has_ended = || matches!(self.keep.state(), State::Ended(_));
        if has_ended() || matches!(state, SessionState::Closed(_)) {
            return Ok(Release::AlreadyLost);
        }
        if state != SessionState::Connected {
            return Ok(Release::Pending);
        }
        let removed = timeout(self.client.response_timeout, self.keep.remove(self.client.backend())).await;
        if has_ended() {
            return Ok(Release::AlreadyLost);
        }
        match removed {
            Ok(Ok(())) => {
                self.has_left = true;
                self.keep.free();
                Ok(Release::Released)
            }
            Ok(Err(error)) if !error.is_retryable() => Err(error),
            Ok(Err(_)) | Err(_) => Ok(Release::Pending),
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.keep.reports.show(None);
        if self.has_left || matches!(self.keep.state(), State::Ended(_)) {
            return;
        }
        remove_in_background(&self.client, &self.keep);
    }
}

/// Removes the node in the background, even if it is not known yet.
pub(super) fn remove_in_background(client: &Arc<ClientInner>, keep: &Arc<Keep>) {
    keep.leave();
    client.backend().background().push(client.backend.clone(), LeaveJob(keep.clone()));
}

/// Without the payload, which may be long or secret.
impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Membership").field("path", self.path()).finish_non_exhaustive()
    }
}
