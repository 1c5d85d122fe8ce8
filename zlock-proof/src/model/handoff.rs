//! Hand-off inside a client: a place in the store's queue passes from task to task, while another client acquires the lock
//! without hand-off.
//!
//! Real code: `LocalQueue` of `zlock_recipes::queue`. Modelled: the tasks and the driver around it (`acquire/handoff.rs`
//! of `zlock-recipes`), the store, and everything that can happen to them. A rule is left out by a wrong question, or by an answer
//! that is overlooked. The suite's group `handoff` and the simulation check that the real tasks and the real driver ask as this
//! model does. Waiting for a place in the store is covered by the other model: here, a place is granted in one step when it is
//! the first.

use std::time::Duration;

use stateright::{Model, Property};
use tokio::time::Instant;
use zlock_recipes::queue::{Arrival, Bounds, Offer, Task as Work};

use super::handoff_state::{
    Action, Batch, Driver, Grant, Link, Place, Remote, State, TOKEN_NOT_LARGER, Task,
};
use super::search::{Rules, Wrong};

/// A rule about places that are handed from task to task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandoffRule {
    TokenGrows,
    OneTurnAtATime,
    OldTurnEndsNothing,
    LiveAtHandOver,
    CheckedByWaiter,
    CancelledPassesOn,
    LastGivesUp,
    DesertedGivesUp,
    NotAfterGivingUp,
    LeftoverGivenUp,
    LossSeenInUse,
    DriverEndsAtOnce,
    TimeEndsBatch,
    TimeOfThePlace,
    RevocationEndsBatch,
    NotWhileSuspended,
}

const TWO_HOLDERS: Wrong = "two holders";
const GRANTED_NOT_HELD: Wrong = "granted and not held";
const NEEDLESS_END: Wrong = "needless end";
const TURN_TOO_LATE: Wrong = "a turn after the end of the batch";
const STUCK_WAITER: Wrong = "stuck waiter";
const NODE_LEFT: Wrong = "node left behind";

/// The time of a batch.
const WITHIN: Duration = Duration::from_secs(1);

/// The number of tasks of one client, each of which acquires the lock once, and the number of losses of a session or a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    tasks: u8,
    losses: u8,
}

/// The model with all rules, or without one.
#[derive(Debug)]
pub(crate) struct Handoffs {
    run: Run,
    left_out: Option<HandoffRule>,
    began: Instant,
}

impl Handoffs {
    fn has(&self, rule: HandoffRule) -> bool {
        self.left_out != Some(rule)
    }

    fn join(&self, state: &mut State, task: u8) {
        let Arrival { number, driver } = state.local.join(task);
        state.tasks[usize::from(task)] = Task::Waiting(number);
        // While another one ends, the new one does not begin.
        if driver.is_some() && state.driver == Driver::None {
            state.driver = Driver::Looks;
        }
    }

    /// A place is granted, and its first turn is free.
    fn begin(&self, state: &mut State, place: Place) {
        let bounds = Bounds { until: Some(self.began + WITHIN), at_most: u32::MAX };
        let number = state.local.begin(place, bounds);
        state.batch = Some(Batch { number, time_over: false, time_seen: false, revoked: false });
        self.offer(state, number, false);
    }

    /// The turn of a batch is free. The next waiter gets it, or the batch ends.
    fn offer(&self, state: &mut State, batch: u64, is_next: bool) {
        let current = state.batch.filter(|current| current.number == batch);
        let is_over = current.is_some_and(|batch| batch.time_seen) && self.has(HandoffRule::TimeEndsBatch);
        let now = if is_over { self.began + WITHIN } else { self.began };
        let mut local = std::mem::take(&mut state.local);
        let is_good = |place: &Place| match state.link {
            Link::Suspended if self.has(HandoffRule::NotWhileSuspended) => false,
            _ if !self.has(HandoffRule::LiveAtHandOver) => true,
            _ => state.knows_to_live(*place),
        };
        let offer = local.offer(batch, is_next, now, is_good);
        state.local = local;
        match offer {
            Offer::To { waiter, place, turn } => {
                let ended = current.is_none_or(|batch| batch.time_over || batch.revoked);
                if turn > 0 && (ended || state.link == Link::Suspended) {
                    state.wrong = Some(TURN_TOO_LATE);
                }
                let turn = if self.has(HandoffRule::TokenGrows) { turn } else { 0 };
                let grant = Grant { place, turn, batch, lived: state.knows_to_live(place) };
                state.tasks[usize::from(waiter)] = Task::Sent(grant);
            }
            Offer::GiveUp(place) => self.without_waiters(state, place),
            Offer::Over => state.batch = state.batch.filter(|_| current.is_none()),
        }
    }

