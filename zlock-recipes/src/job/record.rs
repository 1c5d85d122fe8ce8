//! The record of a job: what its last run was, as lines that a person can read.
//!
//! ```text
//! zlock job 1
//! tick: 2026-11-24T21:00:00Z
//! state: done
//! attempt: 1
//! token: 4711
//! by: web-1 pid 77
//! since: 2026-11-24T21:00:00.123Z
//! first: 2026-11-01T00:00:00Z
//! done: 2026-11-24T21:00:00Z
//! next: 2026-11-24T22:00:00Z
//! period: 3600s
//! ran: 2026-11-24T21:00:00Z done 1 2026-11-24T21:00:00.020Z 2026-11-24T21:00:00.123Z web-1 pid 77
//! ```
//!
//! The first line has the version of the format. Later programs may add fields; this one keeps those that it does not know.

use std::fmt::Write;
use std::str::FromStr;
use std::time::Duration;

use zlock_core::{Error, ErrorKind, Excerpt, FencingToken, LockPath, Result};

use crate::job::past_run::PastRun;
use crate::job::run_state::RunState;
use crate::job::tick::Tick;

const FIRST_LINE: &str = "zlock job ";
const VERSION: u32 = 1;

/// The last run of a job, as its record has it. Returned by [`RecurringJob::last`](super::RecurringJob::last).
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The tick that the run is for.
    pub tick: Tick,
    /// The state of the run.
    pub state: RunState,
    /// The number of the attempt, starting at 1.
    pub attempt: u32,
    /// The fencing token of the attempt.
    pub fencing_token: FencingToken,
    /// The process that runs it: the first 200 characters of its client's node data, by default the host name and the process ID.
    pub by: String,
    /// When the state was written, by the clock of that process. For display only.
    pub since: Tick,
    /// The first tick that was run, as far as it is known.
    pub first: Tick,
    /// The last tick whose run ended without an error.
    pub last_done: Option<Tick>,
    /// The times of machines that were refused since, because they are so much later than [`tick`](Self::tick): their clocks may
    /// be wrong. The earliest is the first.
    pub doubted: Vec<Tick>,
    /// The next tick, if the process knew it. With a schedule, it is that of the schedule.
    pub next: Option<Tick>,
    /// The longest time between two ticks, if the process knew it.
    pub period: Option<Duration>,
    /// The last runs that have ended, the latest first: at most ten, within 4,000 bytes. Each attempt is one.
    pub history: Vec<PastRun>,
    /// The fields that this version does not know.
    other: Vec<(String, String)>,
}

impl Run {
    /// Returns the first attempt, or the next one, of a run for this tick.
    pub(crate) fn claim(
        before: Option<&Run>,
        tick: Tick,
        attempt: u32,
        fencing_token: FencingToken,
        by: &str,
        since: Tick,
    ) -> Self {
        let (last_done, other) = before.map(|run| (run.last_done, run.other.clone())).unwrap_or_default();
        let history = match before {
            // Its process has died.
            Some(run) if run.state == RunState::Started => run.unended().before(&run.history),
            before => before.map(|run| run.history.clone()).unwrap_or_default(),
        };
        let first = before.map_or(tick, |run| run.first);
        // For people to read. Bytes that are no text take three times as much room.
        let by = Excerpt::of(&by.split(char::is_control).collect::<Vec<_>>().join(" ")).to_string();
        Run {
            tick,
            state: RunState::Started,
            attempt,
            fencing_token,
            by,
            since,
            first,
            last_done,
            doubted: Vec::new(),
            next: None,
            period: None,
            history,
            other,
        }
    }

    /// Returns the run as it is when it has ended.
    pub(crate) fn ended(&self, state: RunState, since: Tick) -> Self {
        let last_done = if state == RunState::Done { Some(self.tick) } else { self.last_done };
        let history = self.past(state, Some(since)).before(&self.history);
        Run { state, since, last_done, history, ..self.clone() }
    }

    /// Returns a run that has not ended as it will be in the [`history`](Self::history) if its process dies.
    #[must_use]
    pub fn unended(&self) -> PastRun {
        self.past(RunState::Started, None)
    }

    /// Returns this run, which has begun at its `since`, with its end.
    fn past(&self, state: RunState, ended: Option<Tick>) -> PastRun {
        let Run { tick, attempt, since: began, .. } = *self;
        PastRun { tick, state, attempt, began, ended, by: self.by.clone() }
    }

    /// Returns the run with a note that a machine with this time was refused.
    pub(crate) fn doubts(&self, notes: Vec<Tick>) -> Self {
        Run { doubted: notes, ..self.clone() }
    }

