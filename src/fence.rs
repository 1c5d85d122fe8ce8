//! The fence of a guard.

use zlock_core::{Error, ErrorKind, NodeName, Result};
#[cfg(feature = "postgres")]
use zlock_postgres::Fence;
use zlock_recipes::LockContext;

/// Makes the [`Fence`] of a held lock: a statement that keeps a transaction of yours from committing once the lock is lost.
/// All guards of one async lock have it, since they deref to a [`LockContext`]. For the guards of
/// [`blocking`](crate::blocking), call it on `guard.guard()`, and for a `MultiGuard` on one of `guard.guards()`.
#[cfg(feature = "postgres")]
pub trait PostgresFence {
    /// Returns the statement for a transaction in the database that has the locks. Performs no I/O.
    ///
    /// Acquire the lock before `BEGIN`. [`Fence`] states what is guaranteed, and on which conditions. After a
    /// [downgrade](crate::WriteGuard::downgrade), a fence of the write lock fails as if the lock were lost.
    ///
    /// # Errors
    /// - [`InvalidArgument`](ErrorKind::InvalidArgument) if the lock is in another store. For its locks, compare the
    ///   [fencing token](LockContext::fencing_token) in the transaction.
    /// - `InvalidArgument` if the lock was acquired with [hand-off](crate::InterProcessMutex::with_handoff): later holders of
    ///   this client have the same node, so the node's existence does not show which of them holds the lock.
    /// - Those of [`LockContext::check`] if the lock is lost or released.
    ///
    /// # Examples
    /// ```no_run
    /// # #[cfg(feature = "postgres")]
    /// # async fn f() -> Result<(), Box<dyn std::error::Error>> {
    /// use zlock::postgres::{PostgresFence, PostgresOptions};
    ///
    /// let options = PostgresOptions::from_url("postgres://shop@db/shop")?;
    /// let mut sql = options.connect_client().await?; // or any other connection with this database
    /// let client = zlock::connect("postgres://shop@db/shop").await?;
    ///
    /// let guard = client.mutex("/orders/42")?.acquire().await?;
    /// let fence = guard.postgres_fence()?;
    /// let transaction = sql.transaction().await?;
    /// transaction.execute("UPDATE orders SET status = 'shipped' WHERE id = 42", &[]).await?;
    /// transaction.query_typed(fence.sql(), &fence.params()).await?; // fails if the lock is lost
    /// transaction.commit().await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    fn postgres_fence(&self) -> Result<Fence>;
}

#[cfg(feature = "postgres")]
impl PostgresFence for LockContext {
    fn postgres_fence(&self) -> Result<Fence> {
        let (node, is_writer) = only_node(self)?;
        let fence = Fence::new(&node).map_err(|error| error.with_path(self.path()))?;
        Ok(if is_writer { fence.of_writer() } else { fence })
    }
}

/// Makes the [`Fence`](zlock_mysql::Fence) of a held lock: a statement that keeps a transaction of yours from committing once the lock is lost.
/// All guards of one async lock have it, since they deref to a [`LockContext`]. For the guards of
/// [`blocking`](crate::blocking), call it on `guard.guard()`, and for a `MultiGuard` on one of `guard.guards()`.
#[cfg(feature = "mysql")]
pub trait MysqlFence {
    /// Returns the statement for a transaction in the database that has the locks. Performs no I/O.
    ///
    /// Acquire the lock before `START TRANSACTION`. [`Fence`](zlock_mysql::Fence) states what is guaranteed, and on which conditions. After a
    /// [downgrade](crate::WriteGuard::downgrade), a fence of the write lock fails as if the lock were lost.
    ///
    /// # Errors
    /// - [`InvalidArgument`](ErrorKind::InvalidArgument) if the lock is in another store. For its locks, compare the
    ///   [fencing token](LockContext::fencing_token) in the transaction.
    /// - `InvalidArgument` if the lock was acquired with [hand-off](crate::InterProcessMutex::with_handoff): later holders of
    ///   this client have the same node, so the node's existence does not show which of them holds the lock.
    /// - Those of [`LockContext::check`] if the lock is lost or released.
    fn mysql_fence(&self) -> Result<zlock_mysql::Fence>;
}

#[cfg(feature = "mysql")]
impl MysqlFence for LockContext {
    fn mysql_fence(&self) -> Result<zlock_mysql::Fence> {
        let (node, is_writer) = only_node(self)?;
        let fence = zlock_mysql::Fence::new(&node).map_err(|error| error.with_path(self.path()))?;
        Ok(if is_writer { fence.of_writer() } else { fence })
    }
}

/// Returns the node that shows that this lock is held, and whether it is a writer's.
fn only_node(lock: &LockContext) -> Result<(NodeName, bool)> {
    // Before the check: a node whose turn ends in between is no longer shared, and the lock no longer held.
    if lock.shares_node() {
        let why = "the lock was acquired with hand-off, and its node shows no holder in particular: acquire it without";
        let error = Error::new(ErrorKind::InvalidArgument, "fence").with_path(lock.path());
        return Err(error.with_message(why));
    }
    lock.check()?;
    Ok((lock.node(), lock.is_writer()))
}

#[cfg(all(test, feature = "mem", feature = "postgres"))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Handoff;

    #[tokio::test]
    async fn a_lock_of_another_store_is_refused() {
        let client = crate::connect("mem://").await.unwrap();
        let guard = client.mutex("/a").unwrap().acquire().await.unwrap();
        let error = guard.postgres_fence().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(
            error.to_string().contains("/a") && error.to_string().contains("not in PostgreSQL"),
            "{error}"
        );
        let context = (*guard).clone();
        guard.release().await.unwrap();
        assert_eq!(context.postgres_fence().unwrap_err().kind(), ErrorKind::Released);
    }

    #[tokio::test]
    async fn a_node_that_several_holders_have_is_refused() {
        let client = crate::connect("mem://").await.unwrap();
        let mutex = client.mutex("/a").unwrap().with_handoff(Handoff::within(Duration::from_secs(1)));
        let guard = mutex.acquire().await.unwrap();
        let error = guard.postgres_fence().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("hand-off"), "{error}");
        guard.release().await.unwrap();
    }
}
