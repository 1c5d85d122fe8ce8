//! Rows, numbers and errors of the server, as the engine has them.

use std::time::{Duration, SystemTime};

use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use zlock_core::kit::Failure as _;
use zlock_core::{ErrorKind, SessionId};
use zlock_ledger::tables::Done;
use zlock_ledger::{Entry, Fault, History};

use crate::error::Failure;

/// Returns the value in a column.
pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, column: usize) -> Result<T, Failure> {
    row.try_get(column).map_err(Failure::Postgres)
}

pub(super) fn number(row: &Row, column: usize) -> Result<u64, Failure> {
    Ok(get::<i64>(row, column)?.cast_unsigned())
}

pub(super) fn only(rows: &[Row]) -> Result<&Row, Failure> {
    rows.first().ok_or(Failure::Malformed)
}

pub(super) fn duration(row: &Row, column: usize) -> Result<Duration, Failure> {
    Ok(Duration::from_millis(number(row, column)?))
}

fn text(bytes: Vec<u8>) -> Result<String, Failure> {
    String::from_utf8(bytes).map_err(|_| Failure::Malformed)
}

pub(super) fn key(row: &Row, column: usize) -> Result<String, Failure> {
    text(get(row, column)?)
}

pub(super) fn keys(row: &Row, column: usize) -> Result<Vec<String>, Failure> {
    get::<Vec<Vec<u8>>>(row, column)?.into_iter().map(text).collect()
}

/// Reads an entry from eight columns, of which the last is its data, or from seven.
pub(super) fn entry(row: &Row, first: usize, has_data: bool) -> Result<Entry, Failure> {
    let owner = get::<Option<i64>>(row, first + 3)?;
    Ok(Entry {
        key: key(row, first)?,
        created: number(row, first + 1)?,
        changed: number(row, first + 2)?,
        owner: owner.map(|id| SessionId::new(id.cast_unsigned())),
        label: get(row, first + 4)?,
        writes: number(row, first + 5)?,
        time: get::<Option<SystemTime>>(row, first + 6)?,
        data: if has_data { get::<Option<Vec<u8>>>(row, first + 7)?.unwrap_or_default() } else { Vec::new() },
    })
}

/// Reads what a step has done.
pub(super) fn done(row: &Row) -> Result<Done, Failure> {
    let is_found = get::<Option<&[u8]>>(row, 2)?.is_some();
    let entry = if is_found { Some(entry(row, 2, true)?) } else { None };
    Ok(Done { step: get(row, 0)?, status: get(row, 1)?, entry })
}

/// Reads the history from the first five columns.
pub(super) fn history(row: &Row) -> Result<History, Failure> {
    let watched = get::<Option<i64>>(row, 1)?;
    Ok(History {
        incarnation: number(row, 0)?,
        watched: watched.map(|millis| Duration::from_millis(millis.cast_unsigned())),
        quiet: duration(row, 2)?,
        number: number(row, 3)?,
        position: number(row, 4)?,
    })
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        let class = failure.classify();
        let text = failure.text();
        match failure.code() {
            Some("ZL001") => return Fault::SessionOver,
            Some("ZL011") => return Fault::StaleLane,
            Some("ZL012") => return Fault::NotSent(text),
            Some("55P03") => return Fault::Busy,
            // Versions, options and classes that do not fit, and entries that are too large.
            Some("ZL005" | "ZL008" | "ZL013" | "23514") => return Fault::Invalid(text),
            _ => {}
        }
        match failure {
            _ if class.retryable && class.ambiguous => Fault::Unknown(text),
            _ if class.retryable => Fault::NotSent(text),
            _ if class.kind == ErrorKind::NotAuthorized => Fault::Refused(text),
            _ if class.kind == ErrorKind::InvalidArgument => Fault::Invalid(text),
            _ => Fault::Unexpected(text),
        }
    }
}
