//! A client that is the only user of a lock acquires it without a listing. The parent may be removed and created again, and
//! other clients may come and go, at any moment.
//!
//! Real code: `Queues`, the state of `zlock-zk/src/queues/alone.rs`, whose table has the rules. Modelled: the store, the operations
//! that ask this state, and everything that can happen to them. A rule is left out by a wrong question, or by an answer that
//! is overlooked. The tests in `zlock-tests/tests/grants/zk/alone.rs` check that the real operations ask as this model does.

use stateright::{Model, Property};
use tokio::time::Instant;
use zlock_core::kit::SessionKey;
use zlock_core::{Label, Node, NodeId, NodeName, Sequence, SessionId};
use zlock_zk::unstable::{Plan, Queues, Trusted};

use super::search::{Rules, Wrong};

/// A rule of `zlock-zk/src/queues/alone.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AloneRule {
    NextNumber,
    PinAsked,
    PinAskedAtAnswer,
    SamePin,
    SameConnection,
    ListedAlone,
    RemovedByUs,
    SameNode,
    PinnedBefore,
}

const TWO_HOLDERS: Wrong = "two holders";

/// The numbers of events in a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// How often the client's two tasks use the lock in total.
    uses: u8,
    /// The number of nodes that other clients create.
    theirs: u8,
    /// The number of the client's nodes that an operator deletes.
    deletes: u8,
    /// The number of interruptions of the client's connection.
    interruptions: u8,
}

const PARENT: &str = "p";
const SESSION: SessionKey = SessionKey { epoch: 1, id: SessionId::new(1) };
/// The number of uses of the lock before the beginning, one after the other, by this client alone.
const BEFORE: u8 = 2;

type Task = usize;
/// A node's number. Numbers begin at 0 under each parent, but those of uses before the beginning, which are negative.
type Number = i8;

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
    /// The pin that this place has armed.
    pin: Option<u8>,
}

/// A watch on the parent. `Queues` knows it by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Pin {
    id: u8,
    connection: u8,
    has_fired: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    queues: Queues<u8>,
    parent: Option<Parent>,
    /// In flight, in order.
    requests: Vec<Request>,
    answers: Vec<Answer>,
    places: [Place; 2],
    /// All pins that were armed and not dropped.
    pins: Vec<Pin>,
    connection: u8,
    next_pin: u8,
    /// How many pins `Queues` was given.
    given: u64,
    next_use: u8,
    theirs: u8,
    deletes: u8,
    interruptions: u8,
    /// The last node that was removed, if a rule that needs it is left out.
    removed: Option<(u8, Number)>,
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
    now: Instant,
}

impl Alone {
    fn has(&self, rule: AloneRule) -> bool {
        self.left_out != Some(rule)
    }

    /// Asks the real state, with a function that says whether a pin holds. The pin that is returned is dropped.
    fn ask<T>(
        &self,
        state: &mut State,
        ask: impl FnOnce(&mut Queues<u8>, &dyn Fn(&mut u8) -> bool) -> (T, Option<u8>),
    ) -> T {
        let State { queues, pins, connection, .. } = state;
        let (answer, dropped) = ask(queues, &|id| {
            let pin = pins.iter().find(|pin| pin.id == *id).expect("a pin that is not dropped");
            let is_same = pin.connection == *connection || !self.has(AloneRule::SameConnection);
            !self.has(AloneRule::PinAsked) || is_same && !pin.has_fired
        });
        pins.retain(|pin| Some(pin.id) != dropped);
        answer
    }

    fn plan(&self, state: &mut State) -> Plan {
        self.ask(state, |queues, holds| queues.plan(PARENT, SESSION, holds))
    }

    fn confirm(&self, state: &mut State, mut trusted: Trusted, node: &Node) -> bool {
        if !self.has(AloneRule::SamePin) {
            trusted.pin = state.given;
        }
        let mut holds_now = false;
        let is_alone = self.ask(state, |queues, holds| {
            let holds = |pin: &mut u8| {
                holds_now = holds(pin) || !self.has(AloneRule::PinAskedAtAnswer);
                holds_now
            };
            queues.confirm(PARENT, SESSION, holds, trusted, node, self.now)
        });
        is_alone || holds_now && !self.has(AloneRule::NextNumber)
    }

