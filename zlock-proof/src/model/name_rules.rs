//! The rules about reused names, the behaviour without each of them, and the possible violations.

/// A rule about reused names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    CreateComparesFence,
    VoidComparesFence,
    VoidRaisesFence,
    LookUpRaisesFence,
    DeleteComparesRevision,
    RelabelComparesRevision,
    FreeWhenAnswered,
    SpoiledNeverUsed,
    JudgedByWhatItCarried,
}

impl NameRule {
    pub(crate) const ALL: [NameRule; 9] = [
        NameRule::CreateComparesFence,
        NameRule::VoidComparesFence,
        NameRule::VoidRaisesFence,
        NameRule::LookUpRaisesFence,
        NameRule::DeleteComparesRevision,
        NameRule::RelabelComparesRevision,
        NameRule::FreeWhenAnswered,
        NameRule::SpoiledNeverUsed,
        NameRule::JudgedByWhatItCarried,
    ];

    /// Returns the rule, and after the colon the behaviour without it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            NameRule::CreateComparesFence => "a create compares the fence: only whether the name is free",
            NameRule::VoidComparesFence => {
                "the request that voids a create compares the fence: it takes effect always"
            }
            NameRule::VoidRaisesFence => "the request that voids a create raises the fence: it only deletes",
            NameRule::LookUpRaisesFence => "the look-up before a retry raises the fence: it only reads",
            NameRule::DeleteComparesRevision => {
                "a delete that is not the first of its node compares the create revision: only the name"
            }
            NameRule::RelabelComparesRevision => "a relabel compares the create revision: only the name",
            NameRule::FreeWhenAnswered => "a name is free when a delete is answered: when it is sent",
            NameRule::SpoiledNeverUsed => {
                "a name with a plain delete that was not answered is never used again: it is, once another delete is answered"
            }
            NameRule::JudgedByWhatItCarried => {
                "a refused create is judged by the fence that it carried: by the latest known one"
            }
        }
    }
}

/// A violation in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wrong {
    LateCreate,
    OthersNodeTaken,
    OthersNodeDeleted,
    OthersNodeRelabelled,
    NameTaken,
    NodeLeft,
}

impl Wrong {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Wrong::LateCreate => "a create takes effect after its use is over",
            Wrong::OthersNodeTaken => "another use's node is taken for the own one",
            Wrong::OthersNodeDeleted => "another use's node is deleted",
            Wrong::OthersNodeRelabelled => "another use's node is relabelled",
            Wrong::NameTaken => "a create is refused for ever",
            Wrong::NodeLeft => "node left behind",
        }
    }
}
