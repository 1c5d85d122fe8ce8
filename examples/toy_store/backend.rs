//! The backend: what zlock needs from the store, built on `zlock_core::kit`.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use zlock_core::kit::{
    Begun, Budget, Interrupted, Options, Over, Receipts, SessionKey, SessionStore, Sessions, Task, repeat,
};
use zlock_core::{
    Background, Close, ConnectUrl, Connector, CoordinationBackend, Created, DataWrite, Deletion, Environment,
    ErrorKind, Existence, FencingToken, Label, LockPath, Needs, Node, NodeData, NodeId, NodeName, Queue,
    Result, Sequence, SessionEvents, SessionId, Target, Watch, WatchEvent, async_trait,
};

use crate::server::{Connection, Disconnected, Row, Server, Table};

/// How long a session outlives the last request that kept it alive.
pub const TTL: Duration = Duration::from_secs(10);
/// How long we count on that: less, since clocks differ.
const CERTAIN: Duration = Duration::from_secs(9);
/// The time between two such requests, and the time to wait for an answer to one.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// The time before a request that failed is tried again.
const AGAIN: Duration = Duration::from_millis(100);

/// A client of a [`Server`].
#[derive(Debug)]
pub struct ToyBackend {
    pub shared: Arc<Shared>,
    task: Task,
}

/// What the operations share with the task that keeps the sessions.
#[derive(Debug)]
pub struct Shared {
    connection: Arc<Connection>,
    options: Options,
    pub sessions: Sessions<()>,
    pub receipts: Arc<Receipts<()>>,
}

impl ToyBackend {
    /// Connects in the background. Operations wait until there is a session.
    pub fn connect(server: &Server) -> Self {
        let shared = Shared::new(server);
        ToyBackend { task: Task::connect_lazy(ToySessions(shared.clone())), shared }
    }

    /// The connection, for tests to break.
    pub fn connection(&self) -> Arc<Connection> {
        self.shared.connection.clone()
    }
}

/// `zlock::register("toy", server)` makes it the server of all URLs `toy://`.
#[async_trait]
impl Connector for Server {
    async fn connect(
        &self,
        url: &ConnectUrl,
        environment: &Environment,
    ) -> Result<Arc<dyn CoordinationBackend>> {
        check(url, environment)?;
        let shared = Shared::new(self);
        let task = Task::connect(ToySessions(shared.clone())).await?;
        Ok(Arc::new(ToyBackend { shared, task }))
    }

    fn connect_lazy(
        &self,
        url: &ConnectUrl,
        environment: &Environment,
    ) -> Result<Arc<dyn CoordinationBackend>> {
        check(url, environment)?;
        Ok(Arc::new(ToyBackend::connect(self)))
    }
}

fn check(url: &ConnectUrl, environment: &Environment) -> Result<()> {
    url.refuse_params_but(&[])?;
    environment.refuse_credentials(url.scheme())
}

/// What keeps the sessions: the kit's loop over this.
struct ToySessions(Arc<Shared>);

impl SessionStore for ToySessions {
    type Granted = ();
    type Kept = ();
    type Live = ();
    type Failure = Interrupted;

    fn sessions(&self) -> &Sessions<()> {
        &self.0.sessions
    }

    fn options(&self) -> &Options {
        &self.0.options
    }

    fn patience(&self) -> (Duration, Duration) {
        (KEEP_ALIVE, KEEP_ALIVE)
    }

    async fn begin(&self, old: Option<SessionId>, patience: Duration) -> Result<Begun<()>, Interrupted> {
        // Before the request is sent: the server starts to count later.
        let sent = Instant::now();
        let begin = |table: &mut Table| {
            // Nothing that was sent in the last session takes effect once the next one begins.
            old.into_iter().for_each(|old| table.end_session(old));
            table.begin_session(TTL)
        };
        let id = self.0.ask(patience, begin).await?;
        Ok(Begun { id, timeout: TTL, deadline: sent + CERTAIN, granted: () })
    }

    fn publish(&self, _: SessionKey, (): ()) -> ((), ()) {
        ((), ())
    }

