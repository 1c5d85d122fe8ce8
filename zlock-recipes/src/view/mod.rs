//! Views that follow what is in the store. What is read is up to the recipe that has the view.

mod follower;
mod freshness;

pub(crate) use follower::{Follower, Source};
pub use freshness::Freshness;
