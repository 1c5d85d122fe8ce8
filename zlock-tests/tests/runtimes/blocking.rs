//! Blocking locks: reentry by threads, places where calls are refused, and the end of a thread.

use std::any::Any;
use std::cell::RefCell;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use zlock::blocking::{self, Client, Guard, JobRun};
use zlock::job::Outcome;
use zlock::locks::Write;
use zlock::mem::{MemLink, MemServer};
use zlock::{Close, CompareAndSet, Error, ErrorKind, Handoff, Release, Result, Then};
use zlock_testkit::{Process, limit};

const PATH: &str = "/app/lock";
const LONG: Duration = Duration::from_secs(30);
const MOMENT: Duration = Duration::from_millis(100);

fn connect(server: &MemServer) -> Client {
    let server = server.clone();
    Client::new(async move { Ok(zlock::Client::new(server.connect())) }).unwrap()
}

fn linked(server: &MemServer) -> (Client, MemLink) {
    let (server, (send, link)) = (server.clone(), channel());
    let client = Client::new(async move {
        let backend = server.connect();
        send.send(backend.link()).unwrap();
        Ok(zlock::Client::new(backend))
    });
    (client.unwrap(), link.recv().unwrap())
}

/// Runs a closure on another thread, and waits for it.
fn elsewhere<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(run).join().unwrap())
}

#[allow(clippy::disallowed_methods, reason = "a limit for what must not hang")]
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < LONG, "never: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_thread_enters_again_and_others_wait() {
    let client = connect(&MemServer::new());
    let mutex = client.mutex(PATH).unwrap();
    let guard = mutex.acquire().unwrap();
    let again = [
        mutex.acquire().unwrap(),
        client.mutex(PATH).unwrap().acquire_timeout(LONG).unwrap(),
        mutex.try_acquire().unwrap().unwrap(),
    ];
    assert!(again.iter().all(|other| other.fencing_token() == guard.fencing_token()));
    assert_eq!(guard.release().unwrap(), Release::StillHeld);
    elsewhere(|| {
        assert!(mutex.try_acquire().unwrap().is_none());
        assert_eq!(mutex.acquire_timeout(MOMENT).unwrap_err().kind(), ErrorKind::Busy);
    });
    let [first, second, last] = again;
    assert_eq!(first.release().unwrap(), Release::StillHeld);
    assert_eq!(second.release().unwrap(), Release::StillHeld);
    assert_eq!(last.release().unwrap(), Release::Released);
    elsewhere(|| mutex.acquire_timeout(LONG).unwrap().release().unwrap());
    let new = mutex.acquire_timeout(LONG).unwrap();
    assert_eq!(new.release().unwrap(), Release::Released, "what was released is not entered");
    client.close().unwrap();
}

#[test]
fn a_helper_thread_enters_through_the_guard_alone() {
    let client = connect(&MemServer::new());
    let mutex = client.mutex(PATH).unwrap();
    let guard = mutex.acquire().unwrap();
    elsewhere(|| {
        assert!(guard.is_held() && guard.check().is_ok());
        assert!(mutex.try_acquire().unwrap().is_none());
        let mine = guard.reenter().unwrap();
        let again = mutex.try_acquire().unwrap().unwrap();
        assert_eq!(again.release().unwrap(), Release::StillHeld);
        assert_eq!(mine.release().unwrap(), Release::StillHeld);
        assert!(mutex.try_acquire().unwrap().is_none(), "this thread has no guard any more");
    });
    // A guard of the async client belongs to no thread.
    let (moved, guard) = (guard.guards()[0].reenter().unwrap(), drop(guard));
    let () = guard;
    assert!(mutex.try_acquire().unwrap().is_none(), "another thread may have it");
    drop(moved);
    let guard = mutex.acquire_timeout(LONG).unwrap();
    assert_eq!(guard.release().unwrap(), Release::Released);
    client.close().unwrap();
}

