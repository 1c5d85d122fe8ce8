//! What a store has to do for the engine.
//!
//! A *ledger* is a store that runs small transactions and has no sessions. It keeps *entries*, which are grouped by their
//! *scope*: the nodes of a queue, the members of a group, or one value. Each write of an entry takes a *number* from one sequence of the
//! store, under the lock of the scope and until the commit. So in a scope, numbers become visible in their order.
//!
//! The engine sends requests over connections of two kinds. What is sent over a [`Calm`] one never waits for another client. A
//! [`Lane`] is a connection for the writes of one session, with a number that the store checks.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use zlock_core::kit::{self, FailureClass, Interrupted};
use zlock_core::{Class, Error, ErrorKind, SessionId};

/// What the entries of a scope are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Nodes in the queue of a lock. The key is the node's ID, which no other node ever has.
    Queue,
    /// The members of a group. The key is the member's name.
    Group,
    /// A value, whose key is empty.
    Value,
}

/// A set of entries that are numbered, listed and watched together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    /// What its entries are.
    pub kind: Kind,
    /// The path of the queue, the group or the value, with the prefix of the client.
    pub path: Arc<str>,
}

/// An entry as it is in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is found by in its scope.
    pub key: String,
    /// The number of the write that created it.
    pub created: u64,
    /// The number of its last write.
    pub changed: u64,
    /// The session that owns it. `None` for a value.
    pub owner: Option<SessionId>,
    /// The label of a node, as a text. `None` for what is no node.
    pub label: Option<String>,
    /// How often the data was written since the create.
    pub writes: u64,
    /// The time of the create by the clock of the store, if it keeps that.
    pub time: Option<SystemTime>,
    /// The data. Empty if the request did not ask for it.
    pub data: Vec<u8>,
}

/// A condition of a [`Tx`]. It fails with the entry that it found, with its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cond {
    /// There is no entry with this key.
    Missing {
        /// The key.
        key: String,
    },
    /// The entry has this version.
    Version {
        /// The key.
        key: String,
        /// The expected [`Entry::created`].
        created: u64,
        /// The expected [`Entry::changed`].
        changed: u64,
    },
    /// The data of the entry was written this often.
    Writes {
        /// The key.
        key: String,
        /// The expected [`Entry::writes`].
        writes: u64,
    },
    /// The entry belongs to the session of the transaction.
    Own {
        /// The key.
        key: String,
    },
    /// The session has no receipt in this slot with this number. It fails with an entry whose [`changed`](Entry::changed) is that of
    /// the write that left the receipt.
    NoReceipt {
        /// The slot.
        slot: u32,
        /// The number of the write.
        write: u64,
    },
    /// This node exists until the commit, and its session is not over and has the live incarnation. May be in another scope, and of
    /// another session.
    Alive {
        /// The queue.
        scope: Scope,
        /// The node's ID.
        key: String,
        /// The number of its create.
        created: u64,
    },
}

/// A change that a [`Tx`] makes. All changes of one transaction have the same number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Adds an entry at the end of the scope. An entry with the same key and the same owner stays as it is. One of another session is
    /// replaced.
    Append {
        /// The key.
        key: String,
        /// Whether the session of the transaction owns it. While it owns anything, a session at rest has its
        /// [other timeout](Begin::timeout), since its client may die before the next heartbeat.
        owned: bool,
        /// The label.
        label: Option<String>,
        /// The data.
        data: Vec<u8>,
    },
    /// Changes an entry, if it exists.
    Update {
        /// The key.
        key: String,
        /// The new label, if it changes.
        label: Option<String>,
        /// The new data, if it changes.
        data: Option<Vec<u8>>,
    },
    /// Leaves a receipt of the session, in the place of the last one in this slot. It is removed with the session, at the latest.
    Receipt {
        /// The slot.
        slot: u32,
        /// The number of the write.
        write: u64,
    },
    /// Removes an entry, if it exists. May be in another scope. Needs neither the lock of a scope nor a number.
    Delete {
        /// The scope.
        scope: Scope,
        /// The key.
        key: String,
    },
}

