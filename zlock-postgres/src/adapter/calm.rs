//! The connection whose requests wait for nobody.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use zlock_core::{Class, Mutex, SessionId};
use zlock_ledger::tables::{Names, id, int, millis};
use zlock_ledger::{
    Beat, Beaten, Begin, Calm, End, Ended, Entry, Fault, History, Mark, OnHint, Range, Read, Scope, Seen,
    Setup,
};

use super::hints::Hints;
use super::rows::{duration, entry, get, history, keys, number, only};
use super::statements;
use crate::config::{PostgresOptions, Replication};
use crate::connection::link::{Link, Params};
use crate::connection::statement::Statement;
use crate::error::Failure;

/// For how long a connection listens after something was read, as whoever waits does again and again.
const LISTENS: Duration = Duration::from_secs(10);

/// A connection of a client for heartbeats, looks and reads.
pub struct PostgresCalm {
    pub(super) link: Link,
    /// Whose hints it receives.
    pub(super) session: Mutex<Option<SessionId>>,
    pub(super) on_hint: OnHint,
    pub(super) hints: Arc<Hints>,
    pub(super) options: PostgresOptions,
    pub(super) replication: Option<Replication>,
    pub(super) names: Names,
    /// For which session it listens, and when something was last read.
    pub(super) listens: Mutex<Option<(SessionId, Instant)>>,
}

impl PostgresCalm {
    async fn ask(
        &self,
        statement: &'static Statement,
        params: Params<'_>,
    ) -> Result<Vec<tokio_postgres::Row>, Fault> {
        Ok(self.link.ask(self.options.answer_time(), statement, params).await?)
    }

    /// Returns what makes the connection listen, if it has to.
    fn listen(&self) -> Option<String> {
        let session = self.session.lock().filter(|_| self.options.listen && !self.options.pooled)?;
        let before = self.listens.lock().replace((session, Instant::now()));
        let is_first = before.is_none_or(|(listener, _)| listener != session);
        let channel = format!("zlock_{}", id(session));
        // The notification to ourselves shows that they arrive.
        is_first.then(|| format!("UNLISTEN *; LISTEN \"{channel}\"; SELECT pg_notify('{channel}', '')"))
    }

    /// Returns what makes the connection stop listening, if nothing was read for some time.
    fn unlisten(&self) -> Option<String> {
        let mut listens = self.listens.lock();
        listens.take_if(|(_, last)| last.elapsed() > LISTENS).map(|_| "UNLISTEN *".to_owned())
    }

    /// Sends SQL text, if there is any. Hints are not worth a failure.
    async fn try_execute(&self, sql: Option<String>) {
        let Some(sql) = sql else { return };
        if let Err(failure) = self.link.execute(self.options.answer_time(), &sql).await {
            tracing::debug!(?failure, "no notifications");
            *self.listens.lock() = None;
        }
    }

    async fn end_one(&self, session: SessionId) -> Result<(), Fault> {
        loop {
            match self.end(&[End { session, beat: None }], &[]).await?.first() {
                Some(Ended::More) => {}
                Some(Ended::Over) => return Ok(()),
                _ => return Err(Fault::Busy),
            }
        }
    }
}

#[async_trait]
impl Calm for PostgresCalm {
    async fn begin(&self, begin: &Begin) -> Result<History, Fault> {
        if let Some(last) = begin.last {
            self.end_one(last).await?;
        }
        let class = self.replication.map(|replication| match replication {
            Replication::Async => "lossy",
            Replication::Sync => "sync",
        });
        let (timeout, rest) = (millis(begin.timeout), millis(begin.rest));
        let rows = self.ask(&statements::BEGIN, &[&id(begin.session), &timeout, &rest, &class]).await?;
        *self.session.lock() = Some(begin.session);
        self.hints.set(begin.session, self.on_hint.clone());
        Ok(history(only(&rows)?)?)
    }

    async fn beat(&self, session: SessionId, beat: &Beat) -> Result<Beaten, Fault> {
        let known: Vec<_> = beat.known.iter().map(|(scope, key)| self.names.entry(scope, key)).collect();
        let (incarnation, watched, span) = beat.watched.unwrap_or_default();
        let (watched, span) = (millis(watched), millis(span));
        let (beat, timeout) = (int(beat.number), millis(beat.timeout));
        let session = id(session);
        let params: Params<'_> =
            &[&session, &beat, &timeout, &known, &incarnation.cast_signed(), &watched, &span];
        let time = self.options.kit.beat_time();
        let (rows, ()) =
            tokio::join!(self.link.ask(time, &statements::BEAT, params), self.try_execute(self.unlisten()));
        let rows = rows?;
        let row = only(&rows)?;
        Ok(Beaten {
            history: history(row)?,
            swept: number(row, 5)?,
            exists: get(row, 6)?,
            added: get(row, 7)?,
            owns: get(row, 8)?,
        })
    }

    async fn nodes(&self, session: SessionId) -> Result<(u64, Vec<String>), Fault> {
        let rows = self.ask(&statements::NODES, &[&id(session)]).await?;
        let row = only(&rows)?;
        Ok((number(row, 0)?, keys(row, 1)?))
    }

    async fn sweep(&self, session: SessionId, incarnation: u64, nodes: &[String]) -> Result<bool, Fault> {
        let nodes: Vec<_> = nodes.iter().map(String::as_bytes).collect();
        let rows = self.ask(&statements::SWEEP, &[&id(session), &incarnation.cast_signed(), &nodes]).await?;
        Ok(get(only(&rows)?, 0)?)
    }