    /// A batch has ended, and nobody waits for its place.
    fn without_waiters(&self, state: &mut State, place: Place) {
        state.batch = None;
        if self.has(HandoffRule::LastGivesUp) {
            state.give_up(place);
        }
        if !self.has(HandoffRule::NotAfterGivingUp) {
            state.kept = Some(place);
        }
    }

    /// Returns the batch whose turn ends with this grant.
    fn batch(&self, state: &State, grant: Grant) -> u64 {
        let present = state.batch.filter(|_| !self.has(HandoffRule::OldTurnEndsNothing));
        present.map_or(grant.batch, |batch| batch.number)
    }

    /// A turn ends where there is no clock. If there are waiters, the driver passes the turn on.
    fn leave(&self, state: &mut State, grant: Grant) {
        if let Some(place) = state.local.leave_turn(self.batch(state, grant)) {
            self.without_waiters(state, place);
        }
    }

    fn cancel(&self, state: &mut State, task: u8) {
        match std::mem::replace(&mut state.tasks[usize::from(task)], Task::Done) {
            Task::Sent(grant) if self.has(HandoffRule::CancelledPassesOn) => self.leave(state, grant),
            Task::Waiting(number) => {
                state.local.leave(number);
            }
            _ => {}
        }
    }

    fn poll(&self, state: &mut State, task: u8) {
        let Task::Sent(grant) = state.tasks[usize::from(task)] else { return };
        let lives = state.knows_to_live(grant.place);
        if lives || !self.has(HandoffRule::CheckedByWaiter) {
            state.tasks[usize::from(task)] = Task::Holding(grant);
            state.granted((grant.place.number, grant.turn));
            if !lives {
                state.wrong = Some(GRANTED_NOT_HELD);
            }
        } else {
            state.tasks[usize::from(task)] = Task::Done;
            self.leave(state, grant);
            if !grant.lived {
                state.wrong = Some(NEEDLESS_END);
            }
        }
    }

    /// Runs one step of the driver; `false` if there is nothing to do.
    fn drive(&self, state: &mut State) -> bool {
        match state.driver {
            Driver::None => return false,
            Driver::Ends => state.driver = Driver::None,
            Driver::Looks => return self.work(state),
            Driver::Queued(place) => {
                if !state.local.has_waiters() {
                    if self.has(HandoffRule::DesertedGivesUp) {
                        state.give_up(place);
                    }
                    state.local.set_queued(false);
                } else if !state.knows_to_live(place) {
                    // Every waiter gets the error.
                    for task in state.local.fail().into_values() {
                        state.tasks[usize::from(task)] = Task::Done;
                    }
                } else if state.queue.first() == Some(&place.number) && state.link == Link::Connected {
                    self.begin(state, place);
                } else {
                    return false;
                }
                state.driver = Driver::Looks;
            }
        }
        true
    }

    fn work(&self, state: &mut State) -> bool {
        let mut local = state.local.clone();
        let work = local.task(|_| ());
        let before = std::mem::replace(&mut state.local, local);
        match work {
            Work::Watch { batch, .. } if !self.has(HandoffRule::OneTurnAtATime) => {
                self.offer(state, batch, true);
            }
            Work::Watch { batch, place } => {
                if state.knows_to_live(place) || !self.has(HandoffRule::LossSeenInUse) {
                    return false;
                }
                state.local.abandon(batch);
                state.batch = None;
            }
            Work::PassOn(batch) => self.offer(state, batch, true),
            Work::Acquire { .. } if state.link != Link::Connected => {
                // It waits for a connection.
                state.local = before;
                return false;
            }
            Work::Acquire { leftover, .. } => match state.kept.take() {
                Some(place) => self.begin(state, place),
                None => {
                    let place = state.create();
                    state.driver = Driver::Queued(place);
                    state.local.set_queued(true);
                    if let Some(leftover) = leftover.filter(|_| self.has(HandoffRule::LeftoverGivenUp)) {
                        state.give_up(leftover);
                    }
                }
            },
            Work::GiveUp(leftover) => state.give_up(leftover),
            Work::Done => {
                let at_once = self.has(HandoffRule::DriverEndsAtOnce);
                state.driver = if at_once { Driver::None } else { Driver::Ends };
            }
        }
        true
    }

