//! The state of a scope, by which watches see a change: its incarnation, the number of its entries, and the highest number of a write.
//! The watches and what fires them are those of the real `Hub`.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use zlock_core::SessionId;
use zlock_ledger::{Entry, Hub, Kind, Mark, Scope, Watching};

use super::super::search::Wrong;
use super::{Case, Steps, Subject};

const UNNOTICED: Wrong = "a change that no poll notices";

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    Locked,
    Numbered,
    Count,
    Highest,
    Incarnation,
    OwnRead,
    ArmedFirst,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    keys: usize,
    writes: u8,
    /// How many watch the whole scope. One more watches its first key.
    watchers: usize,
    /// Restarts that undo deletes, and promotions of a replica that lags.
    crashes: u8,
    promotions: u8,
    /// Whether numbers are given again after that.
    goes_back: bool,
}

/// Created, changed, and a number of its own for each write.
type Value = (u64, u64, u64);
type View = Vec<Option<Value>>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Watch {
    Idle,
    /// The incarnation that was known when it was armed.
    Armed(u64),
    /// Without `ArmedFirst`: what was read before.
    Unarmed(View),
    Read(u64, View),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    entries: View,
    number: u64,
    /// The number of a write, and its key.
    open: Vec<(u64, usize)>,
    /// Deletes that a restart undoes.
    deleted: Vec<(usize, Option<Value>)>,
    replica: (View, u64),
    incarnation: u64,
    known: u64,
    watches: Vec<Watch>,
    writes: u8,
    crashes: u8,
    promotions: u8,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct States;

/// Returns what a watch reads.
fn seen(watch: usize, entries: &View) -> View {
    if watch == 0 { entries[..1].to_vec() } else { entries.clone() }
}

/// Returns the number of entries and the highest number of a write.
fn mark(entries: &View) -> (u64, u64) {
    let changed = entries.iter().flatten().map(|entry| entry.1);
    (entries.iter().flatten().count() as u64, changed.max().unwrap_or(0))
}

impl Case<States> {
    fn is_changed(&self, state: &State, mark: &Mark) -> bool {
        match mark {
            Mark::Key { changed, .. } => self::mark(&seen(0, &state.entries)).1 != *changed,
            Mark::Scope { count, changed, .. } => {
                let now = self::mark(&state.entries);
                now.0 != *count && self.has(Rule::Count) || now.1 != *changed && self.has(Rule::Highest)
            }
        }
    }

    /// Returns which watches a poll fires that is answered now.
    fn fired(&self, state: &State) -> Vec<usize> {
        let (hub, has_incarnation) = (Arc::new(Hub::default()), self.has(Rule::Incarnation));
        let scope = Scope { kind: Kind::Group, path: "/group".into() };
        let mut watches = Vec::new();
        for (watch, this) in state.watches.iter().enumerate() {
            let Watch::Read(known, view) = this else { continue };
            hub.begin(if has_incarnation { *known } else { 0 });
            let watching = hub.arm(&scope, (watch == 0).then_some("0"));
            let entry = |(key, (created, changed, _)): (usize, Value)| {
                let (key, data) = (key.to_string(), Vec::new());
                Entry { key, created, changed, owner: None, label: None, writes: 0, time: None, data }
            };
            let entries: Vec<_> =
                (0..).zip(view).filter_map(|(key, value)| Some(entry((key, (*value)?)))).collect();
            watching.read(&entries, SessionId::new(1));
            watches.push((watch, watching));
        }
        let mut asked = hub.asks();
        let changed_of = |mark: &Mark| match mark {
            Mark::Scope { changed, .. } => *changed,
            Mark::Key { .. } => u64::MAX,
        };
        if let (false, Some(lowest)) =
            (self.has(Rule::OwnRead), asked.marks.iter().min_by_key(|mark| changed_of(mark)).cloned())
        {
            let of_scope = asked.marks.iter_mut().filter(|mark| matches!(mark, Mark::Scope { .. }));
            of_scope.for_each(|mark| *mark = lowest.clone());
        }
        let changed = asked.marks.iter().enumerate().filter(|(_, mark)| self.is_changed(state, mark));
        let changed: Vec<_> = changed.map(|(position, _)| position).collect();
        hub.answered(&asked, if has_incarnation { state.incarnation } else { 0 }, &changed);
        let fires = |(watch, watching): (usize, Watching)| {
            let fired = pin!(watching.fired());
            fired.poll(&mut Context::from_waker(Waker::noop())).is_ready().then_some(watch)
        };
        watches.into_iter().filter_map(fires).collect()
    }
}

const RUN: Run = Run { keys: 2, writes: 5, watchers: 1, crashes: 0, promotions: 0, goes_back: false };

impl Subject for States {
    type State = State;
    type Rule = Rule;
    type Run = Run;

    const SUBJECT: &'static str = "states of a scope";
    const RULES: &'static [(Rule, &'static str, Wrong)] = &[
        (Rule::Locked, "a number is taken and committed under the scope's lock: without it", UNNOTICED),
        (Rule::Numbered, "an update takes a number: it does not", UNNOTICED),
        (Rule::Count, "a state has the number of entries: it has not", UNNOTICED),
        (Rule::Highest, "a state has the highest number of a write: it has not", UNNOTICED),
        (Rule::Incarnation, "a state has the incarnation: it has not", UNNOTICED),
        (Rule::OwnRead, "each watch compares with its own read: all with the lowest of them", UNNOTICED),
        (Rule::ArmedFirst, "a watch is armed before the read: after it", UNNOTICED),
    ];

    const QUICK: &'static [Run] = &[
        RUN,
        Run { writes: 4, crashes: 1, ..RUN },
        Run { writes: 3, promotions: 1, goes_back: true, ..RUN },
    ];
    const MORE: &'static [Run] = &[
        Run { keys: 3, writes: 6, ..RUN },
        Run { keys: 3, writes: 4, watchers: 2, ..RUN },
        Run { keys: 3, crashes: 2, ..RUN },
        Run { keys: 3, writes: 4, promotions: 1, ..RUN },
        Run { keys: 3, writes: 4, promotions: 1, goes_back: true, ..RUN },
    ];

    fn first(case: &Case<Self>) -> State {
        let entries = vec![None; case.run.keys];
        let Run { crashes, promotions, watchers, .. } = case.run;
        let (replica, watches) = ((entries.clone(), 0), vec![Watch::Idle; watchers + 1]);
        State { entries, replica, watches, crashes, promotions, ..State::default() }
    }

    fn steps(case: &Case<Self>, state: &State, steps: &mut Steps<'_, Self>) {
        for key in (0..case.run.keys).filter(|_| state.writes < case.run.writes) {
            if state.open.iter().all(|open| !case.has(Rule::Locked) && open.1 != key) {
                steps.fault("takes a number to write", key, |state| {
                    (state.writes, state.number) = (state.writes + 1, state.number + 1);
                    state.open.push((state.number, key));
                });
            }
            if let Some(entry) = state.entries[key] {
                steps.fault("deletes", key, |state| {
                    (state.writes, state.entries[key]) = (state.writes + 1, None);
                    if state.crashes > 0 {
                        state.deleted.push((key, Some(entry)));
                    }
                });
            }
        }
        for at in 0..state.open.len() {
            steps.fault("commits", state.open[at].1, |state| {
                let (number, key) = state.open.remove(at);
                let content = number + 100 * u64::from(state.writes);
                state.entries[key] = Some(match state.entries[key] {
                    None => (number, number, content),
                    Some((created, changed, _)) => {
                        (created, if case.has(Rule::Numbered) { number } else { changed }, content)
                    }
                });
                state.deleted.clear();
            });
        }
        for watch in 0..state.watches.len() {
            let view = || seen(watch, &state.entries);
            let next = match &state.watches[watch] {
                Watch::Idle if case.has(Rule::ArmedFirst) => Watch::Armed(state.known),
                Watch::Idle => Watch::Unarmed(view()),
                Watch::Armed(known) => Watch::Read(*known, view()),
                Watch::Unarmed(view) => Watch::Read(state.known, view.clone()),
                Watch::Read(..) => continue,
            };
            steps.step("arms or reads", watch, |state| state.watches[watch] = next);
        }
        if state.watches.iter().any(|watch| matches!(watch, Watch::Read(..))) {
            let fired = case.fired(state);
            steps.fault("poll", fired.len(), |state| {
                fired.iter().for_each(|watch| state.watches[*watch] = Watch::Idle);
                state.known = state.incarnation;
            });
        }
        if state.crashes > 0 && state.open.is_empty() {
            for kept in 0..=state.deleted.len() {
                steps.fault("CRASH, deletes kept", kept, |state| {
                    (state.crashes, state.incarnation) = (state.crashes - 1, state.incarnation + 1);
                    for (key, entry) in state.deleted.split_off(kept) {
                        state.entries[key] = entry;
                    }
                    state.deleted.clear();
                });
            }
        }
        if state.promotions > 0 {
            steps.fault("replica catches up", 0, |state| {
                state.replica = (state.entries.clone(), state.number);
            });
            steps.fault("REPLICA PROMOTED", 0, |state| {
                (state.promotions, state.incarnation) = (state.promotions - 1, state.incarnation + 1);
                let given = state.number;
                (state.entries, state.number) = state.replica.clone();
                state.number = if case.run.goes_back { state.number } else { given };
                state.open.clear();
            });
        }
    }

    fn wrong(case: &Case<Self>, state: &State) -> Option<Wrong> {
        let is_old = |(watch, this): (usize, &Watch)| match this {
            Watch::Read(_, view) if *view != seen(watch, &state.entries) => Some(watch),
            _ => None,
        };
        let mut old = state.watches.iter().enumerate().filter_map(is_old).peekable();
        old.peek()?;
        let fired = case.fired(state);
        old.any(|watch| !fired.contains(&watch)).then_some(UNNOTICED)
    }

    fn run_without(rule: Rule) -> Run {
        match rule {
            Rule::Incarnation => Run { keys: 3, crashes: 1, ..RUN },
            Rule::ArmedFirst => Run { writes: 2, promotions: 1, goes_back: true, ..RUN },
            Rule::OwnRead => Run { watchers: 2, ..RUN },
            _ => RUN,
        }
    }
}
