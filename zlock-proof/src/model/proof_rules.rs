//! The rules about what a ZooKeeper session's deadline may count from, and the behaviour without each of them.

use super::proof::Run;

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

impl ProofRule {
    pub(crate) const ALL: [ProofRule; 7] = [
        ProofRule::Committed,
        ProofRule::HalfTick,
        ProofRule::LeaderStoodStill,
        ProofRule::LastBefore,
        ProofRule::SameLeader,
        ProofRule::FirstHold,
        ProofRule::FoundAgain,
    ];

    /// Returns the rule, and after the colon the behaviour without it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            ProofRule::Committed => {
                "the deadline counts at most from the last committed write: from what a leader has answered"
            }
            ProofRule::HalfTick => "a request is reported half a tick after its answer: at once",
            ProofRule::LeaderStoodStill => {
                "the longest gap between two answers of the leader does not count as its life: it counts"
            }
            ProofRule::LastBefore => {
                "a resumed connection counts from what was last seen of the one before: from when it is noticed"
            }
            ProofRule::SameLeader => "a server that gets another leader drops its clients: keeps them",
            ProofRule::FirstHold => {
                "the first own node sets the deadline to what is proved: the idle session's deadline stays"
            }
            ProofRule::FoundAgain => {
                "a node that is found after a lost answer counts after a committed write: at once"
            }
        }
    }

    /// Returns the run that shows what happens without the rule.
    pub(crate) fn run(self) -> Run {
        let run =
            Run { until: 7, is_idle: false, stops: 0, stalls: 0, elections: 0, interruptions: 0, delays: 0 };
        match self {
            ProofRule::HalfTick => run,
            ProofRule::Committed | ProofRule::SameLeader => Run { elections: 1, ..run },
            ProofRule::LeaderStoodStill => Run { stops: 1, ..run },
            ProofRule::LastBefore => Run { stalls: 1, interruptions: 1, ..run },
            ProofRule::FirstHold => Run { is_idle: true, ..run },
            // The answer is lost because the client stands still.
            ProofRule::FoundAgain => Run { is_idle: true, elections: 1, interruptions: 1, stalls: 1, ..run },
        }
    }
}
