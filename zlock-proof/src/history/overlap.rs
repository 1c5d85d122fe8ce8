//! Checks exclusion: certain holds that exclude each other never overlap.

use std::collections::{BTreeMap, BTreeSet};

use super::{Ending, Findings, Hold, Ns, seconds};

/// A hold that begins while others exist that it must not overlap.
#[derive(Debug)]
pub(crate) struct Overlap<'a> {
    pub(crate) hold: &'a Hold,
    pub(crate) beside: Vec<&'a Hold>,
    /// What makes it a violation. `None` if it is excused: one of the sessions was ended early.
    pub(crate) violation: Option<String>,
}

impl Overlap<'_> {
    /// When the overlap ends.
    pub(crate) fn until(&self) -> Ns {
        self.beside.iter().map(|other| other.until.min(self.hold.until)).max().unwrap_or(self.hold.from)
    }
}

/// Returns all overlaps, ordered by their start. Holds of a session that was ended early may overlap with later ones until their
/// client notices: no queue can avoid that, as the docs of [`Guard`](zlock::Guard) state.
pub(crate) fn overlaps<'a>(holds: &'a [Hold], endings: &[Ending]) -> Vec<Overlap<'a>> {
    let mut held: BTreeMap<&str, Vec<&Hold>> = BTreeMap::new();
    let mut overlaps = Vec::new();
    for hold in holds.iter().filter(|hold| hold.from < hold.until) {
        let beside = held.entry(&hold.lock).or_default();
        beside.retain(|earlier| earlier.until > hold.from);
        let certain: Vec<&Hold> = beside.iter().filter(|b| !ended(b, hold.from, endings)).copied().collect();
        let violation = clash(hold, &certain);
        if violation.is_some() || clash(hold, beside).is_some() {
            overlaps.push(Overlap { hold, beside: beside.clone(), violation });
        }
        beside.push(hold);
    }
    overlaps
}

/// Checks all holds. Counts the overlaps that are excused.
pub(crate) fn overlap(holds: &[Hold], endings: &[Ending]) -> Findings {
    let mut findings = Findings::default();
    let (mut excused, mut longest) = (0, 0);
    for overlap in overlaps(holds, endings) {
        match &overlap.violation {
            Some(why) => {
                findings.violation(format!("two holders at a time: {}, and {why}", overlap.hold.show()))
            }
            None => {
                excused += 1;
                longest = longest.max(overlap.until() - overlap.hold.from);
            }
        }
    }
    let locks: BTreeSet<&str> =
        holds.iter().filter(|hold| hold.from < hold.until).map(|hold| &*hold.lock).collect();
    findings.figure(format!("{} certain holds of {} locks", holds.len(), locks.len()));
    findings.figure(format!(
        "{excused} overlaps after a session was ended before its time, the longest {}",
        seconds(longest)
    ));
    findings
}

/// Returns `true` if the session of this hold had been ended early by then.
fn ended(hold: &Hold, by: Ns, endings: &[Ending]) -> bool {
    endings.iter().any(|ending| ending.explains(hold.session, by))
}

/// Returns a description of the other holds with which this one must not overlap, if there are any.
fn clash(hold: &Hold, beside: &[&Hold]) -> Option<String> {
    let all = || beside.iter().map(|other| other.show()).collect::<Vec<_>>().join("; ");
    (!hold.kind.fits(beside.iter().map(|other| other.kind))).then(all)
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::super::holds::testing::hold;
    use super::*;

    const TWO: Kind = Kind::Permits { n: 2, max: 4 };

    #[test]
    fn overlaps_are_caught() {
        for (a, b, bad) in [
            (Kind::Mutex, Kind::Mutex, true),
            (Kind::Write, Kind::Write, true),
            (Kind::Write, Kind::Read, true),
            (Kind::Read, Kind::Write, true),
            (Kind::Read, Kind::Read, false),
            (TWO, TWO, false),
            (TWO, Kind::Permits { n: 3, max: 4 }, true),
        ] {
            let beside = [hold("a", a, 1, 10, 20), hold("b", b, 2, 19, 30)];
            assert_eq!(overlap(&beside, &[]).violations.len(), usize::from(bad), "{a} {b}");
            let after = [hold("a", a, 1, 10, 20), hold("b", b, 2, 20, 30)];
            assert!(overlap(&after, &[]).violations.is_empty(), "{a} {b}");
        }
    }

    #[test]
    fn only_what_was_ended_by_hand_before_is_excused() {
        let holds = [hold("a", Kind::Mutex, 1, 10, 25), hold("b", Kind::Mutex, 2, 20, 30)];
        for (session, asked, excused) in
            [(holds[0].session, 15, true), (holds[0].session, 21, false), (holds[1].session, 15, false)]
        {
            let found = overlap(&holds, &[Ending::by_hand(session, asked)]);
            assert_eq!(found.violations.is_empty(), excused);
        }
    }

    #[test]
    fn an_excuse_has_an_end() {
        let holds = [hold("a", Kind::Mutex, 1, 10, 25), hold("b", Kind::Mutex, 2, 20, 30)];
        for (until, excused) in [(20, true), (19, false)] {
            let woken = Ending { session: holds[0].session, asked: 12, done: 12, until };
            assert_eq!(overlap(&holds, &[woken]).violations.is_empty(), excused);
        }
    }

    #[test]
    fn another_lock_is_another_lock() {
        let mut other = hold("b", Kind::Mutex, 2, 15, 30);
        other.lock = "/m".to_owned();
        assert!(overlap(&[hold("a", Kind::Mutex, 1, 10, 20), other], &[]).violations.is_empty());
    }

    #[test]
    fn three_semaphore_holds_of_which_one_is_dead() {
        let holds = [hold("a", TWO, 1, 10, 40), hold("b", TWO, 2, 11, 40), hold("c", TWO, 3, 20, 40)];
        assert_eq!(overlap(&holds, &[]).violations.len(), 1);
        let ended = Ending::by_hand(holds[0].session, 12);
        assert!(overlap(&holds, &[ended]).violations.is_empty());
    }
}
