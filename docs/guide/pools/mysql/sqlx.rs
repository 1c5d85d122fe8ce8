//! sqlx.

use sqlx::MySqlPool;
use zlock::mysql::Fence;

// ANCHOR: ship
async fn ship(pool: &MySqlPool, order: i64, fence: &Fence) -> Result<(), sqlx::Error> {
    let mut transaction = pool.begin().await?;
    let update = sqlx::query("UPDATE orders SET status = 'shipped' WHERE id = ?");
    update.bind(order).execute(&mut *transaction).await?;
    let (node, label) = fence.params();
    // If it fails, `transaction` is dropped, which rolls back.
    sqlx::query(Fence::SQL).bind(node).bind(label).execute(&mut *transaction).await?;
    transaction.commit().await
}

fn is_lost(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).as_deref() == Some(Fence::LOST)
}
// ANCHOR_END: ship

#[tokio::test]
async fn sqlx_writes_only_while_the_lock_is_held_on_mysql() {
    super::try_out(async |url| MySqlPool::connect(url).await.unwrap(), ship, is_lost).await;
}
