//! Members of a group: who is there, with an ID and a payload.
//!
//! A member is a node of the contract `Groups`. What is added is that it is registered again in each new session (`keep.rs`), and
//! a view of the others (`view.rs`).

#[cfg(feature = "discovery")]
pub(crate) mod discovery;
mod handle;
mod keep;
mod membership;
mod owner;
mod reports;
mod view;

pub use handle::Members;
pub use membership::Membership;
pub use view::{Member, MembersView, MembersWatch};