    /// Adds the actions that must happen eventually.
    fn forced(&self, state: &State, actions: &mut Vec<Action>) {
        for (i, task) in (0..).zip(&state.tasks) {
            if matches!(task, Task::Sent(_)) {
                actions.push(Action::Poll(i));
            }
        }
        if self.drive(&mut state.clone()) {
            actions.push(Action::Drive);
        }
        actions.extend((0..state.removals.len()).map(Action::Remove));
        if state.remote_is_first() {
            actions.push(Action::RemoteIsGranted);
        }
        match state.link {
            Link::Connected => {}
            Link::Suspended => actions.push(Action::Resume),
            Link::Over if state.lives_there => actions.push(Action::SessionEnds),
            Link::Over => actions.push(Action::NextSession),
        }
        actions.extend(state.taken.iter().map(|number| Action::HearOfIt(*number)));
    }
}

impl Model for Handoffs {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self.run.tasks, self.run.losses)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.wrong.is_some() {
            return;
        }
        self.forced(state, actions);
        for (i, task) in (0..).zip(&state.tasks) {
            match task {
                Task::Idle => actions.push(Action::Join(i)),
                Task::Waiting(_) | Task::Sent(_) => actions.push(Action::Cancel(i)),
                Task::Holding(_) => actions.extend([Action::Release(i), Action::Drop(i)]),
                Task::Done => {}
            }
        }
        match state.remote {
            Remote::Idle => actions.push(Action::RemoteQueues),
            Remote::Holds => actions.push(Action::RemoteReleases),
            _ => {}
        }
        if let Some(batch) = &state.batch {
            if !batch.time_over {
                actions.push(Action::TimeIsOver);
            }
            if !batch.revoked && state.turn(batch.number).is_some() {
                actions.push(Action::Revoke);
            }
        }
        if state.losses > 0 {
            match state.link {
                Link::Connected => actions.push(Action::Suspend),
                Link::Suspended => actions.push(Action::LoseSession),
                Link::Over => {}
            }
            if state.own_node().is_some() {
                actions.push(Action::DeleteNode);
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        let state = &mut next;
        match action {
            Action::Join(i) => self.join(state, i),
            Action::Cancel(i) => self.cancel(state, i),
            Action::Poll(i) => self.poll(state, i),
            Action::Release(i) | Action::Drop(i) => {
                let Task::Holding(grant) = state.tasks[usize::from(i)] else { return None };
                state.tasks[usize::from(i)] = Task::Done;
                if matches!(action, Action::Drop(_)) {
                    self.leave(state, grant);
                } else {
                    let batch = self.batch(state, grant);
                    self.offer(state, batch, true);
                }
            }
            Action::Drive => {
                self.drive(state);
            }
            Action::Remove(i) => {
                let number = state.removals.remove(i);
                state.queue.retain(|node| *node != number);
            }
            Action::RemoteQueues => state.queue_remote(),
            Action::RemoteIsGranted => state.grant_remote(),
            Action::RemoteReleases => state.release_remote(),
            Action::TimeIsOver => {
                // Without the rule, the time of a later turn starts with that turn.
                let is_first = state.turn(state.batch?.number) == Some(0);
                let is_seen = is_first || self.has(HandoffRule::TimeOfThePlace);
                let batch = state.batch.as_mut()?;
                (batch.time_over, batch.time_seen) = (true, is_seen);
            }
            Action::Revoke => {
                let batch = state.batch.as_mut()?;
                batch.revoked = true;
                if self.has(HandoffRule::RevocationEndsBatch) {
                    state.local.end(batch.number);
                }
            }
            Action::Suspend => state.link = Link::Suspended,
            Action::Resume => state.link = Link::Connected,
            Action::LoseSession => {
                (state.link, state.losses) = (Link::Over, state.losses - 1);
            }
            Action::SessionEnds => state.end_session(),
            Action::NextSession => {
                (state.link, state.lives_there, state.epoch) = (Link::Connected, true, state.epoch + 1);
            }
            Action::DeleteNode => {
                let number = state.own_node()?;
                state.queue.retain(|node| *node != number);
                state.taken.push(number);
                state.losses -= 1;
            }
            Action::HearOfIt(number) => {
                state.taken.retain(|taken| *taken != number);
                state.gone.push(number);
            }
        }
        // The order of the removals in flight does not matter.
        state.removals.sort_unstable();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        Self::nothing_is_wrong()
    }
}