    /// Each response also lists the remaining own nodes.
    async fn keep(&self, session: SessionKey, (): &mut ()) -> Over {
        let sessions = &self.0.sessions;
        let keep = |table: &mut Table| {
            let own = table.rows.iter().filter(|row| row.session == Some(session.id)).map(id).collect();
            table.keep_alive(session.id, TTL).then_some(own)
        };
        loop {
            let (sent, mark) = (Instant::now(), sessions.own().mark());
            match self.0.ask(KEEP_ALIVE, keep).await {
                Ok(None) => return Over::Lost,
                Ok(Some(own)) => {
                    sessions.own().compare(mark, &own);
                    sessions.extend(session, sent, sent + CERTAIN);
                    sessions.resume(session);
                    sleep(KEEP_ALIVE).await;
                }
                Err(_) => {
                    sessions.suspend(session);
                    sleep(AGAIN).await;
                }
            }
        }
    }

    async fn end(&self, id: SessionId, _: Option<&mut ()>) -> Result<Close, Interrupted> {
        self.0.ask(KEEP_ALIVE, |table| table.end_session(id)).await?;
        Ok(Close::Ended)
    }
}

impl Shared {
    fn new(server: &Server) -> Arc<Self> {
        Arc::new(Shared {
            connection: Arc::new(Connection::new(server)),
            options: Options::new(["toy"]),
            sessions: Sessions::new("the server refused the credentials"),
            receipts: Arc::default(),
        })
    }

    /// Runs a transaction that belongs to no operation.
    async fn ask<R>(&self, limit: Duration, run: impl FnOnce(&mut Table) -> R) -> Result<R, Interrupted> {
        let answer = timeout(limit, self.connection.transaction(run)).await;
        answer.map_err(|_| Interrupted::TimedOut)?.map_err(|Disconnected| Interrupted::Disconnected)
    }

    /// Runs a transaction that changes nothing, until there is an answer.
    pub async fn read<R>(
        &self,
        name: &'static str,
        parent: &LockPath,
        run: impl Fn(&mut Table) -> R,
    ) -> Result<(SessionKey, R)> {
        let mut budget = self.budget(name, parent);
        self.transaction(&mut budget, false, |table, _| run(table)).await
    }

    pub fn budget<'a>(&'a self, name: &'static str, parent: &'a LockPath) -> Budget<'a, ()> {
        Budget::new(&self.sessions, &self.options, name, parent)
    }

    /// Runs a transaction until there is an answer. An error is ambiguous if it `writes` and may have been run.
    pub async fn transaction<R>(
        &self,
        budget: &mut Budget<'_, ()>,
        writes: bool,
        run: impl Fn(&mut Table, SessionKey) -> R,
    ) -> Result<(SessionKey, R)> {
        repeat!(budget, |session| async {
            let answer = self.attempt(budget, session, |table| run(table, session)).await;
            let answer = if writes { budget.record(answer) } else { answer };
            answer.map(|answer| (session, answer))
        })
    }

    /// Runs a transaction in this session.
    pub async fn attempt<R>(
        &self,
        budget: &Budget<'_, ()>,
        session: SessionKey,
        run: impl FnOnce(&mut Table) -> R,
    ) -> Result<R, Interrupted> {
        let run = |table: &mut Table| table.is_live(session.id).then(|| run(table));
        let answer = self.connection.transaction(run);
        match self.sessions.run_until_ended(session, budget.deadline(), answer).await? {
            Ok(Some(answer)) => {
                // The next request to keep the session alive need not be waited for.
                self.sessions.resume(session);
                Ok(answer)
            }
            Ok(None) => {
                self.sessions.lose(session);
                Err(Interrupted::SessionLost)
            }
            Err(Disconnected) => Err(Interrupted::Disconnected),
        }
    }

    /// A watch that fires when `look` finds something in the table, or the session ends.
    pub fn watch(
        self: &Arc<Self>,
        session: SessionKey,
        look: impl Fn(&Table) -> Option<WatchEvent> + Send + Sync + 'static,
    ) -> Watch {
        let connection = self.connection.clone();
        self.sessions.watch(session, async move { connection.watch(look).await })
    }
}

