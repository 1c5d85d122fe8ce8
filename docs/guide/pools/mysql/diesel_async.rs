//! diesel-async, with its pool for deadpool.

use diesel::prelude::*;
use diesel::result::Error;
use diesel::sql_types::Text;
use diesel_async::pooled_connection::AsyncDieselConnectionManager;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncConnection as _, AsyncMysqlConnection, RunQueryDsl};
use zlock::mysql::Fence;

diesel::table! {
    orders (id) {
        id -> BigInt,
        status -> Text,
    }
}

// ANCHOR: ship
type Failure = Box<dyn std::error::Error>;

async fn ship(pool: &Pool<AsyncMysqlConnection>, order: i64, fence: &Fence) -> Result<(), Failure> {
    let mut connection = pool.get().await?;
    let (node, label) = fence.params();
    // If the closure fails, the transaction is rolled back.
    let transaction = connection.transaction(async |connection| {
        let update = diesel::update(orders::table.find(order)).set(orders::status.eq("shipped"));
        update.execute(connection).await?;
        let statement = diesel::sql_query(Fence::SQL).bind::<Text, _>(node).bind::<Text, _>(label);
        statement.execute(connection).await?;
        Ok::<_, Error>(())
    });
    Ok(transaction.await?)
}

/// diesel reports no SQLSTATE, but the message.
fn is_lost(error: &Failure) -> bool {
    error.to_string().contains("the lock is not held any more")
}
// ANCHOR_END: ship

#[tokio::test]
async fn diesel_async_writes_only_while_the_lock_is_held_on_mysql() {
    let open = async |url: &str| {
        let manager = AsyncDieselConnectionManager::<AsyncMysqlConnection>::new(url);
        Pool::builder(manager).build().unwrap()
    };
    super::try_out(open, ship, is_lost).await;
}