    /// Parses the data of the value at `path`. Returns `None` for a value without data.
    pub(crate) fn parse(data: &[u8], path: &LockPath) -> Result<Option<Run>> {
        if data.is_empty() {
            return Ok(None);
        }
        let refused = |message: String| {
            Error::new(ErrorKind::InvalidArgument, "job").with_path(path).with_message(message)
        };
        let not_a_record = |what: &str| refused(format!("the value is not the record of a job: {what}"));
        let text = std::str::from_utf8(data).map_err(|_| not_a_record("it is not text"))?;
        let mut lines = text.lines();
        let version = lines.next().and_then(|line| line.strip_prefix(FIRST_LINE)).map(u32::from_str);
        match version {
            Some(Ok(VERSION)) => {}
            Some(Ok(other)) => {
                return Err(refused(format!(
                    "the record has the version {other}; this program knows {VERSION}"
                )));
            }
            _ => return Err(not_a_record("the first line is not \"zlock job 1\"")),
        }
        let mut fields = Vec::new();
        for line in lines.filter(|line| !line.trim().is_empty()) {
            let field =
                line.split_once(':').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
            fields.push(field.ok_or_else(|| not_a_record(&format!("the line {line:?} has no field")))?);
        }
        let mut take = |name: &str| {
            let position = fields.iter().position(|(field, _)| field == name);
            position.map(|position| fields.remove(position).1)
        };
        let missing = |name: &str| not_a_record(&format!("the field {name:?} is missing or wrong"));
        let (mut history, mut unknown) = (Vec::new(), Vec::new());
        while let Some(ran) = take("ran") {
            // For people only, so what a later program has written keeps no job from running.
            match PastRun::parse(&ran) {
                Some(run) => history.push(run),
                None => unknown.push(("ran".to_owned(), ran)),
            }
        }
        let state =
            take("state").and_then(|state| RunState::parse(&state)).ok_or_else(|| missing("state"))?;
        fn parsed<T: FromStr>(field: Option<String>) -> Option<T> {
            field?.parse().ok()
        }
        let tick = parsed(take("tick")).ok_or_else(|| missing("tick"))?;
        let attempt = parsed(take("attempt")).ok_or_else(|| missing("attempt"))?;
        let token = take("token").and_then(|token| parse_token(&token)).ok_or_else(|| missing("token"))?;
        let since = parsed(take("since")).ok_or_else(|| missing("since"))?;
        let first = take("first").map(|first| first.parse().map_err(|_| missing("first"))).transpose()?;
        let first = first.unwrap_or(tick);
        let last_done = take("done").map(|done| done.parse().map_err(|_| missing("done"))).transpose()?;
        let next = take("next").map(|next| next.parse().map_err(|_| missing("next"))).transpose()?;
        let doubted = take("doubted").unwrap_or_default();
        let doubted = doubted.split_whitespace().map(str::parse).collect::<Result<_>>();
        let doubted = doubted.map_err(|_| missing("doubted"))?;
        let period =
            take("period").map(|time| parse_seconds(&time).ok_or_else(|| missing("period"))).transpose()?;
        let (by, fencing_token, other) = (take("by").unwrap_or_default(), token, [fields, unknown].concat());
        Ok(Some(Run {
            tick,
            state,
            attempt,
            fencing_token,
            by,
            since,
            first,
            last_done,
            doubted,
            next,
            period,
            history,
            other,
        }))
    }

    /// Returns the data of the record.
    pub(crate) fn to_data(&self) -> String {
        let Run {
            tick,
            state,
            attempt,
            fencing_token,
            by,
            since,
            first,
            last_done,
            doubted,
            next,
            period,
            history,
            other,
        } = self;
        let mut text = format!("{FIRST_LINE}{VERSION}\ntick: {tick}\nstate: {state}\nattempt: {attempt}\n");
        // Writing to a string never fails.
        let _ = write!(text, "token: {}", fencing_token.number());
        if fencing_token.turn() > 0 {
            let _ = write!(text, ".{}", fencing_token.turn());
        }
        let _ = write!(text, "\nby: {by}\nsince: {since}\nfirst: {first}\n");
        if let Some(time) = last_done {
            let _ = writeln!(text, "done: {time}");
        }
        if !doubted.is_empty() {
            let notes: Vec<_> = doubted.iter().map(Tick::to_string).collect();
            let _ = writeln!(text, "doubted: {}", notes.join(" "));
        }
        if let Some(time) = next {
            let _ = writeln!(text, "next: {time}");
        }
        if let Some(period) = period {
            let _ = writeln!(text, "period: {}s", period.as_secs_f64());
        }
        for run in history {
            let _ = writeln!(text, "ran: {}", run.to_line());
        }
        for (name, value) in other {
            let _ = writeln!(text, "{name}: {value}");
        }
        text
    }
}

/// Parses a time such as `300s`.
fn parse_seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.strip_suffix('s')?.parse().ok()?).ok()
}