    async fn look(&self, sessions: &[SessionId]) -> Result<Vec<Seen>, Fault> {
        let sessions: Vec<_> = sessions.iter().copied().map(id).collect();
        let rows = self.ask(&statements::LOOK, &[&sessions]).await?;
        let seen = |row| -> Result<_, Failure> {
            Ok(Seen {
                session: SessionId::new(number(row, 0)?),
                beat: number(row, 1)?,
                timeout: duration(row, 2)?,
                watched: duration(row, 3)?,
            })
        };
        Ok(rows.iter().map(seen).collect::<Result<_, _>>()?)
    }

    async fn silent(&self, limit: usize) -> Result<Vec<SessionId>, Fault> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.ask(&statements::SILENT, &[&limit]).await?;
        Ok(rows.iter().map(|row| Ok(SessionId::new(number(row, 0)?))).collect::<Result<_, Failure>>()?)
    }

    async fn watched(&self, seen: &[(Seen, Duration)]) -> Result<(), Fault> {
        let column = |of: fn(&(Seen, Duration)) -> i64| seen.iter().map(of).collect::<Vec<_>>();
        let (sessions, beats) = (column(|(seen, _)| id(seen.session)), column(|(seen, _)| int(seen.beat)));
        let (timeouts, watched) =
            (column(|(seen, _)| millis(seen.timeout)), column(|(seen, _)| millis(seen.watched)));
        let spans = column(|(_, span)| millis(*span));
        let params: Params<'_> = &[&sessions, &beats, &timeouts, &watched, &spans];
        self.ask(&statements::WATCHED, params).await.map(drop)
    }

    async fn end(&self, sessions: &[End], first: &[Scope]) -> Result<Vec<Ended>, Fault> {
        let ids: Vec<_> = sessions.iter().map(|end| id(end.session)).collect();
        let beats: Vec<_> = sessions.iter().map(|end| end.beat.map(int)).collect();
        let first: Vec<_> = first.iter().map(|scope| self.names.scope(scope)).collect();
        let rows = self.ask(&statements::END, &[&ids, &beats, &first]).await?;
        let ended = |row| match get(row, 0)? {
            0 => Ok(Ended::Over),
            1 => Ok(Ended::More),
            2 => Ok(Ended::Busy),
            3 => Ok(Ended::Alive),
            _ => Err(Failure::Malformed),
        };
        Ok(rows.iter().map(ended).collect::<Result<_, _>>()?)
    }

    async fn read(&self, session: SessionId, read: &Read) -> Result<Vec<Entry>, Fault> {
        let (mut key, mut up_to, mut limit) = (None, i64::MAX, None);
        match &read.range {
            Range::Key(name) => key = Some(self.names.entry(&read.scope, name)),
            Range::All => {}
            Range::Last { up_to: last, limit: most } => {
                let Some(last) = last else {
                    return Err(Fault::Invalid("a read outside a transaction needs a number".into()));
                };
                up_to = int(*last);
                limit = Some(i64::from(*most));
            }
        }
        let (scope, path) = (self.names.scope(&read.scope), read.scope.path.as_bytes());
        let (session, floor) = (id(session), int(read.floor));
        let params: Params<'_> = &[&session, &key, &scope, &path, &floor, &up_to, &limit, &read.data];
        // Whoever listens before it reads misses nothing.
        let ((), rows) = tokio::join!(self.try_execute(self.listen()), self.ask(&statements::READ, params));
        Ok(rows?.iter().rev().map(|row| entry(row, 0, true)).collect::<Result<_, _>>()?)
    }

    async fn changed(&self, session: SessionId, marks: &[Mark]) -> Result<(u64, Vec<usize>), Fault> {
        let mut ids = Vec::with_capacity(marks.len());
        let (mut scopes, mut paths, mut counts, mut numbers) =
            (ids.clone(), Vec::new(), Vec::new(), Vec::new());
        for mark in marks {
            let (scope, key, count, changed) = match mark {
                Mark::Key { scope, key, changed } => (scope, Some(key), 0, changed),
                Mark::Scope { scope, count, changed } => (scope, None, int(*count), changed),
            };
            ids.push(key.map(|key| self.names.entry(scope, key)));
            scopes.push(Some(self.names.scope(scope)));
            paths.push(scope.path.as_bytes());
            counts.push(count);
            numbers.push(int(*changed));
        }
        let session = id(session);
        let params: Params<'_> = &[&session, &ids, &scopes, &paths, &counts, &numbers];
        let ((), rows) =
            tokio::join!(self.try_execute(self.listen()), self.ask(&statements::CHANGED, params));
        let rows = rows?;
        let row = only(&rows)?;
        let places = get::<Vec<i64>>(row, 1)?.into_iter().filter_map(|place| usize::try_from(place - 1).ok());
        Ok((number(row, 0)?, places.collect()))
    }

    async fn setup(&self) -> Result<Setup, Fault> {
        let rows = self.ask(&statements::SETUP, &[]).await?;
        let row = only(&rows)?;
        Ok(Setup {
            class: get::<&str>(row, 5)?.parse().map_err(|_| Failure::Malformed)?,
            is_lossy: get(row, 6)?,
            reason: get(row, 7)?,
            longest: duration(row, 8)?,
            overlap: duration(row, 9)?,
            history: history(row)?,
        })
    }

    async fn set_class(&self, class: Class) -> Result<(), Fault> {
        self.ask(&statements::SET_CLASS, &[&class.to_string()]).await.map(drop)
    }

    async fn restored(&self, incarnation: u64) -> Result<(), Fault> {
        self.ask(&statements::RESTORED, &[&incarnation.cast_signed()]).await.map(drop)
    }

    fn close(&self) {
        self.link.retire();
    }

    async fn closed(&self) {
        self.link.closed().await;
    }
}

impl fmt::Debug for PostgresCalm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresCalm")
            .field("link", &self.link)
            .field("session", &*self.session.lock())
            .finish_non_exhaustive()
    }
}
