//! Draws a history: for each lock, when each client waited for it and when it was certain to hold it.

use std::collections::BTreeMap;

use super::overlap::overlaps;
use super::{Ending, History, Hold, MS, Ns, What};
use crate::timeline::{Band, Lane, Ms, Span, State, Timeline, page};

/// Returns a page with a picture of each lock. Those with a violation come first, and the violations are marked.
pub(crate) fn picture(title: &str, histories: &[History], holds: &[Hold], endings: &[Ending]) -> String {
    let begin = histories.iter().flat_map(|history| &history.events).map(|event| event.at).min().unwrap_or(0);
    let mut pictures: BTreeMap<&str, Timeline> = BTreeMap::new();
    for attempt in attempts(histories, holds) {
        let picture = pictures.entry(attempt.lock).or_default();
        let (asked, from) = (ms(attempt.asked, begin), ms(attempt.from, begin));
        let until = ms(attempt.until, begin);
        let lane = lane(&mut picture.lanes, attempt.client, asked);
        let spans = [(State::Waits, asked, from), (State::Holds, from, until)];
        lane.spans.extend(
            spans.into_iter().filter(|(_, from, to)| from < to).map(|(state, from, to)| Span {
                state,
                from,
                to,
                text: attempt.text.clone(),
            }),
        );
        picture.end = picture.end.max(until);
    }
    for overlap in overlaps(holds, endings) {
        let Some(picture) = pictures.get_mut(&*overlap.hold.lock) else { continue };
        let Some(text) = overlap.violation.clone() else { continue };
        let (from, to) = (ms(overlap.hold.from, begin), ms(overlap.until(), begin));
        picture.bands.push(Band { from, to, is_violation: true, text });
    }
    let mut pictures: Vec<_> = pictures
        .into_iter()
        .map(|(lock, picture)| {
            let text = match picture.bands.len() {
                0 => "no two holders that exclude each other".to_owned(),
                n => format!("{n} times two holders that exclude each other"),
            };
            Timeline { title: format!("{lock}: {text}"), ..picture }
        })
        .collect();
    pictures.sort_by_key(|picture| picture.bands.is_empty());
    page(title, &[title, EXPLANATION], &pictures)
}

const EXPLANATION: &str = "Each line is a client process, or one of several tasks of one. A thick bar is a hold of which the client \
    was certain: from the return of the acquisition to its deadline, its release or its notice of the loss. A thin bar is a wait. \
    Overlaps after a session was ended by hand are no violations and are not marked.";

/// An acquisition, whether it succeeded or not.
struct Attempt<'a> {
    client: &'a str,
    lock: &'a str,
    asked: Ns,
    /// When it was granted, or the end if it never was.
    from: Ns,
    until: Ns,
    text: String,
}

/// Returns all acquisitions, ordered by their start.
fn attempts<'a>(histories: &'a [History], holds: &'a [Hold]) -> Vec<Attempt<'a>> {
    let mut attempts: Vec<_> = holds
        .iter()
        .map(|hold| Attempt {
            client: &hold.client,
            lock: &hold.lock,
            asked: hold.asked,
            from: hold.from,
            until: hold.until.max(hold.from),
            text: hold.show(),
        })
        .collect();
    for history in histories {
        let mut asked = BTreeMap::new();
        for event in &history.events {
            let (op, why) = match &event.what {
                What::Ask { op, lock, .. } => {
                    asked.insert(*op, (event.at, lock));
                    continue;
                }
                What::Failed { op, error } => (op, error.clone()),
                What::Dropped { op } => (op, "cancelled".to_owned()),
                What::Taken { op } => (op, "the lock was held".to_owned()),
                _ => continue,
            };
            let Some((at, lock)) = asked.remove(op) else { continue };
            let (client, text) = (&history.client, format!("{} op {op}: {why}", history.client));
            attempts.push(Attempt { client, lock, asked: at, from: event.at, until: event.at, text });
        }
    }
    attempts.sort_by_key(|attempt| attempt.asked);
    attempts
}

/// Returns the first lane of a client that is free at this time.
fn lane<'a>(lanes: &'a mut Vec<Lane>, client: &str, at: Ms) -> &'a mut Lane {
    let is_free = |lane: &Lane| lane.name == client && lane.spans.last().is_none_or(|span| span.to <= at);
    let at = lanes.iter().position(is_free).unwrap_or_else(|| {
        lanes.push(Lane { name: client.to_owned(), spans: Vec::new() });
        lanes.len() - 1
    });
    &mut lanes[at]
}

fn ms(at: Ns, begin: Ns) -> Ms {
    at.saturating_sub(begin) / MS
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::super::holds::testing::hold;
    use super::*;

    fn drawn(until: Ns, endings: &[Ending]) -> String {
        let mut holds =
            [hold("a", Kind::Mutex, 1, 100 * MS, until), hold("b", Kind::Mutex, 2, 200 * MS, 300 * MS)];
        for hold in &mut holds {
            hold.asked = 50 * MS;
        }
        let event = super::super::Event { at: 0, what: What::Bye };
        let histories = [History { client: "a".into(), events: vec![event] }];
        picture("seed 7", &histories, &holds, endings)
    }

    #[test]
    fn two_holders_are_seen() {
        let page = drawn(250 * MS, &[]);
        assert!(page.contains("1 times two holders"), "{page}");
        // 200 of 300 ms, for 50 ms.
        assert!(page.contains("class=\"violation\" x=\"650\" y=\"62\" width=\"120\""), "{page}");
        assert!(!drawn(200 * MS, &[]).contains("class=\"violation\""));
    }

    #[test]
    fn what_is_excused_is_not_marked() {
        let session = hold("a", Kind::Mutex, 1, 0, 1).session;
        assert!(!drawn(250 * MS, &[Ending::by_hand(session, 150 * MS)]).contains("class=\"violation\""));
    }

    #[test]
    fn a_wait_that_failed_is_shown() {
        let what = |what, at| super::super::Event { at, what };
        let ask = What::Ask {
            op: 1,
            worker: 0,
            lock: "/a".into(),
            kind: Kind::Mutex,
            how: super::super::How::Wait,
        };
        let events = vec![what(ask, 0), what(What::Failed { op: 1, error: "busy".into() }, 10 * MS)];
        let page = picture("x", &[History { client: "c".into(), events }], &[], &[]);
        assert!(page.contains("class=\"waits\"") && page.contains("c op 1: busy"), "{page}");
    }
}
