//! The driver around the real state machine, as in `zlock_recipes::queue`: a client's reactions to messages. A rule is left out
//! here or in the store, never in the state machine.

use zlock_core::Label;
use zlock_recipes::queue::{Acquisition, Discipline, Event, Status, Step};

use super::lock::LockModel;
use super::recipe::promoted;
use super::rules::Rule;
use super::state::{Answer, Ask, Client, Message, Phase, Place, Session, State};

/// The messages that a waiting client handles.
#[derive(Clone, Debug)]
enum Heard {
    Answer(Answer),
    /// The watch has fired.
    Fired,
    /// The session or the client's own node is lost.
    Lost,
    /// The client is linked to the previous place.
    Linked,
    /// The previous place has handed over.
    Succeeded,
}

impl LockModel {
    /// The client creates its node, and waits for the answer, with or without a listing.
    pub(crate) fn acquire(&self, state: &mut State, me: u8, create: Ask) {
        super::store::append(state, me, self.counts());
        let client = state.client_mut(me);
        client.phase = Phase::Asking(create);
        client.asked = 1;
    }

    /// The future of the acquisition is dropped.
    pub(crate) fn cancel(&self, state: &mut State, me: u8) {
        let is_unarmed = self.left_out == Some(Rule::CleanUpFirst) && is_creating(&state.client(me).phase);
        if self.left_out == Some(Rule::PredecessorHeld) {
            release(state, me);
        } else {
            self.leave(state, me);
        }
        if is_unarmed {
            state.client_mut(me).delete = false;
        }
    }

    /// The writer becomes a reader.
    pub(crate) fn downgrade(&self, state: &mut State, me: u8) {
        let client = state.client_mut(me);
        client.relabel = Some(Label::Read);
        if self.left_out != Some(Rule::WriteEndsFirst) {
            client.phase = Phase::Holding(Label::Read);
        }
    }

    /// A message arrives.
    pub(crate) fn deliver(&self, state: &mut State, me: u8, message: Message) {
        let client = state.client_mut(me);
        let is_holding = matches!(client.phase, Phase::Holding(_));
        match message {
            Message::Answer(Answer::Unlisted) => self.look_at_the_number(state, me),
            Message::Answer(answer) => self.hear(state, me, Heard::Answer(answer), Status::Live),
            Message::Fired => self.hear(state, me, Heard::Fired, Status::Live),
            Message::Relabelled if is_holding => client.phase = Phase::Holding(Label::Read),
            Message::Relabelled => {}
            Message::Succeeded | Message::LinkEnded if client.predecessor.is_none() => {}
            Message::Succeeded => self.unlink(state, me, Heard::Succeeded),
            Message::LinkEnded => self.unlink(state, me, Heard::Fired),
            Message::Gone if is_holding => self.leave(state, me),
            Message::Gone if self.left_out == Some(Rule::OwnNode) => {}
            Message::Gone => self.hear(state, me, Heard::Lost, Status::NodeDeleted),
            Message::Ended | Message::Expired => {
                client.session = Session::Over;
                if is_holding {
                    self.leave(state, me);
                } else {
                    self.hear(state, me, Heard::Lost, Status::Live);
                }
            }
        }
    }

    /// The client notices that its session is over.
    pub(crate) fn notice(&self, state: &mut State, me: u8) {
        self.hear(state, me, Heard::Lost, Status::Live);
    }

