//! sea-orm.

use sea_orm::sea_query::{Expr, ExprTrait as _, Query};
use sea_orm::{
    ConnectionTrait as _, Database, DatabaseConnection, DbBackend, DbErr, RuntimeErr, Statement,
    TransactionTrait as _,
};
use zlock::postgres::Fence;

// ANCHOR: ship
async fn ship(pool: &DatabaseConnection, order: i64, fence: &Fence) -> Result<(), DbErr> {
    let transaction = pool.begin().await?;
    let update = Query::update()
        .table("orders")
        .value("status", "shipped")
        .and_where(Expr::col("id").eq(order))
        .take();
    transaction.execute(&update).await?;
    let fence = Statement::from_sql_and_values(DbBackend::Postgres, Fence::SQL, [fence.node().into()]);
    transaction.execute_raw(fence).await?;
    transaction.commit().await
}

fn is_lost(error: &DbErr) -> bool {
    let DbErr::Exec(RuntimeErr::SqlxError(error)) = error else { return false };
    error.as_database_error().and_then(|error| error.code()).as_deref() == Some(Fence::LOST)
}
// ANCHOR_END: ship

#[tokio::test]
async fn sea_orm_writes_only_while_the_lock_is_held() {
    crate::try_out(async |url| Database::connect(url).await.unwrap(), ship, is_lost).await;
}
