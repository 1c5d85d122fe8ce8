//! A service on PostgreSQL that follows the prices of a supplier. Any number of replicas may run.
//!
//! - One replica leads. It asks the supplier for the price again and again, and writes the answer into the table `prices`.
//! - At each tick, one replica writes a report of all prices into the table `reports`. If it dies, ticks are skipped until its session
//!   has ended.
//! - Both write with a fence: the database refuses what a replica writes after it has lost the leadership or the job's lock.
//! - On SIGTERM, a replica stops leading, finishes its report and ends.
//!
//! Run it in several terminals, and end or kill one of them:
//!
//! ```sh
//! ZLOCK_URL='postgres://USER@localhost/DATABASE?create_schema=true' cargo run -p zlock-prices
//! ```

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_postgres::types::ToSql;
use zlock::job::{Interval, JobContext, Tick};
use zlock::postgres::{Fence, PostgresFence as _, PostgresOptions};
use zlock::{Client, ErrorKind, LeaderContext, Shutdown};

/// Any error: of zlock, of the database or of the service's own work.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// The result of anything here.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// The path of the election.
pub const LEADER: &str = "/prices/leader";
const REPORT: &str = "/prices/report";

// Short, so that there is something to see.
const ASK_EVERY: Duration = Duration::from_millis(200);
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Replicas that start at the same time would create the tables at the same time, which fails. PostgreSQL's own lock is enough
/// here, because all the work is in its transaction. The number is any that nothing else in the database uses.
const TABLES: &str = "
    BEGIN;
    SELECT pg_advisory_xact_lock(4711);
    CREATE TABLE IF NOT EXISTS prices
        (id bigserial PRIMARY KEY, price bigint NOT NULL, term bigint NOT NULL, replica text NOT NULL);
    CREATE TABLE IF NOT EXISTS reports
        (tick timestamptz PRIMARY KEY, prices bigint NOT NULL, replica text NOT NULL);
    COMMIT";

/// Adds a price. The term is there for people who look at the table: the fence needs no number.
pub const ADD_PRICE: &str = "INSERT INTO prices (price, term, replica) VALUES ($1, $2, $3)";

/// Adds a report, unless it is there: a replica may fail between its commit and the note that the tick has run, and then the next
/// attempt finds the report.
const ADD_REPORT: &str = "
    INSERT INTO reports (tick, prices, replica) SELECT $1::text::timestamptz, count(*), $2 FROM prices
    ON CONFLICT (tick) DO NOTHING";

/// Runs a replica until `stop` completes, then shuts it down, and waits up to `grace` for its report. Returns the outcome of the
/// client's shutdown.
///
/// # Errors
/// The tables cannot be created, the client cannot be closed, or one of the loops has failed, which also shuts the replica down.
pub async fn serve(
    client: Client,
    database: PostgresOptions,
    name: String,
    grace: Duration,
    stop: impl Future<Output = ()>,
) -> Result<Shutdown> {
    let mut stop = pin!(stop);
    tokio::select! {
        biased;
        () = &mut stop => return Ok(client.shutdown(grace).await?),
        created = create_tables(&database) => created?,
    }
    let mut loops = JoinSet::new();
    loops.spawn(follow_prices(client.clone(), database.clone(), name.clone()));
    loops.spawn(make_reports(client.clone(), database, name));
    // Before `stop`, a loop only ends if it panics, or if trying again cannot help. Then the replica ends as a whole: with one
    // loop left it would look healthy, and do half of its work.
    let first = tokio::select! {
        biased;
        () = &mut stop => None,
        ended = loops.join_next() => ended,
    };
    // Asks the leader to step down, and waits for the report. What still holds a lock after the grace is cancelled.
    let outcome = client.shutdown(grace).await;
    // Dropping the loops instead would cancel one because the other has ended.
    let mut results = Vec::from_iter(first);
    while let Some(ended) = loops.join_next().await {
        results.push(ended);
    }
    for result in results {
        result??;
    }
    Ok(outcome?)
}

/// Leads again and again, until the client is shut down.
async fn follow_prices(client: Client, database: PostgresOptions, name: String) -> Result {
    let election = client.election(LEADER)?.with_value(&*name)?;
    let term = async |leader: LeaderContext| {
        // After an error, `lead` resigns, and campaigns again after a pause. It logs the error with `tracing` only.
        let ended = lead(leader, &database, &name).await;
        ended.inspect_err(|error| eprintln!("{name} stops leading: {}", explain(error)))
    };
    election.lead(term).await?;
    Ok(())
}

