//! One client's access to the store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Handle;
use zlock_core::{Class, SessionId};

use super::connection::Connection;
use super::fault::Operation;
use super::link::{Link, MemLink};
use super::server::{Listener, Server};
use super::state::State;
use crate::{
    Beat, Beaten, Begin, Calm, End, Ended, Entry, Fault, History, Lane, Ledger, Limits, Mark, OnHint,
    Outcome, Read, Scope, Seen, Setup, Tx, Wire,
};

/// One client's access to a [`MemStore`](super::MemStore).
pub struct MemLedger {
    server: Arc<Server>,
    link: Arc<Link>,
    runtime: Handle,
}

impl MemLedger {
    pub(super) fn new(server: Arc<Server>, link: Link, runtime: Handle) -> Self {
        MemLedger { server, link: Arc::new(link), runtime }
    }

    /// Returns the link of this client, for injecting network faults.
    #[must_use]
    pub fn link(&self) -> MemLink {
        MemLink::new(self.link.clone(), &self.server)
    }

    fn connect(&self) -> Result<Connection, Fault> {
        Connection::open(&self.server, &self.link, &self.runtime)
    }
}

impl fmt::Debug for MemLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemLedger({})", self.link.number)
    }
}

#[async_trait]
impl Ledger for MemLedger {
    type Calm = MemCalm;
    type Lane = MemLane;

    fn limits(&self) -> Limits {
        self.server.settings.limits
    }

    async fn calm(&self, session: Option<SessionId>, on_hint: OnHint) -> Result<MemCalm, Fault> {
        let connection = self.connect()?;
        let (route, outbox, hints) = (connection.route.clone(), connection.outbox.clone(), on_hint.clone());
        let opened = connection.ask(Operation::Calm, session, vec![], async move {
            if let Some(session) = session {
                route.server.listen(route.number, Listener { session, on_hint: hints, outbox });
            }
            Ok(())
        });
        match opened.await {
            Ok(()) => Ok(MemCalm(connection, on_hint)),
            // It would have had no effect.
            Err(Fault::Unknown(why)) => Err(Fault::NotSent(why)),
            Err(fault) => Err(fault),
        }
    }

    async fn lane(&self, session: SessionId, wire: Wire) -> Result<MemLane, Fault> {
        let connection = self.connect()?;
        let route = connection.route.clone();
        let raise = async move { route.server.raise(route.life, session, wire).await };
        let number = connection.ask(Operation::Lane, Some(session), vec![], raise).await?;
        Ok(MemLane { connection, session, wire, number })
    }
}

/// A calm connection to a [`MemStore`](super::MemStore).
pub struct MemCalm(Connection, OnHint);

impl fmt::Debug for MemCalm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemCalm").field(&self.0).finish()
    }
}

#[async_trait]
impl Calm for MemCalm {
    async fn begin(&self, begin: &Begin) -> Result<History, Fault> {
        let (begin, route) = (*begin, self.0.route.clone());
        let listener =
            Listener { session: begin.session, on_hint: self.1.clone(), outbox: self.0.outbox.clone() };
        let work = move |state: &mut State| {
            let history = state.begin(&begin)?;
            route.link.began(begin.session);
            route.server.listen(route.number, listener);
            Ok(history)
        };
        self.0.call(Operation::Begin, Some(begin.session), vec![], work).await
    }

    async fn beat(&self, session: SessionId, beat: &Beat) -> Result<Beaten, Fault> {
        let beat = beat.clone();
        self.0.call(Operation::Beat, Some(session), vec![], move |state| state.beat(session, &beat)).await
    }

    async fn nodes(&self, session: SessionId) -> Result<(u64, Vec<String>), Fault> {
        self.0.call(Operation::Nodes, Some(session), vec![], move |state| state.nodes(session)).await
    }

    async fn sweep(&self, session: SessionId, incarnation: u64, nodes: &[String]) -> Result<bool, Fault> {
        let nodes = nodes.to_vec();
        let work = move |state: &mut State| state.sweep(session, incarnation, &nodes);
        self.0.call(Operation::Sweep, Some(session), vec![], work).await
    }

    async fn look(&self, sessions: &[SessionId]) -> Result<Vec<Seen>, Fault> {
        let sessions = sessions.to_vec();
        self.0.call(Operation::Look, None, vec![], move |state| Ok(state.look(&sessions))).await
    }

    async fn watched(&self, seen: &[(Seen, Duration)]) -> Result<(), Fault> {
        let seen = seen.to_vec();
        let work = move |state: &mut State| {
            state.watched(&seen);
            Ok(())
        };
        self.0.call(Operation::Watched, None, vec![], work).await
    }

    async fn end(&self, sessions: &[End], first: &[Scope]) -> Result<Vec<Ended>, Fault> {
        let (sessions, scopes) = (sessions.to_vec(), first.to_vec());
        let first = scopes.clone();
        self.0.call(Operation::End, None, scopes, move |state| Ok(state.end(&sessions, &first))).await
    }

    async fn read(&self, session: SessionId, read: &Read) -> Result<Vec<Entry>, Fault> {
        let (read, scopes) = (read.clone(), vec![read.scope.clone()]);
        self.0.call(Operation::Read, Some(session), scopes, move |state| state.read(session, &read)).await
    }

    async fn changed(&self, session: SessionId, marks: &[Mark]) -> Result<(u64, Vec<usize>), Fault> {
        let marks = marks.to_vec();
        let scope = |mark: &Mark| match mark {
            Mark::Key { scope, .. } | Mark::Scope { scope, .. } => scope.clone(),
        };
        let scopes = marks.iter().map(scope).collect();
        let work = move |state: &mut State| state.changed(session, &marks);
        self.0.call(Operation::Changed, Some(session), scopes, work).await
    }

    /// The store has no clock.
    async fn silent(&self, _: usize) -> Result<Vec<SessionId>, Fault> {
        Ok(Vec::new())
    }

    async fn setup(&self) -> Result<Setup, Fault> {
        self.0.call(Operation::Setup, None, vec![], |state| Ok(state.setup())).await
    }

    async fn set_class(&self, class: Class) -> Result<(), Fault> {
        let work = move |state: &mut State| {
            state.settings.class = class;
            Ok(())
        };
        self.0.call(Operation::Setup, None, vec![], work).await
    }

    async fn restored(&self, incarnation: u64) -> Result<(), Fault> {
        let work = move |state: &mut State| {
            state.restored(incarnation);
            Ok(())
        };
        self.0.call(Operation::Restored, None, vec![], work).await
    }

    fn close(&self) {
        self.0.close();
    }

    async fn closed(&self) {
        self.0.closed().await;
    }
}

/// A connection to a [`MemStore`](super::MemStore) for the writes of a session.
#[derive(Debug)]
pub struct MemLane {
    connection: Connection,
    session: SessionId,
    wire: Wire,
    number: u64,
}

#[async_trait]
impl Lane for MemLane {
    async fn transact(&self, txs: &[Tx]) -> Result<Vec<Result<Outcome, Fault>>, Fault> {
        let (route, txs) = (self.connection.route.clone(), txs.to_vec());
        let lane = (self.session, self.wire, self.number);
        let scopes = txs.iter().flat_map(Tx::scopes).cloned().collect();
        let run = async move {
            let service_time = route.link.service_time();
            route.server.transact(route.life, service_time, lane, &txs).await
        };
        self.connection.ask(Operation::Transact, Some(self.session), scopes, run).await
    }
}
