//! Connections to the cluster: one server at a time, and the next one if it fails.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use etcd_client::Client;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use zlock_core::kit::{Interrupted, authority, run_on};

use crate::config::{DEFAULT_PORT, EtcdOptions};
use crate::connection::dial::dial;
use crate::connection::endpoint::{Attempt, Endpoint};
use crate::error::Failure;
use crate::keys::revision::{History, Reply};

/// The maximum size of an answer, for a queue of many nodes with much data. The library's own limit is 4 MB.
const MAX_ANSWER: usize = i32::MAX as usize;

/// The maximum number of requests in flight that run inside their callers, and of all others. Further requests wait for their
/// turn, which does not count as the server's time. With ten thousand at once, all would be late, and so would the
/// keep-alives, which do not wait for a turn. The number must also be small because answers can be long: each create returns
/// its whole queue.
const MAX_UNDER_WAY: usize = 32;

/// The members of the cluster that must agree to an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The majority of the members: for a write or a linearizable read.
    Cluster,
    /// The member that is asked, or another one that it asks. It may be cut off from the rest, so its answer does not show
    /// that requests to the cluster would be answered.
    Member,
}

/// The endpoint that all requests and streams of a backend use, until it fails.
///
/// The library's own balanced channel is of no use: it sends every third request to a server that is dead, and
/// streams to one that is frozen.
#[derive(Debug)]
pub(crate) struct Endpoints {
    options: EtcdOptions,
    runtime: Handle,
    current: watch::Sender<Arc<Endpoint>>,
    /// The servers from which the next endpoint is chosen.
    servers: watch::Sender<Arc<[String]>>,
    history: History,
    /// `true` during a lookup of the servers in DNS.
    is_looking: AtomicBool,
    turns: Semaphore,
    /// Turns of requests that run inside their callers. A request that is not polled keeps its turn.
    inside: Semaphore,
}

impl Endpoints {
    pub(crate) fn new(options: EtcdOptions, runtime: Handle) -> Self {
        let servers: Arc<[String]> =
            options.kit.hosts.iter().map(|host| authority(host, DEFAULT_PORT)).collect();
        let current = watch::Sender::new(Arc::new(Endpoint::first(servers.clone())));
        let [turns, inside] = [MAX_UNDER_WAY; 2].map(Semaphore::new);
        let (servers, is_looking) = (watch::Sender::new(servers), AtomicBool::new(false));
        let history = History::default();
        Endpoints { options, runtime, current, servers, history, is_looking, turns, inside }
    }

    /// Returns the servers from which the next endpoint is chosen. Empty before they are found in DNS.
    pub(crate) fn servers(&self) -> Arc<[String]> {
        self.servers.borrow().clone()
    }

    /// Returns what is known of the cluster's history.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// Finds the servers unless that was done before.
    pub(crate) async fn find(&self) -> Result<Arc<[String]>, Failure> {
        if self.servers().is_empty() {
            let found = self.options.servers().await.map_err(Failure::NoWay)?;
            self.found(found);
            self.move_on(self.current().number);
        }
        Ok(self.servers())
    }

    /// Records the result of a lookup in DNS. If the servers are the same, the order is kept, so that servers that have
    /// failed are not tried again before the others.
    fn found(&self, found: Vec<String>) {
        let sorted = |servers: &[String]| servers.iter().cloned().collect::<BTreeSet<_>>();
        self.servers.send_if_modified(|servers| {
            let has_changed = sorted(&found) != sorted(servers);
            if has_changed {
                tracing::info!(before = ?*servers, now = ?found, "the servers in DNS have changed");
                *servers = found.into();
            }
            has_changed
        });
    }

    /// Looks up the servers in DNS again, in the background.
    fn look_again(self: &Arc<Self>) {
        if self.options.kit.srv.is_none() || self.is_looking.swap(true, Ordering::AcqRel) {
            return;
        }
        let endpoints = Arc::downgrade(self);
        let options = self.options.clone();
        self.runtime.spawn(async move {
            let found = options.servers().await;
            let Some(endpoints) = endpoints.upgrade() else { return };
            match found {
                Ok(found) => endpoints.found(found),
                Err(why) => tracing::debug!(why, "the servers are not found in DNS"),
            }
            endpoints.is_looking.store(false, Ordering::Release);
        });
    }

