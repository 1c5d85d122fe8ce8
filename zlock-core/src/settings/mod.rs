//! The settings of a connection: URLs, environment variables, and text that may be in a file.

pub(crate) mod environment;
pub(crate) mod text_or_file;
pub(crate) mod url;
