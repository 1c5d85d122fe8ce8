//! The service's binary. The library describes the service.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `ZLOCK_URL` | the database, for locks and tables; credentials and TLS are in the variables of [`zlock::Environment`] | |
//! | `NAME` | the name of the replica | `process` and its number |
//! | `GRACE` | how many seconds a shutdown waits for work under a lock | 20 |
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | SIGTERM or SIGINT: all work has ended within the grace |
//! | 1 | SIGTERM or SIGINT: some work had not ended within the grace, and was cancelled |
//! | 2 | the service could not start, or cannot go on: standard error says why |

use std::process::ExitCode;
use std::time::Duration;
use std::{env, process};

use tokio::signal::unix::{SignalKind, signal};
use zlock::postgres::PostgresOptions;
use zlock::{Connect, Environment};
use zlock_prices::{Result, explain, serve};

async fn run() -> Result<bool> {
    // First of all: an early signal must not end the process without a shutdown.
    let (mut terminated, mut interrupted) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = async move {
        tokio::select! {
            biased;
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
    };
    let name = env::var("NAME").unwrap_or_else(|_| format!("process {}", process::id()));
    let grace = Duration::from_secs(env::var("GRACE").as_deref().unwrap_or("20").parse()?);
    // The locks and the tables are in the same database, or else no fence could refuse a write.
    let environment = Environment::of_process()?;
    let database = PostgresOptions::from_url(environment.url()?)?.with_environment(&environment)?;
    // Connects in the background, so that a signal during the start is not left waiting.
    let client = Connect::from_env()?.connect_lazy()?;
    let outcome = serve(client, database, name, grace, stop).await?;
    println!("ended: {} locks still held, {:?}", outcome.still_held, outcome.close);
    Ok(outcome.still_held == 0)
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("zlock-prices: {}", explain(&error));
            ExitCode::from(2)
        }
    }
}