#[test]
fn every_kind_is_entered_again_as_it_is_in_async_code() {
    let client = connect(&MemServer::new());
    let lock = client.read_write_lock(PATH).unwrap();
    let writing = lock.write().acquire().unwrap();
    let reading = lock.read().acquire().unwrap();
    let refused = writing.downgrade().unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::StillEntered);
    drop(reading);
    let reading = refused.guard.downgrade().unwrap();
    assert_eq!(lock.write().acquire().unwrap_err().kind(), ErrorKind::UpgradeRefused);
    elsewhere(|| lock.read().acquire().unwrap().release().unwrap());
    assert_eq!(reading.release().unwrap(), Release::Released);

    let parts = [client.mutex("/app/one").unwrap(), client.mutex("/app/two").unwrap()];
    let all = client.multi_lock(&parts).unwrap();
    let guard = all.acquire().unwrap();
    assert_eq!(parts[0].acquire().unwrap().release().unwrap(), Release::StillHeld);
    assert_eq!(all.acquire().unwrap().release().unwrap(), Release::StillHeld);
    assert!(elsewhere(|| parts[1].try_acquire().unwrap().is_none()));
    assert_eq!(guard.release().unwrap(), Release::Released);

    let template = client.lock_template("/app/locks").unwrap();
    let handed = template.clone().with_handoff(Handoff::within(MOMENT)).unwrap();
    for template in [&template, &template.clone().with_kind(Write).unwrap(), &handed] {
        let nested = template.execute("order", |lock| {
            template.execute("order", |again| lock.fencing_token() == again.fencing_token())
        });
        assert!(nested.unwrap().unwrap());
    }

    let job = client.recurring_job("/jobs/report").unwrap();
    let guard = client.mutex(job.path()).unwrap().acquire().unwrap();
    let done = |_: &JobRun| Ok::<_, Infallible>(());
    assert!(matches!(job.run("2025-11-24T21:00:00Z".parse().unwrap(), done), Ok(Outcome::Ran(Ok(())))));
    assert_eq!(guard.release().unwrap(), Release::Released);
    assert_eq!(client.close().unwrap(), Close::Ended);
}

#[test]
fn a_panic_releases() {
    let server = MemServer::new();
    let (client, others) = (connect(&server), connect(&server));
    let mutex = client.mutex(PATH).unwrap();
    let template = client.lock_template("/app").unwrap();
    let panics: [&dyn Fn(); 3] = [
        &|| {
            let _guard = mutex.acquire().unwrap();
            panic!("while holding");
        },
        &|| mutex.run(|_lock| panic!("while holding")).unwrap(),
        &|| template.execute("lock", |_lock| panic!("while holding")).unwrap(),
    ];
    for panics in panics {
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        let guard = others.mutex(PATH).unwrap().acquire_timeout(LONG).unwrap();
        assert_eq!(guard.release().unwrap(), Release::Released);
    }
    until("nothing is left to remove", || client.pending_cleanups() == 0);
}

#[test]
fn a_loss_is_found_between_steps() {
    let server = MemServer::new();
    let (client, link) = linked(&server);
    let guard = client.mutex(PATH).unwrap().acquire().unwrap();
    guard.check().unwrap();
    thread::scope(|scope| {
        let watching = scope.spawn(|| guard.lost().unwrap().kind());
        link.expire();
        assert_eq!(watching.join().unwrap(), ErrorKind::SessionLost);
    });
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::SessionLost);
    assert_eq!(guard.reenter().unwrap_err().kind(), ErrorKind::SessionLost);
    assert_eq!(guard.release().unwrap(), Release::AlreadyLost);

    let template = client.lock_template("/app").unwrap();
    let steps = template.execute_fallible("lock", |lock| -> Result<()> {
        link.expire();
        until("the loss is known", || !lock.is_held());
        lock.check()
    });
    assert!(steps.unwrap_err().is_lock_lost());
    let done = template.execute("lock", |lock| {
        link.expire();
        until("the loss is known", || !lock.is_held());
    });
    assert!(done.unwrap_err().is_lock_lost(), "its last steps were made without the lock");
}

