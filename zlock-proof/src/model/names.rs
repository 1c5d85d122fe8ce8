//! Reused names: a request that takes effect long after its client has stopped waiting for it must not affect the node that
//! has the name by then.
//!
//! Real code: `Names`, the state of `zlock-etcd/src/keys/names.rs`. Modelled: the server, with the fences of the table in
//! `zlock-etcd/src/keys/key.rs`, and the operations around the state. The tests in `zlock-tests/tests/names/etcd` check that
//! the real operations send and ask as this model does.

use stateright::{Model, Property};
use zlock_core::NodeId;
use zlock_etcd::unstable::Names;

use super::search::{Rules, Wrong};

/// A rule about reused names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    CreateComparesFence,
    VoidComparesFence,
    VoidRaisesFence,
    LookUpRaisesFence,
    DeleteComparesRevision,
    RelabelComparesRevision,
    FreeWhenAnswered,
    SpoiledNeverUsed,
    JudgedByWhatItCarried,
}

const LATE_CREATE: Wrong = "a create takes effect after its use is over";
const OTHERS_NODE_TAKEN: Wrong = "another use's node is taken for the own one";
const OTHERS_NODE_DELETED: Wrong = "another use's node is deleted";
const OTHERS_NODE_RELABELLED: Wrong = "another use's node is relabelled";
const NAME_TAKEN: Wrong = "a create is refused for ever";
const NODE_LEFT: Wrong = "node left behind";

/// What the keys of the queue begin with.
const PREFIX: &str = "/";

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
type Use = usize;
/// A revision, or 0 for none.
type Revision = i64;

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
    name: u32,
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
    name: u32,
    created: Revision,
    answer: Option<Answer>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    names: Names,
    /// The keys, indexed by name.
    keys: Vec<Option<Key>>,
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
pub(crate) struct ReusedNames {
    run: Run,
    left_out: Option<NameRule>,
    /// The IDs of the nodes of all uses.
    ids: Vec<NodeId>,
}

impl ReusedNames {
    fn has(&self, rule: NameRule) -> bool {
        self.left_out != Some(rule)
    }

    fn fence(&self, name: u32) -> usize {
        if self.run.one_fence { 0 } else { name as usize }
    }

    fn id(&self, state: &State, place: u8) -> &NodeId {
        &self.ids[state.places[usize::from(place)].of]
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
        if !state.names.begin_voiding(self.id(state, place), fence) {
            return rest(state, place);
        }
        state.places[usize::from(place)].phase = Phase::Voiding;
        self.send(state, place, Request::Void { fence });
        if !self.has(NameRule::FreeWhenAnswered) {
            self.voided(state, place, Revision::MAX);
        }
    }

    fn voided(&self, state: &mut State, place: u8, raised: Revision) {
        state.names.end_voiding(self.id(state, place), raised);
        rest(state, place);
    }

    fn delete(&self, state: &mut State, place: u8, may_be_plain: bool) {
        let created = state.places[usize::from(place)].created;
        state.places[usize::from(place)].phase = Phase::Deleting;
        let is_plain = may_be_plain && state.names.begin_plain(self.id(state, place), created);
        self.send(state, place, if is_plain { Request::PlainDelete } else { Request::Delete { created } });
        if !self.has(NameRule::FreeWhenAnswered) {
            self.deleted(state, place, true);
        }
    }

    fn deleted(&self, state: &mut State, place: u8, is_plain_answered: bool) {
        let (id, created) = (self.id(state, place), state.places[usize::from(place)].created);
        if is_plain_answered || !self.has(NameRule::SpoiledNeverUsed) {
            state.names.end_plain(id);
        }
        state.names.free(id, Some(created));
        rest(state, place);
    }

