use super::*;

fn failed(outcome: Result<Outcome, Fault>) -> Option<(usize, Option<Entry>)> {
    let outcome = outcome.unwrap();
    assert!(outcome.written.is_empty() && outcome.read.is_empty());
    outcome.failed
}

#[test]
fn conditions_fail_with_what_they_find() {
    let mut pure = Pure::new(Class::Lossy);
    let node = pure.write(ONE, vec![append("a")]).unwrap();
    let found = pure.0.tables.entry(&queue(), "a").cloned().unwrap();
    assert_eq!(found.data, b"data");
    let (created, changed) = (node.created, node.changed);
    let key = |key: &str| key.to_owned();
    let holding = [
        Cond::Missing { key: key("x") },
        Cond::Version { key: key("a"), created, changed },
        Cond::Writes { key: key("a"), writes: 0 },
        Cond::Own { key: key("a") },
        Cond::NoReceipt { slot: 0, write: 1 },
        Cond::Alive { scope: queue(), key: key("a"), created },
    ];
    assert_eq!(pure.run(ONE, tx_in(queue(), holding.to_vec(), vec![])).unwrap().failed, None);
    let failing = [
        (Cond::Missing { key: key("a") }, Some(&found)),
        (Cond::Version { key: key("a"), created, changed: changed + 1 }, Some(&found)),
        (Cond::Version { key: key("a"), created: created + 1, changed }, Some(&found)),
        (Cond::Version { key: key("x"), created, changed }, None),
        (Cond::Writes { key: key("a"), writes: 1 }, Some(&found)),
        (Cond::Own { key: key("x") }, None),
        (Cond::Alive { scope: queue(), key: key("a"), created: created + 1 }, Some(&found)),
        (Cond::Alive { scope: queue(), key: key("x"), created }, None),
    ];
    for (cond, found) in failing {
        let when = vec![Cond::Missing { key: key("x") }, cond.clone()];
        let outcome = pure.run(ONE, tx_in(queue(), when, vec![delete("a")]));
        assert_eq!(failed(outcome), Some((1, found.cloned())), "{cond:?}");
    }
    let outcome = pure.run(TWO, tx_in(queue(), vec![Cond::Own { key: key("a") }], vec![delete("a")]));
    assert_eq!(failed(outcome), Some((0, Some(found.clone()))));
    // The node may be one of another session.
    let alive = Cond::Alive { scope: queue(), key: key("a"), created };
    assert_eq!(pure.run(TWO, tx_in(queue(), vec![alive], vec![])).unwrap().failed, None);
    assert_eq!(pure.keys(), ["a"]);
}

#[test]
fn alive_looks_in_another_scope() {
    let mut pure = Pure::new(Class::Lossy);
    let created = pure.write(ONE, vec![append("guard")]).unwrap().created;
    let alive = Cond::Alive { scope: queue(), key: "guard".into(), created };
    let value = Write::Append { key: String::new(), owned: false, label: None, data: vec![1] };
    let write = tx_in(scope(Kind::Value, "/v"), vec![alive], vec![value, delete("guard")]);
    let outcome = pure.run(ONE, write.clone()).unwrap();
    assert_eq!(outcome.written[0].as_ref().unwrap().owner, None);
    assert!(outcome.written[0].as_ref().unwrap().data.is_empty());
    assert_eq!(outcome.written[1].as_ref().unwrap().key, "guard");
    assert_eq!(failed(pure.run(ONE, write)), Some((0, None)));
}

#[test]
fn a_receipt_has_the_number_of_its_write() {
    let mut pure = Pure::new(Class::Lossy);
    let receipt = |write| Write::Receipt { slot: 3, write };
    let added = pure.write(ONE, vec![append("a"), receipt(7)]).unwrap();
    let again = |write| tx_in(queue(), vec![Cond::NoReceipt { slot: 3, write }], vec![set_data("a", b"x")]);
    let (position, found) = failed(pure.run(ONE, again(7))).unwrap();
    assert_eq!((position, found.unwrap().changed), (0, added.created));
    // Another session has slots of its own.
    assert_eq!(pure.run(TWO, again(7)).unwrap().failed, None);
    pure.write(ONE, vec![receipt(8)]);
    assert_eq!(pure.run(ONE, again(7)).unwrap().failed, None);
    assert!(failed(pure.run(ONE, again(8))).is_some());
}

