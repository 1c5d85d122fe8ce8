use super::*;
use crate::{End, Ended};

const THREE: SessionId = SessionId::new(3);

fn alive(node: &Entry) -> Tx {
    let cond = Cond::Alive { scope: queue(), key: node.key.clone(), created: node.created };
    tx_in(queue(), vec![cond], vec![])
}

#[test]
fn a_lossy_change_ends_all_sessions() {
    let mut pure = Pure::new(Class::Lossy);
    pure.write(ONE, vec![append("a")]);
    let before = pure.0.live;
    pure.0.restart(0);
    assert_ne!(pure.0.live, before);
    let faults = [
        fault(pure.0.beat(ONE, &beat(1))),
        fault(pure.0.nodes(ONE)),
        fault(pure.0.sweep(ONE, pure.0.live, &[])),
        fault(pure.0.raise(ONE, Wire::Fast)),
        fault(pure.0.accept(ONE, Wire::Fast, 0)),
        fault(pure.0.read(ONE, &last(Some(9), 1))),
        fault(pure.0.changed(ONE, &[])),
    ];
    assert_eq!(faults, ["SessionOver"; 7]);
    assert!(pure.0.look(&[ONE, TWO]).is_empty());
    // Anybody may remove what is left, whatever beat it names.
    assert_eq!(pure.0.end(&[End { session: ONE, beat: Some(9) }], &[]), [Ended::Over]);
    assert!(pure.keys().is_empty());
}

#[test]
fn after_a_lossless_restart_only_the_fence_waits_for_the_sweep() {
    let mut pure = Pure::new(Class::OneServer);
    let node = pure.write(ONE, vec![append("a")]).unwrap();
    let old = pure.0.live;
    pure.0.restart(0);
    let live = pure.0.live;
    assert_eq!(pure.0.watched_quiet(), None);
    assert_eq!(fault(pure.run(ONE, alive(&node))), "Unswept");
    assert_eq!(fault(pure.0.protect(&queue(), "a")), "Unswept");
    pure.write(ONE, vec![append("b")]);
    let beaten = pure.0.beat(ONE, &beat(1)).unwrap();
    assert_eq!((beaten.swept, beaten.history.incarnation), (old, live));
    // The names were those of another incarnation.
    assert!(!pure.0.sweep(ONE, old, &["a".into()]).unwrap());
    assert_eq!(pure.0.nodes(ONE).unwrap(), (live, vec!["a".to_owned(), "b".to_owned()]));
    assert!(pure.0.sweep(ONE, live, &["b".into()]).unwrap());
    assert_eq!(pure.keys(), ["a"]);
    assert_eq!(pure.run(ONE, alive(&node)).unwrap().failed, None);
    assert!(pure.0.protect(&queue(), "a").unwrap().is_some());
}

#[test]
fn a_sweep_deletes_own_nodes_only() {
    let mut pure = Pure::new(Class::OneServer);
    pure.write(TWO, vec![append("two")]);
    let member = tx_in(scope(Kind::Group, "/g"), vec![], vec![append("member")]);
    pure.run(ONE, member).unwrap();
    assert!(pure.0.sweep(ONE, pure.0.live, &["two".into(), "member".into()]).unwrap());
    assert_eq!(pure.keys(), ["two"]);
    assert_eq!(pure.0.tables.entries(&scope(Kind::Group, "/g"), 0).count(), 1);
    assert!(pure.0.nodes(ONE).unwrap().1.is_empty());
}

#[test]
fn nothing_is_granted_in_quiet_time() {
    let mut pure = Pure::new(Class::Lossy);
    pure.0.settings.overlap = millis(500);
    pure.0.fail_over(0);
    let history = pure.0.begin(&begin(THREE, None)).unwrap();
    assert_eq!((history.watched, history.quiet), (Some(Duration::ZERO), millis(10_500)));
    assert_eq!(fault(pure.run(THREE, tx(vec![append("a")]))), "Quiet");
    let value = Write::Append { key: String::new(), owned: false, label: None, data: vec![] };
    assert!(pure.run(THREE, tx_in(scope(Kind::Value, "/v"), vec![], vec![value])).is_ok());
    let mut number = 0;
    let mut watch = |incarnation, watched, span| {
        number += 1;
        let watched = Some((incarnation, millis(watched), millis(span)));
        let beaten = pure.0.beat(THREE, &Beat { watched, ..beat(number) }).unwrap();
        beaten.history.watched.map(|watched| watched.as_millis())
    };
    let live = history.incarnation;
    assert_eq!(watch(live, 0, 10_000), Some(10_000));
    // Another incarnation, and a span that somebody else has counted.
    assert_eq!(watch(live + 1, 10_000, 500), Some(10_000));
    assert_eq!(watch(live, 0, 500), Some(10_000));
    assert_eq!(watch(live, 10_000, 499), Some(10_499));
    assert_eq!(watch(live, 10_499, 1), None);
    pure.write(THREE, vec![append("a")]);
}

