//! The store. Each function is one atomic step.

use super::rules::Rule;
use super::state::{Answer, Ask, Message, Phase, Place, Replica, Session, State, Watch, is_exclusive};
use zlock_core::Label;

/// Appends the client's node. The store may count creates.
pub(crate) fn append(state: &mut State, me: u8, counts: bool) {
    let label = state.client(me).label;
    state.queue.push(Place { client: me, label });
    if counts {
        state.client_mut(me).number = state.next_number;
        state.next_number += 1;
    }
    changed(state, me);
}

/// Removes the client's node, if it exists.
pub(crate) fn remove(state: &mut State, me: u8) {
    if let Some(place) = state.place(me) {
        state.queue.remove(place);
        changed(state, me);
    }
}

/// Carries out the client's removal of its node, with a hand-over if requested.
pub(crate) fn release(state: &mut State, me: u8, is_answered: bool, left_out: Option<Rule>) {
    let client = state.client_mut(me);
    client.delete = false;
    let next = client.handing_to.take();
    let was_there = state.place(me).is_some();
    remove(state, me);
    let Some(next) = next.filter(|&next| state.client(next).predecessor == Some(me)) else { return };
    let is_there = state.place(next).is_some();
    let was_there = was_there || left_out == Some(Rule::PredecessorIsThere);
    let is_confirmed = was_there && is_answered && (is_there || left_out == Some(Rule::SuccessorIsThere));
    let next = state.client_mut(next);
    next.is_unfounded = is_confirmed && !is_there;
    next.inbox.push(if is_confirmed { Message::Succeeded } else { Message::LinkEnded });
}

/// Changes the label of the client's node, if it exists.
pub(crate) fn relabel(state: &mut State, me: u8, label: Label) {
    if let Some(place) = state.place(me) {
        state.queue[place].label = label;
        changed(state, me);
    }
}

/// Ends the client's session, with its node and its watch, and sends `message` to the client.
pub(crate) fn end_session(state: &mut State, me: u8, message: Message) {
    let client = state.client_mut(me);
    client.watch = None;
    if client.session == Session::Live {
        client.inbox.push(message);
    }
    remove(state, me);
}

/// Fires the watches after the client's node was created, removed or relabelled.
fn changed(state: &mut State, me: u8) {
    for client in &mut state.clients {
        client.asked = 0;
        if client.watch == Some(Watch::Node(me)) || client.watch == Some(Watch::Queue) {
            client.watch = None;
            client.inbox.push(Message::Fired);
            client.saw(&state.queue);
        }
    }
}

/// Returns the part of a queue that etcd's listing returns to the client. For an exclusive lock, that is the client's node and
/// the one before.
fn up_to(queue: &[Place], me: u8, label: Label) -> Vec<Place> {
    match queue.iter().position(|place| place.client == me) {
        Some(place) if is_exclusive(label) => queue[place.saturating_sub(1)..=place].to_vec(),
        _ => queue.to_vec(),
    }
}

/// Carries out the client's request.
pub(crate) fn serve(state: &mut State, me: u8, left_out: Option<Rule>) {
    let Phase::Asking(ask) = state.client(me).phase.clone() else { return };
    let (label, is_create) = (state.client(me).label, ask == Ask::Create);
    let (answer, watch) = match ask {
        Ask::CreateUnlisted => (Answer::Unlisted, None),
        Ask::Create => (Answer::Listed(up_to(&state.queue, me, label)), None),
        Ask::List => match &state.client(me).replica {
            Replica::Behind(replica) | Replica::Anywhere(replica) => {
                (Answer::Listed(up_to(replica, me, label)), None)
            }
            Replica::Latest => (Answer::Listed(state.queue.clone()), None),
        },
        Ask::Arm(seen) => {
            let is_as_seen = |p: &Place| {
                p.client == seen.client && (p.label == seen.label || left_out == Some(Rule::LabelCompared))
            };
            if !state.queue.iter().any(is_as_seen) {
                (Answer::NotArmed, None)
            } else if left_out == Some(Rule::NodeWatchAtomic) {
                state.client_mut(me).phase = Phase::Asking(Ask::ArmBlindly(seen));
                return;
            } else {
                (Answer::Armed, Some(Watch::Node(seen.client)))
            }
        }
        Ask::ListAndArm if left_out == Some(Rule::QueueWatchAtomic) => {
            let queue = state.queue.clone();
            state.client_mut(me).phase = Phase::Asking(Ask::ArmQueueBlindly(queue));
            return;
        }
        Ask::ListAndArm => (Answer::ListedAndArmed(state.queue.clone()), Some(Watch::Queue)),
        Ask::ArmBlindly(seen) => (Answer::Armed, Some(Watch::Node(seen.client))),
        Ask::ArmQueueBlindly(queue) => (Answer::ListedAndArmed(queue), Some(Watch::Queue)),
    };
    let State { queue, clients, .. } = state;
    let client = &mut clients[usize::from(me)];
    // These answers show the current queue.
    if is_create || answer == Answer::NotArmed {
        client.saw(queue);
    }
    client.watch = watch;
    client.inbox.push(Message::Answer(answer));
}
