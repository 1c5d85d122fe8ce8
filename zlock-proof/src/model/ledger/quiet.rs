//! Quiet time: incarnations of a store that may lose what it has confirmed, with the real `Past`. A replica that lags is promoted, an
//! old primary is started again, and requests arrive late, at whichever server is there by then. A client that stops does nothing. One
//! client holds a lock at first.

use std::time::Duration;

use tokio::time::Instant;
use zlock_ledger::{History, Past};

use super::super::search::Wrong;
use super::quiet_state::{Answer, Client, Incarnation, Kind, LONGEST, Request, Session, State, Store};
use super::{Case, Steps, Subject, TWO_HOLDERS, instant};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    Quiet,
    Start,
    Line,
    FoundOut,
    Inherited,
    Watched,
    Fixed,
    Random,
    Overlap,
    Margin,
    NotInPlace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Lossy,
    OneServer,
    /// One server, until a replica is seen.
    Auto,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    class: Class,
    until: u32,
    step: Duration,
    /// How fast the clocks of the clients are, in percent. The first one holds.
    rates: [u32; 2],
    promotions: u8,
    /// Crashes of one backend, restarts of the server, steps of its clock.
    crashes: u8,
    restarts: u8,
    clock_steps: u8,
    /// Whether an old primary is started again, and how long it goes on once it was replaced.
    is_restarted: bool,
    overlap: u32,
    /// Whether a replica was promoted before, and quiet time is over.
    is_promoted: bool,
    /// Whether answers are lost.
    loses: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Quiet;

impl Case<Quiet> {
    fn timeout(&self, client: usize) -> u32 {
        if client == 0 && !self.has(Rule::Fixed) { 2 * LONGEST } else { LONGEST }
    }

    fn clock(&self, client: usize, at: u32) -> Instant {
        instant(self.run.step * at, self.run.rates[client])
    }

    fn deadline(&self, client: usize, sent: u32) -> Duration {
        let timeout = Duration::from_secs(self.timeout(client).into());
        let margin = if self.has(Rule::Margin) { timeout / 10 } else { Duration::ZERO };
        self.run.step * sent * self.run.rates[client] / 100 + timeout - margin
    }

    fn is_lossy(&self, store: &Store, one: Incarnation, other: Incarnation) -> bool {
        let starts_count = self.run.class == Class::Lossy || store.is_lossy;
        one.line != other.line && self.has(Rule::Line) || one.start != other.start && starts_count
    }

    /// Writes the row of the live incarnation, if there is none.
    fn begin_incarnation(&self, state: &State, store: &mut Store) {
        if store.begun != store.incarnation {
            let is_lossy = self.is_lossy(store, store.begun, store.incarnation);
            store.is_over =
                if is_lossy { !self.has(Rule::Quiet) } else { store.is_over || !self.has(Rule::Inherited) };
            store.is_lossy |= self.run.class == Class::Auto && store.incarnation.line != 0;
            (store.begun, store.watched) = (store.incarnation, Duration::ZERO);
            store.began = state.now.cast_signed() + state.off;
        }
    }

    fn history(&self, store: &Store) -> History {
        let Incarnation { start, line, crash } = store.incarnation;
        let incarnation = u64::from(start) * 10_000 + u64::from(line) * 100 + u64::from(crash);
        let watched = (!store.is_over).then_some(store.watched);
        History { incarnation, watched, quiet: Duration::ZERO, number: 0, position: 0 }
    }