/// The entries that a request reads, in the order of their [`created`](Entry::created).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The scope.
    pub scope: Scope,
    /// Which of its entries.
    pub range: Range,
    /// A number below which the scope has no entry, so that a store need not look there.
    pub floor: u64,
    /// Whether the data is needed.
    pub data: bool,
}

/// Which entries of a scope are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Range {
    /// The one with this key.
    Key(String),
    /// All of them.
    All,
    /// The last ones up to a number.
    Last {
        /// The number. `None` is that of the entry that the transaction has appended or found.
        up_to: Option<u64>,
        /// How many at most.
        limit: u32,
    },
}

/// A transaction: if all conditions hold, all writes take effect, and then the reads are made. If one fails, there is no write and no
/// read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tx {
    /// The scope of what is appended, updated and checked.
    pub scope: Scope,
    /// The conditions, in the order in which they are checked.
    pub when: Vec<Cond>,
    /// The writes.
    pub then: Vec<Write>,
    /// The reads.
    pub read: Vec<Read>,
}

impl Tx {
    /// Returns `true` if it takes a number, and so has to lock the scope.
    #[must_use]
    pub fn takes_number(&self) -> bool {
        self.then.iter().any(|write| !matches!(write, Write::Delete { .. }))
    }

    /// Returns every scope that it reads, writes, checks or deletes in, which may contain repetitions.
    pub fn scopes(&self) -> impl Iterator<Item = &Scope> {
        let checked = self.when.iter().filter_map(|cond| match cond {
            Cond::Alive { scope, .. } => Some(scope),
            _ => None,
        });
        let deleted = self.then.iter().filter_map(|write| match write {
            Write::Delete { scope, .. } => Some(scope),
            _ => None,
        });
        [&self.scope]
            .into_iter()
            .chain(checked)
            .chain(deleted)
            .chain(self.read.iter().map(|read| &read.scope))
    }
}

/// What a transaction has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The position of the condition that failed, and the entry that it found. Nothing was written.
    pub failed: Option<(usize, Option<Entry>)>,
    /// For each write, the entry that was written, found or removed, if there is one. The data may be left out.
    pub written: Vec<Option<Entry>>,
    /// For each read, the entries.
    pub read: Vec<Vec<Entry>>,
}

/// How a session begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// The new session, a random number.
    pub session: SessionId,
    /// The last session of this client, which has to be over before.
    pub last: Option<SessionId>,
    /// The timeout while it owns something. The store refuses one above its longest.
    pub timeout: Duration,
    /// The timeout with which it begins, at rest.
    pub rest: Duration,
}

/// What the store says of its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct History {
    /// The live incarnation, which is compared for equality only.
    pub incarnation: u64,
    /// For how long clients have watched this incarnation, if nothing is granted before that is as long as [`quiet`](Self::quiet).
    pub watched: Option<Duration>,
    /// The quiet time after a lossy change of incarnation.
    pub quiet: Duration,
    /// The last number that was given out.
    pub number: u64,
    /// A position in the store's log that is certainly durable, or 0.
    pub position: u64,
}

impl History {
    /// Returns `true` if this shows less than another state of the same incarnation. If that one was seen before the request for this one
    /// was sent, commits were lost without a restart. Answers to requests that were under way together show nothing.
    pub(crate) fn is_behind(&self, other: &History) -> bool {
        let is_less = self.number < other.number || self.position < other.position;
        self.incarnation == other.incarnation && is_less
    }
}

/// The settings of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The class as it was set.
    pub class: Class,
    /// Whether a restart ends all sessions: of the class, or found out by [`Class::Auto`].
    pub is_lossy: bool,
    /// Why, if that was found out.
    pub reason: Option<String>,
    /// The longest timeout of a session that owns something.
    pub longest: Duration,
    /// For how long a server that was replaced may go on.
    pub overlap: Duration,
    /// The store's history.
    pub history: History,
}

