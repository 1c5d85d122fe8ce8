//! Checks notifications about lost sessions: they are timely, and there are no false ones.

use std::collections::{BTreeMap, BTreeSet};

use super::{Ending, Findings, History, MS, Ns, What, seconds};

/// A time during which a client was cut off from a part of the cluster, or the client or the machine was paused.
#[derive(Clone, Debug)]
pub(crate) struct Disturbance {
    pub(crate) from: Ns,
    pub(crate) until: Ns,
    /// The common prefix of the names of affected processes; `None` if all are affected.
    pub(crate) client: Option<String>,
    /// `true` if a server answered heartbeats meanwhile although it no longer counted sessions: the client may have a later
    /// deadline.
    pub(crate) misleads: bool,
    /// The only server that was silent, while clients had others. Such a time counts until a client has noticed it, a quarter of
    /// the session timeout, and where another server was silent, too: a client that turns from one to the other needs longer.
    pub(crate) server: Option<usize>,
}

/// A notification is late if it comes this long after the deadline without an explanation.
const LATE: Ns = 300 * MS;

/// Checks every lost session. A loss is false if all disturbances of the client since its last answered heartbeat took less
/// than 0.55 of the session timeout. On ZooKeeper, heartbeats are a fifth of the timeout apart, and the margin of the deadline
/// is 0.22 of it. On etcd, these are a third and 0.02.
pub(crate) fn signal(
    histories: &[History],
    endings: &[Ending],
    disturbances: &[Disturbance],
    timeout: Ns,
) -> Findings {
    let mut findings = Findings::default();
    let (mut by_hand, mut lost, mut latest) = (Vec::new(), 0, 0);
    for history @ History { client, events } in histories {
        let concerns =
            |d: &&Disturbance| d.client.as_ref().is_none_or(|name| client.starts_with(name.as_str()));
        let mine: Vec<&Disturbance> = disturbances.iter().filter(concerns).collect();
        silent(history, &mut findings);
        let mut told = BTreeSet::new();
        for event in events {
            let What::Session { epoch, session, state, deadline } = &event.what else { continue };
            if state != "Lost" || *epoch == 0 || !told.insert(*session) {
                continue;
            }
            if let Some(ending) = endings.iter().find(|e| e.ends(*session, event.at)) {
                by_hand.push(event.at.saturating_sub(ending.done));
                continue;
            }
            lost += 1;
            let since = deadline.saturating_sub(timeout + timeout / 5);
            let misled = mine.iter().filter(|d| d.misleads && (d.from..d.until).contains(&since));
            let since = misled.map(|d| d.from).min().unwrap_or(since);
            let disturbed = overlap(&mine, since, event.at, timeout / 4);
            if disturbed < timeout * 11 / 20 {
                let times = format!("{} of disturbance since {since}", seconds(disturbed));
                findings.violation(format!("{client} lost session {session} at {}: {times}", event.at));
            }
            let late = event.at.saturating_sub(*deadline);
            if overlap(&mine, *deadline, event.at, 0) == 0 {
                latest = latest.max(late);
                if late > LATE {
                    findings.violation(format!(
                        "{client} reported the loss {} after the deadline of {session}",
                        seconds(late)
                    ));
                }
            }
        }
    }
    by_hand.sort_unstable();
    let (median, most) = (by_hand.get(by_hand.len() / 2), by_hand.last());
    findings.figure(format!(
        "{lost} sessions lost by faults, none of them for an outage below 0.55 of its timeout"
    ));
    findings.figure(format!("losses reported at most {} after the deadline", seconds(latest)));
    findings.figure(format!(
        "{} sessions ended before their time: reported after {} (median), {} (at most)",
        by_hand.len(),
        seconds(*median.unwrap_or(&0)),
        seconds(*most.unwrap_or(&0))
    ));
    findings
}

/// Checks that whenever a lock is found lost, `lost()` is ready too.
fn silent(history: &History, findings: &mut Findings) {
    let mut unheld = BTreeMap::new();
    for event in &history.events {
        match event.what {
            What::Unheld { op, .. } => {
                unheld.insert(op, event.at);
            }
            What::Lost { op } => {
                unheld.remove(&op);
            }
            // By now it has waited for it.
            What::Release { op } => {
                if let Some(at) = unheld.remove(&op) {
                    findings.violation(format!(
                        "{} op {op} was not held at {at}, and the loss was not reported",
                        history.client
                    ));
                }
            }
            _ => {}
        }
    }
}

