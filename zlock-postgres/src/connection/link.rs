//! One connection.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Row};

use zlock_core::Mutex;

use crate::connection::statement::Statement;
use crate::error::Failure;

/// The parameters of a statement.
pub(crate) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Receives the payload of each notification.
pub(crate) type OnNotification = Arc<dyn Fn(&str) + Send + Sync>;

/// A connection with the server, over which requests are executed in the order in which they are sent.
pub(crate) struct Link {
    /// Unique in this process.
    pub(crate) number: usize,
    client: Client,
    /// What is prepared on the server; `None` behind a pooler, where the next statement may reach another server process.
    prepared: Option<Mutex<Prepared>>,
    /// Set once the connection must not be used any more.
    is_retired: AtomicBool,
    /// Set once the server has given up waiting for a replica: it reports a commit as a success that may be lost.
    is_unreplicated: Arc<AtomicBool>,
    closed: watch::Receiver<bool>,
    task: AbortHandle,
}

impl Link {
    /// Runs the connection on this runtime.
    pub(crate) fn start<S, T>(
        client: Client,
        mut connection: tokio_postgres::Connection<S, T>,
        pooled: bool,
        runtime: &Handle,
        on_notification: Option<OnNotification>,
    ) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let (is_closed, closed) = watch::channel(false);
        let is_unreplicated = Arc::new(AtomicBool::new(false));
        let unreplicated = is_unreplicated.clone();
        let task = runtime.spawn(async move {
            // Also when the task is aborted.
            let _closed = SetOnDrop(is_closed);
            while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
                match message {
                    Ok(AsyncMessage::Notification(notification)) => {
                        if let Some(on_notification) = &on_notification {
                            on_notification(notification.payload());
                        }
                    }
                    Ok(AsyncMessage::Notice(notice)) => {
                        // The function that waits. The text is in the server's language.
                        if notice.routine() == Some("SyncRepWaitForLSN") {
                            unreplicated.store(true, Ordering::Relaxed);
                        }
                        tracing::debug!(%notice, "notice of the server");
                    }
                    Ok(_) => {}
                    Err(error) => {
                        tracing::debug!(%error, "a connection has ended");
                        return;
                    }
                }
            }
        });
        Link {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            client,
            prepared: (!pooled).then(Mutex::default),
            is_retired: AtomicBool::new(false),
            is_unreplicated,
            closed,
            task: task.abort_handle(),
        }
    }

    /// Returns `true` if requests can be sent.
    pub(crate) fn is_open(&self) -> bool {
        !self.client.is_closed() && !*self.closed.borrow() && !self.is_retired.load(Ordering::Relaxed)
    }

    /// Closes the connection.
    pub(crate) fn retire(&self) {
        self.is_retired.store(true, Ordering::Relaxed);
        self.task.abort();
    }

    /// Waits until the connection is closed.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn closed(&self) {
        // Fails if the task has ended.
        let _ = self.closed.clone().wait_for(|closed| *closed).await;
    }

    /// Sends a statement and waits for its rows. A connection that does not answer in time, or is of no use any more, is
    /// closed.
    ///
    /// # Cancel safety
    /// The statement may be executed, in the order in which it was sent, unless the connection breaks first.
    pub(crate) async fn ask(
        &self,
        limit: Duration,
        statement: &'static Statement,
        params: Params<'_>,
    ) -> Result<Vec<Row>, Failure> {
        self.limited(limit, self.call(statement, params)).await
    }

    /// Executes SQL text without parameters.
    pub(crate) async fn execute(&self, limit: Duration, sql: &str) -> Result<(), Failure> {
        self.limited(limit, self.client.batch_execute(sql)).await
    }

    async fn limited<T>(
        &self,
        limit: Duration,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Failure> {
        let answer = match timeout(limit, answer).await {
            Ok(answer) => answer.map_err(Failure::Postgres),
            Err(_) => Err(Failure::Silent),
        };
        // The notice comes before the answer.
        let is_unreplicated = self.is_unreplicated.load(Ordering::Relaxed);
        let answer = if is_unreplicated { answer.and(Err(Failure::Unreplicated)) } else { answer };
        if answer.as_ref().is_err_and(Failure::is_the_connections) {
            self.retire();
        }
        answer
    }

    async fn call(
        &self,
        statement: &'static Statement,
        params: Params<'_>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let known = self.prepared.as_ref().and_then(|prepared| prepared.lock().get(statement.sql).cloned());
        if let Some(known) = known {
            return self.client.query(&known, params).await;
        }
        let typed: Vec<_> = params.iter().copied().zip(statement.types.iter().cloned()).collect();
        let query = self.client.query_typed(statement.sql, &typed);
        let Some(prepared) = &self.prepared else { return query.await };
        // For the next time. The first time must not wait for it: the request is on its way before anything is answered.
        let (rows, made) = tokio::join!(query, self.client.prepare_typed(statement.sql, statement.types));
        if let Ok(made) = made {
            prepared.lock().insert(statement.sql, made);
        }
        rows
    }
}

/// The prepared statements, by their text.
type Prepared = BTreeMap<&'static str, tokio_postgres::Statement>;

struct SetOnDrop(watch::Sender<bool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("number", &self.number)
            .field("open", &self.is_open())
            .finish_non_exhaustive()
    }
}