    pub(crate) fn current(&self) -> Arc<Endpoint> {
        self.current.borrow().clone()
    }

    /// Waits until the endpoint of this number is no longer the current one.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn moved_on(&self, number: u64) {
        // Fails only when there are no endpoints any more.
        let _ = self.current.subscribe().wait_for(|endpoint| endpoint.number != number).await;
    }

    /// Records that the endpoint of this number has failed, so that the next one is tried. A no-op if it was already given
    /// up.
    pub(crate) fn failed(self: &Arc<Self>, number: u64) {
        if self.move_on(number) {
            self.look_again();
        }
    }

    /// Returns `true` if the endpoint was the current one.
    fn move_on(&self, number: u64) -> bool {
        self.current.send_if_modified(|current| {
            let failed = current.number == number;
            if failed {
                let next = current.next(self.servers());
                tracing::debug!(from = current.server(), to = next.server(), "failing over");
                *current = Arc::new(next);
            }
            failed
        })
    }

    /// Returns the client of an endpoint, which connects when it is first used.
    pub(crate) async fn client(&self, endpoint: &Endpoint) -> Result<Arc<Client>, Failure> {
        let (Some(connection), Some(server)) = (endpoint.connection(), endpoint.server()) else {
            return Err(Failure::NoWay("the servers are not found in DNS yet".into()));
        };
        let connected = connection.client.get_or_try_init(|| async {
            let mut attempt = connection.attempt.lock().await;
            // The result of an abandoned attempt may be long out of date.
            attempt.take_if(|attempt| attempt.until <= Instant::now());
            let Attempt { until, task } = attempt.get_or_insert_with(|| self.attempt(server));
            let connected = timeout_at(*until, task.join_next()).await;
            *attempt = None;
            match connected {
                Ok(Some(Ok(client))) => client.map(Arc::new),
                Ok(_) => Err(Interrupted::Closed.into()),
                Err(_) => Err(Failure::Silent),
            }
        });
        connected.await.cloned()
    }

    /// Begins to connect, on the backend's runtime, which outlives that of a single request.
    fn attempt(&self, server: &str) -> Attempt {
        let (options, server) = (self.options.clone(), server.to_owned());
        let until = Instant::now() + options.kit.connection_time();
        let mut task = JoinSet::new();
        task.spawn_on(dial(options, server), &self.runtime);
        Attempt { until, task }
    }

    /// Sends a request to the current endpoint, with a time limit, and moves on to the next endpoint if it fails.
    ///
    /// The request runs inside the caller as long as there are few, since that is cheaper. Otherwise it runs in a task,
    /// because callers that do not poll must not keep all turns.
    ///
    /// # Cancel safety
    /// The request may still take effect.
    ///
    /// # Panics
    /// Panics if the request does.
    pub(crate) async fn ask<T, F>(
        self: &Arc<Self>,
        by: By,
        limit: Duration,
        call: impl FnOnce(Arc<Client>) -> F + Send + 'static,
    ) -> Result<T, Failure>
    where
        T: Reply + Send + 'static,
        F: Future<Output = Result<T, etcd_client::Error>> + Send,
    {
        // A caller that does not poll must not keep others from the connection while it is made, either.
        let endpoint = self.current();
        if endpoint.is_connected()
            && let Ok(_turn) = self.inside.try_acquire()
        {
            // Boxed, so that callers are not as large as this.
            return Box::pin(self.ask_at(&endpoint, by, limit, call)).await;
        }
        let endpoints = self.clone();
        let in_turn = async move {
            let _turn = endpoints.turns.acquire().await;
            endpoints.ask_at(&endpoints.current(), by, limit, call).await
        };
        run_on(&self.runtime, in_turn).await.unwrap_or(Err(Interrupted::Closed.into()))
    }

    /// Like [`ask`](Self::ask), but does not wait behind other requests. Only for a few requests at once.
    ///
    /// # Cancel safety
    /// The request may still take effect.
    pub(crate) async fn ask_out_of_turn<T, F>(
        self: &Arc<Self>,
        by: By,
        limit: Duration,
        call: impl FnOnce(Arc<Client>) -> F + Send + 'static,
    ) -> Result<T, Failure>
    where
        T: Reply + Send + 'static,
        F: Future<Output = Result<T, etcd_client::Error>> + Send,
    {
        let endpoint = self.current();
        if endpoint.is_connected() {
            return Box::pin(self.ask_at(&endpoint, by, limit, call)).await;
        }
        self.ask(by, limit, call).await
    }

    /// Runs a task on the backend's runtime.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    async fn ask_at<T, F>(
        self: &Arc<Self>,
        endpoint: &Endpoint,
        by: By,
        limit: Duration,
        call: impl FnOnce(Arc<Client>) -> F,
    ) -> Result<T, Failure>
    where
        T: Reply,
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let sent = Instant::now();
        let answer = timeout(limit, async {
            let client = self.client(endpoint).await?;
            self.history.check(by == By::Cluster, call(client)).await
        });
        match answer.await {
            Ok(Ok(answer)) => {
                if by == By::Cluster {
                    endpoint.has_answered(sent);
                }
                Ok(answer)
            }
            Ok(Err(failure)) => Err(self.noted(endpoint.number, failure)),
            // The server is reachable, so it is the request that takes long.
            Err(_) if endpoint.is_answering_since(sent) => Err(Failure::Silent),
            Err(_) => Err(self.noted(endpoint.number, Failure::Silent)),
        }
    }

    /// Records a failure at the endpoint of this number, and returns its class.
    pub(crate) fn noted(self: &Arc<Self>, number: u64, failure: Failure) -> Failure {
        // There is a user, but authentication was disabled when the connection was made, or the password was another one.
        let failure = match failure {
            failure if self.options.user.is_some() && failure.asks_for_a_user() => Failure::Unauthenticated,
            failure => failure,
        };
        if failure.is_the_servers() || matches!(failure, Failure::Unauthenticated) {
            self.failed(number);
        }
        failure
    }
}

