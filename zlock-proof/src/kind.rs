//! The kinds of locks, and which of them exclude each other. Written independently of the engine that is checked.

use std::fmt;
use std::str::FromStr;

use zlock::backend::Label;

/// A kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Mutex,
    Read,
    Write,
    /// The leadership of an election.
    Leader,
    /// Some permits of a semaphore, with the maximum that this client uses.
    Permits {
        n: u32,
        max: u32,
    },
}

impl Kind {
    /// Returns `true` if no other holder may exist.
    pub(crate) fn is_exclusive(self) -> bool {
        matches!(self, Kind::Mutex | Kind::Write | Kind::Leader)
    }

    /// Returns the maximum that it uses, if it is for permits.
    pub(crate) fn max(self) -> Option<u32> {
        if let Kind::Permits { max, .. } = self { Some(max) } else { None }
    }

    /// Returns `true` if the two may hold at the same time, given enough permits. Two that disagree about the maximum never may.
    pub(crate) fn shares_with(self, other: Kind) -> bool {
        match self {
            Kind::Mutex | Kind::Write | Kind::Leader => false,
            Kind::Read => other == Kind::Read,
            Kind::Permits { max, .. } => other.max() == Some(max),
        }
    }

    /// Returns `true` if it may hold while all of these do.
    pub(crate) fn fits(self, beside: impl IntoIterator<Item = Kind>) -> bool {
        let weight = |kind| if let Kind::Permits { n, .. } = kind { n } else { 0 };
        let (mut taken, mut shares) = (weight(self), true);
        for other in beside {
            taken += weight(other);
            shares &= self.shares_with(other);
        }
        shares && taken <= self.max().unwrap_or_default()
    }
}

impl From<Label> for Kind {
    fn from(label: Label) -> Self {
        match label {
            Label::Read => Kind::Read,
            Label::Permits { weight, max, .. } => Kind::Permits { n: weight, max },
            Label::Write => Kind::Write,
            Label::Candidate => Kind::Leader,
            _ => Kind::Mutex,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Mutex => f.write_str("mutex"),
            Kind::Read => f.write_str("read"),
            Kind::Write => f.write_str("write"),
            Kind::Leader => f.write_str("leader"),
            Kind::Permits { n, max } => write!(f, "{n}of{max}"),
        }
    }
}

impl FromStr for Kind {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "mutex" => Ok(Kind::Mutex),
            "read" => Ok(Kind::Read),
            "write" => Ok(Kind::Write),
            "leader" => Ok(Kind::Leader),
            _ => {
                let (n, max) = text.split_once("of").ok_or(())?;
                Ok(Kind::Permits { n: n.parse().map_err(|_| ())?, max: max.parse().map_err(|_| ())? })
            }
        }
    }
}