/// A heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    /// The number of the heartbeat, which grows. One with a number that is not above the last one has no effect.
    pub number: u64,
    /// The timeout of the session from now on. That of rest does not count while the session owns anything.
    pub timeout: Duration,
    /// What the session is known to own.
    pub known: Vec<(Scope, String)>,
    /// The incarnation, how long clients had watched it, and for how much longer this one has: added if both are still right.
    pub watched: Option<(u64, Duration, Duration)>,
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beaten {
    /// The store's history.
    pub history: History,
    /// The incarnation in which the session began or was last swept.
    pub swept: u64,
    /// For each known entry, whether it exists and belongs to the session.
    pub exists: Vec<bool>,
    /// Whether the session owns anything, known or not. Needed only if the heartbeat has a longer timeout than [`Begin::timeout`].
    pub owns: bool,
    /// Whether the time of [`Beat::watched`] was added.
    pub added: bool,
}

/// A session of another client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// The session.
    pub session: SessionId,
    /// The number of its last heartbeat.
    pub beat: u64,
    /// Its timeout. Another one counts as another heartbeat.
    pub timeout: Duration,
    /// For how long clients have watched this heartbeat without another one.
    pub watched: Duration,
}

/// A session that is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct End {
    /// The session.
    pub session: SessionId,
    /// Its last heartbeat; with another one it does not end. `None` for an own session, and for one that is over already.
    pub beat: Option<u64>,
}

/// The outcome for a session that was to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It is over, and so are its entries, but for those that an open transaction of a user protects.
    Over,
    /// It is over, and there are more of its entries to remove.
    More,
    /// A transaction of it is in flight. Nothing has happened.
    Busy,
    /// It has had another heartbeat.
    Alive,
}

/// What a watch has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The number of the last write of the entry with this key; 0 if there is none.
    Key {
        /// The scope.
        scope: Scope,
        /// The key.
        key: String,
        /// The number.
        changed: u64,
    },
    /// A state of a whole scope. Within an incarnation, no two states have both numbers in common.
    Scope {
        /// The scope.
        scope: Scope,
        /// The number of entries.
        count: u64,
        /// The highest [`Entry::changed`], or 0.
        changed: u64,
    },
}

/// Why a request has no usable answer.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The engine no longer waits.
    Interrupted(Interrupted),
    /// Nothing was sent, or nothing has happened. The text says why.
    NotSent(String),
    /// It may have taken effect. Once a later [lane](Ledger::lane) of the same wire is open, it no longer will.
    Unknown(String),
    /// The session is over.
    SessionOver,
    /// The lane has another number by now. Nothing has happened.
    StaleLane,
    /// Another transaction holds what it needs. Nothing has happened.
    Busy,
    /// The session has to [sweep](Calm::sweep) first. Nothing has happened.
    Unswept,
    /// Quiet time: nothing is granted for a while.
    Quiet,
    /// The store refuses the credentials or a permission.
    Refused(String),
    /// The request or the store's set-up is not valid.
    Invalid(String),
    /// Anything else. Nothing has happened.
    Unexpected(String),
}

impl From<Interrupted> for Fault {
    fn from(interrupted: Interrupted) -> Self {
        Fault::Interrupted(interrupted)
    }
}

impl kit::Failure for Fault {
    fn classify(&self) -> FailureClass {
        let (kind, ambiguous, retryable) = match self {
            Fault::Interrupted(interrupted) => return interrupted.classify(),
            Fault::SessionOver => (ErrorKind::SessionLost, false, true),
            Fault::NotSent(_) | Fault::StaleLane | Fault::Busy | Fault::Unswept => {
                (ErrorKind::Unavailable, false, true)
            }
            Fault::Quiet => (ErrorKind::Settling, false, true),
            Fault::Unknown(_) => (ErrorKind::Unavailable, true, true),
            Fault::Refused(_) => (ErrorKind::NotAuthorized, false, false),
            Fault::Invalid(_) => (ErrorKind::InvalidArgument, false, false),
            Fault::Unexpected(_) => (ErrorKind::Unexpected, false, false),
        };
        FailureClass { kind, ambiguous, retryable }
    }