    fn serve(&self, state: &mut State, client: usize, is_old: bool) {
        let Request::Sent(kind, sent) = state.clients[client].request else { return };
        let mut store = match state.old {
            Some((old, _)) if is_old => old,
            _ => state.live,
        };
        // A replica shows at a beginning or a heartbeat.
        store.is_lossy |=
            self.run.class == Class::Auto && state.replica.is_some() && self.has(Rule::FoundOut);
        let is_alive = |store: &Store, row: Session| !self.is_lossy(store, row.1, store.incarnation);
        let own = state.clients[client].session.map(|session| session.0);
        let row = store.sessions.iter_mut().flatten().find(|row| Some(row.0) == own).copied();
        let row = row.filter(|row| is_alive(&store, *row));
        let answer = match (kind, row) {
            (Kind::Begin, _) => self.begin(state, &mut store, client),
            (_, None) => Answer::Over,
            (Kind::Beat(number, adds), Some(row)) => {
                self.begin_incarnation(state, &mut store);
                store.sessions.iter_mut().flatten().filter(|session| session.0 == row.0).for_each(
                    |session| {
                        session.1 = store.incarnation;
                    },
                );
                let is_right = |(incarnation, seen, _): &(u64, Duration, Duration)| {
                    *incarnation == self.history(&store).incarnation
                        && *seen == store.watched
                        && !store.is_over
                };
                let added = adds.filter(is_right);
                store.watched += added.map_or(Duration::ZERO, |(_, _, span)| span);
                let longer = if self.has(Rule::Overlap) { self.run.overlap } else { 0 };
                let clock = state.now.cast_signed() + state.off - store.began;
                store.is_over |= match self.has(Rule::Watched) {
                    true => store.watched >= Duration::from_secs((store.longest + longer).into()),
                    false => clock >= store.longest.cast_signed(),
                };
                if store.is_over {
                    store.watched = Duration::ZERO;
                }
                Answer::Alive(
                    number,
                    self.history(&store),
                    added.is_some(),
                    store.node == Some((client, row.0)),
                )
            }
            (Kind::Create, Some(row)) => {
                self.begin_incarnation(state, &mut store);
                let owner =
                    store.node.and_then(|node| store.sessions.iter().flatten().find(|row| row.0 == node.1));
                if store.is_over && owner.is_none_or(|owner| !is_alive(&store, *owner)) {
                    store.node = Some((client, row.0));
                    Answer::Granted
                } else {
                    Answer::Refused
                }
            }
        };
        match &mut state.old {
            Some((old, _)) if is_old => *old = store,
            _ => state.live = store,
        }
        state.clients[client].request = Request::Answered(answer, sent);
    }

    fn begin(&self, state: &State, store: &mut Store, client: usize) -> Answer {
        let (last, begins) = (state.clients[client].last, state.clients[client].begins);
        if self.timeout(client) > store.longest {
            store.longest = self.timeout(client);
        }
        self.begin_incarnation(state, store);
        store.node = store.node.filter(|node| Some(node.1) != last);
        store.sessions.iter_mut().for_each(|row| *row = row.filter(|row| Some(row.0) != last));
        store.next += 1;
        let number = if self.has(Rule::Random) { 100 * (client as u8 + 1) + begins } else { store.next };
        store.sessions[client] = Some((number, store.incarnation));
        Answer::Begun((number, store.incarnation), self.history(store))
    }

    fn hear(&self, state: &mut State, client: usize) {
        let Request::Answered(answer, sent) = state.clients[client].request else { return };
        let (received, deadline) = (self.clock(client, state.now), self.deadline(client, sent));
        let this = &mut state.clients[client];
        this.request = Request::No;
        match answer {
            Answer::Begun(session, history) => {
                (this.session, this.last, this.deadline) = (Some(session), Some(session.0), deadline);
                this.past = Some(Past::new(history, received));
            }
            Answer::Alive(number, history, added, is_there) => {
                let Some(past) = this.past.as_mut().filter(|_| this.session.is_some()) else { return };
                past.saw(number, history, added, received);
                this.deadline = this.deadline.max(deadline);
                this.holds &= is_there;
            }
            Answer::Granted => this.holds = this.session.is_some(),
            Answer::Over => this.lose(),
            Answer::Refused => {}
        }
    }

    fn client_steps(&self, state: &State, client: usize, steps: &mut Steps<'_, Quiet>) {
        let this = &state.clients[client];
        match this.request {
            Request::No if this.session.is_none() && this.begins < 2 => {
                steps.step("begins", client, |state| {
                    let this = &mut state.clients[client];
                    (this.request, this.begins) = (Request::Sent(Kind::Begin, state.now), this.begins + 1);
                });
            }
            Request::No if this.session.is_some() => {
                if !this.has_beaten {
                    steps.step("beats", client, |state| {
                        let this = &mut state.clients[client];
                        let adds =
                            this.past.as_mut().and_then(|past| past.span(self.clock(client, state.now)));
                        let beat = Kind::Beat(u64::from(state.now) + 1, adds);
                        (this.request, this.has_beaten) = (Request::Sent(beat, state.now), true);
                    });
                }
                if !this.holds {
                    steps.step("creates", client, |state| {
                        state.clients[client].request = Request::Sent(Kind::Create, state.now);
                    });
                }
            }
            Request::Sent(..) => {
                steps.step("store answers", client, |state| self.serve(state, client, false));
                if state.old.is_some_and(|(_, until)| state.now < until) {
                    steps.fault("THE REPLACED SERVER answers", client, |state| {
                        self.serve(state, client, true)
                    });
                }
            }
            Request::Answered(..) => {
                steps.step("hears", client, |state| self.hear(state, client));
                if self.run.loses {
                    steps.fault("the answer is lost", client, |state| {
                        state.clients[client].request = Request::No
                    });
                }
            }
            Request::No => {}
        }
    }