/// The lost guard is still alive while its variable gets the next one. Trying again cannot help, so the error says what does.
#[test]
fn a_lost_guard_has_to_be_dropped_first() {
    let (client, link) = linked(&MemServer::new());
    let (mutex, election) = (client.mutex(PATH).unwrap(), client.election("/app/leader").unwrap());
    let (guard, led) = (mutex.acquire().unwrap(), election.campaign().unwrap());
    let (job, tick) = (client.recurring_job(PATH).unwrap(), "2025-11-24T21:00:00Z".parse().unwrap());
    link.expire();
    until("the loss", || guard.check().is_err() && led.check().is_err());
    let errors = [
        mutex.acquire().map(drop),
        mutex.acquire_timeout(LONG).map(drop),
        mutex.try_acquire().map(drop),
        election.campaign().map(drop),
        job.begin(tick).map(drop),
        client.wait(client.as_async().mutex(PATH).unwrap().acquire()).map(drop),
    ];
    for error in errors.map(Result::unwrap_err) {
        assert_eq!(error.kind(), ErrorKind::StillEntered, "{error}");
        assert!(!error.is_retryable() && error.is_lock_lost(), "{error}");
        assert!(error.to_string().contains("drop the guard first"), "{error}");
    }
    drop((guard, led));
    mutex.acquire().unwrap().release().unwrap();
    election.campaign().unwrap().resign().unwrap();
}

/// A monitor borrows the guard, so it has to end with the work.
#[test]
fn a_monitor_ends_with_the_work_or_the_lock() {
    let (client, link) = linked(&MemServer::new());
    let mutex = client.mutex(PATH).unwrap();
    for is_lost in [false, true] {
        let guard = mutex.acquire().unwrap();
        let done = AtomicBool::new(false);
        let found = thread::scope(|scope| {
            let monitor = scope.spawn(|| {
                loop {
                    let lost = guard.lost_timeout(MOMENT).unwrap();
                    if lost.is_some() || done.load(Ordering::SeqCst) {
                        return lost;
                    }
                }
            });
            if is_lost {
                link.expire();
            } else {
                done.store(true, Ordering::SeqCst);
            }
            monitor.join().unwrap()
        });
        assert_eq!(found.map(|error| error.kind()), is_lost.then_some(ErrorKind::SessionLost));
        let released = guard.release().unwrap();
        assert_eq!(released, if is_lost { Release::AlreadyLost } else { Release::Released });
    }
}

/// What a thread gets from the async API works outside any runtime: it is lost with the session, and can be dropped.
#[test]
fn what_a_thread_waits_for_is_lost_and_dropped_as_a_guard_is() {
    let server = MemServer::new();
    let ((client, link), others) = (linked(&server), connect(&server));
    let workers = client.as_async().semaphore("/app/workers", 2).unwrap();
    let slots = client.as_async().slots("/app/slots", 1).unwrap();
    let members = client.as_async().members("/app/members").unwrap();
    let barrier = client.as_async().double_barrier("/app/barrier", 1).unwrap();
    for is_lost in [true, false] {
        let permit = client.wait(workers.acquire(2)).unwrap();
        let slot = client.wait(slots.acquire()).unwrap();
        let member = client.wait(members.join("a", "data")).unwrap();
        let entered = client.wait(barrier.enter()).unwrap();
        let mut watch = members.watch();
        assert_eq!(client.wait(watch.changed()).unwrap().members.len(), 1);
        assert!(client.wait_timeout(watch.changed(), MOMENT).unwrap().is_none());
        assert_eq!(client.wait(workers.acquire_timeout(1, MOMENT)).unwrap_err().kind(), ErrorKind::Busy);
        assert!(permit.check().is_ok() && slot.check().is_ok() && member.is_registered());
        if is_lost {
            link.expire();
            let lost = client.wait_timeout(async { Ok(permit.lost().await) }, LONG).unwrap();
            assert_eq!(lost.unwrap().kind(), ErrorKind::SessionLost);
            assert!(permit.check().unwrap_err().is_lock_lost() && slot.check().unwrap_err().is_lock_lost());
        } else {
            assert!(client.wait_timeout(async { Ok(permit.lost().await) }, MOMENT).unwrap().is_none());
        }
        drop((permit, slot, member, entered));
        let (workers, slots) = (
            others.as_async().semaphore("/app/workers", 2).unwrap(),
            others.as_async().slots("/app/slots", 1).unwrap(),
        );
        let permit = others.wait(workers.acquire_timeout(2, LONG)).unwrap();
        let slot = others.wait(slots.acquire_timeout(LONG)).unwrap();
        assert_eq!(others.wait(permit.release()).unwrap(), Release::Released);
        assert_eq!(others.wait(slot.release()).unwrap(), Release::Released);
        until("nothing is left to remove", || client.pending_cleanups() == 0);
        assert_eq!(others.wait(others.as_async().members("/app/members").unwrap().list()).unwrap(), []);
    }
}

