//! The connection for heartbeats and notifications. Neither ever waits behind an operation.

use std::fmt;
use std::sync::Arc;

use tokio::runtime::Handle;
use zlock_core::kit::SessionKey;

use zlock_core::Mutex;

use crate::config::PostgresOptions;
use crate::connection::dial::{check_schema, dial};
use crate::connection::link::Link;
use crate::error::Failure;
use crate::watches::registry::Watches;

pub(crate) struct Heart {
    options: PostgresOptions,
    runtime: Handle,
    watches: Arc<Watches>,
    current: Mutex<Current>,
    dialling: tokio::sync::Mutex<()>,
    listening: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Current {
    link: Option<Arc<Link>>,
    /// The session whose notifications the connection receives.
    listens_for: Option<SessionKey>,
    is_schema_checked: bool,
}

impl Heart {
    pub(crate) fn new(options: PostgresOptions, runtime: Handle, watches: Arc<Watches>) -> Self {
        let (dialling, listening) = Default::default();
        Heart { options, runtime, watches, current: Mutex::default(), dialling, listening }
    }

    fn open(&self) -> Option<Arc<Link>> {
        self.current.lock().link.clone().filter(|link| link.is_open())
    }

    /// Returns the connection, which is made if there is none.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn link(&self) -> Result<Arc<Link>, Failure> {
        if let Some(link) = self.open() {
            return Ok(link);
        }
        let _turn = self.dialling.lock().await;
        if let Some(link) = self.open() {
            return Ok(link);
        }
        let watches = self.watches.clone();
        let on_notification = Arc::new(move |payload: &str| watches.received(payload));
        let limit = self.options.kit.connection_time();
        let link = Arc::new(dial(&self.options, &self.runtime, limit, Some(on_notification)).await?);
        if !self.current.lock().is_schema_checked {
            check_schema(&self.options, &link, limit).await?;
        }
        self.watches.unproved();
        *self.current.lock() =
            Current { link: Some(link.clone()), listens_for: None, is_schema_checked: true };
        Ok(link)
    }

    /// Waits until the connection breaks. Waits forever if there is none.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn broken(&self) {
        match self.open() {
            Some(link) => link.closed().await,
            None => std::future::pending().await,
        }
    }

    /// Returns the number of the connection that receives the notifications of this session, if one does.
    pub(crate) fn listens(&self, session: SessionKey) -> Option<usize> {
        let current = self.current.lock();
        let link = current.link.as_ref().filter(|link| link.is_open())?;
        (current.listens_for == Some(session)).then_some(link.number)
    }

    /// Makes the connection receive the notifications of this session. Returns its number if it does.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn listen(&self, session: SessionKey) -> Option<usize> {
        // Behind a pooler, LISTEN succeeds and has no effect after its transaction.
        if !self.options.listen || self.options.pooled {
            return None;
        }
        if let Some(number) = self.listens(session) {
            return Some(number);
        }
        let _turn = self.listening.lock().await;
        if let Some(number) = self.listens(session) {
            return Some(number);
        }
        let link = self.open()?;
        let channel = format!("zlock_{}", session.id.get().cast_signed());
        // The notification to ourselves shows that they arrive.
        let sql = format!("LISTEN {channel}; SELECT pg_notify('{channel}', '')");
        if let Err(failure) = link.execute(self.options.answer_time(), &sql).await {
            tracing::debug!(?failure, "no notifications");
            return None;
        }
        let mut current = self.current.lock();
        if current.link.as_ref().is_some_and(|now| now.number == link.number) {
            current.listens_for = Some(session);
        }
        Some(link.number)
    }

    /// Ends what [`listen`](Self::listen) began: each notification wakes every listener of the database.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn unlisten(&self) {
        let _turn = self.listening.lock().await;
        let link = {
            let mut current = self.current.lock();
            if current.listens_for.take().is_none() {
                return;
            }
            current.link.clone()
        };
        self.watches.unproved();
        if let Some(link) = link
            && let Err(failure) = link.execute(self.options.answer_time(), "UNLISTEN *").await
        {
            tracing::debug!(?failure, "the notifications could not be ended");
        }
    }

    /// Drops the connection.
    pub(crate) fn close(&self) {
        *self.current.lock() = Current::default();
    }
}

impl fmt::Debug for Heart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heart").field("link", &self.current.lock().link).finish_non_exhaustive()
    }
}
