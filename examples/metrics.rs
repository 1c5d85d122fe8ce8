//! A service whose locks are monitored with Prometheus. It leads an election, runs jobs under locks and a report at each tick of
//! a schedule, is a member of a group, and serves its metrics over HTTP until it is stopped. `contrib` has a dashboard and alerts
//! for these metrics.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use zlock::Client;
use zlock::job::Interval;
use zlock::metrics::{BUCKETS, MetricsObserver};

#[path = "common/mod.rs"]
mod common;
use common::Result;

/// Responds to every request with the metrics.
async fn serve(listener: TcpListener, metrics: PrometheusHandle) -> Result {
    loop {
        let (stream, _) = listener.accept().await?;
        let text = metrics.render();
        tokio::spawn(async move {
            if let Err(error) = answer(stream, &text).await {
                eprintln!("a scrape failed: {error}");
            }
        });
    }
}

async fn answer(mut stream: TcpStream, text: &str) -> Result {
    let mut request = [0; 4096];
    let _ = stream.read(&mut request).await?;
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\nContent-Length: ";
    stream.write_all(format!("{head}{}\r\n\r\n{text}", text.len()).as_bytes()).await?;
    Ok(())
}

/// Leads, and campaigns again whenever the leadership is lost.
async fn lead(client: Client) -> Result {
    let election = client.election("/service/leader")?.with_metric_name("leader");
    election
        .lead(|leader| async move {
            println!("leads in term {}", leader.term());
            leader.step_down_requested().await
        })
        .await?;
    Ok(())
}

/// Runs jobs, each under its own lock. In the metrics, all of these locks have the name `/service/jobs`.
async fn work(client: Client) -> Result {
    let jobs = client.lock_template("/service/jobs")?;
    for job in 0_u64.. {
        let name = format!("job-{}", job % 10);
        if let Err(error) = jobs.execute(&name, |_lock| sleep(Duration::from_millis(20))).await {
            println!("{name}: {error}");
        }
    }
    Ok(())
}

/// Makes a report at each tick, in one of the processes that run this.
async fn report(client: Client) -> Result {
    let job = client.recurring_job("/service/report")?.with_metric_name("report");
    let each = Interval::new(Duration::from_millis(200))?;
    Ok(job.every(each, async |_ctx, _tick| Ok::<_, zlock::Error>(())).await?)
}

/// Is a member of a group until the end of the process.
async fn join(client: Client) -> Result {
    let id = std::process::id().to_string();
    let members = client.members("/service/members")?.with_metric_name("members");
    Err(members.join(id, "").await?.ended().await.into())
}

async fn service(url: &str) -> Result<bool> {
    let metrics =
        PrometheusBuilder::new().with_recommended_naming(true).set_buckets(&BUCKETS)?.install_recorder()?;
    let client = zlock::connect(url).await?;
    client.observe(Arc::new(MetricsObserver::new("locks")))?;
    // Without it, the exporter's samples pile up while nobody reads the metrics.
    let upkeep = metrics.clone();
    tokio::spawn(async move {
        loop {
            sleep(Duration::from_secs(5)).await;
            upkeep.run_upkeep();
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("metrics: http://{}/metrics", listener.local_addr()?);
    tokio::select! {
        end = serve(listener, metrics) => end?,
        end = lead(client.clone()) => end?,
        end = work(client.clone()) => end?,
        end = work(client.clone()) => end?,
        end = report(client.clone()) => end?,
        end = join(client) => end?,
    }
    Ok(true)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    common::main("metrics", "mem://", service).await
}
