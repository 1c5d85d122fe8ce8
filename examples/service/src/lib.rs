//! A service that runs a numbered job under a lock: job 1, job 2 and so on, each once, whichever replica does it.
//!
//! `GET /live` is `200` while the process works. `GET /ready` is `200` while its locks can be relied on, and `503` before they
//! cannot, and from the beginning of a shutdown on. On SIGTERM the service acquires no more locks, finishes its job, and ends.

mod jobs;

use std::future::Future;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use zlock::{Client, ErrorKind, InterProcessMutex, Result, Shutdown};

pub use self::jobs::Jobs;

/// How the service runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The time between two jobs of this replica.
    pub every: Duration,
    /// How long a shutdown waits for the job.
    pub grace: Duration,
}

/// Serves until `stop` completes, then shuts down. Returns how the shutdown of the client went.
///
/// # Errors
/// Those of the listener and of the client.
pub async fn serve(
    listener: TcpListener,
    client: Client,
    jobs: Jobs,
    settings: Settings,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<Shutdown, Box<dyn std::error::Error + Send + Sync>> {
    let mutex = client.mutex("/service/jobs")?;
    let worker = tokio::spawn(work(mutex, jobs, settings.every));
    let router =
        Router::new().route("/live", get(live)).route("/ready", get(ready)).with_state(client.clone());
    let (stopped, outcome) = tokio::sync::oneshot::channel();
    let shut_down = async move {
        stop.await;
        // Probes are answered meanwhile, so that no new requests are sent here.
        let _ = stopped.send(client.shutdown(settings.grace).await);
    };
    axum::serve(listener, router).with_graceful_shutdown(shut_down).await?;
    worker.await?;
    Ok(outcome.await??)
}

/// Whether the process works. A lost connection is no reason to restart it.
async fn live() -> StatusCode {
    StatusCode::OK
}

/// Whether requests that need a lock should be sent here.
async fn ready(State(client): State<Client>) -> (StatusCode, String) {
    let health = client.health();
    let status = if health.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, health.to_string())
}

/// Does a job now and then, until the client is shut down.
async fn work(mutex: InterProcessMutex, jobs: Jobs, every: Duration) {
    loop {
        match job(&mutex, &jobs, every).await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::ShuttingDown => return,
            Err(error) if error.is_timeout() => {} // another replica does it, or the store is slow
            Err(error) => eprintln!("the job was not done: {error}"),
        }
        tokio::time::sleep(every).await;
    }
}

async fn job(mutex: &InterProcessMutex, jobs: &Jobs, wait: Duration) -> Result<()> {
    let guard = mutex.acquire_timeout(wait).await?;
    // Cancelled if the lock is lost. What it has written by then is refused by its token.
    let done = guard.run(jobs.run_next(guard.fencing_token())).await;
    guard.release().await?;
    if let Err(error) = done? {
        eprintln!("the job failed: {error}");
    }
    Ok(())
}