/// The node of a row, unless that is something else. Its ID is its name, and its place the revision of its create.
fn node(row: &Row) -> Option<Node> {
    let (label, sequence) = (Label::parse(row.label.as_ref()?), Sequence::new(row.created.cast_signed()));
    let node = Node::new(NodeName::new(&*row.name), NodeId::new(&*row.name), label, sequence);
    Some(node.with_owner(row.session, FencingToken::new(row.created)))
}

/// The ID by which the session knows an own row. That of a member of a group is its path.
fn id(row: &Row) -> NodeId {
    node(row).map_or_else(|| NodeId::new(format!("{}/{}", row.parent, row.name)), |node| node.id)
}

fn queue(table: &Table, parent: &LockPath) -> Queue {
    Queue::linear(table.rows.iter().filter(|row| row.parent == *parent).filter_map(node).collect())
}

fn is_it(row: &Row, parent: &LockPath, id: &NodeId) -> bool {
    row.parent == *parent && node(row).is_some_and(|node| node.id == *id)
}

fn find<'a>(table: &'a Table, parent: &LockPath, id: &NodeId) -> Option<&'a Row> {
    table.rows.iter().find(|row| is_it(row, parent, id))
}

/// Changes the row of a node. Returns `None` if there is none.
fn change(table: &mut Table, parent: &LockPath, id: &NodeId, change: impl FnOnce(&mut Row)) -> Option<Row> {
    let revision = table.next_revision();
    let row = table.rows.iter_mut().find(|row| is_it(row, parent, id))?;
    change(row);
    row.changed = revision;
    Some(row.clone())
}

#[async_trait]
impl CoordinationBackend for ToyBackend {
    async fn create_ephemeral_sequential(
        &self,
        parent: &LockPath,
        label: Label,
        id: &NodeId,
        data: &[u8],
        _: Needs,
    ) -> Result<Created> {
        let mut budget = self.shared.budget("create", parent);
        budget.check_node(id, data)?;
        let append = |table: &mut Table, session: SessionKey| {
            // There already if the answer to an earlier attempt was lost; but not in an earlier session.
            if find(table, parent, id).is_none_or(|row| row.session != Some(session.id)) {
                table.delete(|row| is_it(row, parent, id));
                let row = Row::new(table.next_revision(), parent, id.as_str(), data);
                table.rows.push(Row { session: Some(session.id), label: Some(label.to_string()), ..row });
            }
            (find(table, parent, id).and_then(node), queue(table, parent))
        };
        let (session, (node, queue)) = self.shared.transaction(&mut budget, true, append).await?;
        let node = node.ok_or_else(|| budget.refuse(ErrorKind::Unexpected))?;
        Ok(Created::new(node, queue, session.epoch, self.shared.sessions.own().insert(id)))
    }

    async fn children(&self, parent: &LockPath, _: Option<&Node>) -> Result<Queue> {
        Ok(self.shared.read("children", parent, |table| queue(table, parent)).await?.1)
    }

    async fn children_with_watch(&self, parent: &LockPath) -> Result<(Queue, Watch)> {
        let list = |table: &mut Table| queue(table, parent);
        let (session, seen) = self.shared.read("children_with_watch", parent, list).await?;
        let (parent, before) = (parent.clone(), seen.to_vec());
        let look = move |table: &Table| (*queue(table, &parent) != *before).then_some(WatchEvent::Changed);
        Ok((seen, self.shared.watch(session, look)))
    }

    async fn exists_with_watch(&self, parent: &LockPath, seen: &Node) -> Result<Existence> {
        let look = |table: &mut Table| find(table, parent, &seen.id).and_then(node);
        let (session, found) = self.shared.read("exists_with_watch", parent, look).await?;
        match found {
            None => return Ok(Existence::Deleted),
            Some(node) if node.label != seen.label => return Ok(Existence::Changed(node)),
            Some(_) => {}
        }
        let (parent, seen) = (parent.clone(), seen.clone());
        let look = move |table: &Table| match find(table, &parent, &seen.id).and_then(node) {
            None => Some(WatchEvent::Deleted),
            Some(node) => (node.label != seen.label).then_some(WatchEvent::Relabelled),
        };
        Ok(Existence::Watching(self.shared.watch(session, look)))
    }

