//! Hand-off inside a client (`cohort.rs` and `handoff.rs` of `zlock-recipes`): a place in the store's queue passes from task to
//! task, while another client acquires the lock without hand-off.
//!
//! No real code runs here. The model checks that the rules are sufficient, and that each is necessary. The suite's group
//! `handoff` and the simulation check that the real code follows them. Waiting for a place in the store is covered by the other
//! model: here, a place is granted in one step when it is the first.

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::handoff_rules::{HandoffRule, Wrong};
use super::handoff_state::{Action, Batch, Driver, Grant, Link, Place, Remote, State, Task};

/// The number of tasks of one client, each of which acquires the lock once, and the number of losses of a session or a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) tasks: u8,
    pub(crate) losses: u8,
}

/// The model with all rules, or without one.
#[derive(Debug)]
pub(crate) struct Handoffs {
    run: Run,
    left_out: Option<HandoffRule>,
}

impl Handoffs {
    fn has(&self, rule: HandoffRule) -> bool {
        self.left_out != Some(rule)
    }

    fn join(&self, state: &mut State, task: u8) {
        state.tasks[usize::from(task)] = Task::Waiting;
        state.waiters.push(task);
        if state.driver == Driver::None {
            state.driver = Driver::Looks;
        }
    }

    /// Starts the removal of a node that is no longer needed.
    fn give_up(&self, state: &mut State, place: Place) {
        state.removals.push(place.number);
    }

    /// The turn of a batch is free. The next waiter gets it, or the batch ends.
    fn offer(&self, state: &mut State, is_first: bool) {
        let Some(mut batch) = state.batch.take() else { return };
        batch.in_use = false;
        if state.waiters.is_empty() {
            if self.has(HandoffRule::LastGivesUp) && !batch.given_up {
                self.give_up(state, batch.place);
            }
            if !self.has(HandoffRule::NotAfterGivingUp) {
                batch.given_up = true;
                state.batch = Some(batch);
            }
            return;
        }
        let lives = state.knows_to_live(batch.place);
        if !is_first {
            let goes_on = (!batch.time_seen || !self.has(HandoffRule::TimeEndsBatch))
                && (!batch.revoked || !self.has(HandoffRule::RevocationEndsBatch))
                && (state.link == Link::Connected
                    || !self.has(HandoffRule::NotWhileSuspended) && state.link == Link::Suspended
                    || !self.has(HandoffRule::LiveAtHandOver) && state.link == Link::Over)
                && (lives || !self.has(HandoffRule::LiveAtHandOver));
            if !goes_on {
                state.leftover = Some(batch.place);
                return;
            }
            if batch.time_over || batch.revoked || state.link == Link::Suspended {
                state.wrong = Some(Wrong::TurnTooLate);
            }
            batch.turn += 1;
        }
        batch.in_use = true;
        let turn = if self.has(HandoffRule::TokenGrows) { batch.turn } else { 0 };
        let grant = Grant { place: batch.place, turn, batch: batch.number, lived: lives };
        let next = state.waiters.remove(0);
        state.tasks[usize::from(next)] = Task::Sent(grant);
        state.batch = Some(batch);
    }

    fn is_of(&self, state: &State, grant: Grant) -> bool {
        let is_it = |batch: &Batch| batch.number == grant.batch || !self.has(HandoffRule::OldTurnEndsNothing);
        state.batch.as_ref().is_some_and(is_it)
    }

    /// A turn ends where there is no clock. If there are waiters, the driver passes the turn on.
    fn leave(&self, state: &mut State, grant: Grant) {
        if !self.is_of(state, grant) {
            return;
        }
        if state.waiters.is_empty() {
            self.offer(state, false);
        } else if let Some(batch) = &mut state.batch {
            batch.in_use = false;
        }
    }

    fn cancel(&self, state: &mut State, task: u8) {
        match std::mem::replace(&mut state.tasks[usize::from(task)], Task::Done) {
            Task::Sent(grant) if self.has(HandoffRule::CancelledPassesOn) => self.leave(state, grant),
            _ => state.waiters.retain(|waiter| *waiter != task),
        }
    }

