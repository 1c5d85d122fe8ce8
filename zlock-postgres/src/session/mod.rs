//! The session as seen by operations: the owner of the nodes, and the way to send a request.
//!
//! `heart.rs` has the connection for heartbeats and notifications, `begin.rs` the requests that begin, keep and end a session,
//! and `keep.rs` is what the session loop needs of them. `death.rs` ends the sessions of others.

pub(crate) mod begin;
pub(crate) mod death;
pub(crate) mod heart;
pub(crate) mod keep;
pub(crate) mod poller;
pub(crate) mod sent;
pub(crate) mod shared;