    /// Passes a message to the state machine, and executes the step that it returns.
    fn hear(&self, state: &mut State, me: u8, heard: Heard, node_status: Status) {
        let status = match state.client(me).session {
            Session::Live => node_status,
            Session::Next if self.left_out == Some(Rule::SessionAtGrant) => node_status,
            Session::Over | Session::Next => Status::SessionLost,
        };
        match self.next(state, me, &heard, status) {
            Step::Granted { promote } => {
                let client = state.client_mut(me);
                client.phase = Phase::Holding(client.label);
                client.relabel = promote.then(|| promoted(client.label));
                client.asked = 0;
                client.last.clear();
            }
            Step::Ended(why) => {
                let by_a_listing = why == Status::NodeDeleted && node_status == Status::Live;
                state.is_needless_end |= by_a_listing && state.place(me).is_some();
                self.leave(state, me);
            }
            Step::Wait => {
                let client = state.client_mut(me);
                client.phase = Phase::Waiting;
                client.asked = 0;
            }
            Step::List => ask(state, me, Ask::List),
            Step::Arm(node) => {
                let before = self.nodes.place(&node);
                if self.can_follow(state, me, before) {
                    self.link(state, me, before.client);
                    self.hear(state, me, Heard::Linked, node_status);
                } else {
                    ask(state, me, Ask::Arm(before));
                }
            }
            Step::ListAndArm => ask(state, me, Ask::ListAndArm),
        }
    }

    /// The guard is lost, or the acquisition has ended. The node is removed in the background, without a hand-over.
    pub(crate) fn leave(&self, state: &mut State, me: u8) {
        release(state, me);
        if let Some(next) = state.client_mut(me).handing_to.take()
            && self.left_out != Some(Rule::LinkEndTold)
        {
            state.client_mut(next).inbox.push(Message::LinkEnded);
        }
    }

    /// Returns `true` if the client may wait for a hand-over by the previous place.
    fn can_follow(&self, state: &State, me: u8, before: Place) -> bool {
        let predecessor = state.client(before.client);
        self.are_together(me, before.client)
            && (self.left_out == Some(Rule::OnlyMutexes) || before.label == Label::Lock)
            && !state.client(me).followed
            && predecessor.phase != Phase::Done
    }

    /// The client has a node and no listing. If the place with the number directly before its own belongs to its process, the
    /// client waits for that. Otherwise it lists.
    fn look_at_the_number(&self, state: &mut State, me: u8) {
        let number = state.client(me).number;
        let is_before = |client: &Client| {
            client.number + 1 == number || self.left_out == Some(Rule::NextNumber) && client.number < number
        };
        let is_queued = |client: &Client| match client.phase {
            Phase::Idle => false,
            // Its place is known from the answer to the create until its removal begins.
            Phase::Done => client.removing,
            ref phase => !is_creating(phase),
        };
        let is_right_before = |&before: &u8| {
            let client = state.client(before);
            before != me && self.are_together(me, before) && is_queued(client) && is_before(client)
        };
        match (0..me).rfind(is_right_before) {
            Some(before) => {
                self.link(state, me, before);
                self.hear(state, me, Heard::Linked, Status::Live);
            }
            None => self.hear(state, me, Heard::Fired, Status::Live),
        }
    }

    fn link(&self, state: &mut State, me: u8, before: u8) {
        if let Some(other) = state.client_mut(before).successor.replace(me) {
            state.client_mut(other).inbox.push(Message::LinkEnded);
        }
        let client = state.client_mut(me);
        (client.predecessor, client.followed) = (Some(before), true);
    }

    /// The client stops waiting for its predecessor, because of a message.
    fn unlink(&self, state: &mut State, me: u8, heard: Heard) {
        forget_predecessor(state, me);
        self.hear(state, me, heard, Status::Live);
    }

    /// The client stops waiting for its predecessor, and checks the queue itself.
    pub(crate) fn look_for_itself(&self, state: &mut State, me: u8) {
        self.unlink(state, me, Heard::Fired);
    }

