//! The model: its parameters, and the actions in a state.

use std::fmt;

use super::recipe::{Nodes, Recipe};
use super::rules::Rule;
use super::state::{Message, Phase, Session, State};

/// Some clients of one lock, and everything that can happen to them.
#[derive(Debug)]
pub(crate) struct LockModel {
    pub(crate) run: Run,
    pub(crate) left_out: Option<Rule>,
    pub(crate) nodes: Nodes,
}

/// The parameters of a search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) recipe: Recipe,
    pub(crate) clients: u8,
    /// Which clients are places of one process with one session, with a bit for each.
    pub(crate) together: u8,
    /// Whether the servers that answer the clients may be behind.
    pub(crate) is_behind: bool,
    pub(crate) faults: u8,
    pub(crate) delivery: Delivery,
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
    pub(crate) fn of_session(&self, me: u8) -> impl Iterator<Item = u8> + '_ {
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
}
