//! The locks of a run, in one shape.

use std::time::Duration;

use zlock::{
    Client, DowngradeError, Error, Guard, Held, InterProcessMutex, LockPath, ReadWriteLock, Release,
    Semaphore, WriteGuard,
};

use super::plan::Family;
use super::random::Random;
use super::truth::Mode;

/// The permits of every semaphore.
const MAX: u32 = 4;

/// What to acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Mutex,
    Read,
    Write,
    Permits(u32),
}

/// How.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Wait,
    Timed(Duration),
    Try,
}

/// Something that is held.
#[derive(Debug)]
pub(crate) enum Holding {
    One(Guard, Mode),
    Write(WriteGuard),
}

/// Calls the lock in the way that was asked for.
macro_rules! acquire {
    ($lock:expr, $way:expr $(, $n:expr)?) => {
        match $way {
            Way::Wait => Some($lock.acquire($($n)?).await?),
            Way::Timed(time) => Some($lock.acquire_timeout($($n,)? time).await?),
            Way::Try => $lock.try_acquire($($n)?).await?,
        }
    };
}

impl Kind {
    pub(crate) fn any(family: Family, random: &mut Random) -> Self {
        match family {
            Family::Mutex => Kind::Mutex,
            Family::ReadWrite => random.pick(&[Kind::Read, Kind::Read, Kind::Write]),
            Family::Semaphore => Kind::Permits(random.pick(&[1, 1, 2, 3, MAX])),
        }
    }

    /// Whether the same lock is entered again inside its scope.
    pub(crate) fn enters_again(self) -> bool {
        !matches!(self, Kind::Permits(_))
    }

    /// `None` if a try found it taken.
    pub(crate) async fn acquire(
        self,
        client: &Client,
        path: &LockPath,
        way: Way,
    ) -> Result<Option<Holding>, Error> {
        let one = |mode| move |guard| Holding::One(guard, mode);
        Ok(match self {
            Kind::Mutex => acquire!(InterProcessMutex::new(client, path)?, way).map(one(Mode::Alone)),
            Kind::Read => acquire!(ReadWriteLock::new(client, path)?.read(), way).map(one(Mode::Reader)),
            Kind::Write => acquire!(ReadWriteLock::new(client, path)?.write(), way).map(Holding::Write),
            Kind::Permits(n) => {
                let mode = Mode::Permits { weight: n.into(), max: MAX.into() };
                acquire!(Semaphore::new(client, path, MAX)?, way, n).map(one(mode))
            }
        })
    }

    /// Asks whoever holds to let go.
    pub(crate) async fn revoke(self, client: &Client, path: &LockPath) -> Result<usize, Error> {
        match self {
            Kind::Mutex => InterProcessMutex::new(client, path)?.request_revocation().await,
            Kind::Read | Kind::Write => ReadWriteLock::new(client, path)?.request_revocation().await,
            Kind::Permits(_) => Semaphore::new(client, path, MAX)?.request_revocation().await,
        }
    }
}

impl Holding {
    fn guard(&self) -> &Guard {
        match self {
            Holding::One(guard, _) => guard,
            Holding::Write(guard) => guard,
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.guard().fencing_token().get()
    }

    pub(crate) fn held(&self) -> Held {
        self.guard().held()
    }

    pub(crate) fn mode(&self) -> Mode {
        match self {
            Holding::One(_, mode) => *mode,
            Holding::Write(_) => Mode::Alone,
        }
    }

    /// Another entry of the same hold.
    pub(crate) fn reenter(&self) -> Result<Holding, Error> {
        Ok(match self {
            Holding::One(guard, mode) => Holding::One(guard.reenter()?, *mode),
            Holding::Write(guard) => Holding::Write(guard.reenter()?),
        })
    }

    pub(crate) async fn lost(&self) -> Error {
        self.guard().lost().await
    }

    pub(crate) async fn revocation(&self) -> Result<(), Error> {
        self.guard().revocation().await
    }

    pub(crate) async fn release(self) -> Result<Release, Error> {
        match self {
            Holding::One(guard, _) => guard.release().await,
            Holding::Write(guard) => guard.release().await,
        }
    }

    /// A writer becomes a reader. What does not write comes back as it is.
    pub(crate) async fn downgrade(self) -> Result<Holding, DowngradeError> {
        match self {
            Holding::Write(guard) => Ok(Holding::One(guard.downgrade().await?, Mode::Reader)),
            other => Ok(other),
        }
    }

    /// Runs a future inside what is held.
    pub(crate) async fn scope<F: Future>(&self, future: F) -> F::Output {
        self.guard().scope(future).await
    }
}
