//! The steps of the model: what may happen in a state, and its effects.

use stateright::{Model, Property};

use super::lock::{Action, Delivery, LockModel};
use super::properties::Violation;
use super::rules::Rule;
use super::state::{Ask, Message, Phase, Replica, Session, State};
use super::{driver, store};

impl LockModel {
    /// Adds the actions that may happen.
    fn possible(&self, state: &State, actions: &mut Vec<Action>) {
        if state.queue.is_empty() && state.next_number > 0 {
            actions.push(Action::RemoveParent);
        }
        for (i, client) in (0..).zip(&state.clients) {
            match client.phase {
                // Idle clients are interchangeable, so they start in the order of their numbers.
                Phase::Idle => {
                    actions.push(Action::Acquire(i));
                    if self.counts() && self.of_session(i).count() > 1 {
                        actions.push(Action::AcquireUnlisted(i));
                    }
                    break;
                }
                Phase::Asking(_) | Phase::Waiting => {
                    if state.faults > 0 {
                        actions.push(Action::Cancel(i));
                        if client.predecessor.is_some() {
                            actions.push(Action::LookForItself(i));
                        }
                    }
                    // With the rule, the next session makes no difference to an acquisition.
                    if client.session == Session::Over && self.left_out == Some(Rule::SessionAtGrant) {
                        actions.push(Action::Reconnect(i));
                    }
                }
                Phase::Holding(held) => {
                    actions.push(Action::Release(i));
                    if held == zlock_core::Label::Write && client.relabel.is_none() {
                        actions.push(Action::Downgrade(i));
                    }
                }
                Phase::Done if client.handing_to.is_some() && state.faults > 0 => {
                    actions.push(Action::DeleteUnanswered(i));
                }
                Phase::Done => {}
            }
            if client.is_waiting() && client.is_behind(&state.queue) {
                actions.push(Action::CatchUp(i));
            }
            if client.watch.is_some() && state.faults > 0 {
                actions.push(Action::FireInVain(i));
            }
            if state.place(i).is_none() {
                continue;
            }
            if client.session == Session::Live && state.faults > 0 {
                let is_local = self.left_out != Some(Rule::LocalDeadline);
                actions.push(if is_local { Action::PassDeadline(i) } else { Action::Expire(i) });
            }
            if state.faults > 0 && client.phase != Phase::Done {
                actions.push(Action::OperatorDeletes(i));
                if client.session == Session::Live {
                    actions.push(Action::OperatorEnds(i));
                }
            }
        }
    }

    fn act(&self, state: &mut State, action: Action) {
        match action {
            Action::Acquire(i) => self.acquire(state, i, Ask::Create),
            Action::AcquireUnlisted(i) => self.acquire(state, i, Ask::CreateUnlisted),
            Action::Cancel(i) => {
                state.take_fault();
                self.cancel(state, i);
            }
            Action::Release(i) => {
                driver::release(state, i);
                state.client_mut(i).removing = self.left_out == Some(Rule::NotBeingRemoved);
            }
            Action::Downgrade(i) => self.downgrade(state, i),
            Action::Serve(i) => store::serve(state, i, self.left_out),
            Action::CatchUp(i) => {
                let State { queue, clients, .. } = state;
                clients[usize::from(i)].catch_up(queue);
            }
            Action::Hear(i, at) => {
                let message = state.client_mut(i).inbox.remove(at.into());
                self.deliver(state, i, message);
            }
            Action::Delete(i) => store::release(state, i, true, self.left_out),
            Action::DeleteUnanswered(i) => {
                state.take_fault();
                store::release(state, i, false, self.left_out);
            }
            Action::LookForItself(i) => {
                state.take_fault();
                self.look_for_itself(state, i);
            }
            Action::Relabel(i) => {
                if let Some(label) = state.client_mut(i).relabel.take() {
                    store::relabel(state, i, label);
                }
                if self.left_out == Some(Rule::WriteEndsFirst) {
                    state.client_mut(i).inbox.push(Message::Relabelled);
                }
            }
            Action::PassDeadline(i) => {
                state.take_fault();
                for i in self.of_session(i) {
                    let client = state.client_mut(i);
                    client.session = Session::Over;
                    if matches!(client.phase, Phase::Holding(_)) {
                        self.leave(state, i);
                    }
                }
            }
            Action::NoticeLoss(i) => self.notice(state, i),
            Action::Reconnect(i) => state.client_mut(i).session = Session::Next,
            Action::Expire(i) => {
                if state.client(i).session == Session::Live {
                    state.take_fault();
                }
                for i in self.of_session(i) {
                    store::end_session(state, i, Message::Expired);
                }
            }
            Action::FireInVain(i) => {
                state.take_fault();
                let client = state.client_mut(i);
                client.watch = None;
                client.inbox.push(Message::Fired);
            }
            Action::OperatorDeletes(i) => {
                state.take_fault();
                store::remove(state, i);
                state.client_mut(i).inbox.push(Message::Gone);
            }
            Action::HearRemoval(i) => {
                state.client_mut(i).removing = false;
                for client in state.clients.iter_mut().filter(|client| client.predecessor == Some(i)) {
                    client.inbox.push(Message::Succeeded);
                }
            }
            Action::RemoveParent => state.next_number = 0,
            Action::OperatorEnds(i) => {
                state.take_fault();
                for i in self.of_session(i) {
                    store::end_session(state, i, Message::Ended);
                }
            }
        }
    }
}

impl Model for LockModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let replica = match self.left_out {
            _ if !self.run.is_behind => Replica::Latest,
            Some(Rule::NotOlderThanSeen) => Replica::Anywhere(Vec::new()),
            _ => Replica::Behind(Vec::new()),
        };
        let assignments = self.run.recipe.assignments(self.run.clients);
        assignments.iter().map(|labels| State::new(labels, self.run.faults, &replica)).collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.pending(state, actions);
        self.possible(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.act(&mut next, action);
        next.simplify(self.run.delivery == Delivery::Ordered);
        Some(next)
    }

    // A single property, so that a search stops at its first violation and the number of states is exact.
    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("all", |model, state| Violation::of(model, state).is_none())]
    }
}
