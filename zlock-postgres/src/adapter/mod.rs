//! PostgreSQL as a ledger.

mod calm;
mod changes;
mod hints;
mod lane;
mod payload;
mod rows;
mod statements;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio_postgres::Row;
use zlock_core::kit;
use zlock_core::{Mutex, Result, SessionId};
use zlock_ledger::tables::{Names, id};
use zlock_ledger::{Fault, Ledger, Limits, OnHint, Open, Wire};

use self::calm::PostgresCalm;
use self::hints::Hints;
use self::lane::PostgresLane;
use self::rows::{get, only};
use crate::config::PostgresOptions;
use crate::connection::dial::dial;
use crate::connection::link::{Link, OnNotification, Params};
use crate::connection::statement::Statement;
use crate::error::Failure;
use crate::ledger_schema::{VERSION, objects};

/// The time that creating the schema may take.
const SCHEMA_TIME: Duration = Duration::from_secs(15);

/// The most bytes of data in one request.
const MAX_BYTES: usize = 1 << 20;

/// Plans are kept for as long as a connection lives, so they must suit tables of any size.
const SETTINGS: &str = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off; \
    SET jit = off";

/// A PostgreSQL database as a ledger.
///
/// It may be used on any runtime. The connections live on the one on which it was created.
pub struct PostgresLedger {
    options: PostgresOptions,
    runtime: Handle,
    hints: Arc<Hints>,
    /// The server that took a connection and then answered nothing, such as a primary that waits for a replica that will not come.
    avoided: Mutex<Option<String>>,
}

impl PostgresLedger {
    /// Creates a ledger. Performs no I/O.
    ///
    /// # Errors
    /// [`InvalidArgument`](zlock_core::ErrorKind::InvalidArgument) for invalid options.
    pub fn new(options: PostgresOptions, runtime: Handle) -> Result<Self> {
        options.validate()?;
        Ok(PostgresLedger { options, runtime, hints: Arc::default(), avoided: Mutex::default() })
    }

    /// Makes a connection, and sends a first request over it. Also returns the names, from the salt in this column of the answer.
    async fn open(
        &self,
        options: &PostgresOptions,
        settings: &str,
        on_notification: Option<OnNotification>,
        (first, params): (&'static Statement, Params<'_>),
        salt: usize,
    ) -> Result<(Link, Vec<Row>, Names), Failure> {
        let time = options.kit.connection_time();
        let avoided = self.avoided.lock().clone();
        let (link, server) = dial(options, &self.runtime, time, on_notification, avoided.as_deref()).await?;
        let settings = async {
            // The next statement may reach another server process of a pooler.
            if options.pooled { Ok(()) } else { link.execute(time, settings).await }
        };
        let (set, rows) = tokio::join!(settings, link.ask(options.answer_time(), first, params));
        if matches!((&set, &rows), (Err(Failure::Silent), _) | (_, Err(Failure::Silent))) {
            *self.avoided.lock() = Some(server);
        }
        set?;
        let rows = rows?;
        let names = Names::new(get(only(&rows)?, salt)?);
        Ok((link, rows, names))
    }

    /// Creates the schema that this client needs, if it is missing and the options say so.
    async fn create_schema(&self, options: &PostgresOptions, missing: Failure) -> Result<(), Fault> {
        let time = options.kit.connection_time();
        let (link, _) = dial(options, &self.runtime, time, None, None).await?;
        match link.ask(time, &statements::VERSION, &[]).await {
            Ok(rows) => match get(only(&rows)?, 0)? {
                // Another client has just created it.
                VERSION => Ok(()),
                found => Err(Fault::Invalid(format!(
                    "the database has version {found} of the schema zlock, and this client needs version {VERSION}: end the \
                     clients of version {found}, run DROP SCHEMA zlock CASCADE, and then the SQL of the schema"
                ))),
            },
            Err(failure) if failure.is_of_a_missing_schema() && options.create_schema => {
                // Several statements in one message are one transaction.
                let sql = ["SELECT pg_advisory_xact_lock(2053861222, 0);\n", objects()].concat();
                Ok(link.execute(SCHEMA_TIME, &sql).await?)
            }
            Err(failure) if failure.is_of_a_missing_schema() => Err(missing.into()),
            Err(failure) => Err(failure.into()),
        }
    }
}

#[async_trait]
impl Ledger for PostgresLedger {
    type Calm = PostgresCalm;
    type Lane = PostgresLane;

    fn limits(&self) -> Limits {
        Limits {
            batch: 64,
            bytes: MAX_BYTES,
            connections: self.options.max_connections,
            poll: (Duration::from_secs(1), Duration::from_millis(50)),
        }
    }

    /// A connection of a session listens from the first read on, and stops some time after the last: each notification wakes all that
    /// listen in the database.
    async fn calm(&self, session: Option<SessionId>, on_hint: OnHint) -> Result<PostgresCalm, Fault> {
        let options = self.options.heart();
        if let Some(session) = session {
            self.hints.set(session, on_hint.clone());
        }
        let receiver = on_hint.clone();
        let on_notification: OnNotification =
            Arc::new(move |payload| receiver(payload::parse_payload(payload)));
        let open =
            || self.open(&options, SETTINGS, Some(on_notification.clone()), (&statements::SALT, &[]), 0);
        let (link, _, names) = match open().await {
            Err(missing) if missing.is_of_a_missing_schema() => {
                self.create_schema(&options, missing).await?;
                open().await?
            }
            opened => opened?,
        };
        Ok(PostgresCalm {
            link,
            session: Mutex::new(session),
            on_hint,
            hints: self.hints.clone(),
            options,
            replication: self.options.replication,
            names,
            listens: Mutex::default(),
        })
    }

    async fn lane(&self, session: SessionId, wire: Wire) -> Result<PostgresLane, Fault> {
        let (number, patience) = match wire {
            Wire::Fast => (0_i32, "50ms"),
            Wire::Patient => (1, "200ms"),
        };
        let settings = format!("{SETTINGS}; SET lock_timeout = '{patience}'");
        let raise: Params<'_> = &[&id(session), &number];
        let (link, rows, names) =
            self.open(&self.options, &settings, None, (&statements::RAISE, raise), 1).await?;
        let lane = get(only(&rows)?, 0)?;
        Ok(PostgresLane {
            link: Arc::new(link),
            runtime: self.runtime.clone(),
            time: self.options.answer_time(),
            session,
            wire: number,
            lane,
            names,
            hints: self.hints.clone(),
        })
    }
}

impl Open for PostgresOptions {
    type Ledger = PostgresLedger;

    fn open(self) -> Result<(PostgresLedger, kit::Options)> {
        let options = self.kit.clone();
        Ok((PostgresLedger::new(self, Handle::current())?, options))
    }
}

impl fmt::Debug for PostgresLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresLedger").field("options", &self.options).finish_non_exhaustive()
    }
}
