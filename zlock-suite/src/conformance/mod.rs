//! The cases, one module for each method of the contract. The doc of a case is the bullet that it tests.

pub mod background;
pub mod children;
pub mod children_up_to;
pub mod children_with_watch;
pub mod close;
pub mod create;
pub mod create_unlisted;
pub mod data;
pub mod data_with_watch;
pub mod delete;
pub mod exists_with_watch;
pub mod hand_over;
pub mod head_with_watch;
pub mod relabel;
pub mod replace_data;
pub mod session_events;
pub mod set_data;
