//! What must hold in every state. Nothing here uses the real decision, so this is an independent check.

use std::fmt;

use zlock_core::Label;

use super::lock::LockModel;
use super::state::{Client, Phase, Place, Replica, State};

/// The number of a client's requests without a change of the queue that counts as a lack of progress. A listing that is out of
/// date when it arrives costs a watch that is not armed, followed by another listing and the watch. From a server that is
/// behind, even a listing that was requested later may be out of date.
fn fruitless(client: &Client) -> u8 {
    if client.replica == Replica::Latest { 4 } else { 5 }
}

/// A violation in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// Two users believe that they hold locks that exclude each other, without interference by an operator.
    TwoHolders,
    /// A client waits and nothing will wake it, or it sends requests endlessly.
    StuckWaiter,
    /// A waiter whose turn it is waits although enough permits are free.
    IdlePermits,
    /// A node remains that no client knows of.
    NodeLeft,
    /// An acquisition ends for lack of its node, which still exists.
    NeedlessEnd,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Violation::TwoHolders => "two holders",
            Violation::StuckWaiter => "stuck waiter",
            Violation::IdlePermits => "idle permits",
            Violation::NodeLeft => "node left behind",
            Violation::NeedlessEnd => "needless end",
        })
    }
}

impl Violation {
    pub(crate) fn of(model: &LockModel, state: &State) -> Option<Violation> {
        if excludes_badly(state) {
            return Some(Violation::TwoHolders);
        }
        if state.is_needless_end {
            return Some(Violation::NeedlessEnd);
        }
        if state.clients.iter().any(|c| c.asked >= fruitless(c)) {
            return Some(Violation::StuckWaiter);
        }
        // The remaining checks are for states in which nothing is in flight.
        let mut pending = Vec::new();
        model.pending(state, &mut pending);
        if pending.is_empty() { at_rest(state) } else { None }
    }
}

/// Returns `true` if clients hold locks that exclude each other. Clients that were misled by an operator are not counted.
fn excludes_badly(state: &State) -> bool {
    let (mut holders, mut alone, mut permits, mut max) = (0, 0, 0, u32::MAX);
    for client in state.clients.iter().filter(|c| !c.is_misled()) {
        let Phase::Holding(held) = client.phase else { continue };
        holders += 1;
        match held {
            Label::Read => {}
            Label::Permits { weight, max: m, .. } => (permits, max) = (permits + weight, m),
            _ => alone += 1,
        }
    }
    alone > 0 && holders > 1 || permits > max
}

/// Returns the violation in a state where nothing is in flight, so that nothing will change by itself.
fn at_rest(state: &State) -> Option<Violation> {
    for place in &state.queue {
        if state.client(place.client).phase == Phase::Done {
            return Some(Violation::NodeLeft);
        }
    }
    for (i, client) in (0..).zip(&state.clients).filter(|(_, c)| c.is_waiting()) {
        let Some(place) = state.place(i) else { return Some(Violation::StuckWaiter) };
        if is_its_turn(&state.queue, place) {
            let is_permits = matches!(client.label, Label::Permits { .. });
            return Some(if is_permits { Violation::IdlePermits } else { Violation::StuckWaiter });
        }
        let is_told = client.predecessor.is_some_and(|before| {
            let before = state.client(before);
            before.phase != Phase::Done && before.successor == Some(i)
        });
        if client.watch.is_none() && !is_told {
            return Some(Violation::StuckWaiter);
        }
    }
    None
}

fn is_its_turn(queue: &[Place], place: usize) -> bool {
    match queue[place].label {
        Label::Read => queue[..place].iter().all(|p| p.label == Label::Read),
        Label::Permits { max, .. } => queue[..=place].iter().map(weight).sum::<u32>() <= max,
        _ => place == 0,
    }
}

fn weight(place: &Place) -> u32 {
    if let Label::Permits { weight, .. } = place.label { weight } else { u32::MAX / 16 }
}
