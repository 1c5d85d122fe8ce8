//! The store below the clients: the in-memory server, or a ledger in memory with the engine for stores without sessions.

use std::fmt::Debug;
use std::sync::{Arc, Weak};
use std::time::Duration;

use zlock::backend::{CoordinationBackend, Node, NodeName};
use zlock::mem::{Arrival, Fate, MemLink, MemOptions, MemServer, Operation};
use zlock::{LockPath, SessionId};
use zlock_core::kit::Options;
use zlock_core::{FencingToken, Label, NodeId, Sequence};
use zlock_ledger::mem::{self as ledger, MemLedger, MemStore, Protection, ScopeLock, Settings};
use zlock_ledger::{Entry, Kind, LedgerBackend, Scope};

use super::plan::Plan;

#[derive(Clone, Debug)]
pub(crate) enum Store {
    Mem(MemServer),
    Ledger(MemStore),
}

/// The link of one client.
#[derive(Clone, Debug)]
pub(crate) enum Link {
    Mem(MemLink),
    Ledger(ledger::MemLink, Weak<LedgerBackend<MemLedger>>),
}

/// A request that has arrived at the store.
pub(crate) enum Request<'a> {
    Mem(&'a Arrival),
    Ledger(&'a ledger::Arrival),
}

fn scope(kind: Kind, path: &LockPath) -> Scope {
    Scope { kind, path: path.as_str().into() }
}

/// Returns the node that an entry of a ledger is.
fn node(entry: &Entry) -> Node {
    let label = Label::parse(entry.label.as_deref().unwrap_or_default());
    let sequence = Sequence::new(entry.created.cast_signed());
    Node::new(NodeName::new(&*entry.key), NodeId::new(&*entry.key), label, sequence)
        .with_owner(entry.owner, FencingToken::new(entry.created))
}

/// Splits the path of a value into its parent and its name there.
fn split(value: &LockPath) -> (LockPath, &str) {
    let (_, name) = value.as_str().rsplit_once('/').expect("a path has a slash");
    (value.parent().expect("no value is at the root"), name)
}

/// Clients and their requests.
impl Store {
    pub(crate) fn new(plan: &Plan) -> Self {
        match plan.ledger {
            None => {
                let server = MemServer::new();
                server.set_first_sequence(plan.first_sequence);
                Store::Mem(server)
            }
            Some(ledger) => Store::Ledger(MemStore::new(Settings {
                class: ledger.class,
                longest: ledger.longest,
                overlap: ledger.overlap,
                hints: ledger.hints,
                jitter: Duration::from_millis(ledger.jitter),
                seed: plan.seed,
                ..Settings::default()
            })),
        }
    }

    /// Connects a client in the background.
    pub(crate) fn connect(&self, plan: &Plan) -> (Arc<dyn CoordinationBackend>, Link) {
        let retry = zlock::RetryPolicy::bounded_exponential(
            Duration::from_millis(20),
            Duration::from_secs(1),
            plan.retries,
        );
        let retry = retry.with_seed(plan.seed);
        match self {
            Store::Mem(server) => {
                let options = MemOptions::default()
                    .with_session_timeout(plan.session)
                    .with_operation_timeout(plan.operation_timeout)
                    .with_retry(retry);
                let backend = server.connect_with(options);
                let link = backend.link();
                (Arc::new(backend), Link::Mem(link))
            }
            Store::Ledger(store) => {
                let ledger = store.ledger();
                let link = ledger.link();
                let options = Options {
                    session_timeout: plan.session,
                    operation_timeout: plan.operation_timeout,
                    retry,
                    ..Options::new(["ledger"])
                };
                let backend = LedgerBackend::connect_lazy((ledger, options)).expect("valid options");
                let backend = Arc::new(backend);
                let link = Link::Ledger(link, Arc::downgrade(&backend));
                (backend, link)
            }
        }
    }

    /// Calls `hook` for each request that arrives, before it takes effect.
    pub(crate) fn on_request(&self, mut hook: impl FnMut(&Request) -> Fate + Send + 'static) {
        match self {
            Store::Mem(server) => server.on_request(move |_, arrival| hook(&Request::Mem(arrival))),
            Store::Ledger(store) => {
                store.on_request(move |_, arrival| match hook(&Request::Ledger(arrival)) {
                    Fate::LoseRequest => ledger::Fate::LoseRequest,
                    Fate::LoseAnswer => ledger::Fate::LoseAnswer,
                    _ => ledger::Fate::Pass,
                })
            }
        }
    }

    pub(crate) fn clear_faults(&self) {
        match self {
            Store::Mem(server) => server.clear_faults(),
            Store::Ledger(store) => store.clear_faults(),
        }
    }

    pub(crate) fn stop(&self) {
        match self {
            Store::Mem(server) => server.stop(),
            Store::Ledger(store) => store.stop(),
        }
    }

    /// Returns the sessions that are not over.
    pub(crate) fn sessions(&self) -> Vec<SessionId> {
        match self {
            Store::Mem(server) => server.sessions(),
            Store::Ledger(store) => store.sessions(),
        }
    }

    /// Ends a session, as an operator would. Returns `false` if that is not possible.
    pub(crate) fn expire(&self, session: SessionId) -> bool {
        match self {
            Store::Mem(server) => server.expire(session),
            Store::Ledger(store) => store.expire(session),
        }
    }
}

/// What the store keeps.
impl Store {
    /// Returns the nodes of a queue, in any order.
    pub(crate) fn queue(&self, path: &LockPath) -> Vec<Node> {
        match self {
            Store::Mem(server) => server.queue(path).into_vec(),
            Store::Ledger(store) => store.entries(&scope(Kind::Queue, path)).iter().map(node).collect(),
        }
    }

    /// Deletes a node, as an operator would. Returns `false` if that is not possible.
    pub(crate) fn remove_node(&self, path: &LockPath, node: &NodeName) -> bool {
        match self {
            Store::Mem(server) => server.remove(path, node.as_str()),
            Store::Ledger(store) => store.remove(&scope(Kind::Queue, path), node.as_str()),
        }
    }

    /// Returns the data of a node.
    pub(crate) fn node_data(&self, path: &LockPath, node: &NodeName) -> Option<Vec<u8>> {
        match self {
            Store::Mem(server) => server.data(path, node.as_str()),
            Store::Ledger(store) => {
                let entries = store.entries(&scope(Kind::Queue, path)).into_iter();
                entries.filter(|entry| entry.key == node.as_str()).map(|entry| entry.data).next()
            }
        }
    }

    /// Returns the data of a value.
    pub(crate) fn value(&self, path: &LockPath) -> Option<Vec<u8>> {
        match self {
            Store::Mem(server) => {
                let (parent, name) = split(path);
                server.data(&parent, name)
            }
            Store::Ledger(store) => Some(store.entries(&scope(Kind::Value, path)).pop()?.data),
        }
    }

    /// Removes a value.
    pub(crate) fn remove_value(&self, path: &LockPath) {
        match self {
            Store::Mem(server) => {
                let (parent, name) = split(path);
                server.remove(&parent, name);
            }
            Store::Ledger(store) => {
                store.remove(&scope(Kind::Value, path), "");
            }
        }
    }

    /// Returns what there is, without parents that can be removed.
    pub(crate) fn left(&self, parents: &[LockPath]) -> Vec<String> {
        match self {
            Store::Mem(server) => {
                // A parent that never had a child stays, as on ZooKeeper.
                parents.iter().for_each(|path| server.remove_parent(path));
                server.reap_containers();
                server.paths()
            }
            Store::Ledger(store) => store.scopes().iter().map(|scope| format!("{scope:?}")).collect(),
        }
    }
}

/// What only a ledger has.
impl Store {
    /// Returns `true` if nothing is granted after a loss of commits.
    pub(crate) fn is_quiet(&self) -> bool {
        matches!(self, Store::Ledger(store) if store.is_quiet())
    }

    /// Begins a user's transaction that protects a node. `None` if the node is not the one of a live session, or does not exist.
    pub(crate) fn protect(&self, path: &LockPath, node: &NodeName) -> Option<Protection> {
        let Store::Ledger(store) = self else { return None };
        store.protect(&scope(Kind::Queue, path), node.as_str()).ok().flatten()
    }

    /// Locks a queue, as another program does. `None` if it is locked.
    pub(crate) fn lock_queue(&self, path: &LockPath) -> Option<ScopeLock> {
        let Store::Ledger(store) = self else { return None };
        store.lock_scope(&scope(Kind::Queue, path))
    }

    /// Locks a value, as another program does. `None` if it is locked.
    pub(crate) fn lock_value(&self, path: &LockPath) -> Option<ScopeLock> {
        let Store::Ledger(store) = self else { return None };
        store.lock_scope(&scope(Kind::Value, path))
    }
}

/// What only the in-memory server has.
impl Store {
    /// Removes empty parents.
    pub(crate) fn reap(&self) {
        if let Store::Mem(server) = self {
            server.reap_containers();
        }
    }

    /// Returns the number of watches. A ledger has none: its clients ask.
    pub(crate) fn watches(&self) -> usize {
        match self {
            Store::Mem(server) => server.watches(),
            Store::Ledger(_) => 0,
        }
    }

    /// Returns the number of watches on a node.
    pub(crate) fn watches_on(&self, path: &LockPath, node: &NodeName) -> usize {
        match self {
            Store::Mem(server) => server.watches_on(path, node),
            Store::Ledger(_) => 0,
        }
    }
}

impl Request<'_> {
    pub(crate) fn session(&self) -> Option<SessionId> {
        match self {
            Request::Mem(arrival) => arrival.session,
            Request::Ledger(arrival) => arrival.session,
        }
    }

    pub(crate) fn operation(&self) -> &dyn Debug {
        match self {
            Request::Mem(arrival) => &arrival.operation,
            Request::Ledger(arrival) => &arrival.operation,
        }
    }

    /// Returns `true` for a create that needs the parent.
    pub(crate) fn needs_parent(&self) -> bool {
        matches!(self, Request::Mem(arrival) if arrival.operation == Operation::Create)
    }

    /// Returns the paths of the locks that it concerns.
    pub(crate) fn paths(&self) -> Vec<LockPath> {
        match self {
            Request::Mem(arrival) => arrival.parent.iter().cloned().collect(),
            Request::Ledger(arrival) => {
                let queues = arrival.scopes.iter().filter(|scope| scope.kind == Kind::Queue);
                let mut paths: Vec<_> = queues.filter_map(|scope| LockPath::new(&scope.path).ok()).collect();
                paths.dedup();
                paths
            }
        }
    }

    /// Returns `true` if the request was sent over this link.
    pub(crate) fn came_over(&self, link: &Link) -> bool {
        match (self, link) {
            (Request::Mem(arrival), Link::Mem(link)) => {
                arrival.session.is_some() && link.session() == arrival.session
            }
            (Request::Ledger(arrival), Link::Ledger(link, _)) => arrival.came_over(link),
            _ => false,
        }
    }
}

