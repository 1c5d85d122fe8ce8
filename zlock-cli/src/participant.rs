//! Displays a participant of a lock: a holder or a waiter.

use serde_json::{Value, json};
use zlock::Participant;
use zlock::backend::Label;

use crate::output::{Colour, paint, printable, utc};

/// The titles of a table of participants.
pub(crate) const TITLES: [&str; 7] = ["STATE", "KIND", "TOKEN", "SESSION", "SINCE", "REVOKED", "WHO"];

/// Formats a participant as a row of that table.
pub(crate) fn row(participant: &Participant) -> [String; 7] {
    let unknown = || "-".to_owned();
    [
        state(participant).to_owned(),
        kind(participant.label),
        participant.fencing_token.map_or_else(unknown, |token| token.to_string()),
        participant.session.map_or_else(unknown, |session| session.to_string()),
        participant.created.map_or_else(unknown, utc),
        if participant.is_revocation_requested() { "yes" } else { "no" }.to_owned(),
        who(participant).unwrap_or_else(unknown),
    ]
}

/// Formats a participant as JSON. Unknown fields are null.
pub(crate) fn to_json(participant: &Participant) -> Value {
    let who = who(participant);
    let (host, process) = who.as_deref().and_then(host_and_process).unzip();
    json!({
        "state": state(participant),
        "kind": kind(participant.label),
        "token": participant.fencing_token.map(|token| token.number()),
        "session": participant.session.map(|session| session.to_string()),
        "since": participant.created.map(utc),
        "revocation_requested": participant.is_revocation_requested(),
        "node": participant.name.as_str(),
        "host": host,
        "process": process,
        "data": who,
    })
}

/// Formats a participant as a line of an event list.
pub(crate) fn line(participant: &Participant) -> String {
    let [_, kind, token, session, ..] = row(participant);
    let who = who(participant).unwrap_or_else(|| "-".to_owned());
    format!("{kind} token {token} session {session} {who}")
}

/// Returns the state in its colour.
pub(crate) fn painted(state: &str) -> String {
    paint(state, if state == "holds" { Colour::Green } else { Colour::Yellow })
}

pub(crate) fn state(participant: &Participant) -> &'static str {
    if participant.is_holder { "holds" } else { "waits" }
}

fn kind(label: Label) -> String {
    match label {
        Label::Lock => "exclusive".to_owned(),
        Label::Candidate => "candidate".to_owned(),
        Label::Read => "shared".to_owned(),
        Label::Write => "write".to_owned(),
        // A maximum that may change is not in the label.
        Label::Permits { weight, max: 0, .. } => format!("{weight}/shared"),
        Label::Permits { weight, max, .. } => format!("{weight}/{max}"),
        _ => "unknown".to_owned(),
    }
}

/// Returns the data that the client stored in its node, unless a request for revocation has overwritten it.
pub(crate) fn who(participant: &Participant) -> Option<String> {
    let is_there = !participant.data.is_empty() && !participant.is_revocation_requested();
    is_there.then(|| printable(&participant.data))
}

/// Parses `HOST pid NUMBER ..`, the format of zlock's clients.
fn host_and_process(data: &str) -> Option<(String, u64)> {
    let mut words = data.split(' ');
    let (host, pid, number) = (words.next()?, words.next()?, words.next()?);
    (pid == "pid").then_some(())?;
    Some((host.to_owned(), number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_zlocks_data_has_a_host_and_a_process() {
        assert_eq!(host_and_process("web1 pid 42 (backup)"), Some(("web1".to_owned(), 42)));
        assert_eq!(host_and_process("web1 pid 42"), Some(("web1".to_owned(), 42)));
        for other in ["", "10.0.0.1", "web1 pid", "web1 pid x", "web1 is 42"] {
            assert_eq!(host_and_process(other), None, "{other}");
        }
    }
}
