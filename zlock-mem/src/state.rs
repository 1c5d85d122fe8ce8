//! The state of the server, and the effect of each request on it. Nothing waits here, and the time is passed in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;
use zlock_core::{FencingToken, NodeData, NodeId, NodeName, SessionId, Version};

use crate::link::{ClientId, Delivery, Link, Mode};
use crate::request::{Answer, Operation, Request, Sent};
use crate::tree::{Change, Owner, Tree};
use crate::watch::{Watched, Watches};

/// How long an empty container is kept: ZooKeeper's default check interval.
const CONTAINER_CHECK: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) tree: Tree,
    pub(crate) watches: Watches,
    pub(crate) sessions: BTreeMap<SessionId, ServerSession>,
    pub(crate) links: BTreeMap<ClientId, Link>,
    pub(crate) counts: BTreeMap<Operation, u64>,
    /// By session and number: the ID of the last write of a value, and the version that it wrote.
    pub(crate) receipts: BTreeMap<(SessionId, u32), (u64, Version)>,
    /// The number of watches that have fired.
    pub(crate) fired: u64,
    /// `true` if the server neither answers nor counts the time of sessions.
    pub(crate) stopped: bool,
    /// When the empty containers are removed. `None` if there are none.
    reap_at: Option<Instant>,
    /// Clients whose links may have messages to deliver.
    dirty: BTreeSet<ClientId>,
    /// When the clock wakes next. It must be notified of earlier events.
    pub(crate) armed: Option<Instant>,
    pub(crate) wake_clock: bool,
    /// The last time at which the clock was read.
    seen: Instant,
    /// `true` while a caller executes requests, which also handles new ones.
    pub(crate) pumping: bool,
    transaction: u64,
    next_client: u64,
    next_session: u64,
}

#[derive(Debug)]
pub(crate) struct ServerSession {
    pub(crate) client: ClientId,
    timeout: Duration,
    expires: Instant,
}

/// There is no connection, so the request cannot be sent, and the client notices at once.
#[derive(Debug)]
pub(crate) struct Refused;

/// The next step to execute.
pub(crate) enum Work {
    Arrived(ClientId, Sent),
    Deliver(Vec<Delivery>),
}

impl State {
    pub(crate) fn new() -> Self {
        State {
            tree: Tree::default(),
            watches: Watches::default(),
            sessions: BTreeMap::new(),
            links: BTreeMap::new(),
            counts: BTreeMap::new(),
            receipts: BTreeMap::new(),
            fired: 0,
            stopped: false,
            reap_at: None,
            dirty: BTreeSet::new(),
            armed: None,
            wake_clock: false,
            seen: Instant::now(),
            pumping: false,
            transaction: 0,
            next_client: 0,
            next_session: 0,
        }
    }

    /// Returns the current instant.
    ///
    /// The destructors of a thread's locals may run when tokio's locals are gone, and its clock with them. For these, no time
    /// has passed. Events that are due by then are handled the next time.
    pub(crate) fn now(&mut self) -> Instant {
        let has_clock = Handle::try_current().err().is_none_or(|e| !e.is_thread_local_destroyed());
        if has_clock {
            self.seen = Instant::now();
        }
        self.seen
    }

    pub(crate) fn next_transaction(&mut self) -> u64 {
        self.transaction += 1;
        self.transaction
    }

    pub(crate) fn add_client(&mut self, signal: Arc<Notify>) -> ClientId {
        self.next_client += 1;
        let client = ClientId(self.next_client);
        self.links.insert(client, Link::new(signal));
        client
    }

    pub(crate) fn mark(&mut self, client: ClientId) {
        self.dirty.insert(client);
    }

    pub(crate) fn mark_all(&mut self) {
        self.dirty.extend(self.links.keys());
    }

    /// Makes sure that the clock wakes at `at`.
    pub(crate) fn arm(&mut self, at: Instant) {
        if self.armed.is_none_or(|armed| at < armed) {
            self.armed = Some(at);
            self.wake_clock = true;
        }
    }

    /// Sends a request.
    pub(crate) fn send(&mut self, client: ClientId, sent: Sent, now: Instant) -> Result<(), Refused> {
        let stopped = self.stopped;
        let Some(link) = self.links.get_mut(&client) else { return Err(Refused) };
        let connects = sent.request.connects();
        if stopped || link.mode == Mode::Down || !(link.connected || connects) {
            return Err(Refused);
        }
        if connects {
            link.hang_up();
            link.connected = true;
        }
        let due = link.send(now, sent);
        if due > now {
            self.arm(due);
        }
        self.mark(client);
        Ok(())
    }

