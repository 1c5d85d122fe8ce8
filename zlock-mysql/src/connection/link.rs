//! One connection.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Params, Row, Value};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use crate::error::Failure;

/// A connection that was idle for longer may be broken.
const IDLE: Duration = Duration::from_secs(10);

/// The rows of each result of a request.
pub(crate) type Answer = Vec<Vec<Row>>;

/// How often a connection of a client was found broken. The library does not notice that an idle one is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Breaks(Arc<AtomicU64>);

impl Breaks {
    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Makes a connection in the place of one that has broken. Only for requests that may be executed twice.
pub(crate) type Redial = Box<dyn Fn() -> BoxFuture<'static, Result<Conn, Failure>> + Send + Sync>;

struct Request {
    sql: Cow<'static, str>,
    params: Vec<Value>,
    /// Set before it is sent.
    is_sent: Arc<AtomicBool>,
    answer: oneshot::Sender<Result<Answer, Failure>>,
}

/// A connection with the server, over which requests are executed in the order in which they are sent.
pub(crate) struct Link {
    requests: mpsc::UnboundedSender<Request>,
    /// Set once the connection must not be used any more.
    is_retired: Arc<AtomicBool>,
    breaks: Breaks,
    closed: watch::Receiver<()>,
    task: AbortHandle,
}

impl Link {
    /// Runs the connection on this runtime. With `redial`, another connection may take its place.
    pub(crate) fn start(conn: Conn, runtime: &Handle, breaks: Breaks, redial: Option<Redial>) -> Self {
        let (requests, inbox) = mpsc::unbounded_channel::<Request>();
        let (is_open, closed) = watch::channel(());
        let is_retired = Arc::new(AtomicBool::new(false));
        let run = serve(conn, inbox, is_retired.clone(), breaks.clone(), redial);
        let task = runtime.spawn(async move {
            // Dropped when the task ends, also if it is aborted.
            let _is_open = is_open;
            run.await;
        });
        Link { requests, is_retired, breaks, closed, task: task.abort_handle() }
    }

    /// Closes the connection.
    pub(crate) fn retire(&self) {
        self.is_retired.store(true, Ordering::SeqCst);
        self.task.abort();
    }

    /// Waits until the connection is closed.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn closed(&self) {
        // Nothing is ever sent: it completes with an error when the task has ended.
        let _ = self.closed.clone().changed().await;
    }

    /// Sends a statement and waits for its rows. A connection that does not answer in time is closed.
    ///
    /// # Cancel safety
    /// The statement may be executed, in the order in which it was sent.
    pub(crate) async fn ask(
        &self,
        limit: Duration,
        sql: impl Into<Cow<'static, str>>,
        params: Vec<Value>,
    ) -> Result<Answer, Failure> {
        let (answer, answered) = oneshot::channel();
        let is_sent = Arc::new(AtomicBool::new(false));
        let request = Request { sql: sql.into(), params, is_sent: is_sent.clone(), answer };
        if self.is_retired.load(Ordering::SeqCst) || self.requests.send(request).is_err() {
            return Err(Failure::Closed);
        }
        if let Ok(Ok(answer)) = timeout(limit, answered).await {
            return answer;
        }
        self.breaks.add();
        self.retire();
        Err(if is_sent.load(Ordering::SeqCst) { Failure::Silent } else { Failure::Closed })
    }
}

/// Executes requests. A connection that may have broken unnoticed is checked before a request is sent. If it can be replaced, what was sent
/// over a broken one is sent again.
async fn serve(
    mut conn: Conn,
    mut inbox: mpsc::UnboundedReceiver<Request>,
    is_retired: Arc<AtomicBool>,
    breaks: Breaks,
    redial: Option<Redial>,
) {
    let (mut seen, mut last) = (breaks.count(), Instant::now());
    while let Some(Request { sql, params, is_sent, answer }) = inbox.recv().await {
        let is_doubtful = breaks.count() != seen || last.elapsed() > IDLE;
        let again = redial.as_ref().map(|redial| (redial, params.clone()));
        let mut result = Err(Failure::Closed);
        if !is_doubtful || conn.ping().await.is_ok() {
            is_sent.store(true, Ordering::SeqCst);
            if is_retired.load(Ordering::SeqCst) {
                return;
            }
            result = run(&mut conn, &sql, params).await.map_err(Failure::Mysql);
        }
        let mut is_over = result.as_ref().is_err_and(Failure::is_the_connections);
        if is_over {
            breaks.add();
            if let Some((redial, params)) = again {
                result = match redial().await {
                    Ok(another) => {
                        conn = another;
                        run(&mut conn, &sql, params).await.map_err(Failure::Mysql)
                    }
                    Err(failure) => Err(failure),
                };
                is_over = result
                    .as_ref()
                    .is_err_and(|failure| failure.is_the_connections() || !failure.is_the_servers());
            }
        }
        (seen, last) = (breaks.count(), Instant::now());
        // Fails if nobody waits any more.
        let _ = answer.send(result);
        if is_over {
            return;
        }
    }
    // Fails if the server has closed it already.
    let _ = conn.disconnect().await;
}

/// Executes a statement, and reads all of its results. One without parameters is sent as a text, and the others are prepared once.
pub(crate) async fn run(conn: &mut Conn, sql: &str, params: Vec<Value>) -> mysql_async::Result<Answer> {
    let mut answer = Vec::new();
    // An error behind a result ends the results; only their end reports it.
    if params.is_empty() {
        let mut results = conn.query_iter(sql).await?;
        while !results.is_empty() {
            answer.push(results.collect().await?);
        }
        results.drop_result().await?;
    } else {
        let mut results = conn.exec_iter(sql, Params::Positional(params)).await?;
        while !results.is_empty() {
            answer.push(results.collect().await?);
        }
        results.drop_result().await?;
    }
    // Statements that return no rows have results, too.
    answer.retain(|rows: &Vec<Row>| !rows.is_empty());
    Ok(answer)
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("retired", &self.is_retired).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use mysql_async::OptsBuilder;
    use zlock_testkit::{limit, mariadb_or_skip};

    use super::*;

    /// The library keeps such an error to itself until the next request.
    #[tokio::test]
    async fn an_error_behind_a_result_is_reported() {
        limit(async {
            let Some(server) = mariadb_or_skip().await else { return };
            let at = server.addr();
            let opts = OptsBuilder::default().ip_or_hostname(at.ip().to_string()).tcp_port(at.port());
            let opts = opts.prefer_socket(false).user(Some("zlock")).db_name(Some("zlock"));
            let mut conn = Conn::new(opts).await.unwrap();
            let fails = "BEGIN NOT ATOMIC SELECT 1; SIGNAL SQLSTATE 'ZL014'; END";
            for params in [vec![], vec![Value::from(1)]] {
                let sql = if params.is_empty() { fails } else { "CALL fails(?)" };
                if !params.is_empty() {
                    let create = "CREATE OR REPLACE PROCEDURE fails(IN n INT) BEGIN SELECT n; SIGNAL SQLSTATE 'ZL014'; END";
                    conn.query_drop(create).await.unwrap();
                }
                let error = run(&mut conn, sql, params).await.unwrap_err();
                assert!(error.to_string().contains("ZL014"), "{error}");
            }
            assert_eq!(run(&mut conn, "SELECT 1", Vec::new()).await.unwrap().len(), 1);
        })
        .await;
    }
}
