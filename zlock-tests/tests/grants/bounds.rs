//! Types that can be moved and shared between tasks, checked by the compiler.

use zlock::locks::DynLock;
use zlock::mem::MemServer;
use zlock::{
    Client, ClientBuilder, DowngradeError, Error, Guard, InterProcessMutex, LockContext, LockTemplate,
    MultiGuard, MultiLock, Participant, PermitRequest, ReadLock, ReadWriteLock, Release, Result, Scope,
    Semaphore, SessionEvents, WriteGuard, WriteLock,
};

fn send<T: Send>(value: T) -> T {
    value
}

#[test]
fn handles_are_send_sync_and_static() {
    fn check<T: Send + Sync + 'static>() {}
    check::<Client>();
    check::<ClientBuilder>();
    check::<Error>();
    check::<Guard>();
    check::<LockContext>();
    check::<InterProcessMutex>();
    check::<LockTemplate>();
    check::<Participant>();
    check::<MultiLock>();
    check::<MultiGuard>();
    check::<PermitRequest>();
    check::<Box<dyn DynLock>>();
    check::<ReadWriteLock>();
    check::<ReadLock>();
    check::<WriteLock>();
    check::<WriteGuard>();
    check::<DowngradeError>();
    check::<Semaphore>();
    check::<Release>();
    check::<Scope>();
    check::<SessionEvents>();
}

/// Each task starts the next one in the scope that it runs in, and ends before or after that has a lock of its own.
#[tokio::test(start_paused = true)]
async fn a_scope_that_is_carried_on_does_not_grow() {
    let client = Client::new(MemServer::new().connect());
    let mutexes = ["/app/a", "/app/b"].map(|path| client.mutex(path).unwrap());
    let (mut scope, mut before) = (Scope::default(), None);
    for n in 0..100 {
        let guard = scope.clone().scope(mutexes[n % 2].acquire()).await.unwrap();
        scope = scope.scope(guard.scope(async { Scope::current() })).await;
        // The outer one, hand over hand.
        if let Some(outer) = before.replace(guard).filter(|_| n < 50) {
            assert_eq!(Guard::release(outer).await.unwrap(), Release::Released);
        } else if let Some(guard) = before.take_if(|_| n >= 50) {
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        }
    }
    let holds = format!("{scope:?}").matches("(Weak)").count();
    assert!(holds <= 2, "{holds}");
}

#[tokio::test(start_paused = true)]
async fn futures_are_send() {
    let client = Client::new(MemServer::new().connect());
    let mutex = client.mutex("/app/lock").unwrap();
    let guard = send(mutex.acquire()).await.unwrap();
    let again = send(guard.scope(send(mutex.try_acquire()))).await.unwrap().unwrap();
    let third = send(again.scope(mutex.acquire_timeout(std::time::Duration::ZERO))).await.unwrap();
    assert_eq!(send(mutex.participants()).await.unwrap().len(), 1);
    drop(send(third.lost()));
    drop(send(third.revocation_requested()));
    assert_eq!(send(mutex.request_revocation()).await.unwrap(), 1);
    drop(send(third.context().lost()));
    assert_eq!(send(Scope::current().scope(third.release())).await.unwrap(), Release::StillHeld);
    drop((guard, again));
    let template = client.lock_template("/app").unwrap();
    let borrowed = String::from("x");
    let execute = template.execute("lock", |held| {
        let borrowed = &borrowed;
        async move { (borrowed.len(), held) }
    });
    assert_eq!(send(execute).await.unwrap().0, 1);
    let other = client.mutex(template.path("other").unwrap()).unwrap();
    let both = MultiLock::new([&mutex as &dyn DynLock, &other]).unwrap();
    let guard = send(both.acquire()).await.unwrap();
    let again = send(guard.scope(send(both.try_acquire()))).await.unwrap().unwrap();
    drop((send(guard.lost()), send(guard.revocation_requested())));
    assert_eq!(send(again.release()).await.unwrap(), Release::StillHeld);
    assert_eq!(send(both.request_revocation()).await.unwrap(), 2);
    assert_eq!(send(guard.release()).await.unwrap(), Release::Released);
    drop(send(both.acquire_timeout(std::time::Duration::ZERO)));
    send(client.close()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn futures_of_readers_writers_and_permits_are_send() {
    let client = Client::new(MemServer::new().connect());
    let lock = client.read_write_lock("/app/rw").unwrap();
    let (read, write) = (lock.read(), lock.write());
    let guard = send(write.acquire()).await.unwrap();
    let inner = send(guard.scope(send(read.acquire()))).await.unwrap();
    assert_eq!(send(inner.release()).await.unwrap(), Release::StillHeld);
    let guard = send(guard.downgrade()).await.unwrap();
    assert!(send(write.try_acquire()).await.unwrap().is_none());
    assert_eq!(send(guard.release()).await.unwrap(), Release::Released);
    let guard = send(write.acquire_timeout(std::time::Duration::ZERO)).await.unwrap();
    assert_eq!(send(guard.release()).await.unwrap(), Release::Released);
    let semaphore = client.semaphore("/app/permits", 2).unwrap();
    let guard = send(semaphore.acquire(1)).await.unwrap();
    assert!(send(semaphore.try_acquire(2)).await.unwrap().is_none());
    assert_eq!(send(semaphore.participants()).await.unwrap().len(), 1);
    drop(send(semaphore.acquire_timeout(2, std::time::Duration::ZERO)));
    drop(guard);
}

/// A wrapper that knows only the bounds of its closure.
fn wrap<F, Fut>(template: &LockTemplate, closure: F) -> impl Future<Output = Result<Fut::Output>> + Send
where
    F: FnOnce(LockContext) -> Fut + Send,
    Fut: Future + Send,
    Fut::Output: Send,
{
    template.execute("lock", closure)
}

fn spawn_it<F, Fut>(template: LockTemplate, closure: F) -> tokio::task::JoinHandle<Result<Fut::Output>>
where
    F: FnOnce(LockContext) -> Fut + Send + 'static,
    Fut: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(async move { template.execute("lock", closure).await })
}

#[tokio::test(start_paused = true)]
async fn execute_can_be_wrapped_and_spawned_generically() {
    let client = Client::new(MemServer::new().connect());
    let template = client.lock_template("/app").unwrap();
    let text = String::from("borrowed");
    let wrapped = wrap(&template, |_| async { text.as_str() });
    assert_eq!(wrapped.await.unwrap(), "borrowed");
    let spawned = spawn_it(template, |held| async move { held.is_held() });
    assert!(spawned.await.unwrap().unwrap());
}