    fn explain(self, error: Error) -> Error {
        match self {
            Fault::Interrupted(interrupted) => interrupted.explain(error),
            Fault::SessionOver | Fault::Quiet => error,
            Fault::StaleLane => error.with_message("the connection was given up"),
            Fault::Busy => error.with_message(
                "another transaction is in the way: perhaps an open one with the lock's fence, which `zlock doctor` would name",
            ),
            Fault::Unswept => {
                error.with_message("the server has restarted, and the session has not seen that yet")
            }
            Fault::NotSent(why)
            | Fault::Unknown(why)
            | Fault::Refused(why)
            | Fault::Invalid(why)
            | Fault::Unexpected(why) => error.with_message(why),
        }
    }

    fn is_local(&self) -> bool {
        matches!(self, Fault::NotSent(_))
    }
}

/// What an adapter's requests may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most transactions that are sent together.
    pub batch: usize,
    /// The most bytes of data in these.
    pub bytes: usize,
    /// The most connections at a time, at least two: one calm, one lane. With a third one, what is busy waits at the store.
    pub connections: usize,
    /// The longest time between two looks at what is watched, and the shortest after a change by this client.
    pub poll: (Duration, Duration),
}

/// Receives hints: a change that concerns a watch of this client. `None` if any may have been missed.
pub type OnHint = Arc<dyn Fn(Option<(Scope, String)>) + Send + Sync>;

/// A store.
///
/// An adapter performs its I/O on the runtime on which it was created, whatever runtime polls the futures.
///
/// # Isolation
/// Each request is one transaction of the store, or two for a hint that follows it. A transaction sees all that was committed before
/// it got its locks (READ COMMITTED).
///
/// # History
/// A session has the incarnation in which it began or was last swept. Each request that has a session compares that with the live one,
/// in its own transaction. If the change between them is one that may have lost commits, the session is over. If not, only
/// [`Cond::Alive`] and the fence of users' transactions fail, with [`Fault::Unswept`]. Such a change does not end quiet time.
///
/// # Durability
/// Everything commits durably before it is answered, and a request that repeats what was done before waits until that is durable, too.
/// A batch of deletes of nodes alone need not be durable: it becomes so with the next request that is. Also, what was watched need not be.
#[async_trait]
pub trait Ledger: Debug + Send + Sync + 'static {
    /// The connections that wait for nobody.
    type Calm: Calm;
    /// The connections for writes.
    type Lane: Lane;

    /// Returns a check of the files that the options name, which reads them. `None`, the default, if there are none.
    fn files(&self) -> Option<Box<dyn FnOnce() -> Result<(), String> + Send>> {
        None
    }

    /// Returns what requests may contain.
    fn limits(&self) -> Limits;

    /// Opens a connection. With a session, `on_hint` is called for the changes that concern it, and once with `None` as soon as
    /// hints arrive.
    ///
    /// # Errors
    /// The reason why there is none.
    ///
    /// # Cancel safety
    /// Safe.
    async fn calm(&self, session: Option<SessionId>, on_hint: OnHint) -> Result<Self::Calm, Fault>;

    /// Opens a connection for the writes of a session, and raises the number of this wire in the session's row. The raise waits for all
    /// that the store has accepted over earlier lanes of the wire, and commits durably. From then on it refuses everything else that
    /// is sent over them.
    ///
    /// # Errors
    /// The reason why there is none. The number may have been raised.
    ///
    /// # Cancel safety
    /// The number may be raised.
    async fn lane(&self, session: SessionId, wire: Wire) -> Result<Self::Lane, Fault>;
}

/// The options of a store, from which its adapter is made.
pub trait Open {
    /// The adapter.
    type Ledger: Ledger;

    /// Returns the adapter, and the options that all stores have. Performs no I/O.
    ///
    /// # Errors
    /// `InvalidArgument` for invalid options.
    ///
    /// # Panics
    /// May panic outside a tokio runtime.
    fn open(self) -> zlock_core::Result<(Self::Ledger, kit::Options)>;
}

impl<L: Ledger> Open for (L, kit::Options) {
    type Ledger = L;

    fn open(self) -> zlock_core::Result<(L, kit::Options)> {
        Ok(self)
    }
}

/// One of the two lanes of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wire {
    /// A transaction that would have to wait for another client is [`Fault::Busy`] at once.
    Fast,
    /// It waits for a moment, such as 200 ms, before it is busy.
    Patient,
}

