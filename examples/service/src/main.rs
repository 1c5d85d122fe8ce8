//! The service's binary. The library describes the service.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `ZLOCK_URL` | the store; credentials and TLS are in the variables of [`zlock::Environment`] | `mem://` |
//! | `LISTEN` | the address to listen on | `127.0.0.1:8080` |
//! | `ADDRESS` | the address at which the other replicas reach this one | that of `LISTEN` |
//! | `DRAIN` | how many seconds requests are still served after SIGTERM | 0 |
//! | `JOBS` | the folder that the replicas share | `jobs` |

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use zlock::Connect;
use zlock_service::{Jobs, Settings, serve};

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

fn setting(name: &str, default: &str) -> String {
    env::var(name).unwrap_or_else(|_| default.to_owned())
}

async fn run() -> Result<bool> {
    // First of all: an early signal must not end the process without a shutdown.
    let (mut terminated, mut interrupted) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = async move {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
    };
    // On a thread of its own: a request that blocks the runtime must not lose the lock. At once: the probes and signals are
    // served while the store is not there yet.
    let client = zlock::with_dedicated_thread(async {
        match env::var_os("ZLOCK_URL") {
            Some(_) => Connect::from_env()?.connect_lazy(),
            None => Connect::to("mem://").connect_lazy(),
        }
    })
    .await?;
    let listener = TcpListener::bind(setting("LISTEN", "127.0.0.1:8080")).await?;
    let local = listener.local_addr()?;
    println!("listening on {local}");
    let jobs = Jobs::new(setting("JOBS", "jobs"), Duration::from_millis(20));
    let settings = Settings {
        address: setting("ADDRESS", &local.to_string()),
        every: Duration::from_millis(100),
        drain: Duration::from_secs(setting("DRAIN", "0").parse()?),
        grace: Duration::from_secs(20),
    };
    let outcome = serve(listener, client, jobs, settings, stop).await?;
    println!("ended: {} locks still held, {:?}", outcome.still_held, outcome.close);
    Ok(outcome.still_held == 0)
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("zlock-service: {error}");
            ExitCode::from(2)
        }
    }
}
