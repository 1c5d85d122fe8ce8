//! The fence: a check of a lock inside a transaction of the user.

use tokio_postgres::types::{ToSql, Type};
use zlock_core::{Error, ErrorKind, NodeName, Result};

/// A statement for a transaction of your own, in the database that has the locks. The transaction can only commit if the lock was
/// held until then.
///
/// If a transaction executes the statement and commits, no other client was granted a conflicting lock before that commit,
/// whatever clocks, pauses and networks did, and the next holder sees all that the transaction wrote. If the lock is lost, the
/// statement fails with the SQLSTATE [`LOST`](Self::LOST), and the transaction with it. The SQLSTATE `ZL010` says that the server has
/// restarted and the lock's session has not seen that yet, which it does with its next heartbeat: repeat the whole transaction.
///
/// # Conditions
/// - The transaction is in the same database as the locks, on the primary server. A standby refuses the statement.
/// - In the isolation levels REPEATABLE READ and SERIALIZABLE, the transaction begins after the lock was granted. Otherwise, it may
///   read what was there before an earlier holder's last write. So acquire the lock before `BEGIN`.
/// - The statement is not undone: a savepoint that is rolled back takes it back.
///
/// As the first statement, it keeps others from getting the lock while the transaction is open. As the last statement before
/// `COMMIT`, it is as safe, and keeps them waiting for less time. A transaction that stays open keeps the next holder waiting, even
/// after the session of this one has ended: set `idle_in_transaction_session_timeout` in the database. A release of the lock before
/// the transaction has ended returns `Pending`. The fence [of a writer](Self::of_writer) also holds up its downgrade, and requests for its
/// revocation.
///
/// # Examples
/// With tokio-postgres:
/// ```no_run
/// # async fn f(fence: zlock_postgres::Fence, mut client: tokio_postgres::Client) -> Result<(), tokio_postgres::Error> {
/// let transaction = client.transaction().await?;
/// transaction.execute("UPDATE orders SET status = 'shipped' WHERE id = 42", &[]).await?;
/// transaction.query_typed(fence.sql(), &fence.params()).await?; // fails if the lock is lost
/// transaction.commit().await
/// # }
/// ```
/// With other libraries, execute [`SQL`](Self::SQL), whose one parameter is a text: [`node`](Self::node). The guide's page "Fencing
/// in practice" has tested code for sqlx, sea-orm, deadpool-postgres and diesel-async.
///
/// # Stability
/// The statement, its parameter, the SQLSTATEs and the beginning of the message of a lost lock, `the lock is not held any more`, stay
/// the same in later versions of the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    node: String,
}

impl Fence {
    /// The statement.
    pub const SQL: &'static str = "SELECT zlock.fence($1)";

    /// The SQLSTATE of the error for a lock that is lost. In REPEATABLE READ and SERIALIZABLE, the error may be `40001`, a failure of
    /// serialization, as for any row that was deleted; the transaction is refused as well, and its repetition gets this one.
    pub const LOST: &'static str = "ZL003";

    /// The SQLSTATE of the error after a restart of the server, until the client has seen that: roll the transaction back, and repeat
    /// it.
    pub const RETRY: &'static str = "ZL010";

    /// Creates the fence of a lock from the name of its node. A guard has `postgres_fence` for that, a method of the facade's trait
    /// `zlock::postgres::PostgresFence`, which also refuses a node that several holders of a client share.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the node is of another store.
    pub fn new(node: &NodeName) -> Result<Self> {
        if zlock_core::NodeId::new(node.as_str()).is_uuid() {
            return Ok(Fence { node: node.as_str().to_owned() });
        }
        let error = Error::new(ErrorKind::InvalidArgument, "fence");
        Err(error.with_message(format!("the node {node} is not in PostgreSQL")))
    }

    /// Returns the fence of a writer: the lock is lost once it is a read lock, which has the same node.
    #[must_use]
    pub fn of_writer(mut self) -> Self {
        self.node.push_str(" write");
        self
    }

    /// Returns the statement.
    #[must_use]
    pub fn sql(&self) -> &'static str {
        Self::SQL
    }

    /// Returns the statement's parameter: the ID of the lock's node, and for a writer also ` write`.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Returns the statement's parameter for tokio-postgres.
    #[must_use]
    pub fn params(&self) -> [(&(dyn ToSql + Sync), Type); 1] {
        [(&self.node, Type::TEXT)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_other_stores_are_refused() {
        let id = "00000000-0000-0000-0000-000000000001";
        assert_eq!(Fence::new(&NodeName::new(id)).unwrap().node(), id);
        for other in ["_c_00000000-0000-0000-0000-000000000001-lock-0000000000", "694d7f0a-0", ""] {
            let error = Fence::new(&NodeName::new(other)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        }
    }
}
