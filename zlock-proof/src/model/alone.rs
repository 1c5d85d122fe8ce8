//! A client that is the only user of a lock acquires it without a listing, as in `zlock-zk` (see the table in its `alone.rs`).
//! The parent may be removed and created again, and other clients may come and go, at any moment.
//!
//! No real code runs here. The model checks that the rules are sufficient, and that each is necessary. The tests in
//! `zlock-tests/tests/grants/zk/alone.rs` check that the real code follows them.

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::alone_rules::AloneRule;

/// The numbers of events in a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// How often the client's two tasks use the lock in total.
    pub(crate) uses: u8,
    /// The number of nodes that other clients create.
    pub(crate) theirs: u8,
    /// The number of the client's nodes that an operator deletes.
    pub(crate) deletes: u8,
    /// The number of interruptions of the client's connection.
    pub(crate) interruptions: u8,
}

type Task = usize;
type Number = u8;

/// The owner of a node: a use by the client, or another client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Of {
    Use(u8),
    Others,
}

/// The parent, with its nodes in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Parent {
    counter: Number,
    nodes: Vec<(Number, Of)>,
    /// Whether the client watches the parent.
    is_watched: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Request {
    Create(Task),
    List(Task),
    Pin(Task),
    Delete(Task),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Answer {
    /// The number, or `None` if there is no parent.
    Created(Task, Option<Number>),
    Listed(Task, Listing),
    Pinned(Task, bool),
    /// Whether the node existed.
    Deleted(Task, bool),
    /// An event: the watched parent was removed.
    ParentRemoved,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Listing {
    is_first: bool,
    is_alone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Plan {
    List,
    Pin,
    Trust { number: Number, pin: u8 },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    #[default]
    Idle,
    /// Waits for this number of answers.
    Creating(u8),
    Holding,
    Deleting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    phase: Phase,
    of: u8,
    plan: Plan,
    number: Option<Number>,
    listing: Option<Listing>,
    /// The number of the pin that this place has armed.
    pin: Option<u8>,
}

/// The client's node that the next create may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Last {
    of: u8,
    number: Number,
    is_removed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Pin {
    id: u8,
    connection: u8,
    has_fired: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    parent: Option<Parent>,
    /// In flight, in order.
    requests: Vec<Request>,
    answers: Vec<Answer>,
    places: [Place; 2],
    last: Option<Last>,
    /// All pins that were armed on the current connection, and the one that is kept.
    pins: Vec<Pin>,
    pin: Option<Pin>,
    connection: u8,
    next_pin: u8,
    next_use: u8,
    theirs: u8,
    deletes: u8,
    interruptions: u8,
    two_holders: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A task wants the lock.
    Begin(Task),
    /// The server carries out the next request.
    Serve,
    /// The next answer arrives.
    Hear,
    /// A task that has all its answers continues.
    Judge(Task),
    Release(Task),
    /// Another client creates a node, and the parent if there is none.
    TheirCreate,
    TheirDelete(usize),
    /// An operator deletes a node of the client.
    Operator(usize),
    RemoveParent,
    /// Requests in flight are lost, or their answers are. The watch is lost as well, which is worse than in reality.
    Interrupt,
    /// A node that a lost create left behind is removed.
    CleanUp(usize),
}

/// The model with all rules, or without one.
#[derive(Debug)]
pub(crate) struct Alone {
    run: Run,
    left_out: Option<AloneRule>,
}

impl Alone {
    fn has(&self, rule: AloneRule) -> bool {
        self.left_out != Some(rule)
    }

    /// Returns the pin that is still valid.
    fn pin(&self, state: &State) -> Option<u8> {
        let holds = |pin: &Pin| {
            let is_asked = self.has(AloneRule::PinAsked);
            let is_same = pin.connection == state.connection || !self.has(AloneRule::SameConnection);
            !is_asked || is_same && !pin.has_fired
        };
        state.pin.filter(holds).map(|pin| pin.id)
    }

    fn begin(&self, state: &mut State, task: Task) {
        let plan = match state.last {
            Some(Last { number, is_removed: true, .. }) => match self.pin(state) {
                Some(pin) => Plan::Trust { number, pin },
                None => Plan::Pin,
            },
            _ => Plan::List,
        };
        state.places[task].of = state.next_use;
        state.next_use += 1;
        create(state, task, plan);
    }

    /// The task has all its answers, and decides.
    fn judge(&self, state: &mut State, task: Task) {
        let Place { plan, of, number, listing, pin, .. } = state.places[task];
        let Some(number) = number else {
            // Creates the parent, and tries again.
            state.parent.get_or_insert_default();
            create(state, task, Plan::List);
            return;
        };
        if let Some(Listing { is_first, is_alone }) = listing {
            let before = state.last;
            let is_recorded = is_alone || !self.has(AloneRule::ListedAlone);
            state.last = is_recorded.then_some(Last { of, number, is_removed: false });
            if let Some(pin) = pin {
                state.pin = state.pins.iter().copied().find(|armed| armed.id == pin);
            }
            let is_next = before.is_some_and(|before| before.is_removed && before.number + 1 == number);
            let without_listing = pin.is_some() && is_next && !self.has(AloneRule::PinnedBefore);
            if is_first || without_listing {
                grant(state, task)
            } else {
                delete(state, task)
            }
            return;
        }
        let Plan::Trust { number: before, pin: trusted } = plan else { return };
        let is_next = number == before + 1 || !self.has(AloneRule::NextNumber);
        let is_pinned = match self.pin(state) {
            _ if !self.has(AloneRule::PinAskedAtAnswer) => true,
            Some(pin) => pin == trusted || !self.has(AloneRule::SamePin),
            None => false,
        };
        if is_next && is_pinned {
            state.last = Some(Last { of, number, is_removed: false });
            grant(state, task);
        } else {
            state.last = None;
            state.places[task].phase = Phase::Creating(1);
            state.requests.push(Request::List(task));
        }
    }

    fn hear(&self, state: &mut State, answer: Answer) {
        let task = match answer {
            Answer::ParentRemoved => {
                state.pins.iter_mut().chain(&mut state.pin).for_each(|pin| pin.has_fired = true);
                return;
            }
            Answer::Created(task, number) => {
                state.places[task].number = number;
                task
            }
            Answer::Listed(task, listing) => {
                state.places[task].listing = Some(listing);
                task
            }
            Answer::Pinned(task, is_armed) => {
                if is_armed {
                    let pin = Pin { id: state.next_pin, connection: state.connection, has_fired: false };
                    state.next_pin += 1;
                    state.pins.push(pin);
                    state.places[task].pin = Some(pin.id);
                }
                task
            }
            Answer::Deleted(task, was_there) => {
                let Place { of, number, .. } = state.places[task];
                let is_it = |last: &&mut Last| {
                    Some(last.number) == number && (last.of == of || !self.has(AloneRule::SameNode))
                };
                if let Some(last) = state.last.as_mut().filter(is_it) {
                    last.is_removed |= was_there || !self.has(AloneRule::RemovedByUs);
                }
                state.places[task].phase = Phase::Idle;
                return;
            }
        };
        if let Phase::Creating(answers) = &mut state.places[task].phase {
            *answers -= 1;
        }
    }
}

fn create(state: &mut State, task: Task, plan: Plan) {
    let of = state.places[task].of;
    state.requests.push(Request::Create(task));
    if !matches!(plan, Plan::Trust { .. }) {
        state.requests.push(Request::List(task));
    }
    if plan == Plan::Pin {
        state.requests.push(Request::Pin(task));
    }
    let answers = match plan {
        Plan::Trust { .. } => 1,
        Plan::List => 2,
        Plan::Pin => 3,
    };
    let phase = Phase::Creating(answers);
    state.places[task] = Place { phase, of, plan, number: None, listing: None, pin: None };
}

fn delete(state: &mut State, task: Task) {
    state.places[task].phase = Phase::Deleting;
    state.requests.push(Request::Delete(task));
}

/// The task assumes that it holds the lock. If its node exists, no other node may be before it.
fn grant(state: &mut State, task: Task) {
    let of = Of::Use(state.places[task].of);
    state.places[task].phase = Phase::Holding;
    let nodes = state.parent.as_ref().map_or(&[][..], |parent| &parent.nodes);
    state.two_holders |= nodes.iter().position(|node| node.1 == of).is_some_and(|place| place > 0);
}

/// Appends a node and returns its number.
fn append(parent: &mut Parent, of: Of) -> Number {
    let number = parent.counter;
    parent.counter += 1;
    parent.nodes.push((number, of));
    number
}

fn serve(state: &mut State, request: Request) -> Answer {
    let of = |task: Task| Of::Use(state.places[task].of);
    let parent = state.parent.as_mut();
    match request {
        Request::Create(task) => Answer::Created(task, parent.map(|parent| append(parent, of(task)))),
        Request::List(task) => {
            let listing = parent.map(|parent| {
                let is_first = parent.nodes.first().is_some_and(|node| node.1 == of(task));
                Listing { is_first, is_alone: is_first && parent.nodes.len() == 1 }
            });
            Answer::Listed(task, listing.unwrap_or_default())
        }
        Request::Pin(task) => Answer::Pinned(task, parent.map(|parent| parent.is_watched = true).is_some()),
        Request::Delete(task) => {
            let node = parent.and_then(|parent| {
                let place = parent.nodes.iter().position(|node| node.1 == of(task))?;
                Some(parent.nodes.remove(place))
            });
            Answer::Deleted(task, node.is_some())
        }
    }
}

impl Model for Alone {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let Run { theirs, deletes, interruptions, .. } = self.run;
        let idle =
            Place { phase: Phase::Idle, of: 0, plan: Plan::List, number: None, listing: None, pin: None };
        vec![State {
            parent: Some(Parent::default()),
            requests: Vec::new(),
            answers: Vec::new(),
            places: [idle; 2],
            last: None,
            pins: Vec::new(),
            pin: None,
            connection: 0,
            next_pin: 0,
            next_use: 0,
            theirs,
            deletes,
            interruptions,
            two_holders: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.two_holders {
            return;
        }
        for (task, place) in state.places.iter().enumerate() {
            match place.phase {
                Phase::Idle if state.next_use < self.run.uses => actions.push(Action::Begin(task)),
                Phase::Creating(0) => actions.push(Action::Judge(task)),
                Phase::Holding => actions.push(Action::Release(task)),
                _ => {}
            }
        }
        if !state.requests.is_empty() {
            actions.push(Action::Serve);
        }
        if !state.answers.is_empty() {
            actions.push(Action::Hear);
        }
        if state.theirs > 0 {
            actions.push(Action::TheirCreate);
        }
        if state.interruptions > 0 {
            actions.push(Action::Interrupt);
        }
        let Some(parent) = &state.parent else { return };
        if parent.nodes.is_empty() && parent.counter > 0 {
            actions.push(Action::RemoveParent);
        }
        for (place, (_, of)) in parent.nodes.iter().enumerate() {
            match of {
                Of::Others => actions.push(Action::TheirDelete(place)),
                Of::Use(of) => {
                    let is_used = |place: &Place| place.of == *of && place.phase != Phase::Idle;
                    if !state.places.iter().any(is_used) {
                        actions.push(Action::CleanUp(place));
                    } else if state.deletes > 0 {
                        actions.push(Action::Operator(place));
                    }
                }
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        let state = &mut next;
        match action {
            Action::Begin(task) => self.begin(state, task),
            Action::Serve => {
                let request = state.requests.remove(0);
                let answer = serve(state, request);
                state.answers.push(answer);
            }
            Action::Hear => {
                let answer = state.answers.remove(0);
                self.hear(state, answer);
            }
            Action::Judge(task) => self.judge(state, task),
            Action::Release(task) => delete(state, task),
            Action::TheirCreate => {
                state.theirs -= 1;
                append(state.parent.get_or_insert_default(), Of::Others);
            }
            Action::TheirDelete(place) | Action::CleanUp(place) => {
                state.parent.as_mut()?.nodes.remove(place);
            }
            Action::Operator(place) => {
                state.deletes -= 1;
                state.parent.as_mut()?.nodes.remove(place);
            }
            Action::RemoveParent => {
                if state.parent.take()?.is_watched {
                    state.answers.push(Answer::ParentRemoved);
                }
            }
            Action::Interrupt => {
                state.interruptions -= 1;
                state.connection += 1;
                state.requests.clear();
                state.answers.clear();
                state.pins.clear();
                if let Some(parent) = &mut state.parent {
                    parent.is_watched = false;
                }
                for place in &mut state.places {
                    if matches!(place.phase, Phase::Creating(_) | Phase::Deleting) {
                        place.phase = Phase::Idle;
                    }
                }
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("one holder", |_, state: &State| !state.two_holders)]
    }
}

/// Runs a search. Returns the number of states, and a shortest trace to two holders.
pub(crate) fn explore(run: Run, left_out: Option<AloneRule>) -> (usize, Option<Vec<Action>>) {
    let search = Alone { run, left_out }.checker().finish_when(HasDiscoveries::Any).spawn_bfs().join();
    let found = search.discoveries().into_values().next().map(|path| path.into_actions());
    (search.unique_state_count(), found)
}

/// Returns the runs with all rules, fewer and smaller ones for CI.
pub(crate) fn runs(is_quick: bool) -> Vec<Run> {
    let run = |uses, theirs, deletes, interruptions| Run { uses, theirs, deletes, interruptions };
    let small = [run(3, 2, 0, 0), run(3, 1, 1, 0), run(3, 1, 0, 1)];
    let large = [run(4, 2, 1, 0), run(4, 2, 0, 1), run(3, 2, 1, 1), run(5, 1, 1, 0)];
    small.into_iter().chain(large.into_iter().filter(|_| !is_quick)).collect()
}

/// Returns the smallest run that leads to two holders without the rule.
pub(crate) fn without(rule: AloneRule) -> (Run, usize, Option<Vec<Action>>) {
    let mut last = None;
    for (uses, theirs, deletes, interruptions) in
        [(2, 1, 0, 0), (3, 1, 0, 0), (3, 2, 0, 0), (3, 2, 0, 1), (4, 2, 0, 0), (4, 1, 1, 0), (5, 1, 1, 0)]
    {
        let run = Run { uses, theirs, deletes, interruptions };
        let (states, found) = explore(run, Some(rule));
        let is_found = found.is_some();
        last = Some((run, states, found));
        if is_found {
            break;
        }
    }
    last.expect("there is a first run")
}
