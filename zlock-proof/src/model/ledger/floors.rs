//! Floors: what a client reads of a queue leaves out the numbers below one that it has seen, with the real `Floors` and `judge`. After
//! a failover, numbers are given again; quiet time is taken to be kept, so whoever held before does so no longer.

use zlock_core::{Label, Node, NodeId, NodeName, Queue, Sequence};
use zlock_ledger::Floors;
use zlock_recipes::queue::{Discipline, Verdict, judge};

use super::super::search::Wrong;
use super::{Case, STUCK, Steps, Subject, TWO_HOLDERS};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    Locked,
    Checked,
    Cleared,
    Tagged,
    Uncut,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    queue: Of,
    creates: u8,
    promotions: u8,
    /// Restarts that undo deletes.
    crashes: u8,
}

const fn permits(weight: u32) -> Label {
    Label::Permits { weight, max: 2, granted: false }
}

/// What the clients want.
#[derive(Clone, Copy, Debug)]
enum Of {
    TwoLocks,
    Locks,
    Readers,
    Permits,
}

impl Run {
    fn labels(&self) -> &'static [Label] {
        match self.queue {
            Of::TwoLocks => &[Label::Lock; 2],
            Of::Locks => &[Label::Lock; 3],
            Of::Readers => &[Label::Read, Label::Write, Label::Read],
            Of::Permits => &const { [permits(1), permits(2), permits(1)] },
        }
    }
}

/// A node: its number, its client, and its label.
type Place = (i64, usize, Label);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    /// The incarnation in which its session began.
    session: u8,
    floors: Floors<()>,
    /// What a task has read, in which session, and will raise the floor to.
    task: Option<(u8, Vec<u64>)>,
    node: Option<i64>,
    holds: bool,
    is_downgraded: bool,
    creates: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    nodes: Vec<Place>,
    number: i64,
    replica: (Vec<Place>, i64),
    /// Deletes that a restart undoes.
    deleted: Vec<Place>,
    incarnation: u8,
    /// The incarnation in which a session has begun.
    begun: u8,
    /// Without `Locked`: a number that is not committed yet, and its client.
    open: Option<(i64, usize)>,
    clients: Vec<Client>,
    promotions: u8,
    crashes: u8,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct FloorsOf;

fn node((number, _, label): Place) -> Node {
    let id = NodeId::new(number.to_string());
    Node::new(NodeName::new(id.as_str()), id, label, Sequence::new(number))
}

impl Case<FloorsOf> {
    /// Reads the queue up to the node of a client. Returns whether it holds, as `judge` says, and what a task raises the floor to.
    fn read(&self, state: &State, client: usize) -> Option<(bool, Option<Vec<u64>>)> {
        let this = &state.clients[client];
        let own = state.nodes.iter().find(|place| Some(place.0) == this.node && place.1 == client)?;
        let floor = i64::try_from(this.floors.get(&())).ok()?;
        let read = state.nodes.iter().filter(|place| place.0 >= floor && place.0 <= own.0);
        let read: Vec<_> = read.copied().collect();
        // As the engine needs them.
        let limit = if own.2.is_exclusive() { 2 } else { usize::MAX };
        let listed = &read[read.len().saturating_sub(limit)..];
        let queue = Queue::linear(listed.iter().map(|place| node(*place)).collect());
        let verdict = judge(&queue, &NodeId::new(own.0.to_string()), Discipline::of(own.2));
        let is_whole = listed.len() < limit || !self.has(Rule::Uncut);
        let numbers = listed.iter().map(|place| place.0.unsigned_abs()).collect();
        Some((matches!(verdict, Verdict::Held { .. }), is_whole.then_some(numbers)))
    }

    fn look(&self, state: &mut State, client: usize) {
        let Some((holds, raise)) = self.read(state, client) else { return };
        let this = &mut state.clients[client];
        this.holds = holds;
        // A floor is that of a task, or nothing new.
        if let Some(numbers) =
            raise.filter(|numbers| numbers.first().is_some_and(|n| *n > this.floors.get(&())))
        {
            this.task = Some((this.session, numbers));
        }
    }

    fn commit(&self, state: &mut State, number: i64, client: usize) {
        state.nodes.push((number, client, self.run.labels()[client]));
        state.nodes.sort_unstable_by_key(|place| place.0);
        state.clients[client].node = Some(number);
        state.deleted.clear();
        self.look(state, client);
    }

    fn begin(&self, state: &mut State, client: usize) {
        if state.begun != state.incarnation {
            state.begun = state.incarnation;
            state.nodes.clear();
            state.clients.iter_mut().for_each(|client| (client.node, client.holds) = (None, false));
        }
        let this = &mut state.clients[client];
        (this.session, this.node, this.holds, this.is_downgraded) = (state.incarnation, None, false, false);
        if self.has(Rule::Cleared) {
            this.floors = Floors::default();
        }
    }
}

const RUN: Run = Run { queue: Of::TwoLocks, creates: 2, promotions: 1, crashes: 0 };

impl Subject for FloorsOf {
    type State = State;
    type Rule = Rule;
    type Run = Run;