    async fn relabel(&self, parent: &LockPath, own: &Node, label: Label) -> Result<Node> {
        let mut budget = self.shared.budget("relabel", parent);
        let rename = |table: &mut Table, session: SessionKey| {
            let is_own = own.session == Some(session.id);
            is_own.then(|| change(table, parent, &own.id, |row| row.label = Some(label.to_string())))
        };
        match self.shared.transaction(&mut budget, true, rename).await?.1 {
            None => Err(budget.refuse(ErrorKind::SessionLost)),
            Some(None) => Err(budget.refuse(ErrorKind::NodeDeleted)),
            Some(Some(row)) => node(&row).ok_or_else(|| budget.refuse(ErrorKind::Unexpected)),
        }
    }

    async fn delete(&self, parent: &LockPath, target: &Target, _: Option<&Node>) -> Result<Deletion> {
        self.shared.sessions.own().remove(target.id());
        let mut budget = self.shared.budget("delete", parent);
        let delete = |table: &mut Table, _| table.delete(|row| is_it(row, parent, target.id()));
        let (_, deleted) = self.shared.transaction(&mut budget, true, delete).await?;
        Ok(if deleted || budget.ambiguous { Deletion::Deleted } else { Deletion::AlreadyDeleted })
    }

    async fn data(&self, parent: &LockPath, node: &Node) -> Result<Option<NodeData>> {
        let read = |table: &mut Table| find(table, parent, &node.id).cloned();
        let (_, row) = self.shared.read("data", parent, read).await?;
        Ok(row.map(|row| NodeData::new(row.data, row.session)))
    }

    async fn data_with_watch(&self, parent: &LockPath, node: &Node) -> Result<Option<(Vec<u8>, Watch)>> {
        let read = |table: &mut Table| find(table, parent, &node.id).cloned();
        let (session, Some(row)) = self.shared.read("data_with_watch", parent, read).await? else {
            return Ok(None);
        };
        let (parent, id, changed) = (parent.clone(), node.id.clone(), row.changed);
        let look = move |table: &Table| match find(table, &parent, &id) {
            None => Some(WatchEvent::Deleted),
            Some(row) => (row.changed > changed).then_some(WatchEvent::Changed),
        };
        Ok(Some((row.data, self.shared.watch(session, look))))
    }

    async fn write_data(
        &self,
        parent: &LockPath,
        node: &Node,
        expected: Option<u64>,
        data: &[u8],
    ) -> Result<DataWrite> {
        let mut budget = self.shared.budget("write_data", parent);
        budget.check_size(data)?;
        let write = |table: &mut Table, _| {
            let row = find(table, parent, &node.id).cloned()?;
            let is_expected = expected.is_none_or(|writes| row.writes == writes);
            if is_expected {
                change(table, parent, &node.id, |row| {
                    row.data = data.to_vec();
                    row.writes += 1;
                });
            }
            Some((row, is_expected))
        };
        let (_, written) = self.shared.transaction(&mut budget, true, write).await?;
        let (row, is_written) = written.ok_or_else(|| budget.refuse(ErrorKind::NodeDeleted))?;
        // Written by this transaction, or by one whose answer was lost.
        let is_ours = budget.ambiguous && expected.map(|writes| writes + 1) == Some(row.writes);
        let is_written = is_written || is_ours && row.data == data;
        Ok(if is_written { DataWrite::Written } else { DataWrite::Conflict(row.writes) })
    }

    fn session_events(&self) -> SessionEvents {
        self.shared.sessions.events()
    }

    fn background(&self) -> Background {
        self.shared.sessions.background().clone()
    }

    async fn close(&self) -> Result<Close> {
        Ok(self.task.close().await)
    }
}
