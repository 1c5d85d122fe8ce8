//! The locks that clients acquire in the simulation and on real clusters, behind one interface.

use std::time::Duration;

use zlock::backend::Label;
use zlock::locks::DynLock;
use zlock::{
    Client, DowngradeError, Election, Error, FencingToken, Guard, Handoff, InterProcessMutex, Leadership,
    Lock, LockContext, LockPath, MultiGuard, MultiLock, Release, WriteGuard,
};

use crate::kind::Kind;

/// A lock to acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) kind: Kind,
    /// The hand-off of a mutex.
    pub(crate) handoff: Option<Handoff>,
}

/// The way to acquire it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Wait,
    Timed(Duration),
    Try,
}

impl Way {
    /// Returns `true` if the acquisition never waits for its turn.
    pub(crate) fn is_one_try(self) -> bool {
        matches!(self, Way::Try | Way::Timed(Duration::ZERO))
    }
}

/// A held lock.
#[derive(Debug)]
pub(crate) enum Holding {
    One(Guard),
    Write(WriteGuard),
    Leader(Leadership),
    Many(MultiGuard),
}

/// Acquires the lock in the requested way. Returns `None` if `try_acquire` found it held.
async fn acquire<L: Lock>(lock: &L, way: Way) -> Result<Option<L::Guard>, Error> {
    match way {
        Way::Wait => lock.acquire().await.map(Some),
        Way::Timed(time) => lock.acquire_timeout(time).await.map(Some),
        Way::Try => lock.try_acquire().await,
    }
}

impl From<Kind> for Wanted {
    fn from(kind: Kind) -> Self {
        Wanted { kind, handoff: None }
    }
}

impl Wanted {
    /// Returns the kind of lock of a template, unless none has it.
    pub(crate) fn for_template(self) -> Option<Label> {
        Some(match self.kind {
            Kind::Mutex => Label::Lock,
            Kind::Read => Label::Read,
            Kind::Write => Label::Write,
            Kind::Permits { n, max } => Label::Permits { weight: n, max, granted: false },
            Kind::Leader => return None,
        })
    }

    /// Returns `true` if the lock can be entered again inside its scope.
    pub(crate) fn enters_again(self) -> bool {
        self.kind.max().is_none()
    }

    /// Acquires the lock. Returns `None` if `try_acquire` found it held.
    pub(crate) async fn acquire(
        self,
        client: &Client,
        path: impl AsRef<str>,
        way: Way,
    ) -> Result<Option<Holding>, Error> {
        Ok(match self.kind {
            Kind::Mutex => acquire(&self.mutex(client, path)?, way).await?.map(Holding::One),
            Kind::Read => acquire(&client.read_write_lock(path)?.read(), way).await?.map(Holding::One),
            Kind::Write => acquire(&client.read_write_lock(path)?.write(), way).await?.map(Holding::Write),
            Kind::Leader => acquire(&election(client, path)?, way).await?.map(Holding::Leader),
            Kind::Permits { n, max } => {
                acquire(&client.semaphore(path, max)?.permits(n)?, way).await?.map(Holding::One)
            }
        })
    }

    /// Asks the holders to release the lock.
    pub(crate) async fn revoke(self, client: &Client, path: &LockPath) -> Result<usize, Error> {
        match self.kind {
            Kind::Mutex => client.mutex(path)?.request_revocation().await,
            Kind::Read | Kind::Write => client.read_write_lock(path)?.request_revocation().await,
            Kind::Permits { max, .. } => client.semaphore(path, max)?.request_revocation().await,
            Kind::Leader => election(client, path)?.request_revocation().await,
        }
    }

    fn handle(self, client: &Client, path: &LockPath) -> Result<Box<dyn DynLock>, Error> {
        Ok(match self.kind {
            Kind::Mutex => Box::new(self.mutex(client, path)?),
            Kind::Read => Box::new(client.read_write_lock(path)?.read()),
            Kind::Write => Box::new(client.read_write_lock(path)?.write()),
            Kind::Permits { n, max } => Box::new(client.semaphore(path, max)?.permits(n)?),
            Kind::Leader => unreachable!("an election is no part of a multi-lock"),
        })
    }

