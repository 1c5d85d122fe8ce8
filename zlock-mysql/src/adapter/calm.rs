//! The connection whose requests wait for nobody.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use mysql_async::Value;
use serde_json::json;
use zlock_core::{Class, SessionId};
use zlock_ledger::tables::{Names, id, int, millis};
use zlock_ledger::{
    Beat, Beaten, Begin, Calm, End, Ended, Entry, Fault, History, Kind, Mark, Range, Read, Scope, Seen, Setup,
};

use crate::config::MysqlOptions;
use crate::connection::link::{Answer, Link};
use crate::connection::rows::{duration, entry, get, history, number, only, rows, text};
use crate::error::Failure;

/// A connection of a client for heartbeats, looks and reads.
pub struct MysqlCalm {
    pub(super) link: Link,
    pub(super) options: MysqlOptions,
    pub(super) names: Names,
}

/// Returns bytes as the procedures read them.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

impl MysqlCalm {
    async fn ask(&self, sql: &'static str, params: Vec<Value>) -> Result<Answer, Failure> {
        self.link.ask(self.options.answer_time(), sql, params).await
    }

    /// Returns the ID of a node, for which the queue is not needed.
    fn node(&self, key: &str) -> String {
        hex(&self.names.entry(&Scope { kind: Kind::Queue, path: "".into() }, key))
    }

    async fn end_one(&self, end: End, first: &str) -> Result<Ended, Fault> {
        let params = vec![id(end.session).into(), end.beat.map(int).into(), first.into()];
        let answer = self.ask("CALL zlock_end(?, ?, ?)", params).await?;
        match get(only(&answer)?, 0)? {
            0 => Ok(Ended::Over),
            1 => Ok(Ended::More),
            2 => Ok(Ended::Busy),
            3 => Ok(Ended::Alive),
            _ => Err(Failure::Malformed.into()),
        }
    }
}

#[async_trait]
impl Calm for MysqlCalm {
    async fn begin(&self, begin: &Begin) -> Result<History, Fault> {
        if let Some(session) = begin.last {
            while match self.end_one(End { session, beat: None }, "[]").await? {
                Ended::More => true,
                Ended::Over => false,
                _ => return Err(Fault::Busy),
            } {}
        }
        let params = vec![id(begin.session).into(), millis(begin.timeout).into(), millis(begin.rest).into()];
        let answer = self.ask("CALL zlock_begin(?, ?, ?)", params).await?;
        Ok(history(only(&answer)?)?)
    }

    async fn beat(&self, session: SessionId, beat: &Beat) -> Result<Beaten, Fault> {
        let known: Vec<_> =
            beat.known.iter().map(|(scope, key)| hex(&self.names.entry(scope, key))).collect();
        let (incarnation, watched, span) = beat.watched.unwrap_or_default();
        let params = vec![
            id(session).into(),
            int(beat.number).into(),
            millis(beat.timeout).into(),
            json!(known).to_string().into(),
            incarnation.cast_signed().into(),
            millis(watched).into(),
            millis(span).into(),
        ];
        let time = self.options.kit.beat_time();
        let answer = self.link.ask(time, "CALL zlock_beat(?, ?, ?, ?, ?, ?, ?)", params).await?;
        let row = only(&answer)?;
        let mut exists = vec![true; known.len()];
        for missing in rows(&answer, 1) {
            let place = usize::try_from(get::<i64>(missing, 0)? - 1).unwrap_or(usize::MAX);
            *exists.get_mut(place).ok_or(Failure::Malformed)? = false;
        }
        Ok(Beaten {
            history: history(row)?,
            swept: number(row, 3)?,
            exists,
            added: get(row, 4)?,
            owns: get(row, 5)?,
        })
    }

    async fn nodes(&self, session: SessionId) -> Result<(u64, Vec<String>), Fault> {
        let answer = self.ask("CALL zlock_nodes(?)", vec![id(session).into()]).await?;
        let names = rows(&answer, 1).iter().map(|row| text(row, 0)).collect::<Result<_, _>>()?;
        Ok((number(only(&answer)?, 0)?, names))
    }

    async fn sweep(&self, session: SessionId, incarnation: u64, nodes: &[String]) -> Result<bool, Fault> {
        let nodes: Vec<_> = nodes.iter().map(|node| self.node(node)).collect();
        let params =
            vec![id(session).into(), incarnation.cast_signed().into(), json!(nodes).to_string().into()];
        let answer = self.ask("CALL zlock_sweep(?, ?, ?)", params).await?;
        Ok(get(only(&answer)?, 0)?)
    }

    async fn look(&self, sessions: &[SessionId]) -> Result<Vec<Seen>, Fault> {
        let sessions: Vec<_> = sessions.iter().copied().map(id).collect();
        let answer = self.ask("CALL zlock_look(?)", vec![json!(sessions).to_string().into()]).await?;
        let seen = |row| {
            Ok(Seen {
                session: SessionId::new(number(row, 0)?),
                beat: number(row, 1)?,
                timeout: duration(row, 2)?,
                watched: duration(row, 3)?,
            })
        };
        Ok(rows(&answer, 0).iter().map(seen).collect::<Result<_, Failure>>()?)
    }

