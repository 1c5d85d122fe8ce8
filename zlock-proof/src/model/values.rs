//! Writes of a value whose answers may be lost: compare-and-set, guarded by a lock's node, with receipts.
//!
//! Real code: `WriteAttempts` of `zlock_core::kit`. Modelled: the store, what a backend does around the attempts, and everything
//! that can happen to them. A client sends an attempt again when its answer does not arrive. The requests of a session arrive in
//! the order in which they were sent, which on etcd means that a write begins only when no abandoned one of the same client is
//! under way.

use stateright::{Model, Property};
use zlock_core::kit::{SessionKey, WriteAttempts};
use zlock_core::{SessionId, WriteOutcome};

use super::search::{Rules, Wrong};

/// A rule about writes of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueRule {
    ReceiptRead,
    OwnReceipt,
    EarlierSessions,
    CreatedOnce,
    GuardChecked,
    Incarnation,
    InOrder,
}

const TWICE: Wrong = "a write took effect twice";
const REPORTED_WRONGLY: Wrong = "an outcome that is not true";
const UNGUARDED: Wrong = "a write without its guard";
const NEVER_READ: Wrong = "a write over a value that was not read";
const TOO_LATE: Wrong = "a cancelled write took effect after the next one";

/// The number of clients, of writes of each, and of sessions that end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    clients: u8,
    writes: u8,
    losses: u8,
    /// Whether somebody deletes and creates the value by hand, once each.
    by_hand: bool,
    /// Whether the value is missing at first.
    is_missing: bool,
}

/// The version of a value: what identifies its incarnation, and a number that begins again in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Version {
    incarnation: u8,
    number: u8,
}

/// A request on its way to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sent {
    client: u8,
    session: u8,
    write: u8,
    expected: Option<Version>,
    /// Whether the guard's node existed when it was sent.
    guarded_when_sent: bool,
    /// Whether its client still waits for the answer.
    is_awaited: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Written,
    Conflict,
    GuardGone,
}

/// A write in progress.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Writing {
    write: u8,
    expected: Option<Version>,
    attempts: WriteAttempts,
    /// Whether the outcome of an earlier attempt is unknown.
    ambiguous: bool,
    is_sent: bool,
    answer: Option<Answer>,
}

