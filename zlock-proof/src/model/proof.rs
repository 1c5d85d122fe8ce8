//! What a client may conclude from the answers of ZooKeeper servers about the end of its session, as in `zlock-zk` (see
//! `touches.rs`): the leader, the next leader, the server of the client, and the client.
//!
//! A deadline is shown as the instant that it counts from, one session timeout before. It is right if the leader that may end
//! the session counts from there, or from later, even if the client's server dies at this moment. So no session has to end
//! here. Time is in steps; half a tick is two of them. Within a step, events have any order.
//!
//! No real code runs here. The model checks that the rules are sufficient, and that each is necessary. The tests in
//! `touches.rs` and `zlock-tests/tests/clusters/zk/proof.rs` check that the real code follows them.

use stateright::{Model, Property};

use super::search::{Rules, Wrong};

/// A rule of `zlock-zk/src/session/touches.rs`, or of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProofRule {
    Committed,
    HalfTick,
    LeaderStoodStill,
    LastBefore,
    SameLeader,
    FirstHold,
    FoundAgain,
}

const TOO_LATE: Wrong = "deadline too late";

type Time = u8;

const HALF_TICK: Time = 2;

/// The length of a run, and the numbers of events in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) until: Time,
    /// Whether the session owns no node in the beginning.
    pub(crate) is_idle: bool,
    /// How often the leader stands still.
    pub(crate) stops: u8,
    /// How often the client stands still, with answers that it has not read.
    pub(crate) stalls: u8,
    /// Whether another leader is elected.
    pub(crate) elections: u8,
    /// How often the client has to connect again, to any server.
    pub(crate) interruptions: u8,
    /// How often messages between a server and its leader take more than no time.
    pub(crate) delays: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// The client's server answers.
    Read,
    /// The leader answers.
    Sync,
    /// The leader answers with the consent of a majority.
    Write,
    /// A write that creates a node.
    Create,
    /// Looks for the node of a create whose answer was lost.
    Find,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Request {
    kind: Kind,
    sent: Time,
}