#[test]
fn a_receipt_ends_with_its_session() {
    let mut pure = Pure::new(Class::Lossy);
    pure.run(ONE, tx(vec![Write::Receipt { slot: 3, write: 7 }])).unwrap();
    assert!(pure.0.tables.receipt(ONE, 3).is_some());
    pure.0.end(&[crate::End { session: ONE, beat: None }], &[]);
    assert!(pure.0.tables.receipt(ONE, 3).is_none());
}

#[test]
fn an_append_keeps_its_own_entry_and_replaces_another() {
    let mut pure = Pure::new(Class::Lossy);
    let member = || tx_in(scope(Kind::Group, "/g"), vec![], vec![append("m")]);
    let first = pure.run(ONE, member()).unwrap().written[0].clone().unwrap();
    let again = pure.run(ONE, member()).unwrap().written[0].clone().unwrap();
    assert_eq!(first, again);
    let other = pure.run(TWO, member()).unwrap().written[0].clone().unwrap();
    assert_eq!(other.owner, Some(TWO));
    assert!(other.created > first.created);
    assert_eq!(pure.0.tables.entries(&scope(Kind::Group, "/g"), 0).count(), 1);
}

#[test]
fn an_update_takes_a_number_and_counts_the_writes() {
    let mut pure = Pure::new(Class::Lossy);
    let node = pure.write(ONE, vec![append("a")]).unwrap();
    let written = pure.write(TWO, vec![set_data("a", b"x"), relabel("a", "read")]).unwrap();
    assert_eq!((written.created, written.writes), (node.created, 1));
    assert!(written.changed > node.changed);
    let relabelled = pure.write(TWO, vec![relabel("a", "write")]).unwrap();
    assert_eq!((relabelled.writes, relabelled.label.as_deref()), (1, Some("write")));
    assert!(relabelled.changed > written.changed);
    assert_eq!(pure.0.tables.entry(&queue(), "a").unwrap().data, b"x");
    // One that finds nothing takes no number.
    let number = pure.0.tables.number();
    assert_eq!(pure.write(TWO, vec![set_data("x", b"x")]), None);
    assert_eq!(pure.0.tables.number(), number);
}

#[test]
fn creates_of_a_batch_see_each_other() {
    let mut pure = Pure::new(Class::Lossy);
    let create = |key| Tx { read: vec![last(None, 2)], ..tx(vec![append(key)]) };
    let outcomes = pure.batch(ONE, &[create("a"), create("b"), create("c")]);
    let read: Vec<_> = outcomes.iter().map(|outcome| keys(&outcome.as_ref().unwrap().read[0])).collect();
    assert_eq!(read, [vec!["a"], vec!["a", "b"], vec!["b", "c"]]);
    // The repetition of a create reads up to the entry that it finds.
    let again = pure.run(ONE, create("b")).unwrap();
    assert_eq!(keys(&again.read[0]), ["a", "b"]);
}

#[test]
fn each_transaction_of_a_batch_is_atomic() {
    let mut pure = Pure::new(Class::Lossy);
    let (holder, other) = (pure.0.next_holder(), pure.0.next_holder());
    assert!(pure.0.lock_scope(other, &scope(Kind::Queue, "/busy")));
    let mut busy = tx_in(scope(Kind::Queue, "/busy"), vec![], vec![append("b")]);
    busy.then.push(delete("a"));
    let txs = [tx(vec![append("a")]), busy, tx(vec![append("c")])];
    pure.0.lock(holder, &txs);
    let outcomes = pure.0.transact(ONE, holder, &txs);
    let shown: Vec<_> = outcomes.iter().map(|outcome| outcome.is_ok()).collect();
    assert_eq!(shown, [true, false, true]);
    assert_eq!(fault(outcomes[1].clone()), "Busy");
    assert_eq!(pure.keys(), ["a", "c"]);
    assert_eq!(pure.0.tables.scopes().count(), 1);
    // A delete needs no lock of a scope.
    assert!(pure.0.lock_scope(other, &scope(Kind::Queue, "/x")));
    assert_eq!(pure.0.transact(ONE, other, &[tx(vec![delete("c")])])[0].as_ref().unwrap().written.len(), 1);
}

