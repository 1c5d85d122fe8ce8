//! The order of a queue in PostgreSQL, as in `zlock-postgres/src/schema/queues.sql`: creates and deletes are transactions of
//! several steps, between which those of others take place, and become visible with their commit.
//!
//! No real code runs here. The tests in `zlock-tests/tests/grants/postgres` and `zlock-tests/tests/outages/postgres` check that
//! the real statements follow the rules.

use stateright::{Model, Property};

use super::search::{Rules, Wrong};

/// A rule of the functions, or of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueRule {
    PathLocked,
    NumberAfterLock,
    ReadsAfresh,
    DeleteShares,
    Remembered,
    Void,
    ListedAgain,
}

const TWO_HOLDERS: Wrong = "two holders";
const STUCK: Wrong = "a waiter that nobody wakes";
const LEFT: Wrong = "a node that nobody removes";

/// The number of clients, and how many creates are sent a second time and arrive late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) clients: usize,
    pub(crate) late: usize,
}

/// A visible node: its number and its client.
type Node = (u8, u8);

/// The steps of a create, in the order of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Begin,
    Lock,
    Number,
    Read,
    Commit,
    /// The client gets the answer.
    Answer,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// It has done this many steps of its create.
    Creates(usize),
    Waits {
        behind: Node,
        is_woken: bool,
    },
    Holds,
    /// It has seen these clients behind its node.
    Deletes(Vec<u8>),
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Client {
    phase: Phase,
    number: u8,
    /// What its transaction reads, if that was fixed when it began.
    snapshot: Option<Vec<Node>>,
    before: Option<Node>,
    /// The nodes about whose end it was notified.
    told: Vec<Node>,
    /// A copy of its create is on its way.
    is_late: bool,
    is_void: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    next: u8,
    visible: Vec<Node>,
    clients: Vec<Client>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The next step of a create.
    Create(usize),
    /// A woken waiter lists the queue.
    Look(usize),
    /// A holder, or a waiter that gives up, begins its delete.
    Delete(usize),
    CommitDelete(usize),
    /// The copy of a create arrives.
    Late(usize),
}

/// The model with all rules, or without one.
#[derive(Debug)]
pub(crate) struct SqlQueue {
    run: Run,
    left_out: Option<QueueRule>,
}

impl State {
    fn node(&self, client: usize) -> Option<Node> {
        self.visible.iter().copied().find(|node| usize::from(node.1) == client)
    }
}

/// Returns the last node before a number.
fn before(nodes: &[Node], number: u8) -> Option<Node> {
    nodes.iter().copied().filter(|node| node.0 < number).max()
}

impl SqlQueue {
    fn has(&self, rule: QueueRule) -> bool {
        self.left_out != Some(rule)
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = vec![Step::Begin];
        match (self.has(QueueRule::PathLocked), self.has(QueueRule::NumberAfterLock)) {
            (true, true) => steps.extend([Step::Lock, Step::Number]),
            (true, false) => steps.extend([Step::Number, Step::Lock]),
            (false, _) => steps.push(Step::Number),
        }
        steps.extend([Step::Read, Step::Commit, Step::Answer]);
        steps
    }

    /// Returns `true` if the create of a client has the lock of the path.
    fn has_lock(&self, client: &Client) -> bool {
        let Phase::Creates(done) = client.phase else { return false };
        let steps = self.steps();
        steps
            .iter()
            .position(|step| *step == Step::Lock)
            .is_some_and(|lock| done > lock && done < steps.len() - 1)
    }

    fn is_locked(&self, state: &State) -> bool {
        let shares = self.has(QueueRule::DeleteShares);
        state
            .clients
            .iter()
            .any(|client| self.has_lock(client) || shares && matches!(client.phase, Phase::Deletes(_)))
    }

    /// A delete shares the lock with other deletes; with a void, it needs the lock for itself.
    fn can_delete(&self, state: &State, client: usize) -> bool {
        if !self.has(QueueRule::DeleteShares) {
            return true;
        }
        if state.clients[client].is_late {
            !self.is_locked(state)
        } else {
            !state.clients.iter().any(|other| self.has_lock(other))
        }
    }

    fn create(&self, state: &mut State, client: usize) -> Option<()> {
        let Phase::Creates(done) = state.clients[client].phase else { return None };
        let step = self.steps()[done];
        let (next, visible) = (state.next, state.visible.clone());
        let me = &mut state.clients[client];
        me.phase = Phase::Creates(done + 1);
        match step {
            Step::Begin => me.snapshot = (!self.has(QueueRule::ReadsAfresh)).then_some(visible),
            Step::Lock => {}
            Step::Number => {
                me.number = next;
                state.next += 1;
            }
            Step::Read => me.before = before(me.snapshot.as_ref().unwrap_or(&visible), me.number),
            Step::Commit => {
                let node = (me.number, u8::try_from(client).ok()?);
                state.visible.push(node);
                state.visible.sort_unstable();
            }
            Step::Answer => {
                me.phase = match me.before {
                    None => Phase::Holds,
                    Some(behind) => Phase::Waits { behind, is_woken: me.told.contains(&behind) },
                };
                (me.snapshot, me.told) = (None, Vec::new());
            }
        }
        Some(())
    }

