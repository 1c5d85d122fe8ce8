//! What the options say.

use super::{PostgresOptions, Replication};

impl PostgresOptions {
    /// Returns the servers that the client may use, in their order.
    #[must_use]
    pub fn servers(&self) -> &[String] {
        &self.kit.hosts
    }

    /// Returns the prefix of all paths in the database, such as `/production`. Empty without one.
    #[must_use]
    pub fn prefix(&self) -> &str {
        self.kit.prefix()
    }

    /// Returns what [`with_replication`](Self::with_replication) sets; `Async` by default.
    #[must_use]
    pub fn replication(&self) -> Replication {
        self.replication.unwrap_or_default()
    }

    /// Returns what [`with_pooler`](Self::with_pooler) sets.
    #[must_use]
    pub fn has_pooler(&self) -> bool {
        self.pooled
    }

    /// Returns what [`with_listen`](Self::with_listen) sets.
    #[must_use]
    pub fn listens(&self) -> bool {
        self.listen
    }

    /// Returns what [`with_listen_at`](Self::with_listen_at) sets.
    #[must_use]
    pub fn listen_at(&self) -> Option<&PostgresOptions> {
        self.listen_at.as_deref()
    }

    /// Returns the options of the connection for heartbeats and notifications.
    pub(crate) fn heart(&self) -> PostgresOptions {
        let Some(at) = &self.listen_at else { return self.clone() };
        let mut heart = (**at).clone();
        heart.kit.session_timeout = self.kit.session_timeout;
        heart.kit.connect_timeout = self.kit.connect_timeout;
        heart.kit.operation_timeout = self.kit.operation_timeout;
        PostgresOptions { create_schema: self.create_schema, listen: self.listen, listen_at: None, ..heart }
    }
}