/// The other way round, an async guard is of no thread.
#[test]
fn what_a_thread_waits_for_enters_its_locks_again() {
    let client = connect(&MemServer::new());
    let (mutex, other) = (client.mutex(PATH).unwrap(), client.as_async().mutex(PATH).unwrap());
    let guard = mutex.acquire().unwrap();
    let again = client.wait(other.acquire_timeout(LONG)).unwrap();
    assert_eq!(again.fencing_token(), guard.fencing_token());
    assert!(elsewhere(|| client.wait(other.try_acquire())).unwrap().is_none());
    assert_eq!(guard.release().unwrap(), Release::StillHeld);
    assert!(mutex.try_acquire().unwrap().is_none());
    elsewhere(|| drop(again));
    assert_eq!(mutex.acquire_timeout(LONG).unwrap().release().unwrap(), Release::Released);
}

/// Instead of a thread of the client that waits for itself.
#[test]
fn a_closure_of_what_a_thread_waits_for_must_not_block() {
    let client = connect(&MemServer::new());
    let ids = client.as_async().counter("/app/ids").unwrap();
    let update = |now| {
        let error = client.wait(ids.get()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BlockingRefused, "{error}");
        Some(now + 1)
    };
    assert_eq!(client.wait(ids.update(update)).unwrap(), 1);
}

/// Whatever a thread holds of one lock, it can write under it.
#[test]
fn a_value_is_written_under_each_kind_of_lock() {
    let (client, link) = linked(&MemServer::new());
    let value = client.as_async().shared_value("/app/value").unwrap();
    let guard = client.mutex(PATH).unwrap().acquire().unwrap();
    let writing = client.read_write_lock("/app/shared").unwrap().write().acquire().unwrap();
    let led = client.election("/app/leader").unwrap().campaign().unwrap();
    let slots = client.as_async().slots("/app/slots", 1).unwrap();
    let slot = client.wait(slots.acquire()).unwrap();
    let tick = "2025-11-24T21:00:00Z".parse().unwrap();
    let run = client.recurring_job("/app/job").unwrap().begin(tick).unwrap().unwrap();
    let write = || {
        [
            client.wait(value.write_under(guard.guard(), b"guard")),
            client.wait(value.write_under(writing.guard(), b"writing")),
            client.wait(value.write_under(led.guard(), b"led")),
            client.wait(value.write_under(slot.guard(), b"slot")),
            client.wait(value.write_under(run.guard(), b"run")),
        ]
    };
    for written in write() {
        written.unwrap();
    }
    let now = client.wait(value.get()).unwrap().unwrap();
    let next = client.wait(value.compare_and_set_under(slot.guard(), Some(now.version), b"again")).unwrap();
    assert!(matches!(next, CompareAndSet::Written(_)) && now.data == *b"run", "{next:?}");
    assert_ne!(slot.guard().fencing_token(), run.guard().fencing_token());
    link.expire();
    for refused in write() {
        assert!(refused.unwrap_err().is_lock_lost());
    }
}

