//! What the backend and its session loop have in common.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_postgres::Row;
use zlock_core::kit::{Failure as _, Receipts, SessionKey, Sessions};
use zlock_core::{ErrorKind, LockPath};

use crate::config::{PostgresOptions, Replication};
use crate::connection::link::{Link, Params};
use crate::connection::pool::Pool;
use crate::connection::statement::{self, Statement};
use crate::error::Failure;
use crate::session::heart::Heart;
use crate::session::sent::{Creates, Hints};
use crate::watches::registry::Watches;
use crate::watches::seen::{Observed, Seen};

/// Returns the ID of a session as the database has it.
pub(crate) fn session_id(session: SessionKey) -> i64 {
    session.id.get().cast_signed()
}

/// The state of the current session.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(crate) creates: Creates,
    pub(crate) hints: Hints,
    /// Of writes of values, joins and leaves.
    pub(crate) receipts: Arc<Receipts<()>>,
}

/// The state that the backend and its session loop share.
pub(crate) struct Shared {
    pub(crate) options: PostgresOptions,
    pub(crate) sessions: Sessions<Live>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) heart: Heart,
    pub(crate) watches: Arc<Watches>,
    pub(crate) seen: Seen,
    pub(crate) observed: Observed,
    /// Notified when a request was not answered in time: a heartbeat then shows whether the server answers at all.
    pub(crate) doubt: Notify,
    /// The number of relabellings so far.
    pub(crate) relabels: AtomicI64,
    /// The runtime that the backend lives on.
    pub(crate) runtime: Handle,
}

/// The message of operations after the session loop has given up.
const REFUSED: &str = "the server refused the credentials, or a permission that the session needs";

impl Shared {
    pub(crate) fn new(options: PostgresOptions, runtime: Handle) -> Self {
        let watches = Arc::new(Watches::default());
        Shared {
            sessions: Sessions::new(REFUSED),
            pool: Pool::new(options.clone(), options.kit.connection_time(), runtime.clone()),
            heart: Heart::new(options.heart(), runtime.clone(), watches.clone()),
            watches,
            seen: Seen::default(),
            observed: Observed::default(),
            doubt: Notify::new(),
            relabels: AtomicI64::new(0),
            runtime,
            options,
        }
    }

    /// Whether a failover loses nothing.
    pub(crate) fn is_sync(&self) -> bool {
        self.options.replication == Replication::Sync
    }

    /// Returns the path in the database.
    pub(crate) fn path(&self, path: &LockPath) -> String {
        [self.options.prefix(), path.as_str()].concat()
    }

    /// Returns the state of a session.
    pub(crate) fn live(&self, session: SessionKey) -> Result<Arc<Live>, Failure> {
        self.sessions.get(session).ok_or_else(|| self.sessions.interrupted().into())
    }

    /// Sends a statement over one of the connections for operations once the session is connected, and waits for the rows until
    /// the session has ended or the time has passed.
    ///
    /// # Cancel safety
    /// The statement may still take effect.
    pub(crate) async fn send(
        &self,
        session: SessionKey,
        until: Instant,
        statement: &'static Statement,
        params: Params<'_>,
    ) -> Result<Vec<Row>, Failure> {
        self.send_over(session, until, self.pool.get(), statement, params).await
    }

    /// Like [`send`](Self::send), over another connection.
    pub(crate) async fn send_over(
        &self,
        session: SessionKey,
        until: Instant,
        link: impl Future<Output = Result<Arc<Link>, Failure>>,
        statement: &'static Statement,
        params: Params<'_>,
    ) -> Result<Vec<Row>, Failure> {
        self.sessions.connected(session, until).await?;
        let answer = async { link.await?.ask(self.options.answer_time(), statement, params).await };
        let answer = self.sessions.run_until_ended(session, until, answer).await?;
        match &answer {
            Ok(_) => {
                self.sessions.resume(session);
            }
            // An operation may learn of the session's end before the session loop does.
            Err(failure) if failure.classify().kind == ErrorKind::SessionLost => self.sessions.lose(session),
            Err(Failure::Silent | Failure::Connect(_) | Failure::NoLink) => self.doubt.notify_one(),
            Err(_) => {}
        }
        answer
    }

    /// Sends a statement for the clean-up after others, with no session of ours.
    pub(crate) async fn ask(
        &self,
        statement: &'static Statement,
        params: Params<'_>,
    ) -> Result<Vec<Row>, Failure> {
        self.pool.get().await?.ask(self.options.answer_time(), statement, params).await
    }

    /// Wakes the waiters of these sessions: own ones at once, others by a notification.
    ///
    /// # Cancel safety
    /// The notification is sent all the same.
    pub(crate) async fn wake(self: &Arc<Self>, event: char, node: &str, sessions: &[i64]) {
        let own = self.sessions.current_key().map(session_id);
        let mut others = Vec::new();
        for session in sessions {
            if Some(*session) == own {
                self.watches.notified(event, node);
            } else {
                others.push(*session);
            }
        }
        if others.is_empty() {
            return;
        }
        let (shared, payload) = (self.clone(), format!("{event}{node}"));
        let notify = self.runtime.spawn(async move {
            let payloads = vec![payload; others.len()];
            if let Err(failure) = shared.ask(&statement::NOTIFY, &[&others, &payloads]).await {
                // Waiters look from time to time.
                tracing::debug!(?failure, "waiters are not notified");
            }
        });
        // Fails if the runtime ends.
        let _ = notify.await;
    }
}

impl PostgresOptions {
    /// How long the server may take to answer a request. An operation can then try another connection.
    pub(crate) fn answer_time(&self) -> Duration {
        self.kit.answer_time().min(self.kit.operation_timeout / 2)
    }

    /// How long the server certainly keeps a session after a heartbeat was sent. The margin is for the drift of clocks.
    pub(crate) fn life(&self) -> Duration {
        self.kit.session_timeout - self.kit.session_timeout / 50
    }

    /// The session timeout as a number of milliseconds.
    pub(crate) fn ttl_millis(&self) -> i64 {
        i64::try_from(self.kit.session_timeout.as_millis()).unwrap_or(i64::MAX)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("options", &self.options)
            .field("session", &self.sessions.session())
            .field("own", &self.sessions.own().len())
            .finish_non_exhaustive()
    }
}