/// Returns the total length of the disturbances within a time. A client needs `patience` to notice that a server is silent.
pub(super) fn overlap(disturbances: &[&Disturbance], from: Ns, until: Ns, patience: Ns) -> Ns {
    let times = disturbances.iter().flat_map(|d| match d.server {
        None => vec![(d.from, d.until)],
        server => {
            let others = disturbances.iter().filter(|other| other.server > server);
            let overlaps = others.map(|other| (d.from.max(other.from), d.until.min(other.until)));
            overlaps.chain([(d.from, d.until.min(d.from + patience))]).collect()
        }
    });
    let cut = times.map(|(start, end)| (start.max(from), end.min(until)));
    let mut parts: Vec<_> = cut.filter(|(from, until)| from < until).collect();
    parts.sort_unstable();
    let (mut sum, mut end) = (0, from);
    for (from, until) in parts {
        sum += until.saturating_sub(from.max(end));
        end = end.max(until);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Ns = 1000 * MS;

    fn bad(at: Ns, disturbances: &[(Ns, Ns, Option<&str>)], endings: &[Ending]) -> usize {
        let line = format!("{at} session epoch=1 session=7 state=Lost deadline={}\n", 30 * S);
        let histories = [History::parse("c1-1", &line).unwrap()];
        let disturbances: Vec<_> = disturbances
            .iter()
            .map(|&(from, until, client)| {
                let client = client.map(str::to_owned);
                Disturbance { from, until, client, misleads: false, server: None }
            })
            .collect();
        signal(&histories, endings, &disturbances, 10 * S).violations.len()
    }

    #[test]
    fn a_loss_for_nothing_is_caught() {
        assert_eq!(bad(30 * S, &[], &[]), 1);
        assert_eq!(bad(30 * S, &[(20 * S, 25 * S, None)], &[]), 1);
        assert_eq!(bad(30 * S, &[(20 * S, 25 * S, None), (24 * S, 26 * S, Some("c1-"))], &[]), 0);
        assert_eq!(bad(30 * S, &[(20 * S, 27 * S, Some("c2-"))], &[]), 1);
        assert_eq!(bad(30 * S, &[(5 * S, 17 * S, None)], &[]), 1);
    }

    #[test]
    fn a_session_that_a_replaced_leader_kept_is_no_false_loss() {
        let line = format!("{} session epoch=1 session=7 state=Lost deadline={}\n", 21 * S, 30 * S);
        let histories = [History::parse("c1-1", &line).unwrap()];
        for (misleads, bad) in [(true, 0), (false, 1)] {
            let cut = Disturbance { from: 8 * S, until: 21 * S, client: None, misleads, server: None };
            assert_eq!(signal(&histories, &[], &[cut], 10 * S).violations.len(), bad);
        }
    }

    #[test]
    fn the_time_without_two_of_the_servers_is_a_disturbance() {
        let line = format!("{} session epoch=1 session=7 state=Lost deadline={}\n", 30 * S, 30 * S);
        let histories = [History::parse("c1-1", &line).unwrap()];
        for (other, bad) in [(1, 0), (0, 1)] {
            let silent = |client: Option<&str>, server| {
                let client = client.map(str::to_owned);
                Disturbance { from: 19 * S, until: 31 * S, client, misleads: false, server: Some(server) }
            };
            let both = [silent(Some("c1-"), 0), silent(None, other)];
            assert_eq!(signal(&histories, &[], &both, 10 * S).violations.len(), bad);
            assert_eq!(signal(&histories, &[], &both[1..], 10 * S).violations.len(), 1);
        }
    }

    #[test]
    fn a_silent_server_is_a_disturbance_until_the_client_turns_to_another_one() {
        let line = format!("{} session epoch=1 session=7 state=Lost deadline={}\n", 30 * S, 30 * S);
        let histories = [History::parse("c1-1", &line).unwrap()];
        for (from, bad) in [(21 * S, 0), (15 * S, 1)] {
            let silent =
                |from, until, server| Disturbance { from, until, client: None, misleads: false, server };
            let both = [silent(from, 31 * S, Some(0)), silent(26 * S, 31 * S, None)];
            assert_eq!(signal(&histories, &[], &both, 10 * S).violations.len(), bad);
        }
    }

    #[test]
    fn a_session_ended_by_hand_is_no_false_loss() {
        let ending = Ending::by_hand;
        assert_eq!(bad(21 * S, &[], &[ending(7, 20 * S)]), 0);
        assert_eq!(bad(21 * S, &[], &[ending(8, 20 * S)]), 1);
        assert_eq!(bad(21 * S, &[], &[ending(7, 22 * S)]), 1);
        // At rest, it is noticed later.
        let late = Ending { until: 15 * S, ..ending(7, 10 * S) };
        assert_eq!(bad(21 * S, &[], &[late]), 0);
    }

    #[test]
    fn a_missed_notice_is_caught() {
        for (lines, bad) in [
            ("1 unheld op=1 last=0\n2 lost op=1\n3 release op=1\n", 0),
            ("1 unheld op=1 last=0\n3 release op=1\n", 1),
            ("1 unheld op=1 last=0\n", 0),
        ] {
            let histories = [History::parse("c", lines).unwrap()];
            assert_eq!(signal(&histories, &[], &[], S).violations.len(), bad, "{lines}");
        }
    }

    #[test]
    fn late_news_is_caught_unless_the_process_stood_still() {
        let outage = (20 * S, 29 * S, None);
        assert_eq!(bad(30 * S + LATE, &[outage], &[]), 0);
        assert_eq!(bad(31 * S, &[outage], &[]), 1);
        assert_eq!(bad(31 * S, &[outage, (30 * S, 31 * S, Some("c1-"))], &[]), 0);
    }
}