impl Link {
    /// Returns the last session that was begun over the link, if it is not over.
    pub(crate) fn session(&self) -> Option<SessionId> {
        match self {
            Link::Mem(link) => link.session(),
            Link::Ledger(link, _) => link.session(),
        }
    }

    pub(crate) fn reset(&self) {
        match self {
            Link::Mem(link) => link.reset(),
            Link::Ledger(link, _) => link.reset(),
        }
    }

    pub(crate) fn cut(&self) {
        match self {
            Link::Mem(link) => link.cut(),
            Link::Ledger(link, _) => link.cut(),
        }
    }

    pub(crate) fn mute(&self) {
        match self {
            Link::Mem(link) => link.mute(),
            Link::Ledger(link, _) => link.mute(),
        }
    }

    pub(crate) fn suspend(&self) {
        match self {
            Link::Mem(link) => link.suspend(),
            Link::Ledger(link, _) => link.suspend(),
        }
    }

    pub(crate) fn heal(&self) {
        match self {
            Link::Mem(link) => link.heal(),
            Link::Ledger(link, _) => link.heal(),
        }
    }

    pub(crate) fn delay(&self, requests: Duration, answers: Duration) {
        match self {
            Link::Mem(link) => link.delay(requests, answers),
            Link::Ledger(link, _) => link.delay(requests, answers),
        }
    }

    /// Makes a ledger take this long for each request of the client.
    pub(crate) fn slow_down(&self, time: Duration) {
        if let Link::Ledger(link, _) = self {
            link.slow_down(time);
        }
    }

    /// Returns `true` if nobody uses the client of a ledger any more.
    pub(crate) fn is_dropped(&self) -> bool {
        matches!(self, Link::Ledger(_, backend) if backend.strong_count() == 0)
    }

    /// Returns the number of watches that the client has armed. On mem, the server has them.
    pub(crate) fn watches(&self) -> usize {
        match self {
            Link::Mem(_) => 0,
            Link::Ledger(_, backend) => backend.upgrade().map_or(0, |backend| backend.watches()),
        }
    }
}