    fn promote(&self, state: &mut State) {
        let Some(replica) = state.replica else { return };
        let line = state.live.incarnation.line + 1;
        state.old = Some((state.live, state.now + self.run.overlap));
        state.live = Store { incarnation: Incarnation { start: state.starts, line, crash: 0 }, ..replica };
        state.starts += 1;
    }
}

const RUN: Run = Run {
    class: Class::Lossy,
    until: 2,
    step: Duration::from_secs(1),
    rates: [100; 2],
    promotions: 1,
    crashes: 0,
    restarts: 0,
    clock_steps: 0,
    is_restarted: false,
    overlap: 0,
    is_promoted: false,
    loses: false,
};
const ONE: Run = Run { class: Class::OneServer, ..RUN };
const DRIFT: Run = Run { step: Duration::from_millis(960), ..RUN };
const OLD: Run = Run { is_promoted: true, is_restarted: true, promotions: 0, ..RUN };

impl Subject for Quiet {
    type State = State;
    type Rule = Rule;
    type Run = Run;

    const SUBJECT: &'static str = "quiet time";
    const RULES: &'static [(Rule, &'static str, Wrong)] = &[
        (Rule::Quiet, "a lossy change opens quiet time: it does not", TWO_HOLDERS),
        (Rule::Start, "an incarnation has the time of the start: it has not", TWO_HOLDERS),
        (Rule::Line, "with one server, another timeline is a lossy change: it is not", TWO_HOLDERS),
        (Rule::FoundOut, "a replica is seen before it takes over: it is not", TWO_HOLDERS),
        (Rule::Inherited, "a change that loses nothing ends no quiet time: it does", TWO_HOLDERS),
        (Rule::Watched, "clients watch quiet time: the server's clock ends it", TWO_HOLDERS),
        (Rule::Fixed, "no session raises the longest timeout: the one that needs it does", TWO_HOLDERS),
        (Rule::Random, "the numbers of sessions are random: those of a sequence", TWO_HOLDERS),
        (Rule::Overlap, "quiet time is longer by the overlap: it is not", TWO_HOLDERS),
        (Rule::Margin, "a holder subtracts a margin for the drift of clocks: none", TWO_HOLDERS),
        (Rule::NotInPlace, "tables are not put back under a running server: they are", TWO_HOLDERS),
    ];

    const QUICK: &'static [Run] = &[RUN];
    const MORE: &'static [Run] = &[
        Run { until: 5, ..RUN },
        Run { until: 3, ..ONE },
        Run { loses: true, until: 4, ..RUN },
        Run { restarts: 1, until: 4, ..RUN },
        Run { restarts: 1, until: 4, ..ONE },
        Run { crashes: 1, until: 4, ..RUN },
        Run { until: 5, ..OLD },
        Run { is_restarted: true, until: 4, ..RUN },
        Run { is_restarted: true, until: 4, class: Class::Auto, ..RUN },
        Run { overlap: 2, until: 5, ..RUN },
        Run { clock_steps: 1, until: 4, ..RUN },
        Run { rates: [95, 105], until: 4, ..DRIFT },
        Run { rates: [90, 100], until: 4, ..DRIFT },
    ];

    fn first(case: &Case<Self>) -> State {
        let run = case.run;
        let longest = case.timeout(0);
        let replica = Store { is_over: true, longest: LONGEST, next: 1, ..Store::default() };
        let number = if case.has(Rule::Random) { 100 } else { 1 };
        let session = (number, replica.incarnation);
        let live = Store { sessions: [Some(session), None], node: Some((0, number)), longest, ..replica };
        let past = Past::new(case.history(&live), case.clock(0, 0));
        let deadline = case.deadline(0, 0);
        let holder = Client {
            session: Some(session),
            last: Some(number),
            past: Some(past),
            deadline,
            holds: true,
            begins: 1,
            ..Client::default()
        };
        let mut state = State {
            live,
            replica: (run.class != Class::Auto).then_some(Store { next: 0, ..replica }),
            starts: 1,
            clients: [holder, Client::default()],
            promotions: run.promotions,
            crashes: run.crashes,
            restarts: run.restarts,
            clock_steps: run.clock_steps,
            ..State::default()
        };
        if run.is_promoted {
            state.replica = Some(Store { sessions: [None; 2], node: None, ..live });
            case.promote(&mut state);
            let session = (number, state.live.incarnation);
            state.live = Store {
                sessions: [Some(session), None],
                node: Some((0, number)),
                begun: session.1,
                ..state.live
            };
            state.clients[0].session = Some(session);
            state.clients[0].past = Some(Past::new(case.history(&state.live), case.clock(0, 0)));
            let is_lossy = run.class == Class::Auto && case.has(Rule::FoundOut);
            state.old = Some((Store { sessions: [None; 2], node: None, is_lossy, ..live }, 0));
        }
        state
    }

    fn steps(case: &Case<Self>, state: &State, steps: &mut Steps<'_, Self>) {
        if state.now < case.run.until {
            steps.step("time", state.now as usize, |state| {
                state.now += 1;
                state.clients.iter_mut().for_each(|client| client.has_beaten = false);
            });
        }
        (0..2).for_each(|client| case.client_steps(state, client, steps));
        if state.promotions > 0 {
            if state.replica != Some(state.live) {
                steps.fault("replica catches up", 0, |state| state.replica = Some(state.live));
            }
            let is_seen = case.run.class != Class::Auto || !case.has(Rule::FoundOut) || state.live.is_lossy;
            if state.replica.is_some() && is_seen {
                steps.fault("REPLICA PROMOTED", state.starts.into(), |state| {
                    state.promotions -= 1;
                    case.promote(state);
                });
            }
            if let (false, Some(replica)) = (case.has(Rule::NotInPlace), state.replica) {
                steps.fault("TABLES PUT BACK", 0, |state| {
                    state.promotions -= 1;
                    state.live = replica;
                });
            }
        }
        if let Some((old, until)) = state.old.filter(|_| case.run.is_restarted)
            && state.now >= until
        {
            steps.fault("OLD PRIMARY STARTED AGAIN", 0, |state| {
                let start = if case.has(Rule::Start) { state.starts } else { old.incarnation.start };
                state.live = Store { incarnation: Incarnation { start, ..old.incarnation }, ..old };
                (state.starts, state.old) = (state.starts + 1, None);
            });
        }
        if state.crashes > 0 {
            steps.fault("A BACKEND CRASHES", 0, |state| {
                (state.crashes, state.live.incarnation.crash) =
                    (state.crashes - 1, state.live.incarnation.crash + 1);
            });
        }
        if state.restarts > 0 {
            steps.fault("SERVER RESTARTS", 0, |state| {
                (state.restarts, state.live.incarnation.start) = (state.restarts - 1, state.starts);
                state.starts += 1;
            });
        }
        if state.clock_steps > 0 {
            steps.fault("the server's CLOCK STEPS", 0, |state| {
                (state.clock_steps, state.off) = (state.clock_steps - 1, 6);
            });
        }
    }

    fn follow(case: &Case<Self>, state: &mut State) {
        for (client, this) in state.clients.iter_mut().enumerate() {
            if this.session.is_some()
                && case.run.step * state.now * case.run.rates[client] / 100 >= this.deadline
            {
                this.lose();
            }
        }
        // What can no longer matter is forgotten, so that equal states are one.
        if state.promotions == 0 {
            state.replica = None;
            state.old = state.old.filter(|(_, until)| case.run.is_restarted || state.now < *until);
        }
    }

    fn wrong(_: &Case<Self>, state: &State) -> Option<Wrong> {
        state.clients.iter().all(|client| client.holds).then_some(TWO_HOLDERS)
    }

    fn run_without(rule: Rule) -> Run {
        match rule {
            Rule::Start => OLD,
            Rule::Line => ONE,
            Rule::FoundOut => Run { class: Class::Auto, ..OLD },
            Rule::Inherited => Run { crashes: 1, ..RUN },
            Rule::Watched => Run { clock_steps: 1, ..RUN },
            Rule::Overlap => Run { overlap: 2, ..RUN },
            Rule::Margin => Run { rates: [100, 110], ..DRIFT },
            _ => RUN,
        }
    }
}
