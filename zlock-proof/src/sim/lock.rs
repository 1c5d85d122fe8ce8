//! The locks of a run, in one shape.

use std::time::Duration;

use zlock::{
    Client, DowngradeError, DynLock, Error, FencingToken, Guard, Handoff, InterProcessMutex, Lock,
    LockContext, LockKind, LockPath, MultiGuard, MultiLock, Release, WriteGuard,
};

use super::truth::Mode;

/// What to acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Mutex {
        handoff: Option<Handoff>,
    },
    Read,
    Write,
    /// Some of a semaphore's permits, of which there are so many as this client believes.
    Permits {
        n: u32,
        max: u32,
    },
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
    One(Guard),
    Write(WriteGuard),
    Many(MultiGuard),
}

/// Acquires the lock in the way that was asked for; `None` if a try found it taken.
async fn acquire<L: Lock>(lock: &L, way: Way) -> Result<Option<L::Guard>, Error> {
    match way {
        Way::Wait => lock.acquire().await.map(Some),
        Way::Timed(time) => lock.acquire_timeout(time).await.map(Some),
        Way::Try => lock.try_acquire().await,
    }
}

impl Kind {
    pub(crate) fn mode(self) -> Mode {
        match self {
            Kind::Mutex { .. } | Kind::Write => Mode::Alone,
            Kind::Read => Mode::Reader,
            Kind::Permits { n, max } => Mode::Permits { weight: n, max },
        }
    }

    pub(crate) fn for_template(self) -> LockKind {
        match self {
            Kind::Mutex { .. } => LockKind::Mutex,
            Kind::Read => LockKind::Read,
            Kind::Write => LockKind::Write,
            Kind::Permits { n, max } => LockKind::Permits { n, max },
        }
    }

    pub(crate) fn handoff(self) -> Option<Handoff> {
        if let Kind::Mutex { handoff } = self { handoff } else { None }
    }

    /// Whether the same lock is entered again inside its scope.
    pub(crate) fn enters_again(self) -> bool {
        !matches!(self, Kind::Permits { .. })
    }

    /// `None` if a try found it taken.
    pub(crate) async fn acquire(
        self,
        client: &Client,
        path: &LockPath,
        way: Way,
    ) -> Result<Option<Holding>, Error> {
        Ok(match self {
            Kind::Mutex { handoff } => acquire(&mutex(client, path, handoff)?, way).await?.map(Holding::One),
            Kind::Read => acquire(&client.read_write_lock(path)?.read(), way).await?.map(Holding::One),
            Kind::Write => acquire(&client.read_write_lock(path)?.write(), way).await?.map(Holding::Write),
            Kind::Permits { n, max } => {
                acquire(&client.semaphore(path, max)?.permits(n)?, way).await?.map(Holding::One)
            }
        })
    }

    /// Asks the holders to release the lock.
    pub(crate) async fn revoke(self, client: &Client, path: &LockPath) -> Result<usize, Error> {
        match self {
            Kind::Mutex { .. } => client.mutex(path)?.request_revocation().await,
            Kind::Read | Kind::Write => client.read_write_lock(path)?.request_revocation().await,
            Kind::Permits { max, .. } => client.semaphore(path, max)?.request_revocation().await,
        }
    }

    fn lock(self, client: &Client, path: &LockPath) -> Result<Box<dyn DynLock>, Error> {
        Ok(match self {
            Kind::Mutex { handoff } => Box::new(mutex(client, path, handoff)?),
            Kind::Read => Box::new(client.read_write_lock(path)?.read()),
            Kind::Write => Box::new(client.read_write_lock(path)?.write()),
            Kind::Permits { n, max } => Box::new(client.semaphore(path, max)?.permits(n)?),
        })
    }
}

fn mutex(client: &Client, path: &LockPath, handoff: Option<Handoff>) -> Result<InterProcessMutex, Error> {
    let mutex = client.mutex(path)?;
    Ok(match handoff {
        Some(handoff) => mutex.with_handoff(handoff),
        None => mutex,
    })
}

/// All of these, or none. They may come in any order.
pub(crate) async fn acquire_all(
    locks: &[(Kind, &LockPath)],
    client: &Client,
    way: Way,
) -> Result<Option<Holding>, Error> {
    if let [(kind, path)] = locks {
        return kind.acquire(client, path, way).await;
    }
    let locks = locks.iter().map(|(kind, path)| kind.lock(client, path)).collect::<Result<Vec<_>, _>>()?;
    Ok(acquire(&MultiLock::new(locks)?, way).await?.map(Holding::Many))
}

impl Holding {
    fn guards(&self) -> &[Guard] {
        match self {
            Holding::One(guard) => std::slice::from_ref(guard),
            Holding::Write(guard) => std::slice::from_ref(&**guard),
            Holding::Many(guard) => guard.guards(),
        }
    }

    pub(crate) fn tokens(&self) -> Vec<FencingToken> {
        self.guards().iter().map(Guard::fencing_token).collect()
    }

    /// Looks at each of them, in the order of their paths.
    pub(crate) fn helds(&self) -> Vec<LockContext> {
        self.guards().iter().map(Guard::context).collect()
    }

    /// Another entry of the same holds.
    pub(crate) fn reenter(&self) -> Result<Holding, Error> {
        Ok(match self {
            Holding::One(guard) => Holding::One(guard.reenter()?),
            Holding::Write(guard) => Holding::Write(guard.reenter()?),
            Holding::Many(guard) => Holding::Many(guard.reenter()?),
        })
    }

    pub(crate) async fn lost(&self) -> Error {
        match self {
            Holding::One(guard) => guard.lost().await,
            Holding::Write(guard) => guard.lost().await,
            Holding::Many(guard) => guard.lost().await,
        }
    }

    pub(crate) async fn revocation_requested(&self) -> Result<(), Error> {
        match self {
            Holding::One(guard) => guard.revocation_requested().await,
            Holding::Write(guard) => guard.revocation_requested().await,
            Holding::Many(guard) => guard.revocation_requested().await,
        }
    }

    pub(crate) async fn release(self) -> Result<Release, Error> {
        match self {
            Holding::One(guard) => guard.release().await,
            Holding::Write(guard) => guard.release().await,
            Holding::Many(guard) => guard.release().await,
        }
    }

    /// A writer becomes a reader. What does not write comes back as it is.
    pub(crate) async fn downgrade(self) -> Result<Holding, DowngradeError> {
        match self {
            Holding::Write(guard) => Ok(Holding::One(guard.downgrade().await?)),
            other => Ok(other),
        }
    }

    /// Runs a future inside what is held.
    pub(crate) async fn scope<F: Future>(&self, future: F) -> F::Output {
        match self {
            Holding::One(guard) => guard.scope(future).await,
            Holding::Write(guard) => guard.scope(future).await,
            Holding::Many(guard) => guard.scope(future).await,
        }
    }
}