#[test]
fn a_holder_is_asked() {
    let server = MemServer::new();
    let (client, others) = (connect(&server), connect(&server));
    let guard = client.mutex(PATH).unwrap().acquire().unwrap();
    assert!(!guard.revocation_requested_timeout(MOMENT).unwrap());
    assert_eq!(others.mutex(PATH).unwrap().request_revocation().unwrap(), 1);
    assert!(guard.revocation_requested_timeout(LONG).unwrap());
    guard.revocation_requested().unwrap();
    let held = client.mutex("/app/other").unwrap().acquire().unwrap();
    drop(guard);
    thread::scope(|scope| {
        let shutdown = scope.spawn(|| client.shutdown(LONG).unwrap());
        held.revocation_requested().unwrap();
        held.release().unwrap();
        assert_eq!(shutdown.join().unwrap().still_held, 0);
    });
    assert_eq!(client.mutex(PATH).unwrap().acquire().unwrap_err().kind(), ErrorKind::ShuttingDown);
}

/// A thread leads again after each loss, until its client shuts down. What it returns after a loss does not count.
#[test]
fn a_thread_leads_again_until_the_shutdown() {
    let server = MemServer::new();
    let ((client, link), others) = (linked(&server), connect(&server));
    let election = client.election(PATH).unwrap().after_work(Then::Return);
    let (mut terms, stays) = (Vec::new(), others.election(PATH).unwrap());
    thread::scope(|scope| {
        let led: Result<_> = election.lead(|term| {
            terms.push(term.term());
            match terms.len() {
                1 => {
                    link.expire();
                    until("the loss is known", || !term.is_held());
                    Ok("too late")
                }
                2 => Err(Error::new(ErrorKind::Unexpected, "work")),
                3 => {
                    scope.spawn(|| client.shutdown(LONG).unwrap());
                    until("the leader is asked", || term.step_down_requested_timeout(MOMENT).unwrap());
                    assert_eq!(stays.leader().unwrap().unwrap().term, term.term(), "until it returns");
                    Ok("asked")
                }
                more => panic!("{more} terms"),
            }
        });
        assert_eq!(led.unwrap(), Some("asked"));
    });
    assert!(terms.is_sorted_by(|a, b| a < b), "{terms:?}");
    assert_eq!(stays.leader().unwrap(), None);
    // A client that has shut down leads no more.
    let never: Result<Option<()>> = election.lead(|_| panic!("leads after the shutdown"));
    assert_eq!(never.unwrap(), None);
}

#[test]
fn a_thread_that_panics_as_the_leader_resigns_first() {
    let client = connect(&MemServer::new());
    let election = client.election(PATH).unwrap().after_work(Then::Return);
    let panics = || election.lead(|_| -> Result<()> { panic!("as the leader") });
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert_eq!(election.leader().unwrap(), None);
    let (mut turns, again) = (0, election.after_panic(Then::CampaignAgain));
    let led: Result<_> = again.lead(|_| {
        turns += 1;
        assert!(turns > 1, "as the leader");
        Ok(turns)
    });
    assert_eq!(led.unwrap(), Some(2));
}