    fn mutex(self, client: &Client, path: impl AsRef<str>) -> Result<InterProcessMutex, Error> {
        let mutex = client.mutex(path)?;
        Ok(match self.handoff {
            Some(handoff) => mutex.with_handoff(handoff),
            None => mutex,
        })
    }
}

/// Returns a candidate.
fn election(client: &Client, path: impl AsRef<str>) -> Result<Election, Error> {
    client.election(path)?.with_value("candidate")
}

/// Acquires all of these locks or none. They may be given in any order.
pub(crate) async fn acquire_all(
    locks: &[(Wanted, &LockPath)],
    client: &Client,
    way: Way,
) -> Result<Option<Holding>, Error> {
    if let [(lock, path)] = locks {
        return lock.acquire(client, path, way).await;
    }
    let locks = locks.iter().map(|(lock, path)| lock.handle(client, path)).collect::<Result<Vec<_>, _>>()?;
    Ok(acquire(&MultiLock::new(locks)?, way).await?.map(Holding::Many))
}

impl Holding {
    fn guards(&self) -> &[Guard] {
        match self {
            Holding::One(guard) => std::slice::from_ref(guard),
            Holding::Write(guard) => std::slice::from_ref(&**guard),
            Holding::Leader(led) => zlock::LockGuard::guards(led),
            Holding::Many(guard) => guard.guards(),
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.guards().iter().all(|guard| guard.is_held())
    }

    pub(crate) fn tokens(&self) -> Vec<FencingToken> {
        self.guards().iter().map(|guard| guard.fencing_token()).collect()
    }

    /// Visits each of the locks, in the order of their paths.
    pub(crate) fn helds(&self) -> Vec<LockContext> {
        self.guards().iter().map(Guard::context).collect()
    }

    /// Enters the same holds again.
    pub(crate) fn reenter(&self) -> Result<Holding, Error> {
        Ok(match self {
            Holding::One(guard) => Holding::One(guard.reenter()?),
            Holding::Write(guard) => Holding::Write(guard.reenter()?),
            Holding::Leader(led) => Holding::Leader(zlock::LockGuard::reenter(led)?),
            Holding::Many(guard) => Holding::Many(guard.reenter()?),
        })
    }

    pub(crate) async fn lost(&self) -> Error {
        match self {
            Holding::One(guard) => guard.lost().await,
            Holding::Write(guard) => guard.lost().await,
            Holding::Leader(led) => led.lost().await,
            Holding::Many(guard) => guard.lost().await,
        }
    }

    pub(crate) async fn revocation_requested(&self) -> Result<(), Error> {
        match self {
            Holding::One(guard) => guard.revocation_requested().await,
            Holding::Write(guard) => guard.revocation_requested().await,
            Holding::Leader(led) => led.step_down_requested().await,
            Holding::Many(guard) => guard.revocation_requested().await,
        }
    }

    pub(crate) async fn release(self) -> Result<Release, Error> {
        match self {
            Holding::One(guard) => guard.release().await,
            Holding::Write(guard) => guard.release().await,
            Holding::Leader(led) => led.resign().await,
            Holding::Many(guard) => guard.release().await,
        }
    }

    /// Downgrades a writer to a reader. Other locks are returned unchanged.
    pub(crate) async fn downgrade(self) -> Result<Holding, DowngradeError> {
        match self {
            Holding::Write(guard) => Ok(Holding::One(guard.downgrade().await?)),
            other => Ok(other),
        }
    }

    /// Runs a future inside the scope of the lock.
    pub(crate) async fn scope<F: Future>(&self, future: F) -> F::Output {
        match self {
            Holding::One(guard) => guard.scope(future).await,
            Holding::Write(guard) => guard.scope(future).await,
            Holding::Leader(_) => self.guards()[0].scope(future).await,
            Holding::Many(guard) => guard.scope(future).await,
        }
    }
}
