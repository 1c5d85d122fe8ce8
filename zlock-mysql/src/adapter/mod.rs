//! MySQL and MariaDB as a ledger.

mod calm;
mod lane;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use mysql_async::prelude::Queryable;
use tokio::runtime::Handle;
use zlock_core::kit;
use zlock_core::{Result, SessionId};
use zlock_ledger::tables::{Names, id};
use zlock_ledger::{Fault, Ledger, Limits, OnHint, Open, Wire};

use self::calm::MysqlCalm;
use self::lane::{MysqlLane, STATEMENTS};
use crate::config::MysqlOptions;
use crate::connection::dial::dial;
use crate::connection::link::{Breaks, Link, Redial};
use crate::connection::rows::{get, only};
use crate::error::Failure;

/// The most bytes of data in one request.
const MAX_BYTES: usize = 1 << 20;

/// A MySQL or MariaDB database as a ledger.
///
/// It may be used on any runtime. The connections live on the one on which it was created.
pub struct MysqlLedger {
    options: MysqlOptions,
    runtime: Handle,
    breaks: Breaks,
}

impl MysqlLedger {
    /// Creates a ledger. Performs no I/O.
    ///
    /// # Errors
    /// [`InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) for invalid options.
    pub fn new(options: MysqlOptions, runtime: Handle) -> Result<Self> {
        options.validate()?;
        Ok(MysqlLedger { options, runtime, breaks: Breaks::default() })
    }

    /// Makes a connection, on the ledger's runtime. Without `redial` it is for writes.
    async fn open(&self, redial: Option<Redial>) -> std::result::Result<(Link, Names), Failure> {
        let (options, writes) = (self.options.clone(), redial.is_none());
        let opened = self.runtime.spawn(async move {
            let (mut conn, names) = dial(&options, options.kit.connection_time()).await?;
            if writes {
                // So that a write is sent without waiting for any answer.
                for statement in STATEMENTS {
                    conn.prep(statement).await.map_err(Failure::Connect)?;
                }
            }
            Ok((conn, names))
        });
        // Fails if the runtime is shut down.
        let (conn, names) = opened.await.unwrap_or(Err(Failure::Closed))?;
        Ok((Link::start(conn, &self.runtime, self.breaks.clone(), redial), names))
    }
}

#[async_trait]
impl Ledger for MysqlLedger {
    type Calm = MysqlCalm;
    type Lane = MysqlLane;

    fn limits(&self) -> Limits {
        Limits {
            batch: 64,
            bytes: MAX_BYTES,
            connections: self.options.max_connections,
            poll: (Duration::from_secs(1), Duration::from_millis(50)),
        }
    }

    /// There are no hints: whoever waits looks again and again.
    async fn calm(
        &self,
        _session: Option<SessionId>,
        _on_hint: OnHint,
    ) -> std::result::Result<MysqlCalm, Fault> {
        let options = self.options.clone();
        let redial: Redial = Box::new(move || {
            let options = options.clone();
            Box::pin(async move { Ok(dial(&options, options.kit.connection_time()).await?.0) })
        });
        let (link, names) = self.open(Some(redial)).await?;
        Ok(MysqlCalm { link, options: self.options.clone(), names })
    }

    async fn lane(&self, session: SessionId, wire: Wire) -> std::result::Result<MysqlLane, Fault> {
        let number = match wire {
            Wire::Fast => 0,
            Wire::Patient => 1,
        };
        let (link, names) = self.open(None).await?;
        let time = self.options.answer_time();
        let raise = format!("CALL zlock_raise({}, {number})", id(session));
        let answer = link.ask(time, raise, Vec::new()).await?;
        let lane = get(only(&answer)?, 0)?;
        Ok(MysqlLane { link, time, session, wire: number, lane, names })
    }
}

impl Open for MysqlOptions {
    type Ledger = MysqlLedger;

    fn open(self) -> Result<(MysqlLedger, kit::Options)> {
        let options = self.kit.clone();
        Ok((MysqlLedger::new(self, Handle::current())?, options))
    }
}

impl fmt::Debug for MysqlLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlLedger").field("options", &self.options).finish_non_exhaustive()
    }
}
