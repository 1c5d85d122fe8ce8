//! Runs the cases through the blocking API: each call blocks a thread.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use futures_util::future::select_all;
use tokio::sync::oneshot;
use zlock_core::{Error, FencingToken, LockPath, Result};
use zlock_recipes::blocking::{self, BlockingGuard};
use zlock_recipes::{
    Client, InterProcessMutex, Lock, LockContext, LockGuard, MultiLock, Participant, Release, WriteLock,
};

use crate::{Call, Mutual, Pair, TestGuard, TestLock};

/// A kind of lock that the blocking API has.
pub trait Blocking: Mutual<Lock: Lock> {
    /// Returns the lock of this path.
    fn blocking(client: &blocking::Client, path: &str) -> Result<blocking::LockHandle<Self::Lock>>;
}

impl Blocking for InterProcessMutex {
    fn blocking(client: &blocking::Client, path: &str) -> Result<blocking::LockHandle<Self>> {
        client.mutex(path)
    }
}

impl Blocking for WriteLock {
    fn blocking(client: &blocking::Client, path: &str) -> Result<blocking::LockHandle<Self>> {
        client.read_write_lock(path).map(|lock| lock.write())
    }
}

impl Blocking for Pair {
    fn blocking(client: &blocking::Client, path: &str) -> Result<blocking::LockHandle<MultiLock>> {
        let first = client.mutex(path)?;
        let [_, second] = Self::paths(first.path()).try_into().expect("two paths");
        client.multi_lock([&client.mutex(&second)?, &first])
    }
}

/// A kind of lock whose acquisitions and releases are calls of the blocking API. Not for cases about cancellation, because a
/// call cannot be cancelled, nor for cases about scopes, because each guard has its own thread.
#[derive(Debug)]
pub struct Threads<M>(PhantomData<M>);

impl<M: Blocking> Mutual for Threads<M> {
    type Lock = ThreadLock<M::Lock>;

    const WAIT: Call = M::WAIT;
    const HAND_OVER: usize = M::HAND_OVER;
    const NODES: usize = M::NODES;
    const MANY: usize = 100;

    fn places(acquisitions: usize, clients: usize) -> usize {
        M::places(acquisitions, clients)
    }

    fn at(client: &Client, path: &str) -> Result<Self::Lock> {
        let client = client.clone();
        // On a thread, since the blocking API refuses to wait inside a runtime.
        let client = thread::spawn(|| blocking::Client::new(async { Ok(client) })).join();
        M::blocking(&client.expect("the thread does not panic")?, path).map(ThreadLock)
    }

    fn paths(path: &LockPath) -> Vec<LockPath> {
        M::paths(path)
    }
}

/// A lock whose calls block threads.
#[derive(Clone, Debug)]
pub struct ThreadLock<L>(blocking::LockHandle<L>);

impl<L: Lock> ThreadLock<L> {
    /// Makes a call on a new thread, and waits for it.
    async fn on_thread<T: Send + 'static>(
        &self,
        call: impl FnOnce(&blocking::LockHandle<L>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (sender, result) = oneshot::channel();
        let lock = self.0.clone();
        thread::spawn(move || drop(sender.send(call(&lock))));
        result.await.expect("the thread does not panic")
    }

    /// Acquires the lock on a new thread, which keeps the guard.
    async fn guard(
        &self,
        acquire: impl FnOnce(&blocking::LockHandle<L>) -> Result<Option<BlockingGuard<L::Guard>>> + Send + 'static,
    ) -> Result<Option<ThreadGuard<L::Guard>>> {
        let (sender, acquired) = oneshot::channel();
        let (jobs, queue) = mpsc::channel::<Job<L::Guard>>();
        let lock = self.0.clone();
        thread::spawn(move || match acquire(&lock) {
            Ok(Some(guard)) => {
                drop(sender.send(Ok(Some(contexts(&guard)))));
                let mut guards = vec![Some(guard)];
                queue.iter().for_each(|job| job(&mut guards));
            }
            Ok(None) => drop(sender.send(Ok(None))),
            Err(error) => drop(sender.send(Err(error))),
        });
        let contexts = acquired.await.expect("the thread does not panic")?;
        Ok(contexts.map(|contexts| ThreadGuard { contexts, jobs, index: 0 }))
    }
}

impl<L: Lock> TestLock for ThreadLock<L> {
    type Guard = ThreadGuard<L::Guard>;

