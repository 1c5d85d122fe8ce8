mod connections;
mod history;
mod sessions;
mod transactions;
mod users;

use std::sync::Arc;
use std::time::Duration;

use zlock_core::SessionId;

use zlock_core::Class;

use super::settings::Settings;
use super::state::State;
use super::{MemCalm, MemLane, MemLedger, MemStore};
use crate::{
    Beat, Begin, Calm as _, Cond, Entry, Fault, Kind, Lane as _, Ledger as _, OnHint, Outcome, Range, Read,
    Scope, Tx, Wire, Write,
};

const ONE: SessionId = SessionId::new(1);
const TWO: SessionId = SessionId::new(2);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn scope(kind: Kind, path: &str) -> Scope {
    Scope { kind, path: path.into() }
}

fn queue() -> Scope {
    scope(Kind::Queue, "/q")
}

fn append(key: &str) -> Write {
    Write::Append { key: key.into(), owned: true, label: Some("lock".into()), data: b"data".to_vec() }
}

fn delete(key: &str) -> Write {
    Write::Delete { scope: queue(), key: key.into() }
}

fn relabel(key: &str, label: &str) -> Write {
    Write::Update { key: key.into(), label: Some(label.into()), data: None }
}

fn set_data(key: &str, data: &[u8]) -> Write {
    Write::Update { key: key.into(), label: None, data: Some(data.to_vec()) }
}

fn tx_in(scope: Scope, when: Vec<Cond>, then: Vec<Write>) -> Tx {
    Tx { scope, when, then, read: vec![] }
}

fn tx(then: Vec<Write>) -> Tx {
    tx_in(queue(), vec![], then)
}

fn last(up_to: Option<u64>, limit: u32) -> Read {
    Read { scope: queue(), range: Range::Last { up_to, limit }, floor: 0, data: false }
}

fn beat(number: u64) -> Beat {
    Beat { number, timeout: millis(1000), known: vec![], watched: None }
}

fn begin(session: SessionId, last: Option<SessionId>) -> Begin {
    Begin { session, last, timeout: millis(1000), rest: millis(5000) }
}

fn keys(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.key.as_str()).collect()
}

/// The name of a fault, since faults cannot be compared.
fn fault<T: std::fmt::Debug>(result: Result<T, Fault>) -> String {
    let text = format!("{:?}", result.unwrap_err());
    text.split('(').next().unwrap_or_default().to_owned()
}

/// A state with two sessions, in which each transaction locks what it needs.
struct Pure(State);

impl Pure {
    fn new(class: Class) -> Self {
        let settings = Settings { class, longest: millis(10_000), ..Settings::default() };
        let mut state = State::new(settings);
        state.begin(&begin(ONE, None)).unwrap();
        state.begin(&begin(TWO, None)).unwrap();
        Pure(state)
    }

    fn batch(&mut self, session: SessionId, txs: &[Tx]) -> Vec<Result<Outcome, Fault>> {
        let holder = self.0.next_holder();
        self.0.lock(holder, txs);
        let outcomes = self.0.transact(session, holder, txs);
        self.0.unlock(holder);
        outcomes
    }

    fn run(&mut self, session: SessionId, tx: Tx) -> Result<Outcome, Fault> {
        self.batch(session, &[tx]).pop().unwrap()
    }

    /// Runs writes in the queue, which must succeed, and returns what the first one wrote.
    fn write(&mut self, session: SessionId, then: Vec<Write>) -> Option<Entry> {
        let outcome = self.run(session, tx(then)).unwrap();
        assert_eq!(outcome.failed, None);
        outcome.written[0].clone()
    }

    fn keys(&self) -> Vec<String> {
        self.0.tables.entries(&queue(), 0).map(|entry| entry.key.clone()).collect()
    }
}

/// A client of a store.
struct Client {
    ledger: MemLedger,
    calm: MemCalm,
    session: SessionId,
}

fn no_hints() -> OnHint {
    Arc::new(|_| {})
}

impl Client {
    async fn new(store: &MemStore, session: SessionId) -> Self {
        let ledger = store.ledger();
        let calm = ledger.calm(None, no_hints()).await.unwrap();
        calm.begin(&begin(session, None)).await.unwrap();
        Client { ledger, calm, session }
    }

    async fn lane(&self, wire: Wire) -> MemLane {
        self.ledger.lane(self.session, wire).await.unwrap()
    }
}

async fn one(lane: &MemLane, tx: Tx) -> Result<Outcome, Fault> {
    lane.transact(&[tx]).await?.pop().unwrap()
}