    const SUBJECT: &'static str = "floors";
    const RULES: &'static [(Rule, &'static str, Wrong)] = &[
        (Rule::Locked, "a number is taken and committed under the scope's lock: without it", TWO_HOLDERS),
        (Rule::Checked, "each request compares the session's incarnation: none does", TWO_HOLDERS),
        (Rule::Cleared, "a new session begins without floors: it keeps them", TWO_HOLDERS),
        (Rule::Tagged, "a floor is raised in the session that has read: in the current one", TWO_HOLDERS),
        (Rule::Uncut, "only a whole listing raises a floor: one with a limit, too", TWO_HOLDERS),
    ];

    const QUICK: &'static [Run] =
        &[RUN, Run { queue: Of::Readers, creates: 1, ..RUN }, Run { queue: Of::Permits, creates: 1, ..RUN }];
    const MORE: &'static [Run] = &[
        Run { promotions: 2, ..RUN },
        Run { crashes: 1, ..RUN },
        Run { queue: Of::Locks, promotions: 0, ..RUN },
        Run { queue: Of::Readers, promotions: 0, ..RUN },
        Run { queue: Of::Permits, promotions: 0, ..RUN },
    ];

    fn first(case: &Case<Self>) -> State {
        let clients = vec![Client::default(); case.run.labels().len()];
        let Run { promotions, crashes, .. } = case.run;
        State { clients, promotions, crashes, ..State::default() }
    }

    fn steps(case: &Case<Self>, state: &State, steps: &mut Steps<'_, Self>) {
        for (client, this) in state.clients.iter().enumerate() {
            let is_old = this.session != state.incarnation;
            if is_old {
                steps.step("begins a session", client, |state| case.begin(state, client));
            }
            let lives = (!is_old || !case.has(Rule::Checked)) && state.begun == state.incarnation;
            if lives
                && this.node.is_none()
                && this.creates < case.run.creates
                && (state.open.is_none() || !case.has(Rule::Locked))
            {
                let create = |state: &mut State| {
                    state.number += 1;
                    state.clients[client].creates += 1;
                    state.number
                };
                steps.step("creates", client, |state| {
                    let number = create(state);
                    case.commit(state, number, client);
                });
                if !case.has(Rule::Locked) && state.open.is_none() {
                    steps.step("takes a number", client, |state| state.open = Some((create(state), client)));
                }
            }
            if let Some(own) = this.node.filter(|_| lives) {
                let delete = |state: &mut State| {
                    let is_own = |place: &mut Place| place.0 == own && place.1 == client;
                    let gone: Vec<_> = state.nodes.extract_if(.., is_own).collect();
                    state.deleted.extend(gone.into_iter().filter(|_| state.crashes > 0));
                    let this = &mut state.clients[client];
                    (this.node, this.holds, this.is_downgraded) = (None, false, false);
                };
                if this.holds {
                    steps.step("releases", client, delete);
                    if case.run.labels()[client] == Label::Write && !this.is_downgraded {
                        steps.step("downgrades", client, |state| {
                            state.clients[client].is_downgraded = true;
                            let own =
                                state.nodes.iter_mut().filter(|place| place.0 == own && place.1 == client);
                            own.for_each(|place| place.2 = Label::Read);
                        });
                    }
                } else {
                    steps.fault("gives up", client, delete);
                }
                if this.holds {
                    // Nothing to look for.
                } else if case.read(state, client).is_some_and(|(holds, _)| holds) {
                    steps.step("is granted", client, |state| case.look(state, client));
                } else if this.task.is_none() {
                    steps.fault("looks", client, |state| case.look(state, client));
                }
            }
            let mut strays =
                state.nodes.iter().filter(|place| place.1 == client && Some(place.0) != this.node);
            if let Some(stray) = strays.next().filter(|_| lives) {
                steps.step("sweeps", client, |state| state.nodes.retain(|place| place != stray));
            }
            if let Some((session, numbers)) = &this.task {
                steps.step("raises its floor", client, |state| {
                    let this = &mut state.clients[client];
                    if this.session == *session || !case.has(Rule::Tagged) {
                        this.floors.raise(&(), numbers.iter().copied());
                    }
                    this.task = None;
                });
            }
        }
        if let Some((number, client)) = state.open {
            steps.step("commits its number", client, |state| {
                state.open = None;
                case.commit(state, number, client);
            });
        }
        if state.promotions > 0 {
            steps.fault("replica catches up", 0, |state| state.replica = (state.nodes.clone(), state.number));
            steps.fault("REPLICA PROMOTED", 0, |state| {
                (state.promotions, state.incarnation) = (state.promotions - 1, state.incarnation + 1);
                (state.nodes, state.number) = state.replica.clone();
                (state.open, state.deleted) = (None, Vec::new());
            });
        }
        if state.crashes > 0 {
            steps.fault("CRASH undoes deletes", state.deleted.len(), |state| {
                state.crashes -= 1;
                let deleted = std::mem::take(&mut state.deleted);
                state.nodes.extend(deleted);
                state.nodes.sort_unstable_by_key(|place| place.0);
            });
        }
    }

    fn wrong(case: &Case<Self>, state: &State) -> Option<Wrong> {
        let (mut alone, mut holders, mut weight) = (0, 0, 0);
        for (client, this) in state.clients.iter().enumerate().filter(|(_, client)| client.holds) {
            holders += 1;
            match case.run.labels()[client] {
                Label::Permits { weight: own, .. } => weight += own,
                label => alone += usize::from(label != Label::Read && !this.is_downgraded),
            }
        }
        (alone > 0 && holders > 1 || weight > 2).then_some(TWO_HOLDERS)
    }

    fn stuck(_: &Case<Self>, state: &State) -> Option<Wrong> {
        state.clients.iter().any(|client| client.node.is_some()).then_some(STUCK)
    }

    fn run_without(rule: Rule) -> Run {
        match rule {
            Rule::Locked => Run { promotions: 0, ..RUN },
            Rule::Uncut => Run { queue: Of::Locks, promotions: 0, ..RUN },
            _ => Run { creates: 3, ..RUN },
        }
    }
}