    /// The server carries out a request.
    fn serve(&self, state: &mut State, Sent { by, of, name, request }: Sent) {
        let (at, fence) = (name as usize, self.fence(name));
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
                        state.wrong = Some(LATE_CREATE);
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
                            state.wrong = Some(OTHERS_NODE_TAKEN);
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
                    delete_key(state, name, of);
                    Answer::Voided { fence: state.fences[fence] }
                }
            }
            Request::PlainDelete => {
                if state.keys[at].is_some() {
                    state.revision += 1;
                    delete_key(state, name, of);
                }
                Answer::PlainlyDeleted
            }
            Request::Delete { created } => {
                let is_it = |key: &Key| key.created == created || !self.has(NameRule::DeleteComparesRevision);
                if state.keys[at].as_ref().is_some_and(is_it) {
                    state.revision += 1;
                    delete_key(state, name, of);
                }
                Answer::Deleted
            }
            Request::Relabel { created } => {
                let is_it =
                    |key: &Key| key.created == created || !self.has(NameRule::RelabelComparesRevision);
                if state.keys[at].as_ref().is_some_and(|key| is_it(key) && key.of != of) {
                    state.wrong = Some(OTHERS_NODE_RELABELLED);
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
        let Place { name, .. } = state.places[usize::from(place)];
        let fence = self.fence(name);
        match answer {
            Answer::Made(created) => {
                state.names.created(self.id(state, place), created);
                let place = &mut state.places[usize::from(place)];
                (place.created, place.phase) = (created, Phase::Queued);
            }
            Answer::Refused { now, carried } => {
                let judged_by =
                    if self.has(NameRule::JudgedByWhatItCarried) { carried } else { state.known[fence] };
                if judged_by == now {
                    // It was not the fence, so the name must be taken: the client would move on to other names forever.
                    state.wrong = Some(NAME_TAKEN);
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
                self.voided(state, place, now);
            }
            Answer::NotVoided { fence: now } => {
                state.known[fence] = state.known[fence].max(now);
                self.void(state, place);
            }
            Answer::Deleted => self.deleted(state, place, false),
            Answer::PlainlyDeleted => self.deleted(state, place, true),
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
            _ => self.delete(state, place, false),
        }
    }

    /// Returns `true` if no event is certain to follow.
    fn is_at_rest(state: &State) -> bool {
        state.wire.is_empty() && state.places.iter().all(|place| place.answer.is_none())
    }
}

/// The use is over.
fn rest(state: &mut State, place: u8) {
    let place = &mut state.places[usize::from(place)];
    (place.phase, place.created, place.answer) = (Phase::Idle, 0, None);
}

/// The client stops waiting for answers to this place's requests, which may still arrive.
fn abandon(state: &mut State, place: u8) {
    for sent in state.wire.iter_mut().filter(|sent| sent.by == Some(place)) {
        sent.by = None;
    }
    state.places[usize::from(place)].answer = None;
}

/// A request of this use deletes the node that has the name.
fn delete_key(state: &mut State, name: u32, of: Use) {
    if state.keys[name as usize].take().is_some_and(|key| key.of != of) {
        state.wrong = Some(OTHERS_NODE_DELETED);
    }
}

impl Model for ReusedNames {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let Run { places, uses, given_up, .. } = self.run;
        let place =
            Place { phase: Phase::Idle, uses_left: uses, of: usize::MAX, name: 0, created: 0, answer: None };
        // Each use may need a name of its own.
        let most = self.ids.len();
        vec![State {
            names: Names::default(),
            keys: vec![None; most],
            revision: 0,
            fences: vec![0; most],
            known: vec![0; most],
            places: vec![place; places.into()],
            wire: Vec::new(),
            next_use: 0,
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
                let of = state.next_use;
                state.next_use += 1;
                let name = state.names.take(PREFIX, &self.ids[of]);
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
            Action::Release(i) => self.delete(state, i, true),
            Action::HandOver(i) => self.delete(state, i, false),
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
        Self::nothing_is_wrong()
    }
}

impl Rules for ReusedNames {
    type Rule = NameRule;
    type Run = Run;

    const SUBJECT: &'static str = "names";
    const RULES: &'static [(NameRule, &'static str, Wrong)] = &[
        (
            NameRule::CreateComparesFence,
            "a create compares the fence: only whether the name is free",
            NODE_LEFT,
        ),
        (
            NameRule::VoidComparesFence,
            "the request that voids a create compares the fence: it takes effect always",
            OTHERS_NODE_DELETED,
        ),
        (
            NameRule::VoidRaisesFence,
            "the request that voids a create raises the fence: it only deletes",
            NODE_LEFT,
        ),
        (
            NameRule::LookUpRaisesFence,
            "the look-up before a retry raises the fence: it only reads",
            NAME_TAKEN,
        ),
        (
            NameRule::DeleteComparesRevision,
            "a delete that is not the first of its node compares the create revision: only the name",
            OTHERS_NODE_DELETED,
        ),
        (
            NameRule::RelabelComparesRevision,
            "a relabel compares the create revision: only the name",
            OTHERS_NODE_RELABELLED,
        ),
        (NameRule::FreeWhenAnswered, "a name is free when a delete is answered: when it is sent", NAME_TAKEN),
        (
            NameRule::SpoiledNeverUsed,
            "a name with a plain delete that was not answered is never used again: it is, once another delete is answered",
            OTHERS_NODE_DELETED,
        ),
        (
            NameRule::JudgedByWhatItCarried,
            "a refused create is judged by the fence that it carried: by the latest known one",
            NAME_TAKEN,
        ),
    ];

    fn new(run: Run, left_out: Option<NameRule>) -> Self {
        let ids = 0..u32::from(run.places) * u32::from(run.uses);
        ReusedNames { run, left_out, ids: ids.map(|of| NodeId::new(of.to_string())).collect() }
    }

    fn wrong(&self, state: &State) -> Option<Wrong> {
        if state.wrong.is_some() || !Self::is_at_rest(state) {
            return state.wrong;
        }
        let is_left = |key: &Key| {
            let is_its = |place: &Place| place.of == key.of && place.phase == Phase::Queued;
            !state.places.iter().any(is_its)
        };
        state.keys.iter().flatten().any(is_left).then_some(NODE_LEFT)
    }

    fn runs(is_quick: bool) -> Vec<Run> {
        let run =
            |places, uses, given_up| [false, true].map(|one_fence| Run { places, uses, one_fence, given_up });
        let small = [run(1, 3, 2), run(2, 2, 1)];
        let large = [run(1, 4, 3), run(2, 2, 2), run(2, 3, 1)];
        small.into_iter().chain(large.into_iter().filter(|_| !is_quick)).flatten().collect()
    }

    fn runs_without(_: NameRule) -> Vec<Run> {
        let runs = [(1, 0), (1, 1), (1, 2), (2, 1), (2, 2)].into_iter();
        let run =
            |(places, given_up)| [false, true].map(|one_fence| Run { places, uses: 2, one_fence, given_up });
        runs.flat_map(run).collect()
    }

    fn cells(Run { places, uses, one_fence, given_up }: Run) -> Vec<(&'static str, String)> {
        let fences = if one_fence { "one for all" } else { "one a name" };
        vec![
            ("places", places.to_string()),
            ("uses of each", uses.to_string()),
            ("fences", fences.to_owned()),
            ("given up", given_up.to_string()),
        ]
    }
}
