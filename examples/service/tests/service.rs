//! The service on mem: its probes, its jobs and its shutdown.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use zlock::mem::{MemLink, MemOptions, MemServer};
use zlock::{Client, Close, Shutdown};
use zlock_service::{Jobs, Settings, serve};
use zlock_testkit::{limit, until};

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(30);

struct Service {
    address: SocketAddr,
    client: Client,
    link: MemLink,
    jobs: Jobs,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Shutdown>,
    _folder: tempfile::TempDir,
}

/// Starts the service with jobs that take this long.
async fn start(takes: Duration) -> Service {
    start_on(&MemServer::new(), takes, Duration::ZERO).await
}

async fn start_on(server: &MemServer, takes: Duration, drain: Duration) -> Service {
    let folder = tempfile::tempdir().unwrap();
    let backend = server.connect_with(MemOptions::default().with_session_timeout(Duration::from_secs(4)));
    let (link, client) = (backend.link(), Client::new(backend));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let jobs = Jobs::new(folder.path(), takes);
    let (stop, stopped) = oneshot::channel();
    let settings =
        Settings { address: address.to_string(), every: Duration::from_millis(10), drain, grace: LONG };
    let serving = serve(listener, client.clone(), jobs.clone(), settings, async { drop(stopped.await) });
    let ended = tokio::spawn(async move { serving.await.unwrap() });
    Service { address, client, link, jobs, stop, ended, _folder: folder }
}

async fn status(address: SocketAddr, path: &str) -> u16 {
    ask(address, "GET", path).await.0
}

/// Returns the status and the whole answer.
async fn ask(address: SocketAddr, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

#[tokio::test]
async fn works_and_ends() {
    limit(async {
        let service = start(Duration::from_millis(5)).await;
        assert_eq!(status(service.address, "/live").await, 200);
        assert_eq!(status(service.address, "/ready").await, 200);
        until("jobs are done", async || service.jobs.last_done().unwrap() >= 3).await;
        service.stop.send(()).unwrap();
        let outcome = service.ended.await.unwrap();
        assert_eq!((outcome.still_held, outcome.close), (0, Close::Ended));
        assert!(TcpStream::connect(service.address).await.is_err(), "nobody listens");
    })
    .await;
}

#[tokio::test]
async fn a_shutdown_waits_for_the_job_and_answers_probes() {
    limit(async {
        let service = start(Duration::from_secs(2)).await;
        let mutex = service.client.mutex("/service/jobs").unwrap();
        until("a job is under way", async || mutex.is_acquired_in_this_process()).await;
        service.stop.send(()).unwrap();
        until("it is not ready", async || status(service.address, "/ready").await == 503).await;
        assert_eq!(status(service.address, "/live").await, 200);
        assert_eq!(service.jobs.last_done().unwrap(), 0, "the job is under way still");
        assert_eq!(service.ended.await.unwrap().still_held, 0);
        assert_eq!(service.jobs.last_done().unwrap(), 1, "it was waited for");
    })
    .await;
}

/// Both are ready. The leader takes orders, and the other one knows where it is, also while no store answers it. When the leader
/// ends, it is not ready first, and leads on until its load balancer has noticed.
#[tokio::test]
async fn orders_go_to_the_leader() {
    limit(async {
        let server = MemServer::new();
        let orders = async |address| ask(address, "POST", "/orders").await;
        let first = start_on(&server, Duration::from_millis(5), 3 * SECOND).await;
        until("the first one leads", async || orders(first.address).await.0 == 200).await;
        let second = start_on(&server, Duration::from_millis(5), 3 * SECOND).await;
        until("the second one knows", async || orders(second.address).await.0 == 307).await;
        let to_first = format!("location: http://{}/orders", first.address);
        assert!(orders(second.address).await.1.contains(&to_first));
        assert_eq!(status(first.address, "/ready").await, 200);
        assert_eq!(status(second.address, "/ready").await, 200);

        second.link.cut();
        until("it is in doubt", async || orders(second.address).await.0 == 503).await;
        let asked = Instant::now();
        assert!(orders(second.address).await.1.contains(&first.address.to_string()));
        assert!(asked.elapsed() < 2 * SECOND, "a handler waited for the store");
        second.link.heal();
        until("it knows again", async || orders(second.address).await.0 == 307).await;

        first.stop.send(()).unwrap();
        until("the first one is not ready", async || status(first.address, "/ready").await == 503).await;
        assert_eq!(orders(first.address).await.0, 200, "it still leads");
        until("the second one leads", async || orders(second.address).await.0 == 200).await;
        let outcome = first.ended.await.unwrap();
        assert_eq!((outcome.still_held, outcome.close), (0, Close::Ended));
        second.stop.send(()).unwrap();
        second.ended.await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn an_outage_makes_it_unready_and_not_dead() {
    limit(async {
        let service = start(Duration::from_millis(5)).await;
        until("it is ready", async || status(service.address, "/ready").await == 200).await;
        service.link.cut();
        until("it is not ready", async || status(service.address, "/ready").await == 503).await;
        assert_eq!(status(service.address, "/live").await, 200);
        service.link.heal();
        until("it is ready", async || status(service.address, "/ready").await == 200).await;
        let before = service.jobs.last_done().unwrap();
        until("jobs go on", async || service.jobs.last_done().unwrap() > before).await;
        service.stop.send(()).unwrap();
        service.ended.await.unwrap();
    })
    .await;
}

/// A client that was closed does not connect again, so only a restart helps.
#[tokio::test]
async fn the_end_of_the_client_makes_it_dead() {
    limit(async {
        let service = start(Duration::from_millis(5)).await;
        assert_eq!(status(service.address, "/live").await, 200);
        service.client.close().await.unwrap();
        assert_eq!(status(service.address, "/live").await, 503);
        service.stop.send(()).unwrap();
        service.ended.await.unwrap();
    })
    .await;
}

/// What a holder writes after its lock was lost is refused, and changes nothing.
#[tokio::test]
async fn a_late_writer_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let jobs = Jobs::new(folder.path(), Duration::ZERO);
    let mutex = Client::new(MemServer::new().connect()).mutex("/service/jobs").unwrap();
    let (earlier, later) = {
        let first = mutex.acquire().await.unwrap();
        let earlier = first.fencing_token();
        first.release().await.unwrap();
        (earlier, mutex.acquire().await.unwrap().fencing_token())
    };
    jobs.run_next(earlier).await.unwrap();
    jobs.run_next(later).await.unwrap();
    let refused = jobs.run_next(earlier).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    assert_eq!(jobs.last_done().unwrap(), 2);
    jobs.run_next(later).await.unwrap();
    assert_eq!(jobs.last_done().unwrap(), 3);
}