#[test]
fn reads_honour_floor_limit_and_data() {
    let mut pure = Pure::new(Class::Lossy);
    let nodes: Vec<_> = ["a", "b", "c"].map(|key| pure.write(ONE, vec![append(key)]).unwrap().created).into();
    let read = |range, floor, data| Read { scope: queue(), range, floor, data };
    let ask = |read| pure.0.read(TWO, &read).unwrap();
    assert_eq!(keys(&ask(read(Range::All, 0, false))), ["a", "b", "c"]);
    assert_eq!(keys(&ask(read(Range::All, nodes[1], false))), ["b", "c"]);
    assert_eq!(keys(&ask(last(Some(nodes[1]), 5))), ["a", "b"]);
    assert_eq!(keys(&ask(last(Some(u64::MAX), 1))), ["c"]);
    // A floor above the number is no panic.
    assert!(ask(read(Range::Last { up_to: Some(nodes[0]), limit: 1 }, nodes[2], false)).is_empty());
    assert_eq!(ask(read(Range::Key("b".into()), 0, true))[0].data, b"data");
    assert!(ask(read(Range::Key("b".into()), 0, false))[0].data.is_empty());
    assert_eq!(fault(pure.0.read(TWO, &last(None, 1))), "Invalid");
}

#[test]
fn what_has_two_meanings_is_refused() {
    let mut pure = Pure::new(Class::Lossy);
    assert_eq!(fault(pure.run(ONE, tx(vec![append("a"), append("b")]))), "Invalid");
    assert_eq!(fault(pure.run(ONE, Tx { read: vec![last(None, 1)], ..tx(vec![delete("a")]) })), "Invalid");
    assert!(pure.keys().is_empty());
}

#[test]
fn marks_show_every_change() {
    use crate::Mark;
    let mut pure = Pure::new(Class::Lossy);
    let key = |key: &str, changed| Mark::Key { scope: queue(), key: key.into(), changed };
    let whole = |count, changed| Mark::Scope { scope: queue(), count, changed };
    let a = pure.write(ONE, vec![append("a")]).unwrap().changed;
    let b = pure.write(ONE, vec![append("b")]).unwrap().changed;
    let marks = [key("a", a), key("x", 0), whole(2, b), key("x", 1), whole(1, b), whole(2, a)];
    assert_eq!(pure.0.changed(TWO, &marks).unwrap(), (pure.0.live, vec![3, 4, 5]));
    pure.write(ONE, vec![relabel("a", "read")]);
    assert_eq!(pure.0.changed(TWO, &marks).unwrap().1, [0, 2, 3, 4, 5]);
    pure.write(ONE, vec![delete("a")]);
    assert_eq!(pure.0.changed(TWO, &[key("a", a), whole(1, b)]).unwrap().1, [0]);
}

#[test]
fn hints_go_to_those_behind() {
    let mut pure = Pure::new(Class::Lossy);
    let labelled = |key: &str, label: &str| Write::Append {
        key: key.into(),
        owned: true,
        label: Some(label.into()),
        data: vec![],
    };
    pure.write(TWO, vec![labelled("first", "write")]);
    pure.write(ONE, vec![labelled("lock", "lock")]);
    pure.write(ONE, vec![labelled("reader", "read")]);
    pure.write(TWO, vec![labelled("last", "lock")]);
    assert!(pure.0.hints.is_empty());
    let mut hints = |then| {
        pure.write(ONE, vec![then]);
        std::mem::take(&mut pure.0.hints)
    };
    let hint = |session, key: &str| (session, queue(), key.to_owned());
    // Only the next, which is the reader.
    assert_eq!(hints(delete("lock")), [hint(ONE, "lock")]);
    assert_eq!(hints(relabel("first", "read")), [hint(ONE, "first"), hint(TWO, "first")]);
    assert_eq!(hints(set_data("reader", b"")), []);
    assert_eq!(hints(delete("reader")), [hint(TWO, "reader")]);
    pure.0.end(&[crate::End { session: TWO, beat: None }], &[]);
    assert_eq!(pure.0.hints, [hint(TWO, "first")]);
}
