//! The rules of hand-off inside a client, the behaviour without each of them, and the possible violations.

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

impl HandoffRule {
    pub(crate) const ALL: [HandoffRule; 16] = [
        HandoffRule::TokenGrows,
        HandoffRule::OneTurnAtATime,
        HandoffRule::OldTurnEndsNothing,
        HandoffRule::LiveAtHandOver,
        HandoffRule::CheckedByWaiter,
        HandoffRule::CancelledPassesOn,
        HandoffRule::LastGivesUp,
        HandoffRule::DesertedGivesUp,
        HandoffRule::NotAfterGivingUp,
        HandoffRule::LeftoverGivenUp,
        HandoffRule::LossSeenInUse,
        HandoffRule::DriverEndsAtOnce,
        HandoffRule::TimeEndsBatch,
        HandoffRule::TimeOfThePlace,
        HandoffRule::RevocationEndsBatch,
        HandoffRule::NotWhileSuspended,
    ];

    /// Returns the rule, and after the colon the behaviour without it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            HandoffRule::TokenGrows => "each turn of a place has a larger token: all have the same",
            HandoffRule::OneTurnAtATime => {
                "a turn begins when the previous one has ended: when there is a waiter"
            }
            HandoffRule::OldTurnEndsNothing => {
                "a turn of a lost place ends nothing: it ends the turn of the next place"
            }
            HandoffRule::LiveAtHandOver => {
                "a turn is passed on only while place and session are known to be live: always"
            }
            HandoffRule::CheckedByWaiter => "a waiter checks them when it takes its turn: it does not",
            HandoffRule::CancelledPassesOn => "a cancelled waiter passes on the turn sent to it: it keeps it",
            HandoffRule::LastGivesUp => "a turn without a successor gives the place up: it keeps it",
            HandoffRule::DesertedGivesUp => "a place in the queue without waiters is given up: it is kept",
            HandoffRule::NotAfterGivingUp => {
                "a place that was given up is not handed over: it is, to the next waiter"
            }
            HandoffRule::LeftoverGivenUp => {
                "the place of a batch that has ended is given up when the next one is queued: it is kept"
            }
            HandoffRule::LossSeenInUse => {
                "waiters behind a holder whose place is lost get another: they wait for the holder"
            }
            HandoffRule::DriverEndsAtOnce => {
                "the driver ends in the step in which it finds no waiter: in a later one"
            }
            HandoffRule::TimeEndsBatch => "a batch ends when its time is over: when there is no waiter",
            HandoffRule::TimeOfThePlace => "the time begins with the place: with each turn",
            HandoffRule::RevocationEndsBatch => "a batch ends with a request for revocation: it goes on",
            HandoffRule::NotWhileSuspended => "a batch ends with the connection: it goes on",
        }
    }
}

/// A violation in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wrong {
    TwoHolders,
    TokenNotLarger,
    GrantedNotHeld,
    NeedlessEnd,
    TurnTooLate,
    StuckWaiter,
    NodeLeft,
}

impl Wrong {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Wrong::TwoHolders => "two holders",
            Wrong::TokenNotLarger => "a fencing token that is not larger",
            Wrong::GrantedNotHeld => "granted and not held",
            Wrong::NeedlessEnd => "needless end",
            Wrong::TurnTooLate => "a turn after the end of the batch",
            Wrong::StuckWaiter => "stuck waiter",
            Wrong::NodeLeft => "node left behind",
        }
    }
}
