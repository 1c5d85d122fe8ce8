//! The store: a table and its sessions. It stands for any database that runs transactions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use zlock::SessionId;
use zlock::backend::LockPath;

#[derive(Clone, Debug)]
pub struct Row {
    pub parent: LockPath,
    pub name: String,
    /// The kind of lock, if the row is a place in a queue.
    pub label: Option<String>,
    /// A row whose session ends is deleted.
    pub session: Option<SessionId>,
    pub data: Vec<u8>,
    /// The revision at which the row was inserted.
    pub created: u64,
    /// The revision at which it was changed last.
    pub changed: u64,
    /// How often its data was written since.
    pub writes: u64,
}

impl Row {
    /// A row of no session and no queue.
    pub fn new(revision: u64, parent: &LockPath, name: &str, data: &[u8]) -> Self {
        let (parent, name, data) = (parent.clone(), name.to_owned(), data.to_vec());
        let (created, changed) = (revision, revision);
        Row { parent, name, label: None, session: None, data, created, changed, writes: 0 }
    }
}

#[derive(Debug, Default)]
pub struct Table {
    pub rows: Vec<Row>,
    /// When each session expires.
    sessions: BTreeMap<SessionId, Instant>,
    /// Grows with each change.
    pub revision: u64,
}

impl Table {
    pub fn next_revision(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    /// Deletes these rows. Returns whether there were any.
    pub fn delete(&mut self, which: impl Fn(&Row) -> bool) -> bool {
        let before = self.rows.len();
        self.rows.retain(|row| !which(row));
        let any = self.rows.len() < before;
        self.revision += u64::from(any);
        any
    }

    pub fn begin_session(&mut self, ttl: Duration) -> SessionId {
        let id = SessionId::new(self.next_revision());
        self.sessions.insert(id, Instant::now() + ttl);
        id
    }

    pub fn is_live(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// Returns `false` if the session has ended.
    pub fn keep_alive(&mut self, session: SessionId, ttl: Duration) -> bool {
        self.sessions.get_mut(&session).map(|expires| *expires = Instant::now() + ttl).is_some()
    }

    pub fn end_session(&mut self, session: SessionId) {
        self.sessions.remove(&session);
        self.delete(|row| row.session == Some(session));
    }

    fn expire(&mut self) {
        let now = Instant::now();
        let expired = self.sessions.iter().filter(|(_, expires)| **expires <= now).map(|(id, _)| *id);
        expired.collect::<Vec<_>>().into_iter().for_each(|session| self.end_session(session));
    }
}

/// The server. Its clones are the same server.
#[derive(Clone, Debug, Default)]
pub struct Server(Arc<(Mutex<Table>, watch::Sender<u64>)>);

impl Server {
    pub fn transaction<R>(&self, run: impl FnOnce(&mut Table) -> R) -> R {
        let mut table = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.expire();
        let answer = run(&mut table);
        self.0.1.send_replace(table.revision);
        answer
    }
}

/// What a client's connection to the server is like. The tests change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Up,
    /// Every request fails at once.
    Cut,
    /// Requests wait.
    Frozen,
    /// Requests arrive, and their answers are lost.
    Mute,
}

/// A client's connection.
#[derive(Debug)]
pub struct Connection {
    server: Server,
    pub mode: watch::Sender<Mode>,
}

/// No answer came. The transaction may have been run all the same.
#[derive(Debug)]
pub struct Disconnected;

impl Connection {
    pub fn new(server: &Server) -> Self {
        Connection { server: server.clone(), mode: watch::Sender::new(Mode::Up) }
    }

    /// Runs a transaction at the server.
    pub async fn transaction<R>(&self, run: impl FnOnce(&mut Table) -> R) -> Result<R, Disconnected> {
        if self.until(|mode| mode != Mode::Frozen).await == Mode::Cut {
            return Err(Disconnected);
        }
        let answer = self.server.transaction(run);
        tokio::task::yield_now().await;
        if *self.mode.borrow() == Mode::Up {
            return Ok(answer);
        }
        self.until(|mode| mode == Mode::Up).await;
        Err(Disconnected)
    }

    /// Looks at the table now and after each change, until `look` finds something.
    pub async fn watch<E>(&self, look: impl Fn(&Table) -> Option<E>) -> E {
        loop {
            match self.transaction(|table| (look(table), table.revision)).await {
                Ok((Some(found), _)) => return found,
                Ok((None, seen)) => drop(self.server.0.1.subscribe().wait_for(|now| *now > seen).await),
                Err(Disconnected) => drop(self.until(|mode| mode == Mode::Up).await),
            }
        }
    }

    async fn until(&self, is: impl Fn(Mode) -> bool) -> Mode {
        let mut mode = self.mode.subscribe();
        mode.wait_for(|mode| is(*mode)).await.map_or(Mode::Cut, |mode| *mode)
    }
}
