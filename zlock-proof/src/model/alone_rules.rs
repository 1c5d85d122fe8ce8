//! The rules about a client that is alone with a lock, and what is done without one.

/// A rule of `zlock-zk/src/alone.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AloneRule {
    NextNumber,
    PinAsked,
    PinAskedAtAnswer,
    SamePin,
    SameConnection,
    ListedAlone,
    RemovedByUs,
    SameNode,
    PinnedBefore,
}

impl AloneRule {
    pub(crate) const ALL: [AloneRule; 9] = [
        AloneRule::NextNumber,
        AloneRule::PinAsked,
        AloneRule::PinAskedAtAnswer,
        AloneRule::SamePin,
        AloneRule::SameConnection,
        AloneRule::ListedAlone,
        AloneRule::RemovedByUs,
        AloneRule::SameNode,
        AloneRule::PinnedBefore,
    ];

    /// The rule, and after the colon what is done without it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            AloneRule::NextNumber => "the number is the next one: any number will do",
            AloneRule::PinAsked => "the parent is pinned: nobody asks the pin",
            AloneRule::PinAskedAtAnswer => "the pin is asked when the create is answered: when it is sent",
            AloneRule::SamePin => "the pin is the one of when the create was sent: the one there is now",
            AloneRule::SameConnection => "the pin ends with its connection: it is believed on the next one",
            AloneRule::ListedAlone => "the node before was listed alone: it was listed",
            AloneRule::RemovedByUs => "the delete found the node before: it was answered",
            AloneRule::SameNode => {
                "the node before is the one that was removed: any of ours with its number, of whatever parent"
            }
            AloneRule::PinnedBefore => "the pin was armed while the node before was there: it is armed now",
        }
    }
}