impl Rules for Handoffs {
    type Rule = HandoffRule;
    type Run = Run;

    const SUBJECT: &'static str = "hand-off";
    const RULES: &'static [(HandoffRule, &'static str, Wrong)] = &[
        (
            HandoffRule::TokenGrows,
            "each turn of a place has a larger token: all have the same",
            TOKEN_NOT_LARGER,
        ),
        (
            HandoffRule::OneTurnAtATime,
            "a turn begins when the previous one has ended: when there is a waiter",
            TWO_HOLDERS,
        ),
        (
            HandoffRule::OldTurnEndsNothing,
            "a turn of a lost place ends nothing: it ends the turn of the next place",
            TWO_HOLDERS,
        ),
        (
            HandoffRule::LiveAtHandOver,
            "a turn is passed on only while place and session are known to be live: always",
            NEEDLESS_END,
        ),
        (
            HandoffRule::CheckedByWaiter,
            "a waiter checks them when it takes its turn: it does not",
            GRANTED_NOT_HELD,
        ),
        (
            HandoffRule::CancelledPassesOn,
            "a cancelled waiter passes on the turn sent to it: it keeps it",
            NODE_LEFT,
        ),
        (HandoffRule::LastGivesUp, "a turn without a successor gives the place up: it keeps it", NODE_LEFT),
        (
            HandoffRule::DesertedGivesUp,
            "a place in the queue without waiters is given up: it is kept",
            NODE_LEFT,
        ),
        (
            HandoffRule::NotAfterGivingUp,
            "a place that was given up is not handed over: it is, to the next waiter",
            TOKEN_NOT_LARGER,
        ),
        (
            HandoffRule::LeftoverGivenUp,
            "the place of a batch that has ended is given up when the next one is queued: it is kept",
            STUCK_WAITER,
        ),
        (
            HandoffRule::LossSeenInUse,
            "waiters behind a holder whose place is lost get another: they wait for the holder",
            STUCK_WAITER,
        ),
        (
            HandoffRule::DriverEndsAtOnce,
            "the driver ends in the step in which it finds no waiter: in a later one",
            STUCK_WAITER,
        ),
        (
            HandoffRule::TimeEndsBatch,
            "a batch ends when its time is over: when there is no waiter",
            TURN_TOO_LATE,
        ),
        (HandoffRule::TimeOfThePlace, "the time begins with the place: with each turn", TURN_TOO_LATE),
        (
            HandoffRule::RevocationEndsBatch,
            "a batch ends with a request for revocation: it goes on",
            TURN_TOO_LATE,
        ),
        (HandoffRule::NotWhileSuspended, "a batch ends with the connection: it goes on", TURN_TOO_LATE),
    ];

    fn new(run: Run, left_out: Option<HandoffRule>) -> Self {
        Handoffs { run, left_out, began: Instant::now() }
    }

    fn wrong(&self, state: &State) -> Option<Wrong> {
        if state.wrong.is_some() {
            return state.wrong;
        }
        if state.holders() > 1 {
            return Some(TWO_HOLDERS);
        }
        let mut forced = Vec::new();
        self.forced(state, &mut forced);
        if !forced.is_empty() {
            return None;
        }
        if state.holders() == 0 && state.local.has_waiters() {
            return Some(STUCK_WAITER);
        }
        state.is_one_left().then_some(NODE_LEFT)
    }

    fn runs(is_quick: bool) -> Vec<Run> {
        let small = [(2, 1), (2, 2), (3, 1)];
        let large = [(3, 2), (4, 1)];
        let runs = small.into_iter().chain(large.into_iter().filter(|_| !is_quick));
        runs.map(|(tasks, losses)| Run { tasks, losses }).collect()
    }

    fn runs_without(_: HandoffRule) -> Vec<Run> {
        let runs = [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1)];
        runs.into_iter().map(|(tasks, losses)| Run { tasks, losses }).collect()
    }

    fn cells(Run { tasks, losses }: Run) -> Vec<(&'static str, String)> {
        vec![("tasks", tasks.to_string()), ("losses", losses.to_string())]
    }
}