/// Returns a client for reads and writes of keys that accepts large answers.
pub(crate) fn kv(client: &Client) -> etcd_client::KvClient {
    client.kv_client().max_decoding_message_size(MAX_ANSWER)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use tokio::net::TcpListener;

    use super::*;

    async fn silent_host() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        (listener, host)
    }

    fn endpoints(hosts: &[&String], ttl: u64) -> Arc<Endpoints> {
        let options = EtcdOptions::new(hosts.iter().copied()).with_user("orders", "secret");
        Arc::new(Endpoints::new(options.with_ttl(Duration::from_secs(ttl)), Handle::current()))
    }

    /// Sends a request that times out.
    async fn ask(endpoints: &Arc<Endpoints>, limit: Duration) {
        let number = endpoints.current().number;
        let answer = endpoints.ask(By::Cluster, limit, async |_| Ok(())).await;
        assert!(matches!(answer, Err(Failure::Silent)), "{answer:?}");
        assert_eq!(endpoints.current().number, number + 1);
    }

    /// Accepts this many connections, and checks that there are no more.
    async fn accept(host: &TcpListener, count: usize) {
        let mut accepted = Vec::new();
        for _ in 0..count {
            accepted.push(host.accept().await.unwrap());
        }
        let more = timeout(Duration::from_millis(100), host.accept()).await;
        assert!(more.is_err(), "more than {count}: {more:?}");
    }

    #[tokio::test]
    async fn requests_that_time_out_leave_one_attempt_at_each_host() {
        let ((first, one), (second, two)) = (silent_host().await, silent_host().await);
        let endpoints = endpoints(&[&one, &two], 3600);
        for _ in 0..6 {
            ask(&endpoints, Duration::from_millis(20)).await;
        }
        accept(&first, 1).await;
        accept(&second, 1).await;
    }

    fn without_user() -> Arc<Endpoints> {
        Arc::new(Endpoints::new(EtcdOptions::new(["127.0.0.1:1", "127.0.0.1:2"]), Handle::current()))
    }

    #[tokio::test(start_paused = true)]
    async fn one_slow_answer_is_no_reason_to_move_on() {
        let (endpoints, limit) = (without_user(), Duration::from_secs(1));
        let slow = async || endpoints.ask(By::Cluster, limit, async |_| std::future::pending().await).await;
        let quick = async |after| {
            tokio::time::sleep(after).await;
            endpoints.ask(By::Cluster, limit, async |_| Ok(())).await.unwrap();
        };
        quick(Duration::ZERO).await;
        let (answer, ()) = tokio::join!(slow(), quick(limit / 2));
        let answer: Result<(), _> = answer;
        assert!(matches!(answer, Err(Failure::Silent)), "{answer:?}");
        assert_eq!(endpoints.current().number, 0);
        let answer: Result<(), _> = slow().await;
        assert!(matches!(answer, Err(Failure::Silent)), "{answer:?}");
        assert_eq!(endpoints.current().number, 1);
    }

    /// A member that is cut off from the others answers what it can answer alone, and nothing else.
    #[tokio::test(start_paused = true)]
    async fn an_answer_of_one_member_is_no_reason_to_stay() {
        let (endpoints, limit) = (without_user(), Duration::from_secs(1));
        let slow = async || endpoints.ask(By::Cluster, limit, async |_| std::future::pending().await).await;
        let alone = async || {
            tokio::time::sleep(limit / 2).await;
            endpoints.ask(By::Member, limit, async |_| Ok(())).await.unwrap();
        };
        let (answer, ()) = tokio::join!(slow(), alone());
        let answer: Result<(), _> = answer;
        assert!(matches!(answer, Err(Failure::Silent)), "{answer:?}");
        assert_eq!(endpoints.current().number, 1);
    }

    #[tokio::test]
    async fn callers_that_do_not_poll_keep_no_other_waiting() {
        for connected in [false, true] {
            let endpoints = without_user();
            if connected {
                endpoints.ask(By::Cluster, Duration::from_secs(5), async |_| Ok(())).await.unwrap();
            }
            let mut kept = Vec::new();
            for _ in 0..3 * MAX_UNDER_WAY {
                let endpoints = endpoints.clone();
                let call = async move |_| {
                    tokio::task::yield_now().await;
                    Ok(())
                };
                let mut asking =
                    Box::pin(
                        async move { endpoints.ask(By::Cluster, Duration::from_secs(3600), call).await },
                    );
                let is_pending = poll_fn(|cx| Poll::Ready(asking.as_mut().poll(cx).is_pending())).await;
                assert!(is_pending);
                kept.push(asking);
            }
            let answered = timeout(
                Duration::from_secs(10),
                endpoints.ask(By::Cluster, Duration::from_secs(5), async |_| Ok(())),
            );
            answered.await.expect("there is a turn").unwrap();
        }
    }

    #[tokio::test]
    async fn a_panic_in_a_request_is_the_callers() {
        for inside in [true, false] {
            let endpoints = without_user();
            endpoints.ask(By::Cluster, Duration::from_secs(5), async |_| Ok(())).await.unwrap();
            let others = if inside { 0 } else { MAX_UNDER_WAY as u32 };
            let _turns = endpoints.inside.acquire_many(others).await.unwrap();
            let asking = endpoints.clone();
            let call = async move |_| -> Result<(), etcd_client::Error> { panic!("a bug of the library") };
            let asked =
                tokio::spawn(async move { asking.ask(By::Cluster, Duration::from_secs(5), call).await });
            assert!(asked.await.unwrap_err().is_panic(), "inside: {inside}");
        }
    }

    #[tokio::test]
    async fn an_attempt_that_hangs_is_replaced() {
        let (host, name) = silent_host().await;
        let endpoints = endpoints(&[&name], 2);
        for _ in 0..2 {
            ask(&endpoints, Duration::from_secs(3600)).await;
        }
        accept(&host, 2).await;
    }
}
