//! A holder is paused for its whole session and then writes in two transactions: the database refuses the one with a fence.
//!
//! No lock service can keep a process from writing late: it may be paused between its last look at the lock and the write.
//! If the data and the lock are in one PostgreSQL database, the transaction itself can depend on the lock: the statement of
//! `guard.postgres_fence()` fails once another client may hold it.
//!
//! The first holder is a process that is stopped (SIGSTOP) while it holds the lock, and continued when the second one has
//! written. It then writes both rows, as if nothing had happened: one with the fence and one without.

use std::io::{BufRead as _, Read as _};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;
use std::{env, io, thread};

use tokio::time::Instant;
use zlock::postgres::{Fence, PostgresFence as _, PostgresOptions};

#[path = "common/mod.rs"]
mod common;
use common::Result;

const LOCK: &str = "/fenced_transaction/lock";

/// Short, so that nobody waits long.
const SESSION: Duration = Duration::from_secs(2);

/// What the process says when it may be stopped.
const PAUSE: &str = "now";

/// The data that the lock protects. Each row is written in a transaction, with or without the fence.
const TABLE: &str =
    "CREATE TABLE IF NOT EXISTS fenced_transaction (name text PRIMARY KEY, text text NOT NULL)";

async fn connect(url: &str) -> Result<tokio_postgres::Client> {
    Ok(PostgresOptions::from_url(url)?.connect_client().await?)
}

// ANCHOR: write
/// Writes a row. With a fence, the transaction can only commit if the lock was held until then.
async fn write(
    sql: &mut tokio_postgres::Client,
    name: &str,
    text: &str,
    fence: Option<&Fence>,
) -> Result<(), tokio_postgres::Error> {
    let transaction = sql.transaction().await?;
    let upsert = "INSERT INTO fenced_transaction VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET text = excluded.text";
    transaction.execute(upsert, &[&name, &text]).await?;
    if let Some(fence) = fence {
        transaction.query_typed(fence.sql(), &fence.params()).await?;
    }
    transaction.commit().await
}
// ANCHOR_END: write

async fn read(sql: &tokio_postgres::Client, name: &str) -> Result<String> {
    let row = sql.query_one("SELECT text FROM fenced_transaction WHERE name = $1", &[&name]).await?;
    Ok(row.try_get(0)?)
}

/// The process that is stopped: goes on when its standard input ends. Returns whether only its fenced transaction was refused.
async fn first(url: &str) -> Result<bool> {
    let client = zlock::connect(url).await?;
    let mut sql = connect(url).await?;
    let guard = client.mutex(LOCK)?.acquire().await?;
    // Before BEGIN, and while the lock is held.
    let fence = guard.postgres_fence()?;
    println!("  first: holds the lock with token {}", guard.fencing_token());
    println!("{PAUSE}");
    tokio::task::spawn_blocking(|| io::stdin().read_to_end(&mut Vec::new())).await??;

    let refused = match write(&mut sql, "fenced", "what the first holder wrote", Some(&fence)).await {
        Ok(()) => {
            println!("  first: the fenced transaction was committed");
            false
        }
        Err(error) => {
            let message =
                error.as_db_error().map_or_else(|| error.to_string(), |found| found.message().to_owned());
            println!("  first: the fenced transaction was refused: \"{message}\"");
            error.code().is_some_and(|code| code.code() == Fence::LOST)
        }
    };
    write(&mut sql, "unfenced", "what the first holder wrote", None).await?;
    println!("  first: the transaction without a fence was committed; is_held() says {}", guard.is_held());
    Ok(refused)
}

/// The second holder: waits for the lock, and writes both rows.
async fn second(client: &zlock::Client, sql: &mut tokio_postgres::Client) -> Result {
    let began = Instant::now();
    let guard = client.mutex(LOCK)?.acquire().await?;
    println!("  second: holds the lock with token {} after {:.1?}", guard.fencing_token(), began.elapsed());
    let fence = guard.postgres_fence()?;
    for name in ["fenced", "unfenced"] {
        write(sql, name, "what the second holder wrote", Some(&fence)).await?;
    }
    println!("  second: writes both rows in fenced transactions");
    guard.release().await?;
    Ok(())
}

fn signal(name: &str, pid: u32) -> Result {
    // A part of every shell; the program of this name is not everywhere.
    let sent = Command::new("sh").arg("-c").arg(format!("kill -{name} {pid}")).status()?;
    if sent.success() { Ok(()) } else { Err(format!("no SIG{name} for {pid}").into()) }
}

async fn example(url: &str) -> Result<bool> {
    if !url.starts_with("postgres") {
        return Err(format!("{url}: only PostgreSQL has fences for transactions").into());
    }
    let mut url = url.to_owned();
    for parameter in ["create_schema=true".to_owned(), format!("session_timeout={}s", SESSION.as_secs())] {
        if !url.contains(parameter.split('=').next().unwrap_or_default()) {
            url = format!("{url}{}{parameter}", if url.contains('?') { '&' } else { '?' });
        }
    }
    let client = zlock::connect(&url).await?;
    let mut sql = connect(&url).await?;
    sql.batch_execute(TABLE).await?;
    println!("A holder is paused:");
    let mut command = Command::new(env::current_exe()?);
    let mut holder = command.args(["--first", &url]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let lines = io::BufReader::new(holder.stdout.take().ok_or("no output")?);
    let (paused, pause) = tokio::sync::oneshot::channel();
    let printer = thread::spawn(move || {
        let mut paused = Some(paused);
        for line in lines.lines().map_while(io::Result::ok) {
            if line == PAUSE {
                paused.take().map(|paused| paused.send(()));
            } else {
                println!("{line}");
            }
        }
    });
    pause.await?;
    signal("STOP", holder.id())?;
    println!("  first: process {} is stopped", holder.id());
    let written = second(&client, &mut sql).await;
    signal("CONT", holder.id())?;
    written?;
    println!("  first: process {} is continued", holder.id());
    drop(holder.stdin.take());
    let only_the_fenced_one_was_refused = holder.wait()?.success();
    printer.join().map_err(|_| "no output")?;
    let (fenced, unfenced) = (read(&sql, "fenced").await?, read(&sql, "unfenced").await?);
    println!("  = with the fence, the row has {fenced:?}; without, {unfenced:?}");
    sql.batch_execute("DROP TABLE fenced_transaction").await?;
    client.close().await?;
    Ok(only_the_fenced_one_was_refused && fenced.contains("second") && unfenced.contains("first"))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    if let [first_holder, url] = &args[..]
        && first_holder == "--first"
    {
        return match first(url).await {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(e) => {
                eprintln!("fenced_transaction: {e}");
                ExitCode::from(2)
            }
        };
    }
    common::main("fenced_transaction", "postgres://postgres@localhost/postgres", example).await
}