    fn poll(&self, state: &mut State, task: u8) {
        let Task::Sent(grant) = state.tasks[usize::from(task)] else { return };
        let lives = state.knows_to_live(grant.place);
        if lives || !self.has(HandoffRule::CheckedByWaiter) {
            state.tasks[usize::from(task)] = Task::Holding(grant);
            state.granted((grant.place.number, grant.turn));
            if !lives {
                state.wrong = Some(Wrong::GrantedNotHeld);
            }
        } else {
            state.tasks[usize::from(task)] = Task::Done;
            self.leave(state, grant);
            if !grant.lived {
                state.wrong = Some(Wrong::NeedlessEnd);
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
                if state.waiters.is_empty() {
                    if self.has(HandoffRule::DesertedGivesUp) {
                        self.give_up(state, place);
                    }
                    state.driver = Driver::Looks;
                } else if !state.knows_to_live(place) {
                    // Every waiter gets the error.
                    for task in std::mem::take(&mut state.waiters) {
                        state.tasks[usize::from(task)] = Task::Done;
                    }
                    state.driver = Driver::Looks;
                } else if state.queue.first() == Some(&place.number) && state.link == Link::Connected {
                    let number = state.batches;
                    state.batches += 1;
                    state.batch = Some(Batch::new(number, place));
                    state.driver = Driver::Looks;
                    self.offer(state, true);
                } else {
                    return false;
                }
            }
        }
        true
    }

    fn work(&self, state: &mut State) -> bool {
        let waited_for = !state.waiters.is_empty();
        match state.batch {
            Some(batch) if batch.in_use && waited_for => {
                if !self.has(HandoffRule::OneTurnAtATime) {
                    self.offer(state, false);
                } else if !state.knows_to_live(batch.place) && self.has(HandoffRule::LossSeenInUse) {
                    state.batch = None;
                } else {
                    return false;
                }
            }
            Some(batch) if !batch.in_use && (waited_for || !batch.given_up) => {
                self.offer(state, false);
            }
            None if waited_for => {
                if state.link != Link::Connected {
                    return false;
                }
                let place = state.create();
                state.driver = Driver::Queued(place);
                let leftover = state.leftover.take();
                if let Some(leftover) = leftover.filter(|_| self.has(HandoffRule::LeftoverGivenUp)) {
                    self.give_up(state, leftover);
                }
            }
            _ => {
                if let Some(leftover) = state.leftover.take() {
                    self.give_up(state, leftover);
                }
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

    fn look(&self, state: &State) -> Option<Wrong> {
        if state.wrong.is_some() {
            return state.wrong;
        }
        if state.holders() > 1 {
            return Some(Wrong::TwoHolders);
        }
        let mut forced = Vec::new();
        self.forced(state, &mut forced);
        if !forced.is_empty() {
            return None;
        }
        if state.holders() == 0 && !state.waiters.is_empty() {
            return Some(Wrong::StuckWaiter);
        }
        state.is_one_left().then_some(Wrong::NodeLeft)
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
                Task::Waiting | Task::Sent(_) => actions.push(Action::Cancel(i)),
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
            if !batch.revoked && batch.in_use {
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
                } else if self.is_of(state, grant) {
                    self.offer(state, false);
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
                let batch = state.batch.as_mut()?;
                // Without the rule, the time of a later turn starts with that turn.
                let is_seen = batch.turn == 0 || self.has(HandoffRule::TimeOfThePlace);
                (batch.time_over, batch.time_seen) = (true, is_seen);
            }
            Action::Revoke => state.batch.as_mut()?.revoked = true,
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
        vec![Property::always("all", |model, state| model.look(state).is_none())]
    }
}

/// Runs a search. Returns the number of states, and the first violation with its trace.
pub(crate) fn explore(run: Run, left_out: Option<HandoffRule>) -> (usize, Option<(Wrong, Vec<Action>)>) {
    let search = Handoffs { run, left_out }.checker().finish_when(HasDiscoveries::Any).spawn_bfs().join();
    let found = search.discoveries().into_values().next().map(|path| {
        let wrong = search.model().look(path.last_state()).expect("the last state is wrong");
        (wrong, path.into_actions())
    });
    (search.unique_state_count(), found)
}

/// Returns the runs with all rules, fewer and smaller ones for CI.
pub(crate) fn runs(is_quick: bool) -> Vec<Run> {
    let small = [(2, 1), (2, 2), (3, 1)];
    let large = [(3, 2), (4, 1)];
    let runs = small.into_iter().chain(large.into_iter().filter(|_| !is_quick));
    runs.map(|(tasks, losses)| Run { tasks, losses }).collect()
}

/// Returns the smallest run with a violation without the rule.
pub(crate) fn without(rule: HandoffRule) -> (Run, usize, Option<(Wrong, Vec<Action>)>) {
    let mut last = None;
    for (tasks, losses) in [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1)] {
        let run = Run { tasks, losses };
        let (states, found) = explore(run, Some(rule));
        let is_found = found.is_some();
        last = Some((run, states, found));
        if is_found {
            break;
        }
    }
    last.expect("there is a first run")
}
