//! The state of the model of quiet time.

use std::time::Duration;

use zlock_ledger::{History, Past};

/// The longest timeout, in steps.
pub(super) const LONGEST: u32 = 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Incarnation {
    pub(super) start: u8,
    pub(super) line: u8,
    pub(super) crash: u8,
}

/// A session: its number, and the incarnation in which it began or was last swept.
pub(super) type Session = (u8, Incarnation);

/// What a server has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Store {
    pub(super) incarnation: Incarnation,
    /// The row of an incarnation: how long it was watched, whether quiet time is over, and the time of its clock.
    pub(super) begun: Incarnation,
    pub(super) watched: Duration,
    pub(super) is_over: bool,
    pub(super) began: i32,
    pub(super) sessions: [Option<Session>; 2],
    /// The client and the session that own the node.
    pub(super) node: Option<(usize, u8)>,
    pub(super) is_lossy: bool,
    pub(super) longest: u32,
    pub(super) next: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Begin,
    Beat(u64, Option<(u64, Duration, Duration)>),
    Create,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Answer {
    Begun(Session, History),
    /// The number, the history, whether the span was added, and whether the node is there.
    Alive(u64, History, bool, bool),
    Over,
    Granted,
    Refused,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Request {
    #[default]
    No,
    Sent(Kind, u32),
    Answered(Answer, u32),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) session: Option<Session>,
    pub(super) last: Option<u8>,
    pub(super) past: Option<Past>,
    pub(super) deadline: Duration,
    pub(super) holds: bool,
    pub(super) request: Request,
    pub(super) has_beaten: bool,
    pub(super) begins: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(super) now: u32,
    pub(super) live: Store,
    /// What the server's clock shows besides.
    pub(super) off: i32,
    pub(super) replica: Option<Store>,
    /// The old primary, and until when it goes on.
    pub(super) old: Option<(Store, u32)>,
    pub(super) starts: u8,
    pub(super) clients: [Client; 2],
    pub(super) promotions: u8,
    pub(super) crashes: u8,
    pub(super) restarts: u8,
    pub(super) clock_steps: u8,
}

impl Client {
    pub(super) fn lose(&mut self) {
        (self.session, self.past, self.holds, self.deadline) = (None, None, false, Duration::ZERO);
    }
}
