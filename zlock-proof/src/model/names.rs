//! Reused names, as in `zlock-etcd` (see the table in its `key.rs`): a request that takes effect long after its client has
//! stopped waiting for it must not affect the node that has the name by then.
//!
//! No real code runs here. The model checks that the rules are sufficient, and that each is necessary. The tests in
//! `zlock-tests/tests/names/etcd` check that the real code follows them.

use std::ops::Range;

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::name_rules::{NameRule, Wrong};

/// Some places of one session, each of which is used several times in succession.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) places: u8,
    pub(crate) uses: u8,
    /// Whether all names share a fence, as names with equal hashes do.
    pub(crate) one_fence: bool,
    /// How often a client stops waiting for an answer. The request takes effect at any later time, or never.
    pub(crate) given_up: u8,
}

/// The unique number of one use of a place.
type Use = u8;
/// A revision, or 0 for none.
type Revision = u8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    of: Use,
    created: Revision,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Request {
    /// Creates the node, if none has the name and the fence is the one in the request.
    Create {
        fence: Revision,
    },
    /// Raises the fence, so that earlier creates have no effect, and returns the node that one of them has created.
    LookUp,
    /// If the fence is the one in the request, raises it and deletes the node, if any.
    Void {
        fence: Revision,
    },
    /// Deletes the node that has the name.
    PlainDelete,
    Delete {
        created: Revision,
    },
    Relabel {
        created: Revision,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Sent {
    /// The place that waits for the answer, or `None` if it has given up.
    by: Option<u8>,
    of: Use,
    name: u8,
    request: Request,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Answer {
    Made(Revision),
    /// The current fence, and the one in the create.
    Refused {
        now: Revision,
        carried: Revision,
    },
    Nothing {
        fence: Revision,
    },
    Voided {
        fence: Revision,
    },
    NotVoided {
        fence: Revision,
    },
    Deleted,
    PlainlyDeleted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Creating,
    LookingUp,
    Voiding,
    /// Its node is in the queue.
    Queued,
    Deleting,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    phase: Phase,
    uses_left: u8,
    of: Use,
    name: u8,
    created: Revision,
    /// Whether a plain delete was sent that was not answered.
    is_plain_unanswered: bool,
    answer: Option<Answer>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The keys, indexed by name.
    keys: Vec<Option<Key>>,
    /// The names that are never used again.
    spoiled: Vec<bool>,
    revision: Revision,
    /// The fences at the server, and as known to the client.
    fences: Vec<Revision>,
    known: Vec<Revision>,
    places: Vec<Place>,
    wire: Vec<Sent>,
    next_use: Use,
    given_up: u8,
    relabelled: bool,
    wrong: Option<Wrong>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The place is used. It takes the first free name and sends the create.
    Begin(u8),
    /// The server carries out a request.
    Serve(usize),
    /// A request whose answer is no longer awaited never arrives.
    Lose(usize),
    /// The answer arrives.
    Hear(u8),
    /// The client stops waiting for an answer, and tries again.
    GiveUp(u8),
    /// The client gives up the place while the create is in flight.
    Cancel(u8),
    /// A delete is sent that compares nothing.
    Release(u8),
    /// A delete is sent that compares the create revision, as a hand-over does. So is every later attempt.
    HandOver(u8),
    Relabel(u8),
}

/// The model with all rules, or without one.
#[derive(Debug)]
pub(crate) struct Names {
    run: Run,
    left_out: Option<NameRule>,
}

impl Names {
    fn has(&self, rule: NameRule) -> bool {
        self.left_out != Some(rule)
    }

    /// Each plain delete that is given up may cost a name.
    fn names(&self) -> Range<u8> {
        0..self.run.places + self.run.given_up
    }

    fn fence(&self, name: u8) -> usize {
        if self.run.one_fence { 0 } else { name.into() }
    }

    fn send(&self, state: &mut State, place: u8, request: Request) {
        let Place { of, name, .. } = state.places[usize::from(place)];
        state.places[usize::from(place)].answer = None;
        state.wire.push(Sent { by: Some(place), of, name, request });
    }

    fn create(&self, state: &mut State, place: u8) {
        let fence = state.known[self.fence(state.places[usize::from(place)].name)];
        state.places[usize::from(place)].phase = Phase::Creating;
        self.send(state, place, Request::Create { fence });
    }

    fn void(&self, state: &mut State, place: u8) {
        let fence = state.known[self.fence(state.places[usize::from(place)].name)];
        state.places[usize::from(place)].phase = Phase::Voiding;
        self.send(state, place, Request::Void { fence });
        self.free_early(state, place);
    }

    fn delete(&self, state: &mut State, place: u8) {
        let created = state.places[usize::from(place)].created;
        state.places[usize::from(place)].phase = Phase::Deleting;
        self.send(state, place, Request::Delete { created });
        self.free_early(state, place);
    }

    fn delete_plainly(&self, state: &mut State, place: u8) {
        let at = &mut state.places[usize::from(place)];
        (at.phase, at.is_plain_unanswered) = (Phase::Deleting, true);
        self.send(state, place, Request::PlainDelete);
        self.free_early(state, place);
    }

    fn free_early(&self, state: &mut State, place: u8) {
        if !self.has(NameRule::FreeWhenAnswered) {
            state.places[usize::from(place)].is_plain_unanswered = false;
            self.end(state, place);
        }
    }

    /// The use is over. Its name is free again, unless a plain delete may still arrive.
    fn end(&self, state: &mut State, place: u8) {
        let place = &mut state.places[usize::from(place)];
        if place.is_plain_unanswered && self.has(NameRule::SpoiledNeverUsed) {
            state.spoiled[usize::from(place.name)] = true;
        }
        (place.phase, place.created, place.answer) = (Phase::Idle, 0, None);
        place.is_plain_unanswered = false;
    }

    /// The server carries out a request.
    fn serve(&self, state: &mut State, Sent { by, of, name, request }: Sent) {
        let (at, fence) = (usize::from(name), self.fence(name));
        let answer = match request {
            Request::Create { fence: carried } => {
                let is_void = self.has(NameRule::CreateComparesFence) && state.fences[fence] != carried;
                if is_void || state.keys[at].is_some() {
                    Answer::Refused { now: state.fences[fence], carried }
                } else {
                    state.revision += 1;
                    let created = state.revision;
                    state.keys[at] = Some(Key { of, created });
                    if !state.places.iter().any(|place| place.of == of && place.phase != Phase::Idle) {
                        state.wrong = Some(Wrong::LateCreate);
                    }
                    Answer::Made(created)
                }
            }
            Request::LookUp => {
                if self.has(NameRule::LookUpRaisesFence) {
                    state.revision += 1;
                    state.fences[fence] = state.revision;
                }
                match state.keys[at] {
                    Some(key) => {
                        if by.is_some() && key.of != of {
                            state.wrong = Some(Wrong::OthersNodeTaken);
                        }
                        Answer::Made(key.created)
                    }
                    None => Answer::Nothing { fence: state.fences[fence] },
                }
            }
            Request::Void { fence: carried } => {
                if self.has(NameRule::VoidComparesFence) && state.fences[fence] != carried {
                    Answer::NotVoided { fence: state.fences[fence] }
                } else {
                    state.revision += 1;
                    if self.has(NameRule::VoidRaisesFence) {
                        state.fences[fence] = state.revision;
                    }
                    delete(state, name, of);
                    Answer::Voided { fence: state.fences[fence] }
                }
            }
            Request::PlainDelete => {
                if state.keys[at].is_some() {
                    state.revision += 1;
                    delete(state, name, of);
                }
                Answer::PlainlyDeleted
            }
            Request::Delete { created } => {
                let is_it = |key: &Key| key.created == created || !self.has(NameRule::DeleteComparesRevision);
                if state.keys[at].as_ref().is_some_and(is_it) {
                    state.revision += 1;
                    delete(state, name, of);
                }
                Answer::Deleted
            }
            Request::Relabel { created } => {
                let is_it =
                    |key: &Key| key.created == created || !self.has(NameRule::RelabelComparesRevision);
                if state.keys[at].as_ref().is_some_and(|key| is_it(key) && key.of != of) {
                    state.wrong = Some(Wrong::OthersNodeRelabelled);
                }
                return;
            }
        };
        let waits = |place: &&mut Place| place.of == of && place.phase != Phase::Idle;
        if let Some(place) = by.map(|place| &mut state.places[usize::from(place)]).filter(waits) {
            place.answer = Some(answer);
        }
    }

    fn hear(&self, state: &mut State, place: u8, answer: Answer) {
        let Place { phase, name, .. } = state.places[usize::from(place)];
        let fence = self.fence(name);
        match answer {
            Answer::Made(created) => {
                let place = &mut state.places[usize::from(place)];
                (place.created, place.phase) = (created, Phase::Queued);
            }
            Answer::Refused { now, carried } => {
                let judged_by =
                    if self.has(NameRule::JudgedByWhatItCarried) { carried } else { state.known[fence] };
                if judged_by == now {
                    // It was not the fence, so the name must be taken: the client would move on to other names forever.
                    state.wrong = Some(Wrong::NameTaken);
                    return;
                }
                state.known[fence] = state.known[fence].max(now);
                self.create(state, place);
            }
            Answer::Nothing { fence: now } => {
                state.known[fence] = state.known[fence].max(now);
                self.create(state, place);
            }
            Answer::Voided { fence: now } => {
                state.known[fence] = state.known[fence].max(now);
                if phase == Phase::Voiding {
                    self.end(state, place);
                }
            }
            Answer::NotVoided { fence: now } => {
                state.known[fence] = state.known[fence].max(now);
                self.void(state, place);
            }
            Answer::Deleted => self.end(state, place),
            Answer::PlainlyDeleted => {
                state.places[usize::from(place)].is_plain_unanswered = false;
                self.end(state, place);
            }
        }
    }

    fn give_up(&self, state: &mut State, place: u8) {
        state.given_up -= 1;
        abandon(state, place);
        match state.places[usize::from(place)].phase {
            Phase::Creating | Phase::LookingUp => {
                state.places[usize::from(place)].phase = Phase::LookingUp;
                self.send(state, place, Request::LookUp);
            }
            Phase::Voiding => self.void(state, place),
            _ => self.delete(state, place),
        }
    }

    /// Returns `true` if no event is certain to follow.
    fn is_at_rest(state: &State) -> bool {
        state.wire.is_empty() && state.places.iter().all(|place| place.answer.is_none())
    }

    fn look(&self, state: &State) -> Option<Wrong> {
        if state.wrong.is_some() || !Self::is_at_rest(state) {
            return state.wrong;
        }
        let is_left = |key: &Key| {
            let is_its = |place: &Place| place.of == key.of && place.phase == Phase::Queued;
            !state.places.iter().any(is_its)
        };
        state.keys.iter().flatten().any(is_left).then_some(Wrong::NodeLeft)
    }
}

/// The client stops waiting for answers to this place's requests, which may still arrive.
fn abandon(state: &mut State, place: u8) {
    for sent in state.wire.iter_mut().filter(|sent| sent.by == Some(place)) {
        sent.by = None;
    }
    state.places[usize::from(place)].answer = None;
}

/// A request of this use deletes the node that has the name.
fn delete(state: &mut State, name: u8, of: Use) {
    if state.keys[usize::from(name)].take().is_some_and(|key| key.of != of) {
        state.wrong = Some(Wrong::OthersNodeDeleted);
    }
}

impl Model for Names {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let Run { places, uses, given_up, .. } = self.run;
        let place = Place {
            phase: Phase::Idle,
            uses_left: uses,
            of: 0,
            name: 0,
            created: 0,
            is_plain_unanswered: false,
            answer: None,
        };
        let names = self.names().len();
        vec![State {
            keys: vec![None; names],
            spoiled: vec![false; names],
            revision: 0,
            fences: vec![0; names],
            known: vec![0; names],
            places: vec![place; places.into()],
            wire: Vec::new(),
            next_use: 1,
            given_up,
            relabelled: false,
            wrong: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.wrong.is_some() {
            return;
        }
        for (at, sent) in state.wire.iter().enumerate() {
            actions.push(Action::Serve(at));
            if sent.by.is_none() {
                actions.push(Action::Lose(at));
            }
        }
        for (i, place) in (0..).zip(&state.places) {
            if place.answer.is_some() {
                actions.push(Action::Hear(i));
            }
            match place.phase {
                Phase::Idle if place.uses_left > 0 => actions.push(Action::Begin(i)),
                Phase::Idle => {}
                Phase::Queued => {
                    actions.extend([Action::Release(i), Action::HandOver(i)]);
                    if !state.relabelled {
                        actions.push(Action::Relabel(i));
                    }
                }
                Phase::Creating | Phase::LookingUp if state.given_up > 0 => {
                    actions.extend([Action::GiveUp(i), Action::Cancel(i)]);
                }
                Phase::Voiding | Phase::Deleting if state.given_up > 0 => actions.push(Action::GiveUp(i)),
                Phase::Creating | Phase::LookingUp | Phase::Voiding | Phase::Deleting => {}
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        let state = &mut next;
        match action {
            Action::Begin(i) => {
                let is_used = |name: &u8| {
                    state.places.iter().any(|place| place.phase != Phase::Idle && place.name == *name)
                };
                let is_free = |name: &u8| !is_used(name) && !state.spoiled[usize::from(*name)];
                let name = self.names().find(is_free).expect("there are enough");
                let of = state.next_use;
                state.next_use += 1;
                let place = &mut state.places[usize::from(i)];
                (place.of, place.name, place.uses_left) = (of, name, place.uses_left - 1);
                self.create(state, i);
            }
            Action::Serve(at) => {
                let sent = state.wire.remove(at);
                self.serve(state, sent);
            }
            Action::Lose(at) => {
                state.wire.remove(at);
            }
            Action::Hear(i) => {
                let answer = state.places[usize::from(i)].answer.take()?;
                self.hear(state, i, answer);
            }
            Action::GiveUp(i) => self.give_up(state, i),
            Action::Cancel(i) => {
                state.given_up -= 1;
                abandon(state, i);
                self.void(state, i);
            }
            Action::Release(i) => self.delete_plainly(state, i),
            Action::HandOver(i) => self.delete(state, i),
            Action::Relabel(i) => {
                state.relabelled = true;
                let Place { of, name, created, .. } = state.places[usize::from(i)];
                // Its answer is not awaited, so the request may arrive at any time.
                state.wire.push(Sent { by: None, of, name, request: Request::Relabel { created } });
            }
        }
        // The order of the requests in flight does not matter.
        state.wire.sort_unstable();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("all", |model, state| model.look(state).is_none())]
    }
}

/// Runs a search. Returns the number of states, and the first violation with its trace.
pub(crate) fn explore(run: Run, left_out: Option<NameRule>) -> (usize, Option<(Wrong, Vec<Action>)>) {
    let search = Names { run, left_out }.checker().finish_when(HasDiscoveries::Any).spawn_bfs().join();
    let found = search.discoveries().into_values().next().map(|path| {
        let wrong = search.model().look(path.last_state()).expect("the last state is wrong");
        (wrong, path.into_actions())
    });
    (search.unique_state_count(), found)
}

/// Returns the runs with all rules, fewer and smaller ones for CI.
pub(crate) fn runs(is_quick: bool) -> Vec<Run> {
    let run =
        |places, uses, given_up| [false, true].map(|one_fence| Run { places, uses, one_fence, given_up });
    let small = [run(1, 3, 2), run(2, 2, 1)];
    let large = [run(1, 4, 3), run(2, 2, 2), run(2, 3, 1)];
    small.into_iter().chain(large.into_iter().filter(|_| !is_quick)).flatten().collect()
}

/// Returns the smallest run with a violation without the rule.
pub(crate) fn without(rule: NameRule) -> (Run, usize, Option<(Wrong, Vec<Action>)>) {
    let mut last = None;
    for (places, given_up) in [(1, 0), (1, 1), (1, 2), (2, 1), (2, 2)] {
        for one_fence in [false, true] {
            let run = Run { places, uses: 2, one_fence, given_up };
            let (states, found) = explore(run, Some(rule));
            let is_found = found.is_some();
            last = Some((run, states, found));
            if is_found {
                return last.expect("just set");
            }
        }
    }
    last.expect("there is a first run")
}
