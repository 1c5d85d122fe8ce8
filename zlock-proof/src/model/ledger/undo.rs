//! Deletes that commit asynchronously: a crash undoes some of them, and their owner sweeps. Two clients and one lock; a stray task of
//! a client may check the fence of any of its holds. No real code runs here. A node is known by its number.

use super::super::search::Wrong;
use super::{Case, STUCK, Steps, Subject, TWO_HOLDERS};

const NO_NODE: Wrong = "a client that holds or waits without a node";
const FENCE: Wrong = "a released hold's fence after the next grant";

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    Swept,
    Known,
    Judged,
    Named,
    SameIncarnation,
    Fence,
    RestSync,
    RestLast,
    RestSeen,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    rounds: u8,
    crashes: u8,
    deaths: u8,
    rests: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    #[default]
    Idle,
    Waits(usize),
    Holds(usize),
    /// Its delete is on its way.
    Deletes(usize),
    Done,
}

/// A sweep, with sets of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Sweep {
    #[default]
    No,
    /// The nodes of the session are asked for; what is known by now.
    Asks(u16),
    /// The answer: its incarnation, and the nodes.
    Listed(u8, u16, u16),
    /// The nodes that are deleted.
    Sent(u8, u16),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    phase: Phase,
    rounds: u8,
    /// The incarnation that the answer shows with which it rests.
    rests: Option<u8>,
    is_dead: bool,
    sweep: Sweep,
    /// At the store: whether its session is over, and the incarnation in its row.
    is_over: bool,
    swept: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The owner of each node, and which ones are there.
    owners: Vec<usize>,
    nodes: u16,
    /// Deletes that are not on disk yet.
    pending: Vec<usize>,
    incarnation: u8,
    clients: [Client; 2],
    granted: u16,
    crashes: u8,
    deaths: u8,
    rests: u8,
    is_misused: bool,
}

impl State {
    fn own(&self, client: usize) -> u16 {
        self.owners
            .iter()
            .enumerate()
            .filter(|(_, owner)| **owner == client)
            .fold(0, |own, (node, _)| own | 1 << node)
    }

    /// What a client holds or waits with.
    fn known(&self, client: usize) -> u16 {
        match self.clients[client].phase {
            Phase::Waits(node) | Phase::Holds(node) => 1 << node,
            _ => 0,
        }
    }

    fn has(&self, node: usize) -> bool {
        self.nodes >> node & 1 == 1
    }

    fn is_first(&self, node: usize) -> bool {
        self.nodes & ((1 << node) - 1) == 0
    }

    fn grant(&mut self, client: usize, node: usize) {
        self.clients[client].phase = Phase::Holds(node);
        self.granted |= 1 << node;
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Undo;

impl Case<Undo> {
    fn client_steps(&self, state: &State, client: usize, steps: &mut Steps<'_, Undo>) {
        let this = state.clients[client];
        match this.phase {
            _ if this.rests.is_some() => {}
            Phase::Idle => steps.step("creates", client, |state| {
                let node = state.owners.len();
                state.owners.push(client);
                state.nodes |= 1 << node;
                state.pending.clear();
                state.clients[client].phase = Phase::Waits(node);
                if state.is_first(node) {
                    state.grant(client, node);
                }
            }),
            Phase::Waits(node) if state.is_first(node) => {
                steps.step("is granted by a read", client, |state| state.grant(client, node));
            }
            Phase::Holds(node) => steps.step("releases", client, |state| {
                state.clients[client].phase = Phase::Deletes(node);
            }),
            _ => {}
        }
        let is_asleep = this.phase == Phase::Done || this.phase == Phase::Idle;
        if state.rests > 0
            && this.rests.is_none()
            && (is_asleep || !self.has(Rule::RestLast) && matches!(this.phase, Phase::Deletes(_)))
        {
            steps.fault("RESTS", client, |state| {
                (state.rests, state.clients[client].rests) = (state.rests - 1, Some(state.incarnation));
                if self.has(Rule::RestSync) {
                    state.pending.clear();
                }
            });
        }
        // At rest, the next heartbeat is a long way off.
        let seen = match this.rests {
            Some(_) if !self.has(Rule::RestSeen) => this.swept,
            rests => rests.unwrap_or(state.incarnation),
        };
        match this.sweep {
            Sweep::No if this.swept != seen && self.has(Rule::Swept) => {
                steps.step("asks for its nodes", client, |state| {
                    state.clients[client].sweep = Sweep::Asks(state.known(client));
                });
            }
            Sweep::Listed(incarnation, nodes, before) => steps.step("sends its sweep", client, |state| {
                let known = if self.has(Rule::Judged) { state.known(client) } else { before };
                let known = if self.has(Rule::Known) { known } else { 0 };
                let nodes = if self.has(Rule::Named) { nodes & !known } else { known };
                state.clients[client].sweep = Sweep::Sent(incarnation, nodes);
            }),
            _ => {}
        }
    }
}

const RUN: Run = Run { rounds: 2, crashes: 1, deaths: 0, rests: 0 };

impl Subject for Undo {
    type State = State;
    type Rule = Rule;
    type Run = Run;

    const SUBJECT: &'static str = "undone deletes";
    const RULES: &'static [(Rule, &'static str, Wrong)] = &[
        (Rule::Swept, "after a restart, a session is swept: it is not", STUCK),
        (Rule::Known, "a sweep spares what the client knows: it does not", NO_NODE),
        (Rule::Judged, "what is known is judged when the nodes are listed: when they are asked for", NO_NODE),
        (Rule::Named, "a sweep names what it deletes: all but what was known", NO_NODE),
        (Rule::SameIncarnation, "a sweep is of the incarnation of its listing: of any", FENCE),
        (Rule::Fence, "a fence holds in the incarnation of the last sweep: in any", FENCE),
        (Rule::RestSync, "a session rests by a synchronous commit: by an asynchronous one", STUCK),
        (Rule::RestLast, "it rests after the answer to its last delete: before", STUCK),
        (Rule::RestSeen, "the answer with which it rests shows a restart: it does not", STUCK),
    ];