    async fn acquire(&self) -> Result<Self::Guard> {
        Ok(self.guard(|lock| lock.acquire().map(Some)).await?.expect("a guard"))
    }

    async fn acquire_timeout(&self, time: Duration) -> Result<Self::Guard> {
        Ok(self.guard(move |lock| lock.acquire_timeout(time).map(Some)).await?.expect("a guard"))
    }

    async fn try_acquire(&self) -> Result<Option<Self::Guard>> {
        self.guard(|lock| lock.try_acquire()).await
    }

    async fn run<F: Future<Output: Send> + Send>(&self, future: F) -> Result<F::Output> {
        let guard = self.acquire().await?;
        let output = guard.run(future).await;
        guard.release().await?;
        output
    }

    fn is_acquired_in_this_process(&self) -> bool {
        self.0.is_acquired_in_this_process()
    }

    async fn participants(&self) -> Result<Vec<Participant>> {
        self.on_thread(|lock| lock.participants()).await
    }

    async fn request_revocation(&self) -> Result<usize> {
        self.on_thread(|lock| lock.request_revocation()).await
    }
}

/// Something to do on the thread that has a lock's guards. A released one is `None`.
type Job<G> = Box<dyn FnOnce(&mut Vec<Option<BlockingGuard<G>>>) + Send>;

/// A guard that a thread keeps for a task.
#[derive(Debug)]
pub struct ThreadGuard<G: LockGuard> {
    contexts: Vec<LockContext>,
    /// To the thread, which ends with the last sender.
    jobs: mpsc::Sender<Job<G>>,
    index: usize,
}

fn contexts<G: LockGuard>(guard: &BlockingGuard<G>) -> Vec<LockContext> {
    guard.guards().iter().map(|guard| guard.context()).collect()
}

impl<G: LockGuard> ThreadGuard<G> {
    /// Does something that does not wait on the guard's thread.
    fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Vec<Option<BlockingGuard<G>>>) -> T + Send + 'static,
    ) -> T {
        let (sender, result) = mpsc::channel();
        let sent = self.jobs.send(Box::new(move |guards| drop(sender.send(call(guards)))));
        assert!(sent.is_ok(), "the thread has not ended");
        result.recv().expect("the thread does not panic")
    }

    /// Awaits the first of the futures of each lock.
    async fn first<'a, T>(
        &'a self,
        future: impl Fn(&'a LockContext) -> std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>,
    ) -> T {
        select_all(self.contexts.iter().map(future)).await.0
    }
}

impl<G: LockGuard> TestGuard for ThreadGuard<G> {
    fn fencing_token(&self) -> FencingToken {
        self.contexts[0].fencing_token()
    }

    fn is_held(&self) -> bool {
        self.contexts.iter().all(LockContext::is_held)
    }

    async fn lost(&self) -> Error {
        self.first(|context| Box::pin(context.lost())).await
    }

    async fn revocation_requested(&self) -> Result<()> {
        self.first(|context| Box::pin(context.revocation_requested())).await
    }

    fn reenter(&self) -> Result<Self> {
        let first = self.index;
        let (contexts, index) = self.call(move |guards| {
            let guard = guards[first].as_ref().expect("it is not released").reenter()?;
            let entered = (contexts(&guard), guards.len());
            guards.push(Some(guard));
            Ok::<_, Error>(entered)
        })?;
        Ok(ThreadGuard { contexts, jobs: self.jobs.clone(), index })
    }

    async fn run<F: Future<Output: Send> + Send>(&self, future: F) -> Result<F::Output> {
        tokio::select! {
            biased;
            error = self.lost() => Err(error),
            output = future => self.contexts.iter().try_for_each(LockContext::check).map(|()| output),
        }
    }

    async fn release(self) -> Result<Release> {
        let (sender, released) = oneshot::channel();
        let index = self.index;
        let job: Job<G> = Box::new(move |guards| {
            let guard = guards[index].take().expect("it is not released");
            drop(sender.send(guard.release()));
        });
        assert!(self.jobs.send(job).is_ok(), "the thread has not ended");
        released.await.expect("the thread does not panic")
    }
}

/// Drops the thread's guard, too.
impl<G: LockGuard> Drop for ThreadGuard<G> {
    fn drop(&mut self) {
        let index = self.index;
        self.call(move |guards| drop(guards[index].take()));
    }
}
