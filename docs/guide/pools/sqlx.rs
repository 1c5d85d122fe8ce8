//! sqlx.

use sqlx::PgPool;
use zlock::postgres::Fence;

// ANCHOR: ship
async fn ship(pool: &PgPool, order: i64, fence: &Fence) -> Result<(), sqlx::Error> {
    let mut transaction = pool.begin().await?;
    let update = sqlx::query("UPDATE orders SET status = 'shipped' WHERE id = $1");
    update.bind(order).execute(&mut *transaction).await?;
    sqlx::query(Fence::SQL).bind(fence.node()).execute(&mut *transaction).await?;
    transaction.commit().await
}

fn is_lost(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).as_deref() == Some(Fence::LOST)
}
// ANCHOR_END: ship

#[tokio::test]
async fn sqlx_writes_only_while_the_lock_is_held() {
    crate::try_out(async |url| PgPool::connect(url).await.unwrap(), ship, is_lost).await;
}