impl State {
    /// The client no longer waits for the answer to what it has sent.
    fn give_up(&mut self, client: u8) {
        self.wire.iter_mut().filter(|sent| sent.client == client).for_each(|sent| sent.is_awaited = false);
        if let Some(writing) = self.clients[usize::from(client)].writing.as_mut().filter(|w| w.is_sent) {
            (writing.is_sent, writing.ambiguous, writing.answer) = (false, true, None);
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    session: u8,
    /// The number of writes that it has begun.
    begun: u8,
    /// The version that it read last.
    seen: Option<Version>,
    writing: Option<Writing>,
    /// The write of the receipt that the store has of its session.
    receipt: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    value: Option<Version>,
    incarnations: u8,
    has_guard: bool,
    losses: u8,
    by_hand: u8,
    clients: Vec<Client>,
    wire: Vec<Sent>,
    /// Every write that has taken effect.
    applied: Vec<u8>,
    /// Every write that must not take effect any more.
    void: Vec<u8>,
    /// Every write that was cancelled.
    cancelled: Vec<u8>,
    wrong: Option<Wrong>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Action {
    /// The client reads the version.
    Read(u8),
    /// The client begins a write over what it read last.
    Write(u8),
    /// The next attempt is sent.
    Send(u8),
    /// The store executes the request.
    Serve(usize),
    /// The answer arrives.
    Hear(u8),
    /// The client gives up waiting for the answer, or the request is lost.
    GiveUp(u8),
    Lose(usize),
    Cancel(u8),
    EndSession(u8),
    /// The node of the lock under which the first client writes is gone.
    RemoveGuard,
    DeleteByHand,
    CreateByHand,
}

/// The model with all rules, or without one.
#[derive(Debug)]
pub(crate) struct Writes {
    run: Run,
    left_out: Option<ValueRule>,
}

impl Writes {
    fn has(&self, rule: ValueRule) -> bool {
        self.left_out != Some(rule)
    }

    fn is_guarded(client: u8) -> bool {
        client == 0
    }

    fn send(&self, state: &mut State, client: u8) {
        let guarded_when_sent = state.has_guard;
        let this = &mut state.clients[usize::from(client)];
        let (session, Some(writing)) = (this.session, &mut this.writing) else { return };
        let key = SessionKey { epoch: session.into(), id: SessionId::new(session.into()) };
        let (write, expected) = (writing.write, writing.expected);
        let version = expected.map(|_| zlock_core::Version::new(1, 1));
        if !writing.attempts.begin(key, version, writing.ambiguous) && self.has(ValueRule::CreatedOnce) {
            // The error says that the outcome is unknown.
            this.writing = None;
            return;
        }
        (writing.is_sent, writing.answer) = (true, None);
        state.wire.push(Sent { client, session, write, expected, guarded_when_sent, is_awaited: true });
    }

    /// Executes a request in one transaction: receipt, guard, version, then value and receipt.
    fn serve(&self, state: &mut State, sent: Sent) {
        let of = usize::from(sent.client);
        if state.clients[of].session != sent.session {
            return;
        }
        let answer = if self.has(ValueRule::ReceiptRead) && self.is_found(state, sent) {
            Answer::Written
        } else {
            self.attempt(state, sent)
        };
        let this = &mut state.clients[of];
        if let Some(writing) = this.writing.as_mut().filter(|_| sent.is_awaited) {
            writing.answer = Some(answer);
        }
    }

    fn is_found(&self, state: &State, sent: Sent) -> bool {
        let receipt = state.clients[usize::from(sent.client)].receipt;
        if self.has(ValueRule::OwnReceipt) { receipt == Some(sent.write) } else { receipt.is_some() }
    }

    fn attempt(&self, state: &mut State, sent: Sent) -> Answer {
        let has_guard =
            if self.has(ValueRule::GuardChecked) { state.has_guard } else { sent.guarded_when_sent };
        let is_expected = if self.has(ValueRule::Incarnation) {
            state.value == sent.expected
        } else {
            state.value.map(|value| value.number) == sent.expected.map(|value| value.number)
        };
        if Self::is_guarded(sent.client) && !has_guard {
            return Answer::GuardGone;
        }
        if !is_expected {
            return Answer::Conflict;
        }
        let wrong = if state.applied.contains(&sent.write) {
            Some(TWICE)
        } else if Self::is_guarded(sent.client) && !state.has_guard {
            Some(UNGUARDED)
        } else if state.value != sent.expected {
            Some(NEVER_READ)
        } else if state.void.contains(&sent.write) {
            Some(TOO_LATE)
        } else {
            None
        };
        state.wrong = state.wrong.or(wrong);
        state.applied.push(sent.write);
        state.value = Some(match state.value {
            Some(Version { incarnation, number }) => Version { incarnation, number: number + 1 },
            None => {
                state.incarnations += 1;
                Version { incarnation: state.incarnations, number: 0 }
            }
        });
        state.clients[usize::from(sent.client)].receipt = Some(sent.write);
        Answer::Written
    }

    /// Reports the outcome, if the attempts show it.
    fn hear(&self, state: &mut State, client: u8) {
        let this = &mut state.clients[usize::from(client)];
        let Some(Writing { write, attempts, answer: Some(answer), .. }) = this.writing.take() else { return };
        let outcome = match answer {
            Answer::Written => WriteOutcome::Written(zlock_core::Version::new(1, 1)),
            Answer::Conflict => WriteOutcome::Conflict(None),
            Answer::GuardGone => WriteOutcome::GuardGone,
        };
        // Otherwise the error says that the outcome is unknown.
        let is_known = attempts.is_conclusive(&outcome) || !self.has(ValueRule::EarlierSessions);
        if is_known && state.applied.contains(&write) != (answer == Answer::Written) {
            state.wrong = state.wrong.or(Some(REPORTED_WRONGLY));
        }
        if is_known && answer != Answer::Written {
            state.void.push(write);
        }
        // What was cancelled before cannot take effect any more.
        let cancelled = state.cancelled.iter().filter(|other| *other / 16 == client);
        state.void.extend(cancelled);
    }

    /// Returns `true` if no earlier request of the same session is on its way.
    fn is_next(&self, state: &State, at: usize) -> bool {
        let sent = state.wire[at];
        let is_earlier = |other: &Sent| (other.client, other.session) == (sent.client, sent.session);
        !self.has(ValueRule::InOrder) || !state.wire[..at].iter().any(is_earlier)
    }
}

impl Model for Writes {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let value = (!self.run.is_missing).then_some(Version { incarnation: 1, number: 0 });
        vec![State {
            value,
            incarnations: 1,
            has_guard: true,
            losses: self.run.losses,
            by_hand: if self.run.by_hand { 2 } else { 0 },
            clients: vec![Client { seen: value, ..Client::default() }; self.run.clients.into()],
            wire: Vec::new(),
            applied: Vec::new(),
            void: Vec::new(),
            cancelled: Vec::new(),
            wrong: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.wrong.is_some() {
            return;
        }
        for (client, this) in (0..).zip(&state.clients) {
            match &this.writing {
                None if this.begun < self.run.writes => {
                    if this.seen != state.value {
                        actions.push(Action::Read(client));
                    }
                    actions.push(Action::Write(client));
                }
                None => {}
                Some(Writing { is_sent: false, .. }) => {
                    actions.extend([Action::Send(client), Action::Cancel(client)]);
                }
                Some(Writing { answer, .. }) => {
                    if answer.is_some() {
                        actions.push(Action::Hear(client));
                    }
                    actions.extend([Action::GiveUp(client), Action::Cancel(client)]);
                }
            }
            if state.losses > 0 {
                actions.push(Action::EndSession(client));
            }
        }
        for at in 0..state.wire.len() {
            if self.is_next(state, at) {
                actions.push(Action::Serve(at));
            }
            actions.push(Action::Lose(at));
        }
        if state.has_guard {
            actions.push(Action::RemoveGuard);
        }
        match (state.by_hand, state.value) {
            (2, Some(_)) => actions.push(Action::DeleteByHand),
            (1, None) => actions.push(Action::CreateByHand),
            _ => {}
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let mut change =
            |client: u8, change: &dyn Fn(&mut Client)| change(&mut state.clients[usize::from(client)]);
        match action {
            Action::Read(client) => change(client, &|this| this.seen = last.value),
            Action::Write(client) => change(client, &|this| {
                let (write, expected) = (client * 16 + this.begun, this.seen);
                this.begun += 1;
                this.writing = Some(Writing {
                    write,
                    expected,
                    attempts: WriteAttempts::default(),
                    ambiguous: false,
                    is_sent: false,
                    answer: None,
                });
            }),
            Action::Send(client) => self.send(&mut state, client),
            Action::Serve(at) => {
                let sent = state.wire.remove(at);
                self.serve(&mut state, sent);
            }
            Action::Lose(at) => drop(state.wire.remove(at)),
            Action::Hear(client) => self.hear(&mut state, client),
            Action::GiveUp(client) => state.give_up(client),
            Action::Cancel(client) => {
                state.give_up(client);
                let writing = state.clients[usize::from(client)].writing.take()?;
                state.cancelled.push(writing.write);
            }
            Action::EndSession(client) => {
                state.losses -= 1;
                let this = &mut state.clients[usize::from(client)];
                (this.session, this.receipt) = (this.session + 1, None);
                state.give_up(client);
            }
            Action::RemoveGuard => state.has_guard = false,
            Action::DeleteByHand => (state.value, state.by_hand) = (None, 1),
            Action::CreateByHand => {
                state.incarnations += 1;
                state.value = Some(Version { incarnation: state.incarnations, number: 0 });
                state.by_hand = 0;
            }
        }
        // At most two attempts of a write are on their way.
        (state.wire.len() <= 2).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        Self::nothing_is_wrong()
    }
}

impl Rules for Writes {
    type Rule = ValueRule;
    type Run = Run;

    const SUBJECT: &'static str = "writes of values";
    const RULES: &'static [(ValueRule, &'static str, Wrong)] = &[
        (
            ValueRule::ReceiptRead,
            "an attempt finds the receipt of an earlier one: the version decides alone",
            REPORTED_WRONGLY,
        ),
        (
            ValueRule::OwnReceipt,
            "a receipt names its write: any receipt of the session counts",
            REPORTED_WRONGLY,
        ),
        (
            ValueRule::EarlierSessions,
            "an unknown attempt of an earlier session makes the outcome unknown: it is not asked for",
            REPORTED_WRONGLY,
        ),
        (
            ValueRule::CreatedOnce,
            "a value that an earlier session may have created is not created again: it is",
            TWICE,
        ),
        (ValueRule::GuardChecked, "the guard is checked with the write: before it", UNGUARDED),
        (ValueRule::Incarnation, "a version includes its incarnation: the number alone", NEVER_READ),
        (ValueRule::InOrder, "requests of a client take effect in order: in any", TOO_LATE),
    ];

    fn new(run: Run, left_out: Option<ValueRule>) -> Self {
        Writes { run, left_out }
    }

    fn wrong(&self, state: &State) -> Option<Wrong> {
        state.wrong
    }

    fn runs(is_quick: bool) -> Vec<Run> {
        let one = Run { clients: 1, writes: 2, losses: 1, by_hand: true, is_missing: false };
        let two = Run { clients: 2, writes: 1, losses: 1, by_hand: true, is_missing: false };
        let missing = Run { is_missing: true, ..one };
        if is_quick {
            return vec![two, missing];
        }
        vec![two, one, missing, Run { writes: 2, losses: 0, by_hand: false, ..two }]
    }

    fn runs_without(_: ValueRule) -> Vec<Run> {
        let smallest = Run { clients: 1, writes: 1, losses: 0, by_hand: false, is_missing: false };
        vec![
            smallest,
            Run { losses: 1, by_hand: true, ..smallest },
            Run { writes: 2, ..smallest },
            Run { writes: 2, by_hand: true, is_missing: true, ..smallest },
            Run { losses: 1, by_hand: true, is_missing: true, ..smallest },
        ]
    }

    fn cells(run: Run) -> Vec<(&'static str, String)> {
        vec![
            ("clients", run.clients.to_string()),
            ("writes of each", run.writes.to_string()),
            ("sessions that end", run.losses.to_string()),
            ("changed by hand", if run.by_hand { "yes".into() } else { "no".into() }),
            ("missing at first", if run.is_missing { "yes".into() } else { "no".into() }),
        ]
    }
}
