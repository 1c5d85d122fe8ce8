//! Transactions as the steps that the server's general function executes.

use zlock_core::SessionId;

use super::{id, int};
use crate::{Cond, Entry, Fault, Outcome, Range, Read, Scope, Tx, Write};

const LOCK_SCOPE: i32 = 1;
const LOCK_DELETED: i32 = 2;
const LOCK_UPDATED: i32 = 3;
const LOCK_ALIVE: i32 = 4;
const CHECK_QUIET: i32 = 5;
const NO_RECEIPT: i32 = 10;
const MISSING: i32 = 11;
const VERSION: i32 = 12;
const WRITES: i32 = 13;
const OWN: i32 = 14;
const ALIVE: i32 = 15;
const APPEND: i32 = 20;
const UPDATE: i32 = 21;
const RECEIPT: i32 = 22;
const DELETE: i32 = 23;
const READ_KEY: i32 = 30;
const READ_LAST: i32 = 31;
/// Added to a read that needs the data.
const WITH_DATA: i32 = 10;

/// No owner of an entry: neither a session nor none.
const NOBODY: i64 = -1;

/// What a step is in its transaction.
#[derive(Clone, Copy, Debug)]
enum Place {
    Lock,
    Cond(usize),
    Write(usize),
    Read(usize),
}

/// One thing to do, or to lock before.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The position of the transaction.
    pub tx: usize,
    place: Place,
    /// What to do.
    pub op: i32,
    /// The scope.
    pub scope: &'a Scope,
    /// The key of an entry in it.
    pub key: Option<&'a str>,
    /// A number, whose meaning depends on what is to be done.
    pub a: Option<i64>,
    /// Another one.
    pub b: Option<i64>,
    /// Another one.
    pub c: Option<i64>,
    /// A label.
    pub label: Option<&'a str>,
    /// The data.
    pub data: Option<&'a [u8]>,
}

impl<'a> Step<'a> {
    /// Returns `true` if it adds an entry.
    #[must_use]
    pub fn is_append(&self) -> bool {
        self.op == APPEND
    }

    /// Returns `true` if it adds an entry to its scope or removes one, or gives a number to one.
    #[must_use]
    pub fn needs_scope(&self) -> bool {
        matches!(self.op, LOCK_SCOPE | LOCK_DELETED)
    }

    fn new(op: i32, scope: &'a Scope, key: Option<&'a str>) -> Self {
        let (a, b, c, label, data) = Default::default();
        Step { tx: 0, place: Place::Lock, op, scope, key, a, b, c, label, data }
    }

    fn at(self, place: Place) -> Self {
        Step { place, ..self }
    }
}

/// Returns the steps of transactions, those of each in phases.
#[must_use]
pub fn steps(session: SessionId, txs: &[Tx]) -> Vec<Step<'_>> {
    let session = id(session);
    let of = |(i, tx)| of_tx(session, tx).into_iter().map(move |step| Step { tx: i, ..step });
    txs.iter().enumerate().flat_map(of).collect()
}

fn of_tx(session: i64, tx: &Tx) -> Vec<Step<'_>> {
    let mut steps = locks(session, tx);
    let (conds, writes, reads) =
        (tx.when.iter().enumerate(), tx.then.iter().enumerate(), tx.read.iter().enumerate());
    steps.extend(conds.map(|(i, cond)| check(tx, cond).at(Place::Cond(i))));
    steps.extend(writes.map(|(i, write)| change(session, tx, write).at(Place::Write(i))));
    steps.extend(reads.map(|(i, read)| look(read).at(Place::Read(i))));
    steps
}

/// Returns what has to come before the first write, so that a transaction that cannot be executed has no effect.
fn locks(session: i64, tx: &Tx) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    if tx.then.iter().any(|write| matches!(write, Write::Append { owned: true, .. })) {
        steps.push(Step::new(CHECK_QUIET, &tx.scope, None));
    }
    if tx.takes_number() {
        steps.push(Step::new(LOCK_SCOPE, &tx.scope, None));
    }
    steps.extend(tx.then.iter().filter_map(|write| match write {
        // One of another owner is replaced.
        Write::Append { key, owned, .. } => {
            Some(Step { a: owned.then_some(session), ..Step::new(LOCK_DELETED, &tx.scope, Some(key)) })
        }
        Write::Update { key, .. } => Some(Step::new(LOCK_UPDATED, &tx.scope, Some(key))),
        Write::Delete { scope, key } => {
            Some(Step { a: Some(NOBODY), ..Step::new(LOCK_DELETED, scope, Some(key)) })
        }
        Write::Receipt { .. } => None,
    }));
    steps.extend(tx.when.iter().filter_map(|cond| match cond {
        Cond::Alive { scope, key, .. } => Some(Step::new(LOCK_ALIVE, scope, Some(key))),
        _ => None,
    }));
    steps
}