/// A connection whose requests wait for nobody.
#[async_trait]
pub trait Calm: Debug + Send + Sync + 'static {
    /// Ends the last session of this client, and begins another. The connection receives the hints for it from then on.
    ///
    /// # Errors
    /// [`Fault::Busy`] if a transaction of the last session is in flight; [`Fault::Invalid`] if the timeout is above the longest.
    async fn begin(&self, begin: &Begin) -> Result<History, Fault>;

    /// Counts a heartbeat, and adds to the watched time of the incarnation.
    ///
    /// # Errors
    /// [`Fault::SessionOver`] if the session is over.
    async fn beat(&self, session: SessionId, beat: &Beat) -> Result<Beaten, Fault>;

    /// Returns the IDs of all nodes that the session owns, and the live incarnation.
    ///
    /// # Errors
    /// [`Fault::SessionOver`] if the session is over.
    async fn nodes(&self, session: SessionId) -> Result<(u64, Vec<String>), Fault>;

    /// Deletes these nodes of the session, and writes the live incarnation into the session's row. If that is another one than
    /// `incarnation`, nothing happens, and the result is `false`.
    ///
    /// # Errors
    /// [`Fault::SessionOver`] if the session is over; [`Fault::Busy`] if a transaction protects one of the nodes.
    async fn sweep(&self, session: SessionId, incarnation: u64, nodes: &[String]) -> Result<bool, Fault>;

    /// Returns those of these sessions that exist, in any order.
    async fn look(&self, sessions: &[SessionId]) -> Result<Vec<Seen>, Fault>;

    /// Returns sessions that have had no heartbeat for their timeout by the clock of the store, at most so many. That is
    /// only a reason to look at them.
    async fn silent(&self, limit: usize) -> Result<Vec<SessionId>, Fault>;

    /// Adds to the time for which clients have watched sessions: for each one that is exactly as it was seen, the time that
    /// follows it.
    async fn watched(&self, seen: &[(Seen, Duration)]) -> Result<(), Fault>;

    /// Ends sessions, and removes what they own, of these scopes first. Also removes the entries of sessions that are over. The result has
    /// the outcome for each.
    async fn end(&self, sessions: &[End], first: &[Scope]) -> Result<Vec<Ended>, Fault>;

    /// Reads entries.
    ///
    /// # Errors
    /// [`Fault::SessionOver`] if the session is over.
    async fn read(&self, session: SessionId, read: &Read) -> Result<Vec<Entry>, Fault>;

    /// Returns the live incarnation, and the positions of those marks that no longer are what is there.
    ///
    /// # Errors
    /// [`Fault::SessionOver`] if the session is over.
    async fn changed(&self, session: SessionId, marks: &[Mark]) -> Result<(u64, Vec<usize>), Fault>;

    /// Returns the settings of the store.
    async fn setup(&self) -> Result<Setup, Fault>;

    /// Sets the class of the store.
    ///
    /// # Errors
    /// [`Fault::Invalid`] if the server does not allow that class, since it does not flush, for example.
    async fn set_class(&self, class: Class) -> Result<(), Fault>;

    /// Begins a new incarnation, if this one is the live one: tables were put back under a running server.
    async fn restored(&self, incarnation: u64) -> Result<(), Fault>;

    /// Closes the connection. What waits for an answer over it ends with [`Fault::Unknown`]. What was sent may still arrive.
    fn close(&self);

    /// Completes when the connection has ended, or was closed.
    ///
    /// # Cancel safety
    /// Safe.
    async fn closed(&self);
}

/// A connection for the writes of a session.
#[async_trait]
pub trait Lane: Debug + Send + Sync + 'static {
    /// Executes transactions together: each has an outcome of its own. They are sent when the future is first polled, as one request, and
    /// requests are executed in that order. The store sends hints to those whom the changes concern.
    ///
    /// A busy one has no effect, and the others have.
    ///
    /// # Errors
    /// The outer one is that of all transactions.
    ///
    /// # Cancel safety
    /// They may take effect.
    async fn transact(&self, txs: &[Tx]) -> Result<Vec<Result<Outcome, Fault>>, Fault>;
}
