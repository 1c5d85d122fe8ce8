//! The fence on MySQL and MariaDB. `docs/guide/src/mysql.md` shows the functions.

mod diesel_async;
mod sqlx;

use zlock::mysql::{Fence, MysqlFence as _};
use zlock_testkit::mysql::{end_session, sql};
use zlock_testkit::{MariaDb, have_mariadb, limit_if};

/// Ships an order while its lock is held, and tries to ship another one after the lock is lost.
async fn try_out<P, E: std::fmt::Debug>(
    open: impl AsyncFn(&str) -> P,
    ship: impl AsyncFn(&P, i64, &Fence) -> Result<(), E>,
    is_lost: impl Fn(&E) -> bool,
) {
    limit_if(have_mariadb(), async {
        let server = MariaDb::start(&[]).await;
        let url = format!("mysql://zlock@{}/zlock", server.addr());
        let client = zlock::connect(&format!("{url}?create_schema=true")).await.unwrap();
        sql::<u8>(&server, "CREATE TABLE orders (id BIGINT PRIMARY KEY, status TEXT NOT NULL)", ()).await;
        sql::<u8>(&server, "INSERT INTO orders VALUES (1, 'new'), (2, 'new')", ()).await;
        let guard = client.mutex("/orders").unwrap().acquire().await.unwrap();
        let fence = guard.mysql_fence().unwrap();
        let pool = open(&url).await;
        ship(&pool, 1, &fence).await.unwrap();

        end_session(&server, client.session_events().current().id).await;
        let error = ship(&pool, 2, &fence).await.unwrap_err();
        assert!(is_lost(&error), "{error:?}");
        let statuses: Vec<String> = sql(&server, "SELECT status FROM orders ORDER BY id", ()).await;
        assert_eq!(statuses, ["shipped", "new"]);
    })
    .await;
}
