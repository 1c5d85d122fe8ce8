//! The fence: a check of a lock inside a transaction of the user.

use zlock_core::{Error, ErrorKind, NodeId, NodeName, Result};

/// A statement for a transaction of your own, in the database that has the locks. The transaction can only commit if the lock was
/// held until then.
///
/// If a transaction executes the statement and commits, no other client was granted a conflicting lock before that commit,
/// whatever clocks, pauses and networks did, and the next holder sees all that the transaction wrote. If the lock is lost, the
/// statement fails with the SQLSTATE [`LOST`](Self::LOST): roll the transaction back. The SQLSTATE [`RETRY`](Self::RETRY) says that the
/// server has restarted and the lock's session has not seen that yet, which it does with its next heartbeat: roll back, and repeat the whole
/// transaction.
///
/// # Conditions
/// - The transaction is in the same database as the locks, on the server that accepts writes.
/// - **If the statement fails, your code rolls back.** MySQL and MariaDB undo only the statement, and a later `COMMIT` would keep what
///   came before it.
/// - In the isolation levels REPEATABLE READ, the default, and SERIALIZABLE, the transaction begins after the lock was granted.
///   Otherwise, it may read what was there before an earlier holder's last write. So acquire the lock before `START TRANSACTION`.
/// - In SERIALIZABLE, whatever is read is locked: until the transaction ends, the statement holds up the heartbeats of the lock's session, and
///   its end. Keep the transaction much shorter than a third of the session timeout, or use another level.
/// - The statement is not undone: a savepoint that is rolled back takes it back.
///
/// As the first statement, it keeps others from getting the lock while the transaction is open. As the last statement before
/// `COMMIT`, it is as safe, and keeps them waiting for less time. A transaction that stays open keeps the next holder waiting, even
/// after the session of this one has ended. A release of the lock before the transaction has ended returns `Pending`.
///
/// # Examples
/// With mysql_async:
/// ```no_run
/// use mysql_async::{Conn, TxOpts, prelude::Queryable};
///
/// # async fn f(fence: zlock_mysql::Fence, mut client: Conn) -> Result<(), mysql_async::Error> {
/// let mut transaction = client.start_transaction(TxOpts::default()).await?;
/// transaction.query_drop("UPDATE orders SET status = 'shipped' WHERE id = 42").await?;
/// transaction.exec_drop(fence.sql(), fence.params()).await?; // fails if the lock is lost
/// transaction.commit().await
/// # }
/// ```
/// With other libraries, execute [`SQL`](Self::SQL), whose two parameters are texts: those of [`params`](Self::params).
///
/// # Stability
/// The statement, its parameters, the SQLSTATEs and the beginning of the message of a lost lock, `the lock is not held any more`, stay
/// the same in later versions of the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    node: String,
    label: &'static str,
}

impl Fence {
    /// The statement.
    pub const SQL: &'static str = "CALL zlock_fence(?, ?)";

    /// The SQLSTATE of the error for a lock that is lost.
    pub const LOST: &'static str = "ZL003";

    /// The SQLSTATE of the error after a restart of the server, until the client has seen that: roll the transaction back, and repeat
    /// it.
    pub const RETRY: &'static str = "ZL010";

    /// Creates the fence of a lock from the name of its node. A guard has `mysql_fence` for that, a method of the facade's trait
    /// `zlock::mysql::MysqlFence`, which also refuses a node that several holders of a client share.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the node is of another store.
    pub fn new(node: &NodeName) -> Result<Self> {
        if NodeId::new(node.as_str()).is_uuid() {
            return Ok(Fence { node: node.as_str().to_owned(), label: "" });
        }
        let error = Error::new(ErrorKind::InvalidArgument, "fence");
        Err(error.with_message(format!("the node {node} is not in MySQL or MariaDB")))
    }

    /// Returns the fence of a writer: the lock is lost once it is a read lock, which has the same node.
    #[must_use]
    pub fn of_writer(self) -> Self {
        Fence { label: "write", ..self }
    }

    /// Returns the statement.
    #[must_use]
    pub fn sql(&self) -> &'static str {
        Self::SQL
    }

    /// Returns the statement's parameters: the ID of the lock's node, and the label that it has to have, or an empty text.
    #[must_use]
    pub fn params(&self) -> (&str, &str) {
        (&self.node, self.label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_other_stores_are_refused() {
        let id = "00000000-0000-0000-0000-000000000001";
        let fence = Fence::new(&NodeName::new(id)).unwrap();
        assert_eq!(fence.params(), (id, ""));
        assert_eq!(fence.of_writer().params(), (id, "write"));
        for other in ["_c_00000000-0000-0000-0000-000000000001-lock-0000000000", "694d7f0a-0", ""] {
            let error = Fence::new(&NodeName::new(other)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        }
    }
}
