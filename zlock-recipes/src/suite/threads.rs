//! Runs the cases through the blocking API: each call blocks a thread.

use std::future::Future;
use std::marker::PhantomData;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use zlock_core::{Error, LockPath, Result, RuntimeThread};

use super::{Call, Mutual};
use crate::blocking::{self, BlockingGuard, Driver};
use crate::guard::sealed::Sealed;
use crate::{Client, Guard, Lock, LockGuard, Participant, Release};

/// A kind of lock whose acquisitions and releases are calls of the blocking API. Not for cases about cancellation, because a
/// call cannot be cancelled, nor for cases about scopes, because each call has its own thread.
#[derive(Debug)]
pub struct Threads<M>(PhantomData<M>);

/// A lock whose calls block threads.
#[derive(Clone, Debug)]
pub struct ThreadLock<L>(blocking::LockHandle<L>);

/// A lock that a thread has acquired for a task.
#[derive(Debug)]
pub struct ThreadGuard<G> {
    guard: G,
    driver: Driver,
}

/// Makes a call on a new thread, and waits for it.
async fn on_thread<T: Send + 'static>(call: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let (sender, result) = oneshot::channel();
    thread::spawn(move || drop(sender.send(call())));
    result.await.expect("the thread does not panic")
}

impl<M: Mutual> Mutual for Threads<M> {
    type Lock = ThreadLock<M::Lock>;

    const WAIT: Call = M::WAIT;
    const HAND_OVER: usize = M::HAND_OVER;
    const NODES: usize = M::NODES;
    const MANY: usize = 100;

    fn places(acquisitions: usize, clients: usize) -> usize {
        M::places(acquisitions, clients)
    }

    fn at(client: &Client, path: &str) -> Result<Self::Lock> {
        let blocking = blocking::Client::of(client.clone(), RuntimeThread::start()?);
        Ok(ThreadLock(blocking.handle(M::at(client, path)?)))
    }

    fn paths(path: &LockPath) -> Vec<LockPath> {
        M::paths(path)
    }
}

impl<L: Lock> Sealed for ThreadLock<L> {}

impl<L: Lock> ThreadLock<L> {
    fn guard(guard: BlockingGuard<L::Guard>) -> ThreadGuard<L::Guard> {
        let (guard, driver) = guard.into_parts();
        ThreadGuard { guard, driver }
    }
}

impl<L: Lock> Lock for ThreadLock<L> {
    type Guard = ThreadGuard<L::Guard>;

    async fn acquire(&self) -> Result<Self::Guard> {
        let lock = self.clone();
        on_thread(move || lock.0.acquire().map(Self::guard)).await
    }

    async fn acquire_timeout(&self, time: Duration) -> Result<Self::Guard> {
        let lock = self.clone();
        on_thread(move || lock.0.acquire_timeout(time).map(Self::guard)).await
    }

    async fn try_acquire(&self) -> Result<Option<Self::Guard>> {
        let lock = self.clone();
        on_thread(move || Ok(lock.0.try_acquire()?.map(Self::guard))).await
    }

    async fn run<F: Future + Send>(&self, future: F) -> Result<F::Output>
    where
        F::Output: Send,
    {
        let guard = self.acquire().await?;
        let output = guard.run(future).await;
        guard.release().await?;
        output
    }

    fn is_acquired_in_this_process(&self) -> bool {
        self.0.is_acquired_in_this_process()
    }

    async fn participants(&self) -> Result<Vec<Participant>> {
        let lock = self.clone();
        on_thread(move || lock.0.participants()).await
    }

    async fn request_revocation(&self) -> Result<usize> {
        let lock = self.clone();
        on_thread(move || lock.0.request_revocation()).await
    }
}

impl<G> Sealed for ThreadGuard<G> {}

impl<G: LockGuard> LockGuard for ThreadGuard<G> {
    fn guards(&self) -> &[Guard] {
        self.guard.guards()
    }

    fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    fn lost(&self) -> impl Future<Output = Error> + Send {
        self.guard.lost()
    }

    fn revocation_requested(&self) -> impl Future<Output = Result<()>> + Send {
        self.guard.revocation_requested()
    }

    fn reenter(&self) -> Result<Self> {
        Ok(ThreadGuard { guard: self.guard.reenter()?, driver: self.driver.clone() })
    }

    fn run<F: Future + Send>(&self, future: F) -> impl Future<Output = Result<F::Output>> + Send
    where
        F::Output: Send,
    {
        self.guard.run(future)
    }

    fn scope<F: Future + Send>(&self, future: F) -> impl Future<Output = F::Output> + Send {
        self.guard.scope(future)
    }

    async fn release(self) -> Result<Release> {
        let ThreadGuard { guard, driver } = self;
        on_thread(move || BlockingGuard::entered(guard, &driver).release()).await
    }
}