fn check<'a>(tx: &'a Tx, cond: &'a Cond) -> Step<'a> {
    let step = |op, key| Step::new(op, &tx.scope, Some(key));
    match cond {
        Cond::Missing { key } => step(MISSING, key),
        Cond::Version { key, created, changed } => {
            Step { a: Some(int(*created)), b: Some(int(*changed)), ..step(VERSION, key) }
        }
        Cond::Writes { key, writes } => Step { a: Some(int(*writes)), ..step(WRITES, key) },
        Cond::Own { key } => step(OWN, key),
        Cond::NoReceipt { slot, write } => {
            Step { a: Some(i64::from(*slot)), b: Some(int(*write)), ..step(NO_RECEIPT, "") }
        }
        Cond::Alive { scope, key, created } => {
            Step { a: Some(int(*created)), ..Step::new(ALIVE, scope, Some(key)) }
        }
    }
}

fn change<'a>(session: i64, tx: &'a Tx, write: &'a Write) -> Step<'a> {
    match write {
        Write::Append { key, owned, label, data } => Step {
            a: owned.then_some(session),
            label: label.as_deref(),
            data: Some(data),
            ..Step::new(APPEND, &tx.scope, Some(key))
        },
        Write::Update { key, label, data } => {
            Step { label: label.as_deref(), data: data.as_deref(), ..Step::new(UPDATE, &tx.scope, Some(key)) }
        }
        Write::Receipt { slot, write } => {
            Step { a: Some(i64::from(*slot)), b: Some(int(*write)), ..Step::new(RECEIPT, &tx.scope, None) }
        }
        Write::Delete { scope, key } => Step::new(DELETE, scope, Some(key)),
    }
}

fn look(read: &Read) -> Step<'_> {
    let data = if read.data { WITH_DATA } else { 0 };
    match &read.range {
        Range::Key(key) => Step::new(data + READ_KEY, &read.scope, Some(key)),
        range => {
            let (b, c) = match range {
                Range::Last { up_to, limit } => (Some(i64::from(*limit)), up_to.map(int)),
                _ => (None, Some(i64::MAX)),
            };
            Step { a: Some(int(read.floor)), b, c, ..Step::new(data + READ_LAST, &read.scope, None) }
        }
    }
}

/// What the server's function returns for a step.
#[derive(Clone, Debug)]
pub struct Done {
    /// The position of the step, from 1 on.
    pub step: i64,
    /// 0: an entry that was read; 1: what was written, found or removed; 2: a condition failed; 3: another transaction holds what it needs;
    /// 4: quiet time; 5: the session has to sweep first.
    pub status: i32,
    /// The entry.
    pub entry: Option<Entry>,
}

/// Returns the outcome of each transaction; `None` if this is not what the steps can have done.
pub fn outcomes(
    txs: &[Tx],
    steps: &[Step<'_>],
    done: impl IntoIterator<Item = Done>,
) -> Option<Vec<Result<Outcome, Fault>>> {
    let mut outcomes: Vec<_> = txs.iter().map(|tx| Ok(empty(tx))).collect();
    for Done { step, status, entry } in done {
        let step = steps.get(usize::try_from(step - 1).ok()?)?;
        let Ok(outcome) = &mut outcomes[step.tx] else { return None };
        match (status, step.place) {
            (0, Place::Read(i)) => outcome.read[i].extend(entry),
            (1, Place::Write(i)) => outcome.written[i] = entry,
            (2, Place::Cond(i)) => outcome.failed = Some((i, entry)),
            (3, _) => outcomes[step.tx] = Err(Fault::Busy),
            (4, _) => outcomes[step.tx] = Err(Fault::Quiet),
            (5, _) => outcomes[step.tx] = Err(Fault::Unswept),
            _ => return None,
        }
    }
    in_order(&mut outcomes);
    Some(outcomes)
}

/// Puts what was read into its order: it comes in the opposite one.
pub fn in_order(outcomes: &mut [Result<Outcome, Fault>]) {
    outcomes.iter_mut().flatten().flat_map(|outcome| &mut outcome.read).for_each(|read| read.reverse());
}

/// Returns the outcome of a transaction that finds nothing.
#[must_use]
pub fn empty(tx: &Tx) -> Outcome {
    Outcome { failed: None, written: vec![None; tx.then.len()], read: vec![Vec::new(); tx.read.len()] }
}