    const QUICK: &'static [Run] = &[Run { crashes: 2, ..RUN }];
    const MORE: &'static [Run] =
        &[Run { rounds: 3, crashes: 2, ..RUN }, Run { crashes: 2, deaths: 1, rests: 1, ..RUN }];

    fn first(case: &Case<Self>) -> State {
        let Run { rounds, crashes, deaths, rests } = case.run;
        let clients = [Client { rounds, ..Client::default() }; 2];
        State { clients, crashes, deaths, rests, ..State::default() }
    }

    fn steps(case: &Case<Self>, state: &State, steps: &mut Steps<'_, Self>) {
        for (client, this) in state.clients.iter().enumerate() {
            if !this.is_dead {
                case.client_steps(state, client, steps);
            }
            if let Phase::Deletes(node) = this.phase {
                steps.step("store deletes", client, |state| {
                    let this = &mut state.clients[client];
                    this.rounds -= 1;
                    this.phase = if this.rounds > 0 { Phase::Idle } else { Phase::Done };
                    if state.nodes >> node & 1 == 1 {
                        state.nodes &= !(1 << node);
                        state.pending.push(node);
                    }
                });
            }
            match this.sweep {
                Sweep::Asks(known) => steps.step("store lists nodes", client, |state| {
                    let nodes = state.nodes & state.own(client);
                    state.clients[client].sweep = Sweep::Listed(state.incarnation, nodes, known);
                }),
                Sweep::Sent(incarnation, nodes) => steps.step("store sweeps", client, |state| {
                    state.clients[client].sweep = Sweep::No;
                    if incarnation == state.incarnation || !case.has(Rule::SameIncarnation) {
                        let strays = if case.has(Rule::Named) { nodes } else { state.own(client) & !nodes };
                        state.nodes &= !strays;
                        state.clients[client].swept = state.incarnation;
                        state.pending.clear();
                    }
                }),
                _ => {}
            }
            if state.deaths > 0 && !this.is_dead {
                steps.fault("DIES", client, |state| {
                    (state.deaths, state.clients[client].is_dead) = (state.deaths - 1, true);
                });
            }
            if this.is_dead && !this.is_over {
                steps.step("its session is ended", client, |state| {
                    (state.clients[client].is_over, state.nodes) = (true, state.nodes & !state.own(client));
                    state.pending.clear();
                });
            }
            let is_valid = !this.is_over && (this.swept == state.incarnation || !case.has(Rule::Fence));
            let is_misused = |node: usize| {
                state.owners[node] == client && state.has(node) && state.granted >> (node + 1) != 0
            };
            if is_valid && (0..state.owners.len()).any(is_misused) {
                steps.fault("a stray task's fence holds", client, |state| state.is_misused = true);
            }
        }
        for kept in (0..=state.pending.len()).filter(|_| state.crashes > 0) {
            steps.fault("CRASH, deletes kept", kept, |state| {
                (state.crashes, state.incarnation) = (state.crashes - 1, state.incarnation + 1);
                for node in state.pending.split_off(kept) {
                    state.nodes |= 1 << node;
                }
                state.pending.clear();
            });
        }
    }

    fn wrong(_: &Case<Self>, state: &State) -> Option<Wrong> {
        let lives = |client: &&Client| !client.is_dead;
        if state.clients.iter().filter(lives).filter(|client| matches!(client.phase, Phase::Holds(_))).count()
            > 1
        {
            return Some(TWO_HOLDERS);
        }
        let lacks = |client: &Client| match client.phase {
            Phase::Holds(node) | Phase::Waits(node) => !client.is_over && !state.has(node),
            _ => false,
        };
        if state.clients.iter().any(lacks) {
            return Some(NO_NODE);
        }
        state.is_misused.then_some(FENCE)
    }

    fn stuck(_: &Case<Self>, state: &State) -> Option<Wrong> {
        let waits = |client: &Client| matches!(client.phase, Phase::Waits(_)) && !client.is_dead;
        state.clients.iter().any(waits).then_some(STUCK)
    }

    fn run_without(rule: Rule) -> Run {
        match rule {
            Rule::RestSync | Rule::RestLast | Rule::RestSeen => Run { rests: 1, ..RUN },
            Rule::SameIncarnation => Run { crashes: 2, ..RUN },
            _ => RUN,
        }
    }
}