    /// Returns the next step of the real state machine, altered if a rule is left out.
    fn next(&self, state: &mut State, me: u8, heard: &Heard, status: Status) -> Step {
        let client = state.client(me);
        let acquisition = Acquisition::new(self.nodes.token(me), Discipline::of(client.label));
        let (event, listed) = match heard {
            Heard::Answer(Answer::Listed(queue)) => (Event::Listed(self.nodes.queue(queue)), Some(queue)),
            Heard::Answer(Answer::ListedAndArmed(queue)) => {
                (Event::ListedAndArmed(self.nodes.queue(queue)), Some(queue))
            }
            Heard::Answer(Answer::Armed) | Heard::Linked => (Event::Armed, None),
            Heard::Succeeded => (Event::Succeeded, None),
            Heard::Answer(Answer::NotArmed) => (Event::NotArmed, None),
            Heard::Answer(Answer::Unlisted) | Heard::Fired | Heard::Lost => (Event::Woken, None),
        };
        let step = acquisition.next(event, status);
        match (self.left_out, listed) {
            (None, _) => step,
            (Some(Rule::ListedAgain), Some(_)) => {
                if let Step::Arm(node) = &step {
                    state.client_mut(me).last = vec![self.nodes.place(node)];
                }
                step
            }
            (Some(Rule::ListedAgain), None) if matches!(heard, Heard::Fired) && step == Step::List => {
                let is_gone = |seen: &Place| state.place(seen.client).is_none();
                if client.last.iter().all(is_gone) { Step::Granted { promote: false } } else { step }
            }
            (Some(rule @ (Rule::FreshListing | Rule::WholeListing)), Some(listed)) => {
                state.client_mut(me).last = match &step {
                    Step::Arm(node) if rule == Rule::WholeListing => without(listed, self.nodes.place(node)),
                    _ => listed.clone(),
                };
                step
            }
            (Some(Rule::FreshListing | Rule::WholeListing), None) if step == Step::List => {
                acquisition.next(Event::Listed(self.nodes.queue(&client.last)), status)
            }
            (Some(rule), Some(listed)) => self.bend(rule, step, listed, me, &client.phase),
            (Some(_), None) => step,
        }
    }

    /// Alters the decision on a listing if a rule about decisions is left out.
    fn bend(&self, rule: Rule, step: Step, listed: &[Place], me: u8, phase: &Phase) -> Step {
        let Some(place) = listed.iter().position(|p| p.client == me) else { return step };
        let arm = |place: Option<&Place>| place.map(|&p| Step::Arm(self.nodes.node(p)));
        let bent = match (rule, &step) {
            (Rule::NodeBefore, Step::Arm(_)) => arm(listed.iter().rfind(|p| p.client != me)),
            (Rule::NearestWriter, Step::Arm(_)) | (Rule::EveryHolder, Step::ListAndArm) => {
                arm(listed[..place].last())
            }
            (Rule::NoLaterWriter, Step::Granted { .. }) if listed[place].label == Label::Read => {
                arm(listed[place..].iter().find(|p| p.label == Label::Write))
            }
            (Rule::Promotion, Step::Granted { .. }) => Some(Step::Granted { promote: false }),
            (Rule::PromotionAtOnce, Step::Granted { .. }) if *phase == Phase::Asking(Ask::Create) => {
                Some(Step::Granted { promote: false })
            }
            _ => None,
        };
        bent.unwrap_or(step)
    }
}

/// The guard is released or dropped. The node is removed in the background, and the lock is handed over.
pub(crate) fn release(state: &mut State, me: u8) {
    let client = state.client_mut(me);
    client.phase = Phase::Done;
    client.delete = true;
    client.handing_to = client.successor.take();
    forget_predecessor(state, me);
}

fn is_creating(phase: &Phase) -> bool {
    matches!(phase, Phase::Asking(Ask::Create | Ask::CreateUnlisted))
}

fn forget_predecessor(state: &mut State, me: u8) {
    if let Some(before) = state.client_mut(me).predecessor.take() {
        state.client_mut(before).successor.take_if(|next| *next == me);
    }
}

fn ask(state: &mut State, me: u8, ask: Ask) {
    let client = state.client_mut(me);
    client.phase = Phase::Asking(ask);
    client.asked += 1;
}

fn without(queue: &[Place], place: Place) -> Vec<Place> {
    queue.iter().copied().filter(|p| p.client != place.client).collect()
}
