//! deadpool-postgres.

use deadpool_postgres::tokio_postgres::NoTls;
use deadpool_postgres::{Manager, Pool, PoolError};
use zlock::postgres::Fence;

// ANCHOR: ship
async fn ship(pool: &Pool, order: i64, fence: &Fence) -> Result<(), PoolError> {
    let mut connection = pool.get().await?;
    let transaction = connection.transaction().await?;
    transaction.execute("UPDATE orders SET status = 'shipped' WHERE id = $1", &[&order]).await?;
    transaction.execute(Fence::SQL, &[&fence.node()]).await?;
    Ok(transaction.commit().await?)
}

fn is_lost(error: &PoolError) -> bool {
    let PoolError::Backend(error) = error else { return false };
    error.code().is_some_and(|code| code.code() == Fence::LOST)
}
// ANCHOR_END: ship

#[tokio::test]
async fn deadpool_postgres_writes_only_while_the_lock_is_held() {
    let open = async |url: &str| Pool::builder(Manager::new(url.parse().unwrap(), NoTls)).build().unwrap();
    crate::try_out(open, ship, is_lost).await;
}
