//! A service that runs numbered jobs under a lock: job 1, job 2 and so on, one at a time, on any replica. Completed jobs are
//! recorded, because a lock alone does not make a job run once. One replica leads, and only that one takes orders.
//!
//! | request | answer |
//! |---|---|
//! | `GET /live` | `503` if only a restart can help: the store has refused the credentials, from which a client does not recover |
//! | `GET /ready` | `503` before locks are lost, while no store is reached, and from the beginning of a shutdown. It does not depend on who leads |
//! | `POST /orders` | `200` from the leader; `307` with its address from others; `503` while nobody is known to lead |
//!
//! On SIGTERM the service is not ready any more, and goes on until the load balancer has noticed. Then it stops leading, acquires no
//! more locks, finishes its job, ends its session and exits.

mod jobs;
mod leader;

use std::future::Future;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use zlock::{Client, ErrorKind, InterProcessMutex, Result, SessionState, Shutdown};

pub use self::jobs::Jobs;
use self::leader::{Leading, orders};

/// The settings of the service.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address at which the other replicas reach this one.
    pub address: String,
    /// The pause between two jobs of this replica.
    pub every: Duration,
    /// How long requests are served when the service is not ready any more: the time until the load balancer has noticed.
    pub drain: Duration,
    /// The time that a shutdown waits for the job.
    pub grace: Duration,
}

/// Serves until `stop` completes, then shuts down. Returns the outcome of the client's shutdown.
///
/// # Errors
/// The listener or the client fails; the jobs' task has panicked, which also shuts the service down, or the candidate's.
pub async fn serve(
    listener: TcpListener,
    client: Client,
    jobs: Jobs,
    settings: Settings,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<Shutdown, Box<dyn std::error::Error + Send + Sync>> {
    let mutex = client.mutex("/service/jobs")?;
    let election = client.election("/service/leader")?.with_value(settings.address.clone())?;
    let leading = Leading::new(&election, settings.address);
    let mut worker = tokio::spawn(work(mutex, jobs, settings.every));
    let leads = tokio::spawn(leading.clone().lead(election));
    let (stopping, is_stopping) = watch::channel(false);
    let probes = Router::new().route("/live", get(live)).route("/ready", get(ready)).with_state((
        client.clone(),
        is_stopping,
        leads.abort_handle(),
    ));
    let router = probes.merge(Router::new().route("/orders", post(orders)).with_state(leading));
    let (stopped, outcome) = tokio::sync::oneshot::channel();
    let shut_down = async move {
        // The worker ends by itself only if it panics. Without it, the service would do nothing, and look healthy.
        let panicked = tokio::select! {
            biased;
            ended = &mut worker => Some(ended),
            () = stop => None,
        };
        // Not ready, and still there for whoever has not noticed.
        stopping.send_replace(true);
        tokio::time::sleep(settings.drain).await;
        // The leader resigns, the job ends, its lock is released, and the session ends. Probes are answered meanwhile.
        let closed = client.shutdown(settings.grace).await;
        let worked = if let Some(panicked) = panicked { panicked } else { worker.await };
        let _ = stopped.send((closed, worked.and(leads.await)));
    };
    axum::serve(listener, router).with_graceful_shutdown(shut_down).await?;
    let (closed, ended) = outcome.await?;
    ended?;
    Ok(closed?)
}

type Probes = (Client, watch::Receiver<bool>, AbortHandle);

/// The liveness probe. A lost connection is no reason for a restart, because the client reconnects. A client that was closed
/// does not, and a replica whose candidate has ended never leads again.
async fn live(State((client, _, candidate)): State<Probes>) -> StatusCode {
    let health = client.health();
    let is_over = matches!(health.state, SessionState::Closed(_)) || candidate.is_finished();
    if is_over && !health.is_shutting_down { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }
}

/// The readiness probe: this replica may receive requests that need a lock. Not only the leader is ready: a rolling update starts the
/// next replica when this one is, and would wait for ever.
async fn ready(State((client, is_stopping, _)): State<Probes>) -> (StatusCode, String) {
    let health = client.health();
    let is_ready = health.is_ready() && !*is_stopping.borrow();
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, health.to_string())
}

/// Runs a job from time to time, until the client is shut down.
async fn work(mutex: InterProcessMutex, jobs: Jobs, every: Duration) {
    loop {
        match job(&mutex, &jobs, every).await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::ShuttingDown => return,
            Err(error) if error.is_timeout() => {} // another replica runs it, or the store is slow
            Err(error) => eprintln!("the job or its lock failed: {error}"),
        }
        tokio::time::sleep(every).await;
    }
}

async fn job(mutex: &InterProcessMutex, jobs: &Jobs, wait: Duration) -> Result<()> {
    let guard = mutex.acquire_timeout(wait).await?;
    // The job is cancelled if the lock is lost. If it writes too late, the storage rejects its token.
    let done = guard.run(jobs.run_next(guard.fencing_token())).await;
    let released = guard.release().await;
    if let Err(error) = done? {
        eprintln!("the job failed: {error}");
    }
    released.map(drop)
}
