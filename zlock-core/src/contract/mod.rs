//! What a store must offer to be a backend.

pub(crate) mod backend;
pub(crate) mod background;
pub(crate) mod connector;
pub(crate) mod groups;
pub(crate) mod history;
pub(crate) mod values;
pub(crate) mod watch;
