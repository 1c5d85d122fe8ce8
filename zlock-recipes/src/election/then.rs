//! What a candidate does when its work has ended.

/// What [`Election::lead`](super::Election::lead) does when its closure has ended and the candidate has resigned.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Then {
    /// Campaigns again, behind all candidates that are waiting. Pauses before that, for longer after each short term: up to 5
    /// seconds.
    CampaignAgain,
    /// Returns the result of the closure, or continues its panic.
    Return,
}

/// What `lead` does when its closure has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) work: Then,
    pub(super) failure: Then,
    pub(super) panic: Then,
}

impl Default for Ends {
    fn default() -> Self {
        Ends { work: Then::CampaignAgain, failure: Then::CampaignAgain, panic: Then::Return }
    }
}