/// Makes each call that may wait, where waiting is refused.
fn refused(client: &Client, why: &str) {
    let mutex = client.mutex(PATH).unwrap();
    let template = client.lock_template("/app").unwrap();
    let errors = [
        mutex.acquire().map(drop),
        mutex.acquire_timeout(MOMENT).map(drop),
        mutex.try_acquire().map(drop),
        mutex.run(|_| ()),
        mutex.participants().map(drop),
        mutex.request_revocation().map(drop),
        client.election(PATH).unwrap().lead(|_| Ok::<_, Error>(())).map(drop),
        template.execute("lock", |_| ()),
        client.shutdown(MOMENT).map(drop),
        client.close().map(drop),
        client.wait(async { Ok(()) }),
        client.wait_timeout(client.as_async().counter(PATH).unwrap().get(), MOMENT).map(drop),
    ];
    for error in errors.map(Result::unwrap_err) {
        assert_eq!(error.kind(), ErrorKind::BlockingRefused, "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn calls_inside_a_runtime_are_refused() {
    const WHY: &str = "block a thread of a tokio runtime";
    let server = MemServer::new();
    let client = connect(&server);
    for workers in [0, 2] {
        let mut builder = Builder::new_multi_thread();
        let runtime = match workers {
            0 => Builder::new_current_thread().enable_all().build(),
            _ => builder.worker_threads(workers).enable_all().build(),
        };
        let runtime = runtime.unwrap();
        runtime.block_on(async { refused(&client, WHY) });
        let copy = client.clone();
        runtime.block_on(runtime.spawn(async move { refused(&copy, WHY) })).unwrap();
        let copy = client.clone();
        runtime.block_on(runtime.spawn_blocking(move || refused(&copy, WHY))).unwrap();
        let connected = runtime.block_on(async { blocking::connect("mem://") });
        assert_eq!(connected.unwrap_err().kind(), ErrorKind::BlockingRefused);
        // A guard can be dropped there.
        let (guard, other) = (client.mutex(PATH).unwrap(), client.mutex("/app/other").unwrap());
        let (guard, other) = (guard.acquire_timeout(LONG).unwrap(), other.acquire_timeout(LONG).unwrap());
        runtime.block_on(async {
            assert!(guard.is_held() && guard.check().is_ok());
            assert_eq!(guard.release().unwrap_err().kind(), ErrorKind::BlockingRefused);
            drop(other);
        });
        until("both are released", || client.pending_cleanups() == 0);
        assert!(!client.mutex(PATH).unwrap().is_acquired_in_this_process());
    }
    client.close().unwrap();
}

thread_local! {
    static KEPT: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// Runs a closure when the thread's locals are dropped.
struct AtTheEnd<F: FnMut()>(F);

impl<F: FnMut()> Drop for AtTheEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A panic there would end the process.
#[test]
fn a_thread_that_ends_may_drop_everything_and_wait_for_nothing() {
    let server = MemServer::new();
    // Whether tokio's own locals, and those of the locks, are gone by then depends on what was used first.
    for turn in 0..3 {
        let others = connect(&server);
        let server = server.clone();
        let ended = thread::spawn(move || {
            let use_when = |now| {
                if turn == now {
                    KEPT.with_borrow(|_| ());
                }
            };
            use_when(0);
            let client = connect(&server);
            use_when(1);
            let guard: Guard = client.mutex(PATH).unwrap().acquire_timeout(LONG).unwrap();
            let copy = client.clone();
            let calls = AtTheEnd(move || {
                // Held by this thread, which must not wait for itself.
                let error = copy.mutex(PATH).unwrap().acquire_timeout(LONG).map(drop);
                if let Err(error) = error {
                    assert_eq!(error.kind(), ErrorKind::BlockingRefused, "{error}");
                }
            });
            KEPT.with_borrow_mut(|kept| {
                kept.push(Box::new(calls));
                kept.push(Box::new(guard));
                kept.push(Box::new(client));
            });
        });
        ended.join().unwrap();
        let guard = others.mutex(PATH).unwrap().acquire_timeout(LONG).unwrap();
        assert_eq!(guard.release().unwrap(), Release::Released);
    }
}

/// Whatever was used first, no call panics. The thread wakes a task of a runtime before it uses a lock, so tokio's thread-locals
/// are destroyed at different times: some before the program's, and some after.
#[test]
fn a_thread_that_ends_may_call_anything() {
    let client = connect(&MemServer::new());
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for turn in 0..3 {
        let (mine, handle) = (client.clone(), runtime.handle().clone());
        let ended = thread::spawn(move || {
            let use_when = |now| {
                if turn == now {
                    KEPT.with_borrow(|_| ());
                }
            };
            use_when(0);
            drop(handle.spawn(async {}));
            use_when(1);
            let mutex = mine.mutex(PATH).unwrap();
            let mut guard = Some(mutex.acquire_timeout(LONG).unwrap());
            use_when(2);
            let calls = AtTheEnd(move || {
                let guard = guard.take().unwrap();
                let results = [
                    guard.revocation_requested_timeout(MOMENT).map(drop),
                    mutex.participants().map(drop),
                    mutex.request_revocation().map(drop),
                    guard.release().map(drop),
                    mutex.acquire_timeout(LONG).map(drop),
                    mine.wait(async { Ok(()) }),
                ];
                for error in results.into_iter().filter_map(Result::err) {
                    assert_eq!(error.kind(), ErrorKind::BlockingRefused, "{error}");
                }
            });
            KEPT.with_borrow_mut(|kept| kept.push(Box::new(calls)));
        });
        ended.join().unwrap();
        let guard = client.mutex(PATH).unwrap().acquire_timeout(LONG).unwrap();
        assert_eq!(guard.release().unwrap(), Release::Released);
    }
}

/// Runs in a separate process, which ends while it holds locks and waits for others.
#[test]
#[ignore = "run by another test in a process of its own"]
fn child_that_ends() {
    static KEPT: std::sync::OnceLock<Client> = std::sync::OnceLock::new();
    let client = connect(&MemServer::new());
    let _ = KEPT.set(client.clone());
    let guard = client.mutex(PATH).unwrap().acquire().unwrap();
    let waits = client.clone();
    thread::spawn(move || waits.mutex(PATH).unwrap().acquire().map(drop));
    until("another thread waits", || client.as_async().pending_cleanups() == 0);
    thread::sleep(MOMENT);
    println!("ends");
    std::mem::forget(guard);
    std::process::exit(42);
}

#[tokio::test]
async fn a_process_ends_while_its_threads_hold_and_wait() {
    limit(async {
        let mut child = Process::spawn_test(concat!(module_path!(), "::child_that_ends"), &[]);
        child.line_after("ends").await;
        assert_eq!(child.wait().await, 42);
    })
    .await;
}

/// On every store: threads of two clients count without atomicity.
fn counts(url: &str) {
    let counter = std::sync::Mutex::new(0);
    let clients = [blocking::connect(url).unwrap(), blocking::connect(url).unwrap()];
    thread::scope(|scope| {
        for client in clients.iter().cycle().take(8) {
            let counter = &counter;
            scope.spawn(move || {
                let mutex = client.mutex("/app/counter").unwrap();
                for _ in 0..5 {
                    let guard = mutex.acquire_timeout(LONG).unwrap();
                    let count = *counter.try_lock().unwrap();
                    thread::yield_now();
                    *counter.try_lock().unwrap() = count + 1;
                    assert_eq!(guard.release().unwrap(), Release::Released);
                }
            });
        }
    });
    assert_eq!(*counter.lock().unwrap(), 40);
    for client in clients {
        assert_eq!(client.close().unwrap(), Close::Ended);
    }
}

#[test]
fn counts_on_mem() {
    counts("mem://counts");
}

#[tokio::test]
async fn counts_on_zookeeper() {
    let Some(server) = zlock_testkit::zookeeper_or_skip().await else { return };
    let url = format!("zk://{}/blocking", server.connect_string());
    thread::spawn(move || counts(&url)).join().unwrap();
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn counts_on_etcd() {
    let Some(server) = zlock_testkit::etcd_or_skip().await else { return };
    let url = format!("etcd://{}/blocking", server.connect_string());
    thread::spawn(move || counts(&url)).join().unwrap();
}
