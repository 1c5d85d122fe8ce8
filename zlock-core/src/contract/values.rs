//! The contract for values, which outlive sessions.

use std::fmt::Debug;

use async_trait::async_trait;

use crate::contract::watch::Watch;
use crate::error::Result;
use crate::nodes::name::NodeName;
use crate::nodes::node::{FencingToken, Node};
use crate::nodes::path::LockPath;

/// The values of a store: data that outlives sessions, changes by compare-and-set, and can be watched.
///
/// Everything that [`CoordinationBackend`](crate::CoordinationBackend) says about retries, sessions and errors holds here, too.
///
/// A value has a path of its own, which must not be that of a lock or below one. zlock never deletes a value. The data is
/// stored as it is, so that other programs can read and write it.
///
/// # Lost responses
/// Each write leaves a *receipt* in the same transaction, which belongs to the session. A write whose response was lost looks
/// for it, so a write is neither applied twice nor reported wrongly. If the session ends as well, the receipt may be gone.
/// A write that expects a version is then repeated in the next session. If that shows a conflict, or if the write creates the
/// value, the outcome is unknown, and the error is [ambiguous](crate::Error::is_ambiguous).
///
/// On ZooKeeper, an operator who deletes a value also deletes its receipts. If that happens after a write has created the value
/// and before the response arrives, the write may create it again, or report a conflict if another client has created it.
///
/// # Cancel safety
/// The future of an operation may be dropped at any time. A write may still take effect, but not after a later operation of
/// the same session on the same path has returned `Ok`, and not after its session has ended at the store.
#[async_trait]
pub trait Values: Debug + Send + Sync + 'static {
    /// Returns the value at `path`, or `None` if there is none. With [`Consistency::Seen`], in one request.
    ///
    /// # Behavior
    /// - The latest value is the last one written before the call, byte for byte, or a later one.
    /// - A missing value is `None`.
    /// - A member is no value: the result is `None`, or the error is `InvalidArgument`.
    /// - A seen value is one that was written, and later reads never return an older one.
    async fn value(&self, path: &LockPath, consistency: Consistency) -> Result<Option<Value>>;

    /// Returns the value at `path` with a one-shot watch on its change. Unlike the [latest](Consistency::Latest) value, this may be an
    /// older state, but never one older than this backend has seen.
    ///
    /// # Behavior
    /// - No write between the response and the watch is lost.
    /// - A missing value can be watched.
    /// - The watch fires when the value is deleted and created again by another program.
    /// - The watch fires, with any event, when its session ends.
    /// - A dropped watch is removed from the server.
    async fn value_with_watch(&self, path: &LockPath) -> Result<(Option<Value>, Watch)>;

    /// Writes the value at `path` if its version is `expected`, and if `guard` still exists. `None` as the expected version
    /// creates a value that must not exist yet.
    ///
    /// If the version differs and the guard is gone, either may be returned.
    ///
    /// A guard that [is deleted](GuardNode::and_delete) is an own node, which the write releases in the same transaction. If
    /// the outcome is not [`Written`](WriteOutcome::Written), or is not known, the caller deletes the node.
    ///
    /// # Behavior
    /// - More than 1,000,000 bytes of data are refused with `InvalidArgument`.
    /// - A value with another version is a conflict, returned with what is there now, and nothing is written.
    /// - Of several writes that expect the same version, one succeeds.
    /// - The returned version is that which a read returns.
    /// - A value that was deleted and created again by another program has another version.
    /// - A write whose guard is gone changes nothing.
    /// - A guard with the same name that was created later is another guard.
    /// - A guard that is to be deleted is deleted by a successful write, and by no other.
    /// - The deletion of such a guard is not reported as one by another client.
    /// - A member is not overwritten: the value is beside it, or the error is `InvalidArgument`.
    /// - Missing parents are created.
    /// - Another session can write the value after the session that wrote it has ended.
    /// - A lost response does not change the result.
    /// - A write whose response is lost is not reported as a conflict after the value was deleted.
    /// - A write that may have created the value in an earlier session does not create it again: its outcome is unknown.
    /// - A write that was dropped does not take effect after a later operation on the path.
    async fn write_value(
        &self,
        path: &LockPath,
        expected: Option<Version>,
        data: &[u8],
        guard: Option<&GuardNode>,
    ) -> Result<WriteOutcome>;
}

/// Which state of a value [`Values::value`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// The latest, including all writes that were answered before the call.
    Latest,
    /// That of the server in use, which may be older, but not older than what this backend has seen. For stores where the latest
    /// costs more.
    Seen,
}

/// The version of a value, which each write changes. It also differs if the value was deleted and created again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    created: u64,
    number: u64,
}

impl Version {
    /// Creates a version from what identifies the creation of the value, and the number of the write.
    #[must_use]
    pub const fn new(created: u64, number: u64) -> Self {
        Version { created, number }
    }

    /// Returns what identifies the creation of the value in its store.
    #[must_use]
    pub const fn created(self) -> u64 {
        self.created
    }

    /// Returns the number of the last write in its store. Numbers of different creations are not comparable.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.number
    }
}

/// A value as it was read.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The bytes of the last write.
    pub data: Vec<u8>,
    /// The version to expect in a write.
    pub version: Version,
}

impl Value {
    /// Creates a value from its parts.
    #[must_use]
    pub fn new(data: impl Into<Vec<u8>>, version: Version) -> Self {
        Value { data: data.into(), version }
    }
}

/// The node of a held lock, which must exist when a value is written.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardNode {
    /// The path of the lock.
    pub parent: LockPath,
    /// The name of the node under the path.
    pub name: NodeName,
    /// The fencing token of the holder, which identifies the node where names are reused.
    pub fencing_token: FencingToken,
    /// The node, if a successful write deletes it.
    pub deletes: Option<Node>,
}

impl GuardNode {
    /// Creates the description of a node.
    #[must_use]
    pub fn new(parent: LockPath, name: NodeName, fencing_token: FencingToken) -> Self {
        GuardNode { parent, name, fencing_token, deletes: None }
    }

    /// Makes a successful write delete the node, which is this one, in the same transaction.
    #[must_use]
    pub fn and_delete(mut self, node: Node) -> Self {
        self.deletes = Some(node);
        self
    }
}

/// The outcome of [`Values::write_value`].
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The value was written, and has this version.
    Written(Version),
    /// The value had another version than the expected one. Nothing was written.
    Conflict(Option<Value>),
    /// The guard's node no longer exists. Nothing was written.
    GuardGone,
}
