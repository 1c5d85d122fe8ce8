//! Rows of the server, as the engine has them.

use std::time::{Duration, SystemTime};

use mysql_async::Row;
use mysql_async::prelude::FromValue;
use zlock_core::SessionId;
use zlock_ledger::tables::Done;
use zlock_ledger::{Entry, History};

use crate::connection::link::Answer;
use crate::error::Failure;

/// Returns the value in a column.
pub(crate) fn get<T: FromValue>(row: &Row, column: usize) -> Result<T, Failure> {
    row.get_opt(column).ok_or(Failure::Malformed)?.map_err(|_| Failure::Malformed)
}

pub(crate) fn number(row: &Row, column: usize) -> Result<u64, Failure> {
    Ok(get::<i64>(row, column)?.cast_unsigned())
}

/// Returns the first row of the first result.
pub(crate) fn only(answer: &Answer) -> Result<&Row, Failure> {
    answer.first().and_then(|rows| rows.first()).ok_or(Failure::Malformed)
}

/// Returns the rows of a result; none if there is no such result.
pub(crate) fn rows(answer: &Answer, result: usize) -> &[Row] {
    answer.get(result).map_or(&[], Vec::as_slice)
}

pub(crate) fn duration(row: &Row, column: usize) -> Result<Duration, Failure> {
    Ok(Duration::from_millis(number(row, column)?))
}

pub(crate) fn text(row: &Row, column: usize) -> Result<String, Failure> {
    String::from_utf8(get(row, column)?).map_err(|_| Failure::Malformed)
}

/// Reads an entry from eight columns, of which the last is its data, or from seven.
pub(crate) fn entry(row: &Row, first: usize) -> Result<Entry, Failure> {
    let owner = get::<Option<i64>>(row, first + 3)?;
    let label = get::<Option<Vec<u8>>>(row, first + 4)?.map(String::from_utf8).transpose();
    Ok(Entry {
        key: text(row, first)?,
        created: number(row, first + 1)?,
        changed: number(row, first + 2)?,
        owner: owner.map(|id| SessionId::new(id.cast_unsigned())),
        label: label.map_err(|_| Failure::Malformed)?,
        writes: number(row, first + 5)?,
        time: Some(SystemTime::UNIX_EPOCH + Duration::from_micros(number(row, first + 6)?)),
        data: if row.len() > first + 7 { get(row, first + 7)? } else { Vec::new() },
    })
}

/// Reads what a step has done.
pub(crate) fn done(row: &Row) -> Result<Done, Failure> {
    let is_found = row.len() > 2 && get::<Option<Vec<u8>>>(row, 2)?.is_some();
    let entry = if is_found { Some(entry(row, 2)?) } else { None };
    Ok(Done { step: get(row, 0)?, status: get(row, 1)?, entry })
}

/// Reads the history from the first three columns. The numbers are those of scopes, and so there is none of the store.
pub(crate) fn history(row: &Row) -> Result<History, Failure> {
    let watched = get::<Option<i64>>(row, 1)?;
    Ok(History {
        incarnation: number(row, 0)?,
        watched: watched.map(|millis| Duration::from_millis(millis.cast_unsigned())),
        quiet: duration(row, 2)?,
        number: 0,
        position: 0,
    })
}