    /// Takes the next piece of work. `None` if there is none at this time.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Work> {
        self.expire(now);
        while let Some(client) = self.dirty.first().copied() {
            if let Some(link) = self.links.get_mut(&client) {
                if link.forgotten && link.session.is_none_or(|id| !self.sessions.contains_key(&id)) {
                    self.links.remove(&client);
                    self.dirty.remove(&client);
                    continue;
                }
                if !self.stopped
                    && let Some(sent) = link.arrived(now)
                {
                    return Some(Work::Arrived(client, sent));
                }
                let deliveries: Vec<_> = std::iter::from_fn(|| link.delivered(now)).collect();
                if !deliveries.is_empty() {
                    return Some(Work::Deliver(deliveries));
                }
                if link.forgotten && !link.has_requests() {
                    self.links.remove(&client);
                }
            }
            self.dirty.remove(&client);
        }
        None
    }

    /// Returns when the next event is due by the passing of time alone.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        if self.stopped {
            return None;
        }
        let links = self.links.values().filter_map(Link::next_due);
        let sessions = self.sessions.values().map(|s| s.expires);
        links.chain(sessions).chain(self.reap_at).min()
    }

    fn expire(&mut self, now: Instant) {
        if self.stopped || self.armed.is_some_and(|armed| armed > now) {
            return;
        }
        let over: Vec<_> =
            self.sessions.iter().filter(|(_, s)| s.expires <= now).map(|(id, _)| *id).collect();
        for session in over {
            self.end_session(session, now);
        }
        if self.reap_at.is_some_and(|at| at <= now) {
            let changes = self.tree.reap();
            self.changed(changes, now);
        }
    }

    /// Restarts the timeout of every session.
    pub(crate) fn touch_all(&mut self, now: Instant) {
        for session in self.sessions.values_mut() {
            session.expires = now + session.timeout;
        }
        if let Some(next) = self.next_due() {
            self.arm(next);
        }
    }

    /// Ends a session with its nodes and watches, and breaks its client's connection.
    pub(crate) fn end_session(&mut self, id: SessionId, now: Instant) {
        let Some(session) = self.sessions.remove(&id) else { return };
        self.next_transaction();
        self.watches.end_session(id);
        self.receipts.retain(|(session, _), _| *session != id);
        let changes = self.tree.end_session(id);
        self.changed(changes, now);
        if self.links.get(&session.client).is_some_and(|link| link.session == Some(id)) {
            self.break_connection(session.client);
        }
    }

    /// Breaks a client's connection. The client notices unless its link is silent.
    fn break_connection(&mut self, client: ClientId) {
        let Some(link) = self.links.get_mut(&client) else { return };
        if link.forgotten {
            self.links.remove(&client);
        } else if matches!(link.mode, Mode::Up | Mode::Down) {
            link.hang_up();
            link.signal.notify_one();
        }
    }

    /// Fires the watches of these changes, and checks whether a container has become empty.
    pub(crate) fn changed(&mut self, changes: Vec<Change>, now: Instant) {
        for change in changes {
            for fired in self.watches.fire(&change) {
                self.fired += 1;
                self.reply(fired.client, Delivery::Event(fired.to, fired.event), now);
            }
        }
        self.reap_at = match self.reap_at {
            _ if !self.tree.can_reap() => None,
            Some(at) if at > now => Some(at),
            _ => Some(now + CONTAINER_CHECK),
        };
        if let Some(at) = self.reap_at {
            self.arm(at);
        }
    }

    pub(crate) fn remove_watch(&mut self, id: u64) {
        if self.watches.remove(id) {
            *self.counts.entry(Operation::RemoveWatch).or_default() += 1;
        }
    }

    fn reply(&mut self, client: ClientId, delivery: Delivery, now: Instant) {
        if let Some(link) = self.links.get_mut(&client) {
            let due = link.reply(now, delivery);
            if due > now {
                self.arm(due);
            }
            self.mark(client);
        }
    }

    /// Executes a request. The answer is sent unless it must be lost.
    pub(crate) fn execute(&mut self, client: ClientId, sent: Sent, lose_answer: bool, now: Instant) {
        let Sent { session, request, to } = sent;
        let answer = match (request, session) {
            (Request::Connect { timeout }, _) => self.connect(client, timeout, now),
            // The client may not know its latest session yet.
            (Request::Close, _) => self.close(client, now),
            (request, Some(id)) => match self.sessions.get_mut(&id) {
                Some(session) => {
                    session.expires = now + session.timeout;
                    self.perform(client, id, request, now)
                }
                None => Answer::SessionOver,
            },
            (_, None) => Answer::SessionOver,
        };
        if !lose_answer {
            self.reply(client, Delivery::Answer(to, answer), now);
        }
    }

    fn connect(&mut self, client: ClientId, timeout: Duration, now: Instant) -> Answer {
        // Removed first, so that ending it does not break the new connection.
        if let Some(before) = self.links.get_mut(&client).and_then(|link| link.session.take()) {
            self.end_session(before, now);
        }
        self.next_transaction();
        self.next_session += 1;
        let id = SessionId::new(self.next_session);
        self.sessions.insert(id, ServerSession { client, timeout, expires: now + timeout });
        self.arm(now + timeout);
        if let Some(link) = self.links.get_mut(&client) {
            link.session = Some(id);
        }
        Answer::Session(id)
    }

    fn close(&mut self, client: ClientId, now: Instant) -> Answer {
        // Removed first, so that ending it does not break the connection for the answer.
        if let Some(session) = self.links.get_mut(&client).and_then(|link| link.session.take()) {
            self.end_session(session, now);
        }
        Answer::Done
    }

    fn perform(&mut self, client: ClientId, session: SessionId, request: Request, now: Instant) -> Answer {
        if request.creates_below().is_some_and(|path| self.tree.ends_with_a_session(path)) {
            return Answer::NoChildren;
        }
        match request {
            Request::Connect { .. } | Request::Resume | Request::Close => Answer::Done,
            Request::Heartbeat => {
                // A member of a group is known by its path.
                let id = |(parent, name): &(String, String)| match NodeName::parse(name) {
                    Some(parsed) => parsed.id,
                    None => NodeId::new(format!("{parent}/{name}")),
                };
                Answer::NodeIds(self.tree.of_session(session).map(id).collect())
            }
            Request::CreateParents { parent } => {
                let transaction = self.next_transaction();
                let changes = self.tree.make_containers(parent.as_str(), transaction);
                self.changed(changes, now);
                Answer::Done
            }
            Request::Create { parent, prefix, data } => {
                let transaction = self.next_transaction();
                match self.tree.append(parent.as_str(), &prefix, session, data, transaction) {
                    Some((name, changes)) => {
                        self.changed(changes, now);
                        Answer::Created { name, transaction }
                    }
                    None => Answer::NoNode,
                }
            }
            Request::List { parent, watcher } => {
                let children = self.tree.children(parent.as_str());
                if let Some(watcher) = watcher {
                    let watched = Watched::Children(parent.as_str().into());
                    self.watches.arm(watched, client, session, watcher);
                }
                Answer::Children(children)
            }
            Request::Watch { parent, name, watcher } => {
                if !self.tree.has_child(parent.as_str(), &name) {
                    return Answer::NoNode;
                }
                let watched = Watched::Child(parent.as_str().into(), name);
                self.watches.arm(watched, client, session, watcher);
                Answer::Done
            }
            Request::Relabel { parent, from, to } => {
                let node = self.tree.get(parent.as_str(), &from);
                if node.is_none_or(|node| node.owner != Owner::Session(session)) {
                    return Answer::NoNode;
                }
                let changes = self.tree.rename(parent.as_str(), &from, &to);
                self.done(changes, now)
            }
            Request::Delete { parent, name, next } => {
                if !next.iter().all(|next| self.tree.has_child(parent.as_str(), next)) {
                    return Answer::NoNode;
                }
                let changes = self.tree.remove(parent.as_str(), &name);
                self.done(changes, now)
            }
            Request::Data { parent, name, watcher } => {
                let Some(node) = self.tree.get(parent.as_str(), &name) else { return Answer::NoNode };
                let token = FencingToken::new(node.transaction);
                let data = NodeData::new(node.data.clone(), node.owner.session()).with_fencing_token(token);
                if let Some(watcher) = watcher {
                    let watched = Watched::Child(parent.as_str().into(), name);
                    self.watches.arm(watched, client, session, watcher);
                }
                Answer::Data(data)
            }
            Request::SetData { parent, name, data, writes } => {
                if let Some(node) = self.tree.get(parent.as_str(), &name)
                    && writes.is_some_and(|writes| writes != node.writes)
                {
                    return Answer::Written { writes: node.writes, data: node.data.clone() };
                }
                let changes = self.tree.set_data(parent.as_str(), &name, data);
                self.done(changes, now)
            }
            Request::Value { path, watcher } => self.read_value(client, session, &path, watcher),
            Request::WriteValue(write) => self.write_value(session, *write, now),
            Request::Join { member, data, replaces } => self.join(session, &member, data, replaces, now),
            Request::Leave { member } => self.leave(session, &member, now),
        }
    }

    fn done(&mut self, changes: Option<Vec<Change>>, now: Instant) -> Answer {
        let Some(changes) = changes else { return Answer::NoNode };
        self.next_transaction();
        self.changed(changes, now);
        Answer::Done
    }
}