fn parse_token(text: &str) -> Option<FencingToken> {
    let (number, turn) = text.split_once('.').unwrap_or((text, "0"));
    Some(FencingToken::new(number.parse().ok()?).with_turn(turn.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = "zlock job 1\ntick: 2026-11-24T21:00:00Z\nstate: started\nattempt: 2\ntoken: 47.1\nby: a b\n\
                          since: 2026-11-24T21:00:01.500Z\nfirst: 2026-11-01T00:00:00Z\ndone: 2026-11-24T20:00:00Z\nnext: 2026-11-24T22:00:00Z\n\
                          period: 3600.5s\nran: 2026-11-24T20:00:00Z failed 1 2026-11-24T20:00:00.001Z 2026-11-24T20:00:02Z a b\npriority: high: 7\n";

    fn parse(text: &str) -> Result<Option<Run>> {
        Run::parse(text.as_bytes(), &LockPath::new("/jobs/a").unwrap())
    }

    #[test]
    fn a_record_is_read_as_it_was_written_with_fields_of_later_programs() {
        let run = parse(RECORD).unwrap().unwrap();
        assert_eq!((run.state, run.attempt, run.by.as_str()), (RunState::Started, 2, "a b"));
        assert_eq!(run.fencing_token, FencingToken::new(47).with_turn(1));
        assert_eq!(run.to_data(), RECORD);
        let done = run.ended(RunState::Done, run.tick);
        assert_eq!(done.last_done, Some(run.tick));
        assert_eq!(done.history[1..], run.history[..]);
        let last = &done.history[0];
        assert_eq!((last.state, last.attempt, &*last.by), (RunState::Done, 2, "a b"));
        assert_eq!((last.began, last.ended), (run.since, Some(run.tick)));
        assert!(done.to_data().contains("\ndone: 2026-11-24T21:00:00Z\n"));
        assert!(done.to_data().ends_with("\npriority: high: 7\n"));
        let doubts = done.doubts(vec![run.since, run.tick]);
        let line = "\ndoubted: 2026-11-24T21:00:01.500Z 2026-11-24T21:00:00Z\nnext: ";
        assert!(doubts.to_data().contains(line), "{}", doubts.to_data());
        assert_eq!(parse(&doubts.to_data()).unwrap().unwrap(), doubts);
        assert_eq!(Run::claim(Some(&doubts), run.tick, 1, run.fencing_token, "", run.since).doubted, []);
        let failed = run.ended(RunState::Failed, run.since);
        assert_eq!(failed.last_done, run.last_done);
        let died = Run::claim(Some(&run), run.tick, 3, run.fencing_token, "", run.since);
        assert_eq!((died.history[0].ended, died.history[0].state), (None, RunState::Started));
        assert_eq!(parse(&died.to_data()).unwrap().unwrap(), died);
        let next = Run::claim(Some(&done), run.tick, 1, FencingToken::new(48), "c\nstate: done", run.since);
        assert_eq!(parse(&next.to_data()).unwrap().unwrap(), next);
        assert!(
            next.to_data().contains("\nby: c state: done\n")
                && next.to_data().contains("priority: high: 7\n")
        );
        assert_eq!((next.first, done.first), (run.first, run.first));
        let later = RECORD.replace("Z failed 1", "Z doubtful 1");
        let run = parse(&later).unwrap().unwrap();
        assert!(run.history.is_empty() && run.to_data().contains("\nran: 2026-11-24T20:00:00Z doubtful 1 "));
        let without = RECORD.replace("first: 2026-11-01T00:00:00Z\n", "");
        assert_eq!(parse(&without).unwrap().unwrap().first, run.tick, "by an earlier program");
        assert_eq!(parse("").unwrap(), None);
    }

    #[test]
    fn the_history_is_bounded() {
        let mut run = parse(RECORD).unwrap().unwrap();
        for n in 1..30 {
            run = Run::claim(Some(&run), run.tick, n, run.fencing_token, "a", run.since);
            run = run.ended(RunState::Failed, run.since);
        }
        let attempts: Vec<_> = run.history.iter().map(|run| run.attempt).collect();
        assert_eq!(attempts, (20..30).rev().collect::<Vec<_>>());
        for n in 1..30 {
            run =
                Run::claim(Some(&run), run.tick, n, run.fencing_token, &"\u{10ffff}".repeat(1000), run.since);
            run = run.ended(RunState::Done, run.since);
        }
        assert!(run.history.len() < 10 && run.to_data().len() < 6000, "{}", run.to_data().len());
    }

    #[test]
    fn other_data_is_refused() {
        for (from, to) in [
            ("zlock job 1", "zlock job 2"),
            ("zlock job 1", "{}"),
            ("tick: 2026", "tick: x"),
            ("state: started", "state: asleep"),
            ("attempt: 2", "attempt: -2"),
            ("token: 47.1", "tokens: 47"),
            ("since: ", "since: x"),
            ("first: ", "first: x"),
            ("done: ", "done: x"),
            ("next: ", "next: x"),
            ("period: ", "period: x"),
            ("period: ", "period: -"),
            ("priority: high: 7", "priority"),
        ] {
            let error = parse(&RECORD.replace(from, to)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{to}: {error}");
        }
        assert!(Run::parse(&[0xff], &LockPath::new("/jobs/a").unwrap()).is_err());
    }
}