#[test]
fn a_beat_that_does_not_count_adds_no_watched_time() {
    let mut pure = Pure::new(Class::Lossy);
    pure.0.fail_over(0);
    let live = pure.0.begin(&begin(THREE, None)).unwrap().incarnation;
    let late = Beat { watched: Some((live, Duration::ZERO, millis(5))), ..beat(0) };
    assert_eq!(pure.0.beat(THREE, &late).unwrap().history.watched, Some(Duration::ZERO));
}

#[test]
fn quiet_time_survives_a_lossless_restart() {
    let mut pure = Pure::new(Class::OneServer);
    pure.0.fail_over(0);
    let live = pure.0.begin(&begin(THREE, None)).unwrap().incarnation;
    let watched = Some((live, Duration::ZERO, millis(5)));
    pure.0.beat(THREE, &Beat { watched, ..beat(1) }).unwrap();
    pure.0.restart(0);
    assert_eq!(pure.0.watched_quiet(), Some(millis(5)));
    assert_eq!(fault(pure.run(THREE, tx(vec![append("a")]))), "Quiet");
}

#[test]
fn numbers_are_lifted_once() {
    let mut pure = Pure::new(Class::Lossy);
    pure.write(ONE, vec![append("a")]);
    let number = pure.0.tables.number();
    pure.0.fail_over(0);
    // Half of the longest timeout, in microseconds.
    let lifted = pure.0.begin(&begin(THREE, None)).unwrap().number;
    assert_eq!(lifted, number + 5_000_000);
    assert_eq!(pure.0.begin(&begin(SessionId::new(4), None)).unwrap().number, lifted);
    pure.0.fail_over(0);
    pure.0.clock = millis(60_000);
    assert_eq!(pure.0.begin(&begin(SessionId::new(5), None)).unwrap().number, 60_000_000);
}

#[test]
fn a_crash_undoes_deletes_that_nothing_durable_has_followed() {
    let mut pure = Pure::new(Class::OneServer);
    for key in ["a", "b", "c", "d"] {
        pure.write(ONE, vec![append(key)]);
    }
    pure.write(ONE, vec![delete("a")]);
    let position = pure.0.history().position;
    pure.0.beat(ONE, &beat(1)).unwrap();
    assert_eq!(pure.0.history().position, position + 2);
    pure.write(ONE, vec![delete("c")]);
    pure.write(ONE, vec![delete("b")]);
    pure.0.watched(&[(pure.0.look(&[TWO])[0], millis(5))]);
    assert_eq!(pure.0.restart(2), 2);
    // The watched time and the delete of b, which is in its old place.
    assert_eq!(pure.keys(), ["b", "d"]);
    assert_eq!(pure.0.look(&[TWO])[0].watched, Duration::ZERO);
    // What the first crash has left is durable.
    assert_eq!(pure.0.restart(9), 0);
    pure.write(ONE, vec![delete("b")]);
    assert_eq!(pure.0.restart(9), 1);
    assert_eq!(pure.keys(), ["b", "d"]);
}

