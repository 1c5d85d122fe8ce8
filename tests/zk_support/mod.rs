//! Helpers for tests of the whole stack on real ZooKeeper servers.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests; each file uses some of it"
)]

pub mod meter;
pub mod peers;

use std::fmt::Display;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::sleep;
use zlock::{Client, Guard, InterProcessMutex, Release};
use zlock_testkit::ZooKeeper;
use zookeeper_client::{Acls, CreateMode};

/// A session that outlives every test: its heartbeats are minutes apart.
pub const LONG: Duration = Duration::from_secs(120);

/// Connects a client with the facade's own function.
pub async fn connect(hosts: impl Display, session: Duration) -> Client {
    let url = format!("zk://{hosts}?session_timeout={}ms", session.as_millis());
    zlock::connect(&url).await.unwrap()
}

/// Connects a client, and returns its mutex for this path.
pub async fn mutex(hosts: impl Display, session: Duration, path: &str) -> InterProcessMutex {
    connect(hosts, session).await.mutex(path).unwrap()
}

/// Releases a lock that is held.
pub async fn release(guard: Guard) {
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// Starts a waiter. Returns when it has joined the queue.
pub async fn wait_behind(mutex: &InterProcessMutex, observer: &Observer, before: usize) -> JoinHandle<Guard> {
    let waiter = mutex.clone();
    let waiting = tokio::spawn(async move { waiter.acquire().await.unwrap() });
    observer.wait_for_children(mutex.path().as_str(), before + 1).await;
    waiting
}

/// A server with these parents, whose counters are set as if that number of children had been created.
pub async fn server_that_counted_to(counters: &[(&str, i32)]) -> ZooKeeper {
    let server = ZooKeeper::builder().without_digests().start().await;
    let observer = Observer::connect(server.connect_string()).await;
    for (parent, _) in counters {
        observer.make(parent).await;
    }
    server.set_counters(counters).await;
    server
}

/// The numbers of the path's children, as the server wrote them.
pub async fn numbers(observer: &Observer, path: &str) -> Vec<i32> {
    let number = |name: &str| name.rsplit_once("lock-").unwrap().1.parse().unwrap();
    observer.children(path).await.iter().map(|name| number(name)).collect()
}

/// ZooKeeper's own view, to look and to meddle with.
#[derive(Clone)]
pub struct Observer(pub zookeeper_client::Client);

impl Observer {
    pub async fn connect(hosts: impl Display) -> Self {
        let connector = zookeeper_client::Client::connector().with_session_timeout(LONG);
        Observer(connector.connect(&hosts.to_string()).await.unwrap())
    }

    /// The children as the server has them; none of a missing parent.
    pub async fn children(&self, path: &str) -> Vec<String> {
        self.0.sync("/").await.unwrap();
        match self.0.list_children(path).await {
            Ok(names) => names,
            Err(zookeeper_client::Error::NoNode) => Vec::new(),
            Err(error) => panic!("{path}: {error}"),
        }
    }

    /// Waits until the path has this many children.
    pub async fn wait_for_children(&self, path: &str, count: usize) {
        while self.children(path).await.len() != count {
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Makes a node by hand, with the ones above it. It stays when the session ends.
    pub async fn make(&self, path: &str) {
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        self.0.mkdir(path, &options).await.unwrap();
    }

    pub async fn remove(&self, path: &str) {
        self.0.delete(path, None).await.unwrap();
    }
}

/// The output of a future that is ready at its first poll.
pub fn ready<F: Future>(future: F) -> Option<F::Output> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}

/// Prints past libtest, which keeps the output of a test that passes to itself.
pub fn report(line: impl Display) {
    use std::io::Write;

    let _ = writeln!(std::io::stderr(), "\n  {line}");
}
