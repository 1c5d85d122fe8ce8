//! What is known of the receipt of a write.

/// A receipt that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Witness {
    pub(crate) version: i32,
    /// The creation of the value that it is below, if it is known.
    pub(crate) created: Option<u64>,
}
