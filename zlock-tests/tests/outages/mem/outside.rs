//! Calls outside a runtime: which methods panic, as documented, and that a panic leaves nothing behind.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::runtime::Builder;
use zlock::mem::MemServer;
use zlock::{Client, MultiLock};

const ROOT: &str = "/outside";
const LONG: Duration = Duration::from_secs(30);

/// Returns `true` if the first poll panics because there is no runtime.
fn panics<F: Future>(future: F) -> bool {
    let mut future = Box::pin(future);
    let poll = || future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
    let Err(panic) = catch_unwind(AssertUnwindSafe(poll)) else { return false };
    let message = panic.downcast_ref::<&str>().map(ToString::to_string);
    let message = message.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    assert!(message.contains("there is no reactor running"), "{message}");
    true
}

async fn with<G>(guard: G, call: impl AsyncFnOnce(&G)) {
    call(&guard).await;
}

#[test]
fn what_panics_says_so() {
    let server = MemServer::new();
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let make = || runtime.block_on(async { Client::new(server.connect()) });
    let client = make();
    let path = |name: &str| format!("{ROOT}/{name}");
    let mutex = client.mutex(path("mutex")).unwrap();
    let both = client.read_write_lock(path("both")).unwrap();
    let (read, write) = (both.read(), both.write());
    let permits = client.semaphore(path("permits"), 3).unwrap();
    let template = client.lock_template(ROOT).unwrap();
    let multi = MultiLock::new([&mutex]).unwrap();
    let guard = || {
        let held = client.mutex(path("held")).unwrap();
        runtime.block_on(async { held.acquire_timeout(LONG).await }).unwrap()
    };
    let all = || {
        let all = MultiLock::new([&client.mutex(path("all")).unwrap()]).unwrap();
        runtime.block_on(async { all.acquire_timeout(LONG).await }).unwrap()
    };
    let writer = || {
        let lock = client.read_write_lock(path("written")).unwrap();
        runtime.block_on(async { lock.write().acquire_timeout(LONG).await }).unwrap()
    };
    // Each guard is dropped with its future, since the next acquisition would wait for it.
    let of_guards = [
        ("Guard::lost", panics(with(guard(), async |guard| drop(guard.lost().await)))),
        (
            "Guard::revocation_requested",
            panics(with(guard(), async |guard| drop(guard.revocation_requested().await))),
        ),
        ("LockContext::lost", panics(with(guard(), async |guard| drop(guard.context().lost().await)))),
        (
            "LockContext::revocation_requested",
            panics(with(guard(), async |guard| drop(guard.context().revocation_requested().await))),
        ),
        ("Guard::run", panics(with(guard(), async |guard| drop(guard.run(async {}).await)))),
        ("Guard::release", panics(guard().release())),
        ("WriteGuard::downgrade", panics(writer().downgrade())),
        ("WriteGuard::release", panics(writer().release())),
        ("MultiGuard::lost", panics(with(all(), async |all| drop(all.lost().await)))),
        (
            "MultiGuard::revocation_requested",
            panics(with(all(), async |all| drop(all.revocation_requested().await))),
        ),
        ("MultiGuard::run", panics(with(all(), async |all| drop(all.run(async {}).await)))),
        ("MultiGuard::release", panics(all().release())),
    ];
    let of_locks = [
        ("InterProcessMutex::acquire", panics(mutex.acquire())),
        ("InterProcessMutex::acquire_timeout", panics(mutex.acquire_timeout(LONG))),
        ("InterProcessMutex::run", panics(mutex.run(async {}))),
        ("InterProcessMutex::try_acquire", panics(mutex.try_acquire())),
        ("InterProcessMutex::participants", panics(mutex.participants())),
        ("InterProcessMutex::request_revocation", panics(mutex.request_revocation())),
        ("ReadWriteLock::participants", panics(both.participants())),
        ("ReadWriteLock::request_revocation", panics(both.request_revocation())),
        ("ReadLock::acquire", panics(read.acquire())),
        ("ReadLock::acquire_timeout", panics(read.acquire_timeout(LONG))),
        ("ReadLock::try_acquire", panics(read.try_acquire())),
        ("ReadLock::participants", panics(read.participants())),
        ("ReadLock::request_revocation", panics(read.request_revocation())),
        ("WriteLock::acquire", panics(write.acquire())),
        ("WriteLock::acquire_timeout", panics(write.acquire_timeout(LONG))),
        ("WriteLock::try_acquire", panics(write.try_acquire())),
        ("WriteLock::participants", panics(write.participants())),
        ("WriteLock::request_revocation", panics(write.request_revocation())),
        ("Semaphore::acquire", panics(permits.acquire(1))),
        ("Semaphore::acquire_timeout", panics(permits.acquire_timeout(1, LONG))),
        ("Semaphore::try_acquire", panics(permits.try_acquire(1))),
        ("Semaphore::participants", panics(permits.participants())),
        ("Semaphore::request_revocation", panics(permits.request_revocation())),
        ("MultiLock::acquire", panics(multi.acquire())),
        ("MultiLock::acquire_timeout", panics(multi.acquire_timeout(LONG))),
        ("MultiLock::try_acquire", panics(multi.try_acquire())),
        ("MultiLock::run", panics(multi.run(async {}))),
        ("MultiLock::participants", panics(multi.participants())),
        ("MultiLock::request_revocation", panics(multi.request_revocation())),
        ("LockTemplate::execute", panics(template.execute("template", |_| async {}))),
        ("Client::close", panics(make().close())),
        ("SessionEvents::changed", panics(client.session_events().changed())),
        ("SessionEvents::ended", panics(client.session_events().ended(1))),
        ("SessionListener::next", {
            let mut listener = client.session_events().listen();
            // The first event is the current state of the session.
            panics(listener.next()) || panics(listener.next())
        }),
    ];
    for (name, panics) in of_guards.into_iter().chain(of_locks) {
        assert!(panics, "{name} says that it panics outside a runtime, and does not");
    }
    for (name, panics) in [
        ("connect", panics(zlock::connect("mem://"))),
        ("Guard::scope", panics(with(guard(), async |guard| guard.scope(async {}).await))),
        ("MultiGuard::scope", panics(with(all(), async |all| all.scope(async {}).await))),
        (
            "a guard that is dropped",
            panics({
                drop(guard());
                async {}
            }),
        ),
    ] {
        assert!(!panics, "{name} panics outside a runtime, and does not say so");
    }
    runtime.block_on(async {
        let idle = async {
            while client.pending_cleanups() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(LONG, idle).await.expect("the background is idle");
    });
    let places: Vec<_> = server.paths().into_iter().filter(|path| path.matches('/').count() > 2).collect();
    assert_eq!(places, Vec::<String>::new());
    drop(runtime);
}