    fn listed(&self, state: &mut State, node: &Node, is_alone: bool, pin: Option<u8>) {
        state.given += u64::from(pin.is_some());
        let is_alone = is_alone || !self.has(AloneRule::ListedAlone);
        self.ask(state, |queues, _| ((), queues.listed(PARENT, SESSION, node, is_alone, pin, self.now)));
    }

    fn begin(&self, state: &mut State, task: Task) {
        state.places[task].of = state.next_use;
        state.next_use += 1;
        let plan = self.plan(state);
        create(state, task, plan);
    }

    /// The task has all its answers, and decides.
    fn judge(&self, state: &mut State, task: Task) {
        let Place { plan, of, number, listing, .. } = state.places[task];
        let mut pin = state.places[task].pin.take();
        let Some(number) = number else {
            // Creates the parent, and tries again.
            state.parent.get_or_insert_default();
            state.pins.retain(|armed| Some(armed.id) != pin);
            create(state, task, Plan::List);
            return;
        };
        let node = node(of, number);
        let is_claimed = pin.is_some() && !self.has(AloneRule::PinnedBefore);
        if is_claimed && self.is_next_after_removed(state, pin.take(), &node) {
            return grant(state, task);
        }
        match (listing, plan) {
            (Some(Listing { is_first, is_alone }), _) => {
                self.listed(state, &node, is_alone, pin);
                if is_first { grant(state, task) } else { delete(state, task) }
            }
            (None, Plan::Trust(trusted)) if self.confirm(state, trusted, &node) => grant(state, task),
            (None, _) => {
                state.places[task].phase = Phase::Creating(1);
                state.requests.push(Request::List(task));
            }
        }
    }

    /// Without a rule: claims that the pin was armed while the node before existed.
    fn is_next_after_removed(&self, state: &mut State, pin: Option<u8>, node: &Node) -> bool {
        let Some((of, number)) = state.removed else { return false };
        let before = self::node(of, number);
        self.listed(state, &before, true, pin);
        state.queues.removed(PARENT, SESSION, &before);
        match self.plan(state) {
            Plan::Trust(trusted) => self.confirm(state, trusted, node),
            _ => false,
        }
    }

    fn hear(&self, state: &mut State, answer: Answer) {
        let task = match answer {
            Answer::ParentRemoved => {
                state.pins.iter_mut().for_each(|pin| pin.has_fired = true);
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
                state.places[task].phase = Phase::Idle;
                if let Some(number) = number.filter(|_| was_there || !self.has(AloneRule::RemovedByUs)) {
                    self.removed(state, of, number);
                }
                return;
            }
        };
        if let Phase::Creating(answers) = &mut state.places[task].phase {
            *answers -= 1;
        }
    }

    fn removed(&self, state: &mut State, of: u8, number: Number) {
        let same = if self.has(AloneRule::SameNode) { of..=of } else { 0..=state.next_use };
        same.for_each(|of| state.queues.removed(PARENT, SESSION, &node(of, number)));
        state.removed = (!self.has(AloneRule::PinnedBefore)).then_some((of, number));
    }
}

/// Returns the node of a use, as the client knows it.
fn node(of: u8, number: Number) -> Node {
    let (id, label, sequence) = (NodeId::new(of.to_string()), Label::Lock, Sequence::new(number.into()));
    Node::new(NodeName::of(&id, label, sequence), id, label, sequence)
}

