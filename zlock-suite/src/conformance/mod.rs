//! The cases, one or more modules for each method of the contract, whose names begin with that of the method. The doc of a case is the bullet that it tests.

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
pub mod delete_with_next;
pub mod exists_with_watch;
pub mod head_with_watch;
pub mod relabel;
pub mod session_events;
pub mod write_data;
pub mod write_data_expected;
