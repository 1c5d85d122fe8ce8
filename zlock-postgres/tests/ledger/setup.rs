//! What the tests share: a database with the schema, and clients that send requests one by one.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use zlock_core::SessionId;
use zlock_ledger::{
    Begin, Calm as _, Cond, Entry, Fault, History, Kind, Lane as _, Ledger as _, OnHint, Outcome, Range,
    Read, Scope, Tx, Wire, Write,
};
use zlock_postgres::{PostgresLedger, PostgresOptions};
use zlock_testkit::{PostgresServer, postgres_or_skip};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(3);
pub(crate) const REST: Duration = Duration::from_secs(600);

/// A database of a server.
#[derive(Clone)]
pub(crate) struct Store {
    pub(crate) server: PostgresServer,
    database: String,
}

impl Store {
    /// A new database on the server that all tests share, with the schema. `None` skips the test.
    pub(crate) async fn shared() -> Option<Self> {
        let server = postgres_or_skip().await?.clone();
        let store = Self::without_schema(server, "").await;
        store.client().await;
        Some(store)
    }

    /// A new database on this server.
    pub(crate) async fn without_schema(server: PostgresServer, options: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let database = format!("ledger{}", NEXT.fetch_add(1, Ordering::Relaxed));
        server.sql(&format!("CREATE DATABASE {database} OWNER zlock {options}")).await;
        Store { server, database }
    }

    /// The database of tests on a server of its own.
    pub(crate) async fn on(server: &PostgresServer) -> Self {
        let store = Store { server: server.clone(), database: "zlock".into() };
        store.client().await;
        store
    }

    pub(crate) fn options(&self) -> PostgresOptions {
        PostgresOptions::new([self.server.addr().to_string()])
            .with_user("zlock", None)
            .with_database(&self.database)
            .with_ttl(TIMEOUT)
            .with_create_schema(true)
    }

    pub(crate) fn ledger(&self) -> PostgresLedger {
        PostgresLedger::new(self.options(), Handle::current()).unwrap()
    }

    pub(crate) async fn client(&self) -> Client {
        Client::new(self.ledger()).await
    }

    /// Connects the library, as a user or the operator.
    pub(crate) async fn connect(&self, user: &str) -> tokio_postgres::Client {
        let mut config = tokio_postgres::Config::new();
        config.host("127.0.0.1").port(self.server.addr().port()).user(user).dbname(&self.database);
        let (client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Executes a statement as the operator. Returns its first column.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        self.connect("postgres").await.query_one(sql, &[]).await.unwrap().get(0)
    }

    pub(crate) async fn execute(&self, sql: &str) {
        self.connect("postgres").await.batch_execute(sql).await.unwrap();
    }
}

type Hints = Arc<Mutex<Vec<Option<(Scope, String)>>>>;

/// A client with a session.
pub(crate) struct Client {
    pub(crate) ledger: PostgresLedger,
    pub(crate) calm: <PostgresLedger as zlock_ledger::Ledger>::Calm,
    pub(crate) session: SessionId,
    pub(crate) history: History,
    pub(crate) lane: <PostgresLedger as zlock_ledger::Ledger>::Lane,
    pub(crate) hints: Hints,
}

pub(crate) fn random_session() -> SessionId {
    SessionId::new(fastrand::u64(1..1 << 63))
}

pub(crate) fn ignored() -> OnHint {
    Arc::new(|_| {})
}

pub(crate) fn beginning(session: SessionId) -> Begin {
    Begin { session, last: None, timeout: TIMEOUT, rest: REST }
}

impl Client {
    pub(crate) async fn new(ledger: PostgresLedger) -> Self {
        let hints = Hints::default();
        let seen = hints.clone();
        let calm = ledger.calm(None, Arc::new(move |hint| seen.lock().unwrap().push(hint))).await.unwrap();
        let session = random_session();
        let history = calm.begin(&beginning(session)).await.unwrap();
        let lane = ledger.lane(session, Wire::Fast).await.unwrap();
        Client { ledger, calm, session, history, lane, hints }
    }

    pub(crate) async fn transact(&self, tx: Tx) -> Result<Outcome, Fault> {
        only(self.lane.transact(&[tx]).await?)
    }

    /// Appends a node, and returns it with those before it.
    pub(crate) async fn create(&self, path: &str, key: &str) -> Vec<Entry> {
        let mut outcome = self.transact(append(path, key)).await.unwrap();
        outcome.read.remove(0)
    }

    pub(crate) async fn delete(&self, path: &str, key: &str) -> Option<Entry> {
        self.transact(delete(path, key)).await.unwrap().written.remove(0)
    }

    pub(crate) async fn read(&self, scope: Scope, range: Range) -> Vec<Entry> {
        self.calm.read(self.session, &Read { scope, range, floor: 0, data: true }).await.unwrap()
    }

    pub(crate) async fn keys(&self, path: &str) -> Vec<String> {
        keys(&self.read(queue(path), Range::All).await)
    }

    /// Writes a value without any condition.
    pub(crate) async fn put(&self, path: &str, data: &[u8]) -> Entry {
        self.transact(put(path, data)).await.unwrap().written.remove(0).unwrap()
    }
}

pub(crate) fn only(mut outcomes: Vec<Result<Outcome, Fault>>) -> Result<Outcome, Fault> {
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}

pub(crate) fn scope(kind: Kind, path: &str) -> Scope {
    Scope { kind, path: path.into() }
}

pub(crate) fn queue(path: &str) -> Scope {
    scope(Kind::Queue, path)
}

pub(crate) fn value(path: &str) -> Scope {
    scope(Kind::Value, path)
}

pub(crate) fn keys(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| entry.key.clone()).collect()
}

/// A transaction with conditions and writes, and without reads.
pub(crate) fn tx(scope: Scope, when: &[Cond], then: &[Write]) -> Tx {
    Tx { scope, when: when.to_vec(), then: then.to_vec(), read: Vec::new() }
}

pub(crate) fn node(key: &str, label: &str) -> Write {
    Write::Append { key: key.into(), owned: true, label: Some(label.into()), data: b"data".to_vec() }
}

/// The create of a mutex's node.
pub(crate) fn append(path: &str, key: &str) -> Tx {
    let read =
        Read { scope: queue(path), range: Range::Last { up_to: None, limit: 2 }, floor: 0, data: false };
    Tx { read: vec![read], ..tx(queue(path), &[], &[node(key, "lock")]) }
}

pub(crate) fn delete(path: &str, key: &str) -> Tx {
    tx(queue(path), &[], &[Write::Delete { scope: queue(path), key: key.into() }])
}

pub(crate) fn put(path: &str, data: &[u8]) -> Tx {
    let write = Write::Append { key: String::new(), owned: false, label: None, data: data.to_vec() };
    tx(value(path), &[], &[write])
}

/// An ID that no other node has.
pub(crate) fn id() -> String {
    let random = fastrand::u128(..);
    let hex = format!("{random:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[track_caller]
pub(crate) fn is_busy<T: std::fmt::Debug>(result: &Result<T, Fault>) {
    assert!(matches!(result, Err(Fault::Busy)), "{result:?}");
}

#[track_caller]
pub(crate) fn is_over<T: std::fmt::Debug>(result: &Result<T, Fault>) {
    assert!(matches!(result, Err(Fault::SessionOver)), "{result:?}");
}
