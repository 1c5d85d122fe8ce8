//! The rules about a client that is the only user of a lock, and the behaviour without each of them.

/// A rule of `zlock-zk/src/queues/alone.rs`.
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

    /// Returns the rule, and after the colon the behaviour without it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            AloneRule::NextNumber => "the number is the next one: any number suffices",
            AloneRule::PinAsked => "the parent is pinned: the pin is not checked",
            AloneRule::PinAskedAtAnswer => "the pin is checked when the create is answered: when it is sent",
            AloneRule::SamePin => "the pin is that of the time when the create was sent: the current one",
            AloneRule::SameConnection => "the pin ends with its connection: it stays valid on the next one",
            AloneRule::ListedAlone => "the previous node was listed alone: it was listed",
            AloneRule::RemovedByUs => "the delete found the previous node: it was answered",
            AloneRule::SameNode => {
                "the previous node is the one that was removed: any of the client's with its number, under any parent"
            }
            AloneRule::PinnedBefore => "the pin was armed while the previous node existed: it is armed now",
        }
    }
}