#[test]
fn only_batches_that_delete_nodes_are_not_durable() {
    let mut pure = Pure::new(Class::OneServer);
    pure.write(ONE, vec![append("a")]);
    pure.write(ONE, vec![append("b")]);
    let member = scope(Kind::Group, "/g");
    pure.run(ONE, tx_in(member.clone(), vec![], vec![append("m")])).unwrap();
    let volatile = |pure: &Pure| pure.0.tables.volatile();
    let flushes = pure.0.tables.flushes();
    pure.run(ONE, tx(vec![delete("a"), delete("b")])).unwrap();
    assert_eq!((volatile(&pure), pure.0.tables.flushes()), (1, flushes));
    // One that finds nothing to do waits until what it repeats is durable.
    pure.run(ONE, tx_in(queue(), vec![Cond::Own { key: "a".into() }], vec![relabel("a", "read")])).unwrap();
    assert_eq!((volatile(&pure), pure.0.tables.flushes()), (0, flushes + 1));
    pure.batch(ONE, &[tx(vec![append("c")]), tx(vec![delete("c")])]);
    assert_eq!(volatile(&pure), 0);
    pure.run(ONE, tx(vec![Write::Delete { scope: member, key: "m".into() }])).unwrap();
    assert_eq!(volatile(&pure), 0);
}

#[test]
fn a_failover_loses_durable_commits() {
    let mut pure = Pure::new(Class::OneServer);
    pure.write(ONE, vec![append("a")]);
    let number = pure.0.tables.number();
    pure.write(ONE, vec![set_data("a", b"x"), Write::Receipt { slot: 0, write: 1 }]);
    pure.write(ONE, vec![append("b")]);
    assert_eq!(pure.0.fail_over(2), 2);
    assert_eq!((pure.keys(), pure.0.tables.number()), (vec!["a".to_owned()], number));
    let a = pure.0.tables.entry(&queue(), "a").unwrap();
    assert_eq!((a.changed, a.writes, a.data.as_slice()), (number, 0, &b"data"[..]));
    assert!(pure.0.tables.receipt(ONE, 0).is_none());
    // It ends the sessions of this class, too.
    assert_eq!(fault(pure.0.beat(ONE, &beat(1))), "SessionOver");
    assert!(pure.0.watched_quiet().is_some());
}

#[test]
fn a_failover_of_the_sync_class_is_a_crash() {
    let mut pure = Pure::new(Class::Sync);
    pure.write(ONE, vec![append("a")]);
    pure.write(ONE, vec![delete("a")]);
    assert_eq!(pure.0.fail_over(9), 1);
    assert_eq!(pure.keys(), ["a"]);
    assert!(pure.0.beat(ONE, &beat(1)).is_ok());
    assert_eq!(pure.0.watched_quiet(), None);
}

/// Everything in the tables but the log.
fn shown(pure: &Pure) -> String {
    let text = format!("{:?}", pure.0.tables);
    text.split(" open:").next().unwrap().to_owned()
}

#[test]
fn every_write_can_be_undone() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut pure = Pure::new(Class::OneServer);
        let mut before = vec![shown(&pure)];
        for number in 1..20 {
            let session = SessionId::new(random.u64(1..=2));
            let key = ["a", "b", "c"][random.usize(..3)];
            let mut then = || match random.u8(..4) {
                0 => append(key),
                1 => delete(key),
                2 => Write::Receipt { slot: random.u32(..2), write: number },
                _ => set_data(key, &number.to_be_bytes()),
            };
            match number % 10 {
                7 => drop(pure.0.beat(session, &beat(number))),
                8 => {
                    let seen = pure.0.look(&[session]);
                    pure.0.watched(&seen.iter().map(|seen| (*seen, millis(number))).collect::<Vec<_>>());
                }
                9 => drop(pure.0.begin(&begin(SessionId::new(number), Some(session)))),
                _ => drop(pure.run(session, tx(vec![then()]))),
            }
            let now = shown(&pure);
            if before.last() != Some(&now) {
                before.push(now);
            }
        }
        let lost = random.usize(1..before.len());
        assert_eq!(pure.0.fail_over(lost), lost);
        assert_eq!(shown(&pure), before[before.len() - 1 - lost], "seed {seed}");
    }
}

#[test]
fn the_log_is_bounded() {
    let mut pure = Pure::new(Class::OneServer);
    pure.0.settings.log = 2;
    for key in ["a", "b", "c"] {
        pure.write(ONE, vec![append(key)]);
    }
    for key in ["a", "b", "c"] {
        pure.write(ONE, vec![delete(key)]);
    }
    assert_eq!(pure.0.restart(9), 2);
    assert_eq!(pure.keys(), ["b", "c"]);
}
