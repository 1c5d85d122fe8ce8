//! The model: the possible actions in a state, and their effects.

use std::fmt;

use stateright::{Model, Property};

use super::check::Run;
use super::properties::Violation;
use super::recipe::Nodes;
use super::rules::Rule;
use super::state::{Ask, Message, Phase, Replica, Session, State};
use super::{driver, store};

/// Some clients of one lock, and everything that can happen to them.
#[derive(Debug)]
pub(crate) struct LockModel {
    run: Run,
    pub(crate) left_out: Option<Rule>,
    pub(crate) nodes: Nodes,
}

/// The order in which a client receives the store's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// As sent.
    Ordered,
    /// Any order.
    Unordered,
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Delivery::Ordered => "ordered",
            Delivery::Unordered => "unordered",
        })
    }
}

/// One step of a client, of the store, or of a third party. The number is the client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The client's create takes effect.
    Acquire(u8),
    /// The same for a create without a listing.
    AcquireUnlisted(u8),
    /// Its acquisition is dropped.
    Cancel(u8),
    /// Its guard is released.
    Release(u8),
    /// Its write guard becomes a read guard.
    Downgrade(u8),
    /// The store carries out its request.
    Serve(u8),
    /// The server that it reads from catches up with the others.
    CatchUp(u8),
    /// It receives the message at this position of its inbox.
    Hear(u8, u8),
    /// The store carries out the deletion of its node.
    Delete(u8),
    /// The same, and the answer is lost.
    DeleteUnanswered(u8),
    /// It stops waiting for a hand-over by the previous place.
    LookForItself(u8),
    /// The store carries out the relabel of its node.
    Relabel(u8),
    /// Its local deadline passes.
    PassDeadline(u8),
    /// It notices that its session is over.
    NoticeLoss(u8),
    /// It begins the next session.
    Reconnect(u8),
    /// The store ends its session.
    Expire(u8),
    /// Its watch fires without a relevant change, since data was written or a connection was lost.
    FireInVain(u8),
    /// An operator deletes its node.
    OperatorDeletes(u8),
    /// An operator ends its session.
    OperatorEnds(u8),
    /// It learns that its node is removed. Only used when the left-out rule makes that relevant.
    HearRemoval(u8),
    /// The store removes the empty parent. The next one counts from 0.
    RemoveParent,
}

impl LockModel {
    pub(crate) fn new(run: Run, left_out: Option<Rule>) -> Self {
        LockModel { run, left_out, nodes: Nodes::new(run.recipe, run.clients) }
    }

    /// Returns `true` if these are places of one process, with one session.
    pub(crate) fn are_together(&self, one: u8, other: u8) -> bool {
        let together = |i: u8| self.run.together >> i & 1 == 1;
        one == other || together(one) && together(other)
    }

    /// Returns `true` if the store counts every create under a parent and clients rely on it.
    pub(crate) fn counts(&self) -> bool {
        self.run.together != 0 && !self.run.is_behind
    }

    /// Returns the places that share this one's session.
    fn of_session(&self, me: u8) -> impl Iterator<Item = u8> + '_ {
        (0..self.run.clients).filter(move |&i| self.are_together(me, i))
    }

    /// Adds the actions that must happen eventually.
    pub(crate) fn pending(&self, state: &State, actions: &mut Vec<Action>) {
        for (i, client) in (0..).zip(&state.clients) {
            if client.is_asking() {
                actions.push(Action::Serve(i));
            }
            let mut is_next = true;
            for (at, message) in (0..).zip(&client.inbox) {
                let is_audible = is_next || self.run.delivery == Delivery::Unordered || message.is_local();
                is_next &= message.is_local();
                if !is_audible {
                    continue;
                }
                // The driver reads a watch's event only once it waits for the watch.
                if *message != Message::Fired || client.phase == Phase::Waiting {
                    actions.push(Action::Hear(i, at));
                }
            }
            if client.delete {
                actions.push(Action::Delete(i));
            } else if client.removing {
                actions.push(Action::HearRemoval(i));
            }
            if client.relabel.is_some() {
                actions.push(Action::Relabel(i));
            }
            if client.session == Session::Over && client.is_waiting() {
                actions.push(Action::NoticeLoss(i));
            }
            if client.session != Session::Live && state.place(i).is_some() {
                actions.push(Action::Expire(i));
            }
        }
    }

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
