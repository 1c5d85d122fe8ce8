//! The use of a path.

use std::time::Duration;

use zlock::Handoff;

use super::random::Random;
use crate::kind::Kind;
use crate::locks::Wanted;

/// The maximum of a semaphore on which all clients agree.
const MAX: u32 = 4;

/// The locks on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locks {
    Mutex,
    ReadWrite,
    Semaphore,
    Election,
    /// All but elections, against the advice to use a path for one kind of lock only.
    All,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) locks: Locks,
    /// The maximum that processes with even and with odd numbers use.
    maxima: [u32; 2],
    /// The hand-off of most mutexes.
    handoff: Option<Handoff>,
}

impl Usage {
    /// Returns a use on which all clients agree.
    pub(crate) fn of(locks: Locks) -> Self {
        Usage { locks, maxima: [MAX, MAX], handoff: None }
    }

    /// Returns mutexes with or without hand-off.
    pub(crate) fn with_handoff(self, random: &mut Random) -> Self {
        let within = |millis| Some(Handoff::within(Duration::from_millis(millis)));
        let bounded = within(1000).map(|handoff| handoff.at_most(1));
        Usage { handoff: random.pick(&[None, within(0), within(200), within(5000), bounded]), ..self }
    }

    /// Returns a use that the documentation advises against: all kinds of locks, and a semaphore with different maxima.
    pub(crate) fn mistakes(random: &mut Random) -> [Self; 2] {
        let other = random.pick(&[1, 3, 6]);
        let all = if random.once_in(2) { other } else { MAX };
        [
            Usage { maxima: [MAX, all], ..Usage::of(Locks::All) },
            Usage { maxima: [MAX, other], ..Usage::of(Locks::Semaphore) },
        ]
    }

    /// Returns `true` if clients disagree about the maximum.
    pub(crate) fn is_disputed(self) -> bool {
        self.maxima[0] != self.maxima[1]
    }

    /// Returns one of the locks, as used by this process.
    pub(crate) fn any(self, process: u64, random: &mut Random) -> Wanted {
        let locks = match self.locks {
            Locks::All => random.pick(&[Locks::Mutex, Locks::ReadWrite, Locks::Semaphore, Locks::Semaphore]),
            one => one,
        };
        match locks {
            Locks::Mutex => {
                let handoff = self.handoff.filter(|_| !random.once_in(4));
                Wanted { kind: Kind::Mutex, handoff }
            }
            Locks::ReadWrite => random.pick(&[Kind::Read, Kind::Read, Kind::Write]).into(),
            Locks::Election => Kind::Leader.into(),
            _ => {
                let max = self.maxima[(process % 2) as usize];
                Kind::Permits { n: random.pick(&[1, 1, 2, 3, MAX]).min(max), max }.into()
            }
        }
    }
}
