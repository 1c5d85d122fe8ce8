//! How current a view is.

use tokio::time::Instant;

/// How current a view is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The store reports changes to this client. A server that is behind the others reports them late.
    Fresh,
    /// The connection has been in doubt since this instant. Changes since then may not be seen yet.
    StaleSince(Instant),
}
