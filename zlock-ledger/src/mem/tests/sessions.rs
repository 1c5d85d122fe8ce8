use super::*;
use crate::{End, Ended, Seen};

fn seen(pure: &Pure, session: SessionId) -> Seen {
    pure.0.look(&[session])[0]
}

#[test]
fn a_session_begins_at_rest_and_only_once() {
    let mut pure = Pure::new(Class::Lossy);
    let expected = Seen { session: ONE, beat: 0, timeout: millis(5000), watched: Duration::ZERO };
    assert_eq!(seen(&pure, ONE), expected);
    assert_eq!(fault(pure.0.begin(&begin(ONE, None))), "Unexpected");
    let three = Begin { timeout: millis(10_001), ..begin(SessionId::new(3), None) };
    assert_eq!(fault(pure.0.begin(&three)), "Invalid");
    assert!(pure.0.look(&[SessionId::new(3)]).is_empty());
}

#[test]
fn begin_ends_the_last_session() {
    let mut pure = Pure::new(Class::Lossy);
    pure.write(ONE, vec![append("a")]);
    pure.0.begin(&begin(SessionId::new(3), Some(ONE))).unwrap();
    assert!(pure.keys().is_empty());
    assert_eq!(fault(pure.0.beat(ONE, &beat(1))), "SessionOver");
}

#[test]
fn a_beat_counts_once() {
    let mut pure = Pure::new(Class::Lossy);
    pure.0.watched(&[(seen(&pure, ONE), millis(100))]);
    pure.0.beat(ONE, &beat(3)).unwrap();
    let after = Seen { session: ONE, beat: 3, timeout: millis(1000), watched: Duration::ZERO };
    assert_eq!(seen(&pure, ONE), after);
    for late in [3, 2] {
        let late = Beat { timeout: millis(7), ..beat(late) };
        assert_eq!(pure.0.beat(ONE, &late).unwrap().swept, pure.0.live);
        assert_eq!(seen(&pure, ONE), after);
    }
}

#[test]
fn a_beat_says_what_exists() {
    let mut pure = Pure::new(Class::Lossy);
    pure.write(ONE, vec![append("a")]);
    pure.write(TWO, vec![append("b")]);
    let known = ["a", "b", "c"].map(|key| (queue(), key.to_owned())).into();
    let beaten = pure.0.beat(ONE, &Beat { known, ..beat(1) }).unwrap();
    assert_eq!(beaten.exists, [true, false, false]);
}

#[test]
fn watched_time_is_added_to_what_was_seen() {
    let mut pure = Pure::new(Class::Lossy);
    let first = seen(&pure, ONE);
    let watched = |pure: &Pure| seen(pure, ONE).watched;
    // Each span is rounded down.
    pure.0.watched(&[(first, Duration::from_micros(1999))]);
    assert_eq!(watched(&pure), millis(1));
    // Whoever saw the same is too late.
    pure.0.watched(&[(first, millis(100))]);
    assert_eq!(watched(&pure), millis(1));
    pure.0.watched(&[(seen(&pure, ONE), millis(100))]);
    assert_eq!(watched(&pure), millis(101));
    let before = seen(&pure, ONE);
    pure.0.beat(ONE, &beat(1)).unwrap();
    pure.0.watched(&[(before, millis(100))]);
    assert_eq!(watched(&pure), Duration::ZERO);
    // Nothing is written for a span of nothing.
    let commits = pure.0.tables.volatile();
    pure.0.watched(&[(seen(&pure, ONE), Duration::from_micros(999))]);
    assert_eq!(pure.0.tables.volatile(), commits);
}

#[test]
fn an_end_names_the_beat() {
    let mut pure = Pure::new(Class::Lossy);
    pure.write(ONE, vec![append("a")]);
    pure.0.beat(ONE, &beat(1)).unwrap();
    let end = |beat| End { session: ONE, beat };
    assert_eq!(pure.0.end(&[end(Some(0))], &[]), [Ended::Alive]);
    assert_eq!(pure.keys(), ["a"]);
    assert_eq!(pure.0.end(&[end(Some(1))], &[]), [Ended::Over]);
    assert!(pure.keys().is_empty() && pure.0.look(&[ONE]).is_empty());
    assert_eq!(pure.0.end(&[end(Some(0))], &[]), [Ended::Over]);
}

#[test]
fn an_end_removes_some_entries_and_the_wanted_scopes_first() {
    let mut pure = Pure::new(Class::Lossy);
    pure.0.settings.removes = 2;
    for path in ["/a", "/b", "/c"] {
        pure.run(ONE, tx_in(scope(Kind::Queue, path), vec![], vec![append(path)])).unwrap();
    }
    let end = |session| End { session, beat: Some(0) };
    let first = [scope(Kind::Queue, "/c")];
    assert_eq!(pure.0.end(&[end(ONE), end(TWO)], &first), [Ended::More, Ended::Over]);
    let left: Vec<_> = pure.0.tables.scopes().cloned().collect();
    assert_eq!(left, [scope(Kind::Queue, "/b")]);
    assert_eq!(pure.0.end(&[end(ONE)], &first), [Ended::Over]);
    assert_eq!(pure.0.tables.scopes().count(), 0);
}

#[test]
fn an_end_waits_for_what_is_in_flight() {
    let mut pure = Pure::new(Class::Lossy);
    let lane = pure.0.raise(ONE, Wire::Patient).unwrap().unwrap();
    let holder = pure.0.accept(ONE, Wire::Patient, lane).unwrap();
    let both = [ONE, TWO].map(|session| End { session, beat: None });
    assert_eq!(pure.0.end(&both, &[]), [Ended::Busy, Ended::Over]);
    assert_eq!(fault(pure.0.begin(&begin(SessionId::new(3), Some(ONE)))), "Busy");
    assert!(pure.0.look(&[SessionId::new(3)]).is_empty());
    pure.0.release(ONE, Wire::Patient, holder);
    assert_eq!(pure.0.end(&both, &[]), [Ended::Over, Ended::Over]);
    // Nothing arrives over the lane of a session that is over.
    assert_eq!(fault(pure.0.accept(ONE, Wire::Patient, lane)), "SessionOver");
    assert_eq!(fault(pure.0.raise(ONE, Wire::Patient)), "SessionOver");
}

#[test]
fn a_lane_has_one_number() {
    let mut pure = Pure::new(Class::Lossy);
    let raise = |pure: &mut Pure, wire| pure.0.raise(ONE, wire).unwrap();
    let (fast, patient) = (raise(&mut pure, Wire::Fast).unwrap(), raise(&mut pure, Wire::Patient).unwrap());
    let accepted = pure.0.accept(ONE, Wire::Fast, fast).unwrap();
    // The raise waits for it, and that of the other lane does not.
    assert_eq!(raise(&mut pure, Wire::Fast), None);
    assert!(raise(&mut pure, Wire::Patient).is_some());
    pure.0.release(ONE, Wire::Fast, accepted);
    let next = raise(&mut pure, Wire::Fast).unwrap();
    for other in [fast, next + 1] {
        assert_eq!(fault(pure.0.accept(ONE, Wire::Fast, other)), "StaleLane");
    }
    assert_eq!(fault(pure.0.accept(ONE, Wire::Patient, patient)), "StaleLane");
    assert!(pure.0.accept(ONE, Wire::Fast, next).is_ok());
}