    async fn silent(&self, limit: usize) -> Result<Vec<SessionId>, Fault> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let answer = self.ask("CALL zlock_silent(?)", vec![limit.into()]).await?;
        Ok(rows(&answer, 0)
            .iter()
            .map(|row| Ok(SessionId::new(number(row, 0)?)))
            .collect::<Result<_, Failure>>()?)
    }

    async fn watched(&self, seen: &[(Seen, Duration)]) -> Result<(), Fault> {
        for (seen, span) in seen.iter().filter(|(_, span)| millis(*span) > 0) {
            let params = vec![
                id(seen.session).into(),
                int(seen.beat).into(),
                millis(seen.timeout).into(),
                millis(seen.watched).into(),
                millis(*span).into(),
            ];
            self.ask("CALL zlock_watch(?, ?, ?, ?, ?)", params).await?;
        }
        Ok(())
    }

    async fn end(&self, sessions: &[End], first: &[Scope]) -> Result<Vec<Ended>, Fault> {
        let first: Vec<_> = first.iter().map(|scope| hex(&self.names.scope(scope))).collect();
        let first = json!(first).to_string();
        let mut ended = Vec::with_capacity(sessions.len());
        for end in sessions {
            ended.push(self.end_one(*end, &first).await?);
        }
        Ok(ended)
    }

    async fn read(&self, session: SessionId, read: &Read) -> Result<Vec<Entry>, Fault> {
        let (mut key, mut up_to, mut limit) = (Value::NULL, i64::MAX, i64::MAX);
        match &read.range {
            Range::Key(name) => key = self.names.entry(&read.scope, name).into(),
            Range::All => {}
            Range::Last { up_to: None, .. } => {
                return Err(Fault::Invalid("a read outside a transaction needs a number".into()));
            }
            Range::Last { up_to: Some(last), limit: most } => (up_to, limit) = (int(*last), i64::from(*most)),
        }
        let params = vec![
            id(session).into(),
            key,
            self.names.scope(&read.scope).into(),
            int(read.floor).into(),
            up_to.into(),
            limit.into(),
            read.data.into(),
        ];
        let answer = self.ask("CALL zlock_read(?, ?, ?, ?, ?, ?, ?)", params).await?;
        Ok(rows(&answer, 0).iter().rev().map(|row| entry(row, 0)).collect::<Result<_, _>>()?)
    }

    async fn changed(&self, session: SessionId, marks: &[Mark]) -> Result<(u64, Vec<usize>), Fault> {
        let describe = |mark: &Mark| match mark {
            Mark::Key { scope, key, changed } => {
                let (id, scope) = (self.names.entry(scope, key), self.names.scope(scope));
                json!({"i": hex(&id), "s": hex(&scope), "v": int(*changed)})
            }
            Mark::Scope { scope, count, changed } => {
                json!({"s": hex(&self.names.scope(scope)), "c": int(*count), "v": int(*changed)})
            }
        };
        let marks: Vec<_> = marks.iter().map(describe).collect();
        let params = vec![id(session).into(), json!(marks).to_string().into()];
        let answer = self.ask("CALL zlock_changed(?, ?)", params).await?;
        let mut places = Vec::new();
        for row in rows(&answer, 1) {
            places.push(usize::try_from(get::<i64>(row, 0)? - 1).map_err(|_| Failure::Malformed)?);
        }
        Ok((number(only(&answer)?, 0)?, places))
    }

    async fn setup(&self) -> Result<Setup, Fault> {
        let answer = self.ask("CALL zlock_setup()", Vec::new()).await?;
        let row = only(&answer)?;
        Ok(Setup {
            class: text(row, 3)?.parse().map_err(|_| Failure::Malformed)?,
            is_lossy: get(row, 4)?,
            reason: get::<Option<Vec<u8>>>(row, 5)?.map(|why| String::from_utf8_lossy(&why).into_owned()),
            longest: duration(row, 6)?,
            overlap: duration(row, 7)?,
            history: history(row)?,
        })
    }

    async fn set_class(&self, class: Class) -> Result<(), Fault> {
        Ok(self.ask("CALL zlock_set_class(?)", vec![class.to_string().into()]).await.map(drop)?)
    }

    async fn restored(&self, incarnation: u64) -> Result<(), Fault> {
        Ok(self.ask("CALL zlock_restored(?)", vec![incarnation.cast_signed().into()]).await.map(drop)?)
    }

    fn close(&self) {
        self.link.retire();
    }

    async fn closed(&self) {
        self.link.closed().await;
    }
}

impl fmt::Debug for MysqlCalm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlCalm").field("link", &self.link).finish_non_exhaustive()
    }
}