fn create(state: &mut State, task: Task, plan: Plan) {
    let of = state.places[task].of;
    state.requests.push(Request::Create(task));
    if !matches!(plan, Plan::Trust(_)) {
        state.requests.push(Request::List(task));
    }
    if plan == Plan::Pin {
        state.requests.push(Request::Pin(task));
    }
    let answers = match plan {
        Plan::Trust(_) => 1,
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
        let mut state = State {
            queues: Queues::default(),
            parent: Some(Parent::default()),
            requests: Vec::new(),
            answers: Vec::new(),
            places: [idle; 2],
            pins: Vec::new(),
            connection: 0,
            next_pin: 0,
            given: 0,
            next_use: BEFORE,
            theirs,
            deletes,
            interruptions,
            removed: None,
            two_holders: false,
        };
        for (of, number) in [(0, -2), (1, -1)] {
            self.listed(&mut state, &node(of, number), true, None);
            self.removed(&mut state, of, number);
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.two_holders {
            return;
        }
        for (task, place) in state.places.iter().enumerate() {
            match place.phase {
                Phase::Idle if state.next_use < BEFORE + self.run.uses => actions.push(Action::Begin(task)),
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
                if let Some(parent) = &mut state.parent {
                    parent.is_watched = false;
                }
                for place in &mut state.places {
                    if matches!(place.phase, Phase::Creating(_) | Phase::Deleting) {
                        place.phase = Phase::Idle;
                        state.pins.retain(|pin| Some(pin.id) != place.pin);
                    }
                }
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        Self::nothing_is_wrong()
    }
}

impl Rules for Alone {
    type Rule = AloneRule;
    type Run = Run;

    const SUBJECT: &'static str = "being alone";
    const RULES: &'static [(AloneRule, &'static str, Wrong)] = &[
        (AloneRule::NextNumber, "the number is the next one: any number suffices", TWO_HOLDERS),
        (AloneRule::PinAsked, "the parent is pinned: the pin is not checked", TWO_HOLDERS),
        (
            AloneRule::PinAskedAtAnswer,
            "the pin is checked when the create is answered: when it is sent",
            TWO_HOLDERS,
        ),
        (
            AloneRule::SamePin,
            "the pin is that of the time when the create was sent: the current one",
            TWO_HOLDERS,
        ),
        (
            AloneRule::SameConnection,
            "the pin ends with its connection: it stays valid on the next one",
            TWO_HOLDERS,
        ),
        (AloneRule::ListedAlone, "the previous node was listed alone: it was listed", TWO_HOLDERS),
        (AloneRule::RemovedByUs, "the delete found the previous node: it was answered", TWO_HOLDERS),
        (
            AloneRule::SameNode,
            "the previous node is the one that was removed: any of the client's with its number, under any parent",
            TWO_HOLDERS,
        ),
        (
            AloneRule::PinnedBefore,
            "the pin was armed while the previous node existed: it is armed now",
            TWO_HOLDERS,
        ),
    ];

    fn new(run: Run, left_out: Option<AloneRule>) -> Self {
        Alone { run, left_out, now: Instant::now() }
    }

    fn wrong(&self, state: &State) -> Option<Wrong> {
        state.two_holders.then_some(TWO_HOLDERS)
    }

    fn runs(is_quick: bool) -> Vec<Run> {
        let run = |uses, theirs, deletes, interruptions| Run { uses, theirs, deletes, interruptions };
        let small = [run(2, 2, 0, 0), run(2, 1, 1, 0), run(2, 1, 0, 1)];
        let large = [run(3, 2, 1, 0), run(3, 2, 0, 1), run(3, 1, 1, 1), run(4, 1, 1, 0)];
        small.into_iter().chain(large.into_iter().filter(|_| !is_quick)).collect()
    }

    fn runs_without(_: AloneRule) -> Vec<Run> {
        let runs = [(1, 1, 0, 0), (2, 1, 0, 0), (2, 2, 0, 0), (2, 2, 0, 1), (3, 2, 0, 0), (3, 1, 1, 0)];
        let more = [(4, 1, 1, 0), (4, 2, 0, 0)];
        let run = |(uses, theirs, deletes, interruptions)| Run { uses, theirs, deletes, interruptions };
        runs.into_iter().chain(more).map(run).collect()
    }

    fn cells(Run { uses, theirs, deletes, interruptions }: Run) -> Vec<(&'static str, String)> {
        vec![
            ("uses", uses.to_string()),
            ("others' nodes", theirs.to_string()),
            ("operator's deletes", deletes.to_string()),
            ("interruptions", interruptions.to_string()),
        ]
    }
}
