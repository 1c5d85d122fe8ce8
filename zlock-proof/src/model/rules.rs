//! The rules that can be left out, and the behaviour of a driver without each of them.

use super::recipe::Recipe;

/// A rule of the queue engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    ListedAgain,
    FreshListing,
    WholeListing,
    OwnNode,
    LabelCompared,
    NodeWatchAtomic,
    QueueWatchAtomic,
    NodeBefore,
    NearestWriter,
    NoLaterWriter,
    EveryHolder,
    Promotion,
    PromotionAtOnce,
    SessionAtGrant,
    LocalDeadline,
    CleanUpFirst,
    WriteEndsFirst,
    PredecessorHeld,
    SuccessorIsThere,
    LinkEndTold,
    OnlyMutexes,
    NextNumber,
    PredecessorIsThere,
    NotBeingRemoved,
    NotOlderThanSeen,
}

/// Each rule, and after the colon the behaviour without it.
pub(crate) const RULES: [(Rule, &str); 25] = [
    (Rule::ListedAgain, "list again after a wake-up: the deletion of the awaited node grants"),
    (Rule::FreshListing, "judge a listing younger than the wake-up: the old one is judged again"),
    (Rule::WholeListing, "judge what was listed: the awaited node is removed from the old listing"),
    (Rule::OwnNode, "notice that the own node was deleted: the notice is ignored"),
    (Rule::LabelCompared, "compare the label when the watch is armed: only the node is looked up"),
    (
        Rule::NodeWatchAtomic,
        "no event between response and watch is lost: the node is compared first and watched later",
    ),
    (Rule::QueueWatchAtomic, "the same for the queue: first listed, then watched"),
    (Rule::NodeBefore, "wait for the predecessor: the last node is awaited"),
    (Rule::NearestWriter, "a reader waits for the nearest writer: for the node before it"),
    (Rule::NoLaterWriter, "a reader does not wait for a later writer: it does"),
    (Rule::EveryHolder, "the first waiter watches every holder: only its predecessor"),
    (Rule::Promotion, "a holder of permits notifies the node behind it: it does not"),
    (Rule::PromotionAtOnce, "also if the first listing grants: not then"),
    (Rule::SessionAtGrant, "a grant needs the node's own session: any live one suffices"),
    (
        Rule::LocalDeadline,
        "a session ends at the client before it ends at the store: only when the store reports it",
    ),
    (Rule::CleanUpFirst, "the clean-up is armed before the create is sent: when it is answered"),
    (Rule::WriteEndsFirst, "a downgrade ends the write side when it is sent: when it is answered"),
    (Rule::PredecessorHeld, "only a holder hands over: a waiter that gives up its place does, too"),
    (Rule::SuccessorIsThere, "a hand-over checks the next waiter's node: it does not"),
    (Rule::LinkEndTold, "a waiter that gives up its place notifies the next one: it does not"),
    (Rule::OnlyMutexes, "only mutexes hand over: other locks do, too"),
    (
        Rule::NextNumber,
        "without a listing, a place is linked to the number directly before its own: to any place of its process",
    ),
    (Rule::PredecessorIsThere, "a hand-over needs the node that it removes: a deleted one suffices"),
    (
        Rule::NotBeingRemoved,
        "a hand-over checks both nodes: a plain removal grants a waiter that was linked while it was in flight",
    ),
    (Rule::NotOlderThanSeen, "a listing is not older than what the client has seen: it may be"),
];

impl Rule {
    /// Returns which places must belong to one process to show the violation, with a bit for each.
    pub(crate) fn together(self) -> u8 {
        match self {
            Rule::PredecessorHeld => 0b110,
            Rule::NextNumber | Rule::PredecessorIsThere | Rule::NotBeingRemoved => 0b101,
            Rule::SuccessorIsThere | Rule::LinkEndTold | Rule::OnlyMutexes => 0b011,
            _ => 0,
        }
    }

    /// Returns `true` if servers must be behind to show the violation.
    pub(crate) fn is_behind(self) -> bool {
        self == Rule::NotOlderThanSeen
    }

    /// Returns the recipe that shows the violation.
    pub(crate) fn recipe(self) -> Recipe {
        match self {
            Rule::WholeListing
            | Rule::LabelCompared
            | Rule::NearestWriter
            | Rule::NoLaterWriter
            | Rule::WriteEndsFirst
            | Rule::OnlyMutexes => Recipe::ReadWrite,
            Rule::QueueWatchAtomic | Rule::EveryHolder | Rule::Promotion | Rule::PromotionAtOnce => {
                Recipe::Semaphore { max: 2 }
            }
            _ => Recipe::Mutex,
        }
    }
}