    fn commit_delete(&self, state: &mut State, client: usize) -> Option<()> {
        let Phase::Deletes(seen) = state.clients[client].phase.clone() else { return None };
        let gone = state.node(client);
        state.visible.retain(|node| Some(*node) != gone);
        let me = &mut state.clients[client];
        (me.phase, me.is_void) = (Phase::Done, self.has(QueueRule::Void));
        for other in seen {
            let other = &mut state.clients[usize::from(other)];
            match &mut other.phase {
                Phase::Waits { behind, is_woken } if Some(*behind) == gone => *is_woken = true,
                // The answer to its create is not there yet.
                Phase::Creates(_) if self.has(QueueRule::Remembered) => other.told.extend(gone),
                _ => {}
            }
        }
        Some(())
    }
}

impl Model for SqlQueue {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let client = |n| Client {
            phase: Phase::Creates(0),
            number: 0,
            snapshot: None,
            before: None,
            told: Vec::new(),
            is_late: n < self.run.late,
            is_void: false,
        };
        vec![State { next: 1, visible: Vec::new(), clients: (0..self.run.clients).map(client).collect() }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let steps = self.steps();
        for (n, client) in state.clients.iter().enumerate() {
            match &client.phase {
                Phase::Creates(done) => {
                    if steps[*done] != Step::Lock || !self.is_locked(state) {
                        actions.push(Action::Create(n));
                    }
                }
                Phase::Waits { is_woken, .. } => {
                    if *is_woken {
                        actions.push(Action::Look(n));
                    }
                    if self.can_delete(state, n) {
                        actions.push(Action::Delete(n));
                    }
                }
                Phase::Holds if self.can_delete(state, n) => actions.push(Action::Delete(n)),
                Phase::Deletes(_) => actions.push(Action::CommitDelete(n)),
                Phase::Holds | Phase::Done => {}
            }
            // Of a create that has ended: it was repeated over another connection.
            let has_ended = !matches!(client.phase, Phase::Creates(_));
            if client.is_late && has_ended && !self.is_locked(state) {
                actions.push(Action::Late(n));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Create(n) => self.create(&mut next, n)?,
            Action::Look(n) => {
                let found = before(&next.visible, next.clients[n].number);
                let grants = !self.has(QueueRule::ListedAgain);
                next.clients[n].phase = match found.filter(|_| !grants) {
                    None => Phase::Holds,
                    Some(behind) => Phase::Waits { behind, is_woken: false },
                };
            }
            Action::Delete(n) => {
                let number = next.clients[n].number;
                let behind = next.visible.iter().filter(|node| node.0 > number).map(|node| node.1);
                next.clients[n].phase = Phase::Deletes(behind.collect());
            }
            Action::CommitDelete(n) => self.commit_delete(&mut next, n)?,
            Action::Late(n) => {
                next.clients[n].is_late = false;
                if !next.clients[n].is_void && next.node(n).is_none() {
                    next.visible.push((next.next, u8::try_from(n).ok()?));
                    next.next += 1;
                }
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        Self::nothing_is_wrong()
    }
}

impl Rules for SqlQueue {
    type Rule = QueueRule;
    type Run = Run;

    const SUBJECT: &'static str = "queues in SQL";
    const RULES: &'static [(QueueRule, &'static str, Wrong)] = &[
        (QueueRule::PathLocked, "a create locks the path until its commit: it does not", TWO_HOLDERS),
        (QueueRule::NumberAfterLock, "the number is taken under the lock: before it", TWO_HOLDERS),
        (
            QueueRule::ReadsAfresh,
            "a statement reads what was committed while it waited: what was there when the transaction began",
            TWO_HOLDERS,
        ),
        (QueueRule::DeleteShares, "a delete shares the path's lock until its commit: it does not", STUCK),
        (
            QueueRule::Remembered,
            "a notification before the create's answer is remembered: it is dropped",
            STUCK,
        ),
        (QueueRule::Void, "a create that was given up is void: it may still take effect", LEFT),
        (QueueRule::ListedAgain, "a woken waiter lists again: it holds", TWO_HOLDERS),
    ];

    fn new(run: Run, left_out: Option<QueueRule>) -> Self {
        SqlQueue { run, left_out }
    }

    fn wrong(&self, state: &State) -> Option<Wrong> {
        if state.clients.iter().filter(|client| client.phase == Phase::Holds).count() > 1 {
            return Some(TWO_HOLDERS);
        }
        for (n, client) in state.clients.iter().enumerate() {
            match &client.phase {
                Phase::Waits { behind, is_woken: false } if !state.visible.contains(behind) => {
                    return Some(STUCK);
                }
                Phase::Done if state.node(n).is_some() => return Some(LEFT),
                _ => {}
            }
        }
        None
    }

    fn runs(is_quick: bool) -> Vec<Run> {
        let mut runs = vec![Run { clients: 3, late: 1 }, Run { clients: 3, late: 2 }];
        if !is_quick {
            runs.extend([Run { clients: 4, late: 0 }, Run { clients: 4, late: 2 }]);
        }
        runs
    }

    fn runs_without(rule: QueueRule) -> Vec<Run> {
        let late = usize::from(rule == QueueRule::Void);
        vec![Run { clients: 2, late }, Run { clients: 3, late }]
    }

    fn cells(run: Run) -> Vec<(&'static str, String)> {
        vec![("clients", run.clients.to_string()), ("late creates", run.late.to_string())]
    }
}