/// A leader, and the two queues between it and the client's server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Leader {
    /// When it last heard of the session.
    counts_from: Time,
    next_ping: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Up {
    /// The answer to a ping, and whether it reports the session.
    Report(bool),
    Ask(Request),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Down {
    Ping,
    Answer(Request),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Answered {
    sent: Time,
    at: Time,
    by_leader: bool,
}

/// What the client knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Client {
    begun: Time,
    written: Time,
    answered: Vec<Answered>,
    deadline: Time,
    is_holding: bool,
    /// The client sends one request at a time.
    asked: Option<Request>,
    /// A connection that it has not noticed yet.
    is_resumed: bool,
    /// A create whose answer was lost.
    has_lost: bool,
    /// A create that was answered. The task that waits for it has not run yet.
    created: Option<Request>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    now: Time,
    /// The leader of the beginning, and the next one.
    leaders: [Leader; 2],
    is_replaced: bool,
    is_stopped: bool,
    /// The leader of the client's server.
    follows: usize,
    is_touched: bool,
    up: Vec<Up>,
    down: Vec<Down>,
    is_delayed: bool,
    /// On the way to the client.
    answer: Option<Request>,
    is_stalled: bool,
    /// The node exists.
    has_node: bool,
    has_sent: bool,
    client: Client,
    stops: u8,
    stalls: u8,
    elections: u8,
    interruptions: u8,
    delays: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Tick,
    Ping,
    DeliverUp,
    DeliverDown,
    Delay,
    Stop,
    Continue,
    Elect,
    /// The client's server gets the new leader, and keeps its clients.
    Follow,
    Send(Kind),
    Hear,
    /// The task that has created a node goes on.
    Own,
    /// The client stands still for at least one step.
    Stall,
    /// The connection is resumed at another server, which has this leader.
    Reconnect(usize),
    Notice,
}

/// The model with all rules, or without one.
#[derive(Debug)]
pub(crate) struct Proof {
    run: Run,
    left_out: Option<ProofRule>,
}

impl State {
    fn leads(&self) -> bool {
        self.follows == 1 || !self.is_stopped
    }

    /// A leader that was replaced has no majority.
    fn commits(&self) -> bool {
        self.follows == 1 || !self.is_replaced
    }

    fn counts_from(&self) -> Time {
        self.leaders[usize::from(self.is_replaced)].counts_from
    }

    /// Returns `true` if something happens before the next step.
    fn is_busy(&self) -> bool {
        let pings = |which: usize| self.follows == which && self.leaders[which].next_ping <= self.now;
        let leader = self.leads() && (pings(0) || pings(1) || !self.up.is_empty() && !self.is_delayed);
        let client = self.answer.is_some() || self.client.is_resumed;
        leader || !self.down.is_empty() && !self.is_delayed || client && !self.is_stalled
    }
}

impl Proof {
    fn has(&self, rule: ProofRule) -> bool {
        self.left_out != Some(rule)
    }

    /// Returns from when the leader of this connection counts at least.
    fn reported(&self, client: &Client, request: Request) -> Time {
        let half_tick = if self.has(ProofRule::HalfTick) { HALF_TICK } else { 0 };
        let (mut still, mut next) = (0, request.sent);
        for one in client.answered.iter().rev() {
            // Only the leader's own answers show that it did not stand still.
            let longest = if self.has(ProofRule::LeaderStoodStill) {
                still.max(next.saturating_sub(one.at))
            } else {
                0
            };
            // Within a step, the order is not known.
            if one.at + half_tick + longest < request.sent {
                return one.sent.max(client.begun);
            }
            if one.by_leader {
                still = still.max(next.saturating_sub(one.sent));
                next = one.at.min(request.sent);
            }
        }
        client.begun
    }

    fn proved(&self, client: &Client, request: Request) -> Time {
        let reported = self.reported(client, request);
        if self.has(ProofRule::Committed) { reported.min(client.written) } else { reported }
    }

    fn deliver_up(&self, state: &mut State) {
        match state.up.remove(0) {
            Up::Report(false) => {}
            Up::Report(true) => state.leaders[state.follows].counts_from = state.now,
            Up::Ask(request) => {
                let finds = request.kind == Kind::Find && self.has(ProofRule::FoundAgain);
                lead(state, request, matches!(request.kind, Kind::Write | Kind::Create) || finds);
            }
        }
    }

    /// Does at once what nothing can delay in this run, so that there are fewer states.
    fn settle(&self, state: &mut State) {
        let is_connected = !state.client.is_resumed;
        loop {
            if self.run.delays == 0 && !state.down.is_empty() {
                deliver_down(state);
            } else if self.run.delays == 0 && state.leads() && !state.up.is_empty() {
                self.deliver_up(state);
            } else if self.run.stalls == 0 && is_connected && state.answer.is_some() {
                self.hear(state);
            } else {
                return;
            }
        }
    }

    fn hear(&self, state: &mut State) {
        let Some(request) = state.answer.take() else { return };
        let Request { kind, sent } = request;
        let at = state.now;
        let client = &mut state.client;
        client.asked = None;
        match kind {
            Kind::Create => {
                client.created = Some(request);
                return;
            }
            Kind::Find => {
                client.has_lost = false;
                if state.has_node {
                    client.created = Some(request);
                }
                return;
            }
            Kind::Write => client.written = client.written.max(sent),
            Kind::Sync | Kind::Read => {}
        }
        if kind != Kind::Read {
            let deadline = if client.is_holding { self.proved(client, request) } else { sent };
            client.deadline = client.deadline.max(deadline);
        }
        client.answered.push(Answered { sent, at, by_leader: kind != Kind::Read });
    }

    fn own(&self, client: &mut Client, request: Request) {
        if request.kind == Kind::Create || self.has(ProofRule::FoundAgain) {
            client.written = client.written.max(request.sent);
        }
        client.is_holding = true;
        let proved = self.proved(client, request);
        if self.has(ProofRule::FirstHold) && (self.has(ProofRule::FoundAgain) || request.kind == Kind::Create)
        {
            client.deadline = client.deadline.min(proved);
        }
    }
}

fn deliver_down(state: &mut State) {
    match state.down.remove(0) {
        Down::Ping => state.up.push(Up::Report(std::mem::take(&mut state.is_touched))),
        Down::Answer(request) => state.answer = Some(request),
    }
}

fn lead(state: &mut State, request: Request, is_write: bool) {
    if is_write && !state.commits() {
        return;
    }
    state.has_node |= request.kind == Kind::Create;
    state.down.push(Down::Answer(request));
}

impl Model for Proof {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let Run { is_idle, stops, stalls, elections, interruptions, delays, .. } = self.run;
        let client = Client {
            begun: 0,
            written: 0,
            answered: Vec::new(),
            deadline: 0,
            is_holding: !is_idle,
            asked: None,
            is_resumed: false,
            has_lost: false,
            created: None,
        };
        let with = |next_ping| State {
            now: 0,
            leaders: [Leader { counts_from: 0, next_ping }; 2],
            is_replaced: false,
            is_stopped: false,
            follows: 0,
            is_touched: false,
            up: Vec::new(),
            down: Vec::new(),
            is_delayed: false,
            answer: None,
            is_stalled: false,
            has_node: !is_idle,
            has_sent: false,
            client: client.clone(),
            stops,
            stalls,
            elections,
            interruptions,
            delays,
        };
        (0..HALF_TICK).map(with).collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let State { client, now, .. } = state;
        let is_connected = !client.is_resumed;
        if !state.is_busy() && *now < self.run.until {
            actions.push(Action::Tick);
        }
        if state.leads() {
            if state.leaders[state.follows].next_ping <= *now {
                actions.push(Action::Ping);
            }
            if !state.up.is_empty() && !state.is_delayed {
                actions.push(Action::DeliverUp);
            }
        }
        if !state.down.is_empty() && !state.is_delayed {
            actions.push(Action::DeliverDown);
        }
        if state.delays > 0 && !state.is_delayed && !(state.up.is_empty() && state.down.is_empty()) {
            actions.push(Action::Delay);
        }
        if state.is_stopped {
            actions.push(Action::Continue);
        } else if state.stops > 0 {
            actions.push(Action::Stop);
        }
        if state.elections > 0 {
            actions.push(Action::Elect);
        }
        if !self.has(ProofRule::SameLeader) && state.is_replaced && state.follows == 0 {
            actions.push(Action::Follow);
        }
        if is_connected && client.asked.is_none() && !state.has_sent && !state.is_stalled {
            let kinds: &[Kind] = match client {
                Client { is_holding: true, .. } => &[Kind::Sync, Kind::Write],
                Client { has_lost: true, .. } => &[Kind::Find],
                Client { created: Some(_), .. } => &[Kind::Read, Kind::Sync],
                _ => &[Kind::Read, Kind::Sync, Kind::Create],
            };
            actions.extend(kinds.iter().map(|kind| Action::Send(*kind)));
        }
        if !state.is_stalled {
            if state.answer.is_some() && is_connected {
                actions.push(Action::Hear);
            }
            if client.created.is_some() {
                actions.push(Action::Own);
            }
            if client.is_resumed {
                actions.push(Action::Notice);
            }
            if state.stalls > 0 {
                actions.push(Action::Stall);
            }
        }
        if state.interruptions > 0 && is_connected && !state.is_stalled {
            let reachable = [!state.is_stopped, state.is_replaced];
            actions.extend((0..2).filter(|which| reachable[*which]).map(Action::Reconnect));
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        let state = &mut next;
        match action {
            Action::Tick => {
                state.now += 1;
                (state.has_sent, state.is_delayed, state.is_stalled) = (false, false, false);
            }
            Action::Ping => {
                state.leaders[state.follows].next_ping = state.now + HALF_TICK;
                state.down.push(Down::Ping);
            }
            Action::DeliverUp => self.deliver_up(state),
            Action::DeliverDown => deliver_down(state),
            Action::Delay => {
                state.delays -= 1;
                state.is_delayed = true;
            }
            Action::Stop => {
                state.stops -= 1;
                state.is_stopped = true;
            }
            Action::Continue => state.is_stopped = false,
            Action::Elect => {
                state.elections -= 1;
                state.is_replaced = true;
                state.leaders[1] = Leader { counts_from: state.now, next_ping: state.now };
            }
            Action::Follow => {
                state.follows = 1;
                state.client.asked = state.client.asked.filter(|_| state.answer.is_some());
                state.up.clear();
                state.down.clear();
            }
            Action::Send(kind) => {
                let request = Request { kind, sent: state.now };
                state.client.asked = Some(request);
                (state.has_sent, state.is_touched) = (true, true);
                match kind {
                    Kind::Read => state.answer = Some(request),
                    _ => state.up.push(Up::Ask(request)),
                }
            }
            Action::Hear => self.hear(state),
            Action::Own => {
                let request = state.client.created.take()?;
                self.own(&mut state.client, request);
            }
            Action::Stall => {
                state.stalls -= 1;
                state.is_stalled = true;
            }
            Action::Reconnect(which) => {
                state.interruptions -= 1;
                let client = &mut state.client;
                client.has_lost |= client.asked.take().is_some_and(|asked| asked.kind == Kind::Create);
                client.is_resumed = true;
                state.follows = which;
                state.leaders[which].counts_from = state.now;
                (state.is_touched, state.answer) = (false, None);
                state.up.clear();
                state.down.clear();
            }
            Action::Notice => {
                let client = &mut state.client;
                client.is_resumed = false;
                let last = client.answered.last().map_or(client.begun, |last| last.sent.max(client.begun));
                client.begun = if self.has(ProofRule::LastBefore) { last } else { state.now };
                client.answered.clear();
            }
        }
        self.settle(state);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        Self::nothing_is_wrong()
    }
}

/// The run of the others' differences.
const NONE: Run =
    Run { until: 7, is_idle: false, stops: 0, stalls: 0, elections: 0, interruptions: 0, delays: 0 };

impl Rules for Proof {
    type Rule = ProofRule;
    type Run = Run;

    const SUBJECT: &'static str = "proof";
    const RULES: &'static [(ProofRule, &'static str, Wrong)] = &[
        (
            ProofRule::Committed,
            "the deadline counts at most from the last committed write: from what a leader has answered",
            TOO_LATE,
        ),
        (ProofRule::HalfTick, "a request is reported half a tick after its answer: at once", TOO_LATE),
        (
            ProofRule::LeaderStoodStill,
            "the longest gap between two answers of the leader does not count as its life: it counts",
            TOO_LATE,
        ),
        (
            ProofRule::LastBefore,
            "a resumed connection counts from what was last seen of the one before: from when it is noticed",
            TOO_LATE,
        ),
        (ProofRule::SameLeader, "a server that gets another leader drops its clients: keeps them", TOO_LATE),
        (
            ProofRule::FirstHold,
            "the first own node sets the deadline to what is proved: the idle session's deadline stays",
            TOO_LATE,
        ),
        (
            ProofRule::FoundAgain,
            "a node that is found after a lost answer counts after a committed write: at once",
            TOO_LATE,
        ),
    ];
    /// The leader stands still twice.
    const NOT_PROMISED: Option<Run> = Some(Run { until: 9, stops: 2, ..NONE });

    fn new(run: Run, left_out: Option<ProofRule>) -> Self {
        Proof { run, left_out }
    }

    fn wrong(&self, state: &State) -> Option<Wrong> {
        (state.client.is_holding && state.client.deadline > state.counts_from()).then_some(TOO_LATE)
    }

    fn runs(is_quick: bool) -> Vec<Run> {
        let until = if is_quick { 7 } else { 8 };
        let none = Run { until, ..NONE };
        let small = [
            Run { stops: 1, ..none },
            Run { elections: 1, delays: 1, until: until - 2, ..none },
            Run { elections: 1, stalls: 1, interruptions: 1, until: until - 3, ..none },
            Run { elections: 1, interruptions: 1, stalls: 1, is_idle: true, until: until - 4, ..none },
        ];
        let large = [
            Run { delays: 3, ..none },
            Run { stops: 1, elections: 1, stalls: 1, ..none },
            Run { stops: 1, elections: 1, interruptions: 1, ..none },
            Run { stops: 1, elections: 1, is_idle: true, ..none },
            Run { elections: 1, interruptions: 1, stalls: 1, is_idle: true, until: until - 2, ..none },
        ];
        small.into_iter().chain(large.into_iter().filter(|_| !is_quick)).collect()
    }

    fn runs_without(rule: ProofRule) -> Vec<Run> {
        vec![match rule {
            ProofRule::HalfTick => NONE,
            ProofRule::Committed | ProofRule::SameLeader => Run { elections: 1, ..NONE },
            ProofRule::LeaderStoodStill => Run { stops: 1, ..NONE },
            ProofRule::LastBefore => Run { stalls: 1, interruptions: 1, ..NONE },
            ProofRule::FirstHold => Run { is_idle: true, ..NONE },
            // The answer is lost because the client stands still.
            ProofRule::FoundAgain => Run { is_idle: true, elections: 1, interruptions: 1, stalls: 1, ..NONE },
        }]
    }

    fn cells(run: Run) -> Vec<(&'static str, String)> {
        let faults = [
            (run.stops, "leader stops"),
            (run.stalls, "client stalls"),
            (run.elections, "next leader"),
            (run.interruptions, "reconnection"),
            (run.delays, "delays"),
        ];
        let faults = faults.iter().filter(|(count, _)| *count > 0);
        let faults: Vec<_> = faults.map(|(count, fault)| format!("{fault}: {count}")).collect();
        let faults = if faults.is_empty() { "its server dies".to_owned() } else { faults.join(", ") };
        let start = if run.is_idle { "idle" } else { "holding" };
        vec![("at first", start.to_owned()), ("time", run.until.to_string()), ("faults", faults)]
    }
}
