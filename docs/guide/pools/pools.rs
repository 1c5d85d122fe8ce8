//! The fence of a lock in transactions of other libraries' pools. `docs/guide/src/fencing.md` shows the functions of PostgreSQL.

mod deadpool_postgres;
mod diesel_async;
mod mysql;
mod sea_orm;
mod sqlx;

use zlock::postgres::{Fence, PostgresFence as _};
use zlock_testkit::postgres::{end_session, observer};
use zlock_testkit::{PostgresServer, have_postgres, limit_if};

/// Ships an order while its lock is held, and tries to ship another one after the lock is lost. `open` makes the pool, `ship` is the
/// function of the guide, and `is_lost` recognizes its error.
async fn try_out<P, E: std::fmt::Debug>(
    open: impl AsyncFn(&str) -> P,
    ship: impl AsyncFn(&P, i64, &Fence) -> Result<(), E>,
    is_lost: impl Fn(&E) -> bool,
) {
    limit_if(have_postgres(), async {
        let server = PostgresServer::start().await;
        let operator = observer(&server).await;
        let table = "CREATE TABLE orders (id bigint PRIMARY KEY, status text NOT NULL);
                     INSERT INTO orders VALUES (1, 'new'), (2, 'new');
                     GRANT ALL ON orders TO PUBLIC;";
        operator.batch_execute(table).await.unwrap();
        let client = zlock::connect(&format!("{}?create_schema=true", server.url())).await.unwrap();
        let guard = client.mutex("/orders").unwrap().acquire().await.unwrap();
        let fence = guard.postgres_fence().unwrap();
        let pool = open(&server.url()).await;
        ship(&pool, 1, &fence).await.unwrap();

        end_session(&operator, client.session_events().current().id).await;
        let error = ship(&pool, 2, &fence).await.unwrap_err();
        assert!(is_lost(&error), "{error:?}");
        let rows = operator.query("SELECT status FROM orders ORDER BY id", &[]).await.unwrap();
        let statuses: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        assert_eq!(statuses, ["shipped", "new"]);
    })
    .await;
}
