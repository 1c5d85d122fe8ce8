//! How a connection is made.

use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use tokio::time::{Instant, timeout};
use zlock_core::kit;
use zlock_ledger::tables::Names;

use crate::config::MysqlOptions;
use crate::connection::link::run;
use crate::connection::rows::{get, only};
use crate::error::Failure;
use crate::schema::{VERSION, procedure, statements};

/// Whatever the settings of the server, the database and the user are.
const SETTINGS: &str = "SET SESSION autocommit = 1, sql_mode = 'STRICT_ALL_TABLES', time_zone = '+00:00', wait_timeout = 86400, \
    innodb_lock_wait_timeout = 1; SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";

impl MysqlOptions {
    /// Connects the client library to the server that accepts writes, with the same settings: for statements of your own, such
    /// as a transaction with a [`Fence`](crate::Fence). The isolation level is the server's default.
    ///
    /// # Errors
    /// - `NotAuthorized` if the server refuses the user or the password.
    /// - `Unavailable` if no server responds within the connect timeout, or a file cannot be read.
    /// - `InvalidArgument` for invalid options, or if there is no such database.
    ///
    /// # Cancel safety
    /// Safe: the connection is closed.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time and I/O enabled.
    pub async fn connect_client(&self) -> zlock_core::Result<Conn> {
        self.validate()?;
        let explain = |failure: Failure| {
            let error = self.kit.connect_error(kit::Failure::classify(&failure).kind);
            kit::Failure::explain(failure, error)
        };
        let (mut conn, _) = dial(self, self.kit.connect_timeout).await.map_err(explain)?;
        // Whatever zlock has set.
        conn.reset().await.map_err(|error| explain(Failure::Connect(error)))?;
        Ok(conn)
    }
}

/// Connects with the first host that accepts writes.
pub(crate) async fn dial(options: &MysqlOptions, limit: Duration) -> Result<(Conn, Names), Failure> {
    // The engine waits no longer than the limit, and does not know which server did not answer.
    let until = Instant::now() + limit * 9 / 10;
    let opts = timeout(limit, options.library_opts()).await;
    let opts =
        opts.unwrap_or(Err("a file of the options cannot be read in time".into())).map_err(Failure::NoWay)?;
    let mut left = u32::try_from(opts.len()).unwrap_or(u32::MAX);
    let mut failures = Vec::new();
    for opts in opts {
        // Each gets its share of the time that is left, so that one that does not answer leaves some to the others.
        let share = until.saturating_duration_since(Instant::now()) / left;
        left -= 1;
        let server = format!("{}:{}", opts.ip_or_hostname(), opts.tcp_port());
        match timeout(share, open(opts, options.create_schema)).await.unwrap_or(Err(Failure::Silent)) {
            Ok(connected) => return Ok(connected),
            Err(failure) => failures.push((server, failure)),
        }
    }
    Err(Failure::of_each(failures))
}

/// Connects, and makes the connection one of zlock's. Creates the tables and procedures if they are missing, and the options say so.
async fn open(opts: Opts, creates: bool) -> Result<(Conn, Names), Failure> {
    let mut conn = Conn::new(opts).await.map_err(Failure::Connect)?;
    conn.query_drop(SETTINGS).await.map_err(Failure::Connect)?;
    let names = match hello(&mut conn).await {
        Err(missing) if missing.is_of_a_missing_schema() && creates => {
            // A user with many rights could write to it.
            let is_read_only =
                conn.query_first("SELECT @@global.read_only").await.map_err(Failure::Connect)?;
            if is_read_only == Some(true) {
                return Err(Failure::NoWay("the server is read-only".into()));
            }
            create_schema(&mut conn).await?
        }
        hello => hello?,
    };
    Ok((conn, names))
}

async fn hello(conn: &mut Conn) -> Result<Names, Failure> {
    let answer = run(conn, "CALL zlock_open()", Vec::new()).await.map_err(Failure::Connect)?;
    let row = only(&answer)?;
    let found: i64 = get(row, 1)?;
    if found != VERSION {
        return Err(Failure::Unsuitable(format!(
            "the database has version {found} of the schema of zlock, and this client needs version {VERSION}"
        )));
    }
    Ok(Names::new(get(row, 0)?))
}

/// Creates the tables and procedures. No statement of these can be undone, so one client does it after the other.
async fn create_schema(conn: &mut Conn) -> Result<Names, Failure> {
    conn.query_drop("DO GET_LOCK(CONCAT('zlock_schema ', DATABASE()), 10)")
        .await
        .map_err(Failure::Connect)?;
    let made = async {
        // Another client may just have done it.
        match hello(conn).await {
            Err(missing) if missing.is_of_a_missing_schema() => {}
            hello => return hello,
        }
        for statement in statements() {
            if let Some(name) = procedure(statement) {
                conn.query_drop(format!("DROP PROCEDURE IF EXISTS {name}"))
                    .await
                    .map_err(Failure::Connect)?;
            }
            conn.query_drop(statement).await.map_err(Failure::Connect)?;
        }
        hello(conn).await
    };
    let made = made.await;
    conn.query_drop("DO RELEASE_LOCK(CONCAT('zlock_schema ', DATABASE()))")
        .await
        .map_err(Failure::Connect)?;
    made
}
