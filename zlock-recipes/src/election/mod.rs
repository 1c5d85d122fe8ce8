//! Leader election: a queue of candidates whose head leads, and whose value others read.
//!
//! Candidates queue up as for a mutex, through the same engine. What is added is the value, who reads it, and the loop that
//! campaigns again.

mod as_lock;
mod handle;
mod lead;
mod leadership;
mod observe;
mod step_down;
mod then;
mod view;

pub use handle::Election;
pub(crate) use lead::Leading;
pub use leadership::{LeaderContext, Leadership};
pub use observe::{Leader, LeaderView, LeaderWatch};
pub use then::Then;
pub use view::LiveLeader;