/// Leads for one term. If the leadership is lost, this is cancelled at the `await` that it has reached.
async fn lead(leader: LeaderContext, database: &PostgresOptions, name: &str) -> Result {
    println!("{name} leads in term {}", leader.term());
    // The fence is that of this term. Without it, a leader that is paused before it writes would write an old price when it
    // continues, while another one leads.
    let fence = leader.postgres_fence()?;
    let term = leader.term().number().cast_signed(); // PostgreSQL has no unsigned numbers
    // A connection for each term. If it breaks, the term ends, and the next leader has a new one.
    let mut sql = connect(database).await?;
    let mut asked_to_stop = pin!(leader.step_down_requested()); // once, because each call sends a request
    loop {
        let price = tokio::select! {
            biased;
            asked = &mut asked_to_stop => return Ok(asked?),
            price = next_price() => price,
        };
        write(&mut sql, &fence, ADD_PRICE, &[&price, &term, &name]).await?;
    }
}

/// Waits, and asks the supplier. Stands in for a call over the network, which may take long: no transaction of the database should be
/// open meanwhile.
async fn next_price() -> i64 {
    sleep(ASK_EVERY).await;
    fastrand::i64(1000..1100)
}

/// Makes the report of each tick that no other replica makes, until the client is shut down.
async fn make_reports(client: Client, database: PostgresOptions, name: String) -> Result {
    // Up to three attempts at a report that fails, until the next tick is due. So a report must be safe to repeat. If a replica dies,
    // its lock lasts as long as its session. If ticks are further apart than that, another replica makes the report then.
    let job = client.recurring_job(REPORT)?.attempts(3);
    let report = async |run: JobContext, tick: Tick| {
        println!("{name} makes the report of {tick}, attempt {}", run.attempt());
        let made = make_report(&run, &database, &name).await;
        made.inspect_err(|error| eprintln!("{name} has not made the report of {tick}: {}", explain(error)))
    };
    match job.every(Interval::new(REPORT_EVERY)?, report).await {
        // The client is shut down, or the grace is over.
        Err(error) if matches!(error.kind(), ErrorKind::ShuttingDown | ErrorKind::Closed) => Ok(()),
        ended => Ok(ended?),
    }
}

async fn make_report(run: &JobContext, database: &PostgresOptions, name: &str) -> Result {
    let fence = run.postgres_fence()?;
    let mut sql = connect(database).await?;
    Ok(write(&mut sql, &fence, ADD_REPORT, &[&run.tick().to_string(), &name]).await?)
}

/// Executes a statement in a transaction that only commits if the lock was held until then.
///
/// # Errors
/// The code is [`Fence::LOST`] if the lock is not held any more. Then nothing is written.
pub async fn write(
    sql: &mut tokio_postgres::Client,
    fence: &Fence,
    statement: &str,
    params: &[&(dyn ToSql + Sync)],
) -> Result<(), tokio_postgres::Error> {
    let transaction = sql.transaction().await?;
    transaction.execute(statement, params).await?;
    // Last, so that other replicas wait for this transaction only for a moment.
    transaction.query_typed(fence.sql(), &fence.params()).await?;
    transaction.commit().await
}

/// Creates the tables, unless they are there.
///
/// # Errors
/// The database cannot be reached, or refuses it.
pub async fn create_tables(database: &PostgresOptions) -> Result {
    Ok(connect(database).await?.batch_execute(TABLES).await?)
}

async fn connect(database: &PostgresOptions) -> Result<tokio_postgres::Client> {
    let sql = database.connect_client().await?;
    // A replica that is paused between the fence and the commit keeps the next holder waiting, but not for longer than this.
    sql.batch_execute("SET idle_in_transaction_session_timeout = '10s'").await?;
    Ok(sql)
}

/// Returns the message of an error. For all that the server refuses, `tokio-postgres` itself says only "db error".
#[must_use]
pub fn explain(error: &Error) -> String {
    let refused = error.downcast_ref::<tokio_postgres::Error>().and_then(tokio_postgres::Error::as_db_error);
    refused.map_or_else(|| error.to_string(), ToString::to_string)
}
