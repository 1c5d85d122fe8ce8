//! The contract for groups of members, each with a name and data.

use std::fmt::Debug;

use async_trait::async_trait;

use crate::contract::watch::Watch;
use crate::error::{Error, ErrorKind, Result};
use crate::nodes::own_nodes::DeletionNotice;
use crate::nodes::path::LockPath;
use crate::session::SessionId;

/// The groups of a store: nodes with names that their creators choose, each owned by a session.
///
/// Everything that [`CoordinationBackend`](crate::CoordinationBackend) says about retries, sessions and errors holds here, too.
///
/// A group has a path of its own, which must not be that of a lock or a value, or below one. The path of a member is that of
/// its group with the member's name. The data is stored as it is, so that other programs can read it.
///
/// # Cancel safety
/// The future of an operation may be dropped at any time. [`join`](Self::join) may then leave a member behind, which the caller
/// removes with [`leave`](Self::leave).
#[async_trait]
pub trait Groups: Debug + Send + Sync + 'static {
    /// Makes the current session the owner of the member at this path, which gets this data. With `replaces`, a member of
    /// another session is replaced in one step.
    ///
    /// # Behavior
    /// - More than 1,000,000 bytes of data are refused with `InvalidArgument`.
    /// - A member of another session is `Taken`, and stays as it is.
    /// - Of several sessions that join with the same name, one succeeds.
    /// - A member of this session is found, and not created again.
    /// - A value is not replaced: the member is beside it, or its name is `Taken` by no session.
    /// - A queue at the path is not replaced, and does not end with the member.
    /// - The member belongs to the session of the returned epoch, and is removed when that session ends.
    /// - A member that is replaced is never missing from a listing in between.
    /// - A member that was replaced does not end with the session that owned it before.
    /// - The number of a member is larger than that of every earlier one of the same name.
    /// - A lost response does not change the result.
    /// - A member that another client deletes or replaces while its session is live is reported through `deletion`.
    /// - Missing parents are created.
    async fn join(&self, member: &LockPath, data: &[u8], replaces: bool) -> Result<Joined>;

    /// Removes the member at this path if the current session owns it.
    ///
    /// # Behavior
    /// - A member or a group that does not exist is not an error.
    /// - A member of another session is not removed.
    /// - The removal is not reported as one by another client.
    /// - A join whose future was dropped before this call does not take effect after this call returned `Ok`.
    /// - A member that joins after this call returned `Ok` is not removed.
    async fn leave(&self, member: &LockPath) -> Result<()>;

    /// Returns the members of the group, in any order, with a one-shot watch on any change: a member that joins, leaves or is
    /// replaced. A store whose listing has names alone leaves out the contents, and does not watch them.
    ///
    /// Unlike a read that waits for the newest state, this may return an older one, but never one older than this backend has
    /// seen.
    ///
    /// # Behavior
    /// - Each member is listed once, and no place in a queue is.
    /// - No change between the response and the watch is lost.
    /// - A missing group has no members, and can be watched.
    /// - The watch fires, with any event, when its session ends.
    /// - A dropped watch is removed from the server.
    async fn members_with_watch(&self, group: &LockPath) -> Result<(Vec<ListedMember>, Watch)>;

    /// Returns the contents of one member, with a one-shot watch on their change, or `None` without a watch if there is no such
    /// member. Needed only where a listing leaves the contents out.
    ///
    /// The provided method fails with `InvalidArgument`.
    ///
    /// # Behavior
    /// - The contents are those of the last join, byte for byte.
    /// - No change between the response and the watch is lost.
    async fn member_with_watch(&self, member: &LockPath) -> Result<Option<(MemberContents, Watch)>> {
        let message = "the backend lists the contents of members";
        Err(Error::new(ErrorKind::InvalidArgument, "member").with_path(member).with_message(message))
    }
}

/// The result of [`Groups::join`].
#[non_exhaustive]
#[derive(Clone, Debug)]
pub enum Joined {
    /// The current session owns the member.
    Joined(Registration),
    /// This session owns it, as far as known. `None` if it is no member, but a value or the parent of a queue.
    Taken(Option<SessionId>),
}

/// A member that a session owns.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Registration {
    /// The session.
    pub session: SessionId,
    /// The epoch of the session.
    pub epoch: u64,
    /// The number of the member, which is larger than that of every earlier one of the same name.
    pub number: u64,
    /// Fires when another client deletes or replaces the member while the session is live.
    pub deletion: DeletionNotice,
}

impl Registration {
    /// Creates a registration from its parts.
    #[must_use]
    pub fn new(session: SessionId, epoch: u64, number: u64, deletion: DeletionNotice) -> Self {
        Registration { session, epoch, number, deletion }
    }
}

/// A member as a listing shows it.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedMember {
    /// The last segment of the member's path.
    pub name: String,
    /// The contents, if the store's listing has them.
    pub contents: Option<MemberContents>,
}

impl ListedMember {
    /// Creates a member from its parts.
    #[must_use]
    pub fn new(name: impl Into<String>, contents: Option<MemberContents>) -> Self {
        ListedMember { name: name.into(), contents }
    }
}

/// What a store has of a member.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberContents {
    /// The data.
    pub data: Vec<u8>,
    /// The number of the member, which is larger than that of every earlier one of the same name.
    pub number: u64,
    /// The session that owns it. `None` for a node that belongs to no session, and so is no member.
    pub session: Option<SessionId>,
}

impl MemberContents {
    /// Creates contents from their parts.
    #[must_use]
    pub fn new(data: impl Into<Vec<u8>>, number: u64, session: Option<SessionId>) -> Self {
        MemberContents { data: data.into(), number, session }
    }
}
