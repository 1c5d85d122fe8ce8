//! `LockTemplate::execute`.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::{Instant, sleep, timeout};
use zlock_core::{Error, ErrorKind, SessionState};
use zlock_recipes::{InterProcessMutex, LockContext, LockTemplate, Release, Scope};

use super::sweep::{nothing_is_left, path, spawn};
use crate::case::LONG;
use crate::{Call, Case, Inside, Log, Process, Side, sweep};

const NAME: &str = "create-order";

fn template(case: &Case<'_>, process: &Process) -> LockTemplate {
    process.client.lock_template(case.root()).unwrap()
}

fn mutex(case: &Case<'_>, process: &Process) -> InterProcessMutex {
    case.lock::<InterProcessMutex>(process, NAME)
}

async fn free(case: &Case<'_>, process: &Process) {
    let guard = mutex(case, process).acquire_timeout(LONG).await.expect("the lock is free");
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// The closure's output is returned unchanged, whatever it is; it may borrow from its surroundings.
pub async fn output_comes_back_untouched(case: &Case<'_>) {
    let a = case.process().await;
    let template = template(case, &a);
    let ok = template.execute(NAME, |_| async { Ok::<_, std::num::ParseIntError>(7) }).await;
    assert_eq!(ok.unwrap(), Ok(7));
    let failed = template.execute(NAME, |_| async { "x".parse::<u32>() }).await;
    assert!(failed.unwrap().is_err(), "the closure's error is its output, not ours");
    let text = String::from("borrowed");
    let mut calls = 0;
    let part: &str = template
        .execute(NAME, |held| {
            let (text, calls) = (&text, &mut calls);
            async move {
                *calls += 1;
                assert!(held.is_held());
                &text[..3]
            }
        })
        .await
        .unwrap();
    assert_eq!((part, calls), ("bor", 1));
    free(case, &a).await;
}

/// Inside, the lock is held, with its token, and others are excluded. Afterwards, it is free at once.
pub async fn holds_while_it_runs(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let others = mutex(case, &b);
    let path = case.path(NAME);
    let (token, kept_out) = template(case, &a)
        .execute(NAME, |held| {
            let others = &others;
            async move {
                let kept_out = others.try_acquire().await.unwrap().is_none();
                assert_eq!(held.path().as_str(), path.as_str());
                (held.fencing_token(), kept_out)
            }
        })
        .await
        .unwrap();
    assert!(kept_out);
    let guard = others.try_acquire().await.unwrap().expect("released when execute returns");
    assert!(guard.fencing_token() > token);
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// Records whether the lock was still held when this is dropped.
struct Witness(LockContext, Arc<Mutex<Option<bool>>>);

impl Drop for Witness {
    fn drop(&mut self) {
        *self.1.lock().unwrap() = Some(self.0.is_held());
    }
}

/// A panic in the closure releases the lock, but not before everything the closure owned is dropped.
pub async fn panic_releases(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (template, seen) = (template(case, &a), Arc::default());
    let witness = Arc::clone(&seen);
    let task = tokio::spawn(async move {
        let closure = |held| async move {
            let _witness = Witness(held, witness);
            sleep(Duration::from_millis(10)).await;
            panic!("on purpose");
        };
        template.execute(NAME, closure).await
    });
    assert!(task.await.unwrap_err().is_panic());
    assert_eq!(*seen.lock().unwrap(), Some(true));
    free(case, &b).await;
}

/// A panic before the closure's first await, and in the closure itself, releases too.
pub async fn panic_at_once_releases(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let template = template(case, &a);
    let task = tokio::spawn(async move {
        let closure = |_| -> std::future::Ready<()> { panic!("on purpose") };
        template.execute(NAME, closure).await
    });
    assert!(task.await.unwrap_err().is_panic());
    free(case, &b).await;
}

/// Dropping the future drops the closure's future first, and then releases the lock.
pub async fn dropping_releases(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (template, seen) = (template(case, &a), Arc::default());
    let witness = Arc::clone(&seen);
    let endless = template.execute(NAME, |held| async move {
        let _witness = Witness(held, witness);
        std::future::pending::<()>().await;
    });
    assert!(timeout(Duration::from_secs(1), endless).await.is_err());
    assert_eq!(*seen.lock().unwrap(), Some(true));
    free(case, &b).await;
}

/// `Busy` with the lock's path, after two waits of 2 s, in one place of the queue; each elapsed wait is
/// logged; the closure does not run.
pub async fn busy_after_all_waits(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path(NAME);
    let guard = mutex(case, &a).acquire().await.unwrap();
    for (waits, template) in [
        (Duration::from_secs(2), template(case, &b)),
        (Duration::from_millis(300), template(case, &b).with_wait(Duration::from_millis(300), 3).unwrap()),
        (Duration::from_millis(300), template(case, &b).with_wait(Duration::from_millis(300), 1).unwrap()),
    ] {
        let attempts = if waits == Duration::from_secs(2) { 2 } else { 0 };
        let (log, began, creates) = (Log::of_this_thread(), Instant::now(), b.faults.count(Call::Create));
        let error = template.execute(NAME, |_| async { unreachable!("it is busy") }).await.unwrap_err();
        let attempts = if attempts > 0 { attempts } else { log.with("still waiting").len() as u32 };
        assert_eq!((error.kind(), error.path()), (ErrorKind::Busy, Some(path.as_str())));
        case.took(began, waits * attempts);
        assert_eq!(log.with("still waiting").len(), attempts as usize, "each elapsed wait is logged");
        assert_eq!(b.faults.count(Call::Create), creates + 1, "one place in the queue");
        case.until_queued(&path, 1).await;
    }
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// A zero duration makes a single attempt: `Busy` at once, and a free lock is acquired.
pub async fn no_wait_is_one_try(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let template = template(case, &b).with_wait(Duration::ZERO, u32::MAX).unwrap();
    let guard = mutex(case, &a).acquire().await.unwrap();
    let began = Instant::now();
    let error = template.execute(NAME, |_| async {}).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    case.took(began, Duration::ZERO);
    // A single attempt is logged in one line, however long the store takes to answer.
    let (log, gate) = (Log::of_this_thread(), b.faults.hold(Call::Children, Side::Before));
    let answer = async {
        sleep(Duration::from_millis(300)).await;
        gate.open();
    };
    let (refused, ()) = tokio::join!(template.execute(NAME, |_| async {}), answer);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(log.with("still waiting").len(), 1);
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    template.execute(NAME, |_| async {}).await.unwrap();
}

/// A lock that becomes free during the second wait is acquired, at the place that was queued during the first.
pub async fn second_wait_keeps_the_place(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let path = case.path(NAME);
    let guard = mutex(case, &a).acquire().await.unwrap();
    let patient = template(case, &b).with_wait(Duration::from_secs(1), 20).unwrap();
    let first =
        tokio::spawn(async move { patient.execute(NAME, |held| async move { held.fencing_token() }).await });
    case.until_queued(&path, 2).await;
    let other = mutex(case, &c);
    let second = tokio::spawn(async move { other.acquire().await.unwrap() });
    case.until_queued(&path, 3).await;
    sleep(Duration::from_millis(1500)).await;
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    let (token, second) = (first.await.unwrap().unwrap(), second.await.unwrap());
    assert!(token < second.fencing_token());
    assert_eq!(second.release().await.unwrap(), Release::Released);
}

/// T17: the lock is lost while the closure runs: the closure is cancelled, and `SessionLost` is returned.
pub async fn t17_loss_cancels_the_closure(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (template, seen) = (template(case, &a), Arc::default());
    let (witness, inside) = (Arc::clone(&seen), Arc::new(AtomicBool::new(false)));
    let started = inside.clone();
    let task = tokio::spawn(async move {
        template
            .execute(NAME, |held| async move {
                let _witness = Witness(held, witness);
                started.store(true, Ordering::SeqCst);
                std::future::pending::<()>().await;
            })
            .await
    });
    case.until("the closure runs", async || inside.load(Ordering::SeqCst)).await;
    case.store.expire(&a.connection).await;
    assert_eq!(task.await.unwrap().unwrap_err().kind(), ErrorKind::SessionLost);
    assert_eq!(*seen.lock().unwrap(), Some(false));
    free(case, &b).await;
    case.until_session(&a, 2, SessionState::Connected).await;
    free(case, &a).await;
}

/// A node that an operator deleted ends the closure with `NodeDeleted`; a closed client, with `Closed`.
pub async fn removal_and_close_cancel_the_closure(case: &Case<'_>) {
    let path = case.path(NAME);
    for kind in [ErrorKind::NodeDeleted, ErrorKind::Closed] {
        let a = case.process().await;
        let template = template(case, &a);
        let task =
            tokio::spawn(async move { template.execute(NAME, |_| std::future::pending::<()>()).await });
        case.until_queued(&path, 1).await;
        if kind == ErrorKind::Closed {
            a.client.close().await.unwrap();
        } else {
            for name in case.store.names(&path).await {
                case.store.remove(&path, &name).await;
            }
        }
        assert_eq!(task.await.unwrap().unwrap_err().kind(), kind);
    }
}

/// A closure that completes at the moment when the loss of the lock is detected does not count as successful.
pub async fn done_after_the_loss_is_an_error(case: &Case<'_>) {
    let a = case.process().await;
    let connection = &a.connection;
    let done = template(case, &a)
        .execute(NAME, |held| async move {
            case.store.expire(connection).await;
            held.lost().await;
        })
        .await;
    assert_eq!(done.unwrap_err().kind(), ErrorKind::SessionLost);
}

/// With `cancel_on_loss(false)`, the closure runs to its end, can detect the loss, and its output is returned.
pub async fn run_on_after_loss(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let connection = &a.connection;
    let template = template(case, &a).cancel_on_loss(false);
    let output = template
        .execute(NAME, |held| async move {
            case.store.expire(connection).await;
            held.lost().await;
            sleep(Duration::from_millis(50)).await;
            (held.is_held(), held.check().unwrap_err())
        })
        .await;
    let (is_held, error) = output.unwrap();
    assert_eq!((is_held, error.kind(), error.is_lock_lost()), (false, ErrorKind::SessionLost, true));
    free(case, &b).await;
}

/// A root with a trailing slash, the store's root, and a name of several segments.
pub async fn roots_and_names(case: &Case<'_>) {
    let a = case.process().await;
    let (root, path) = (case.root().as_str(), case.path("orders/42"));
    for (root, name) in [
        (root.to_owned(), "orders/42".to_owned()),
        (format!("{root}/"), "orders/42".to_owned()),
        (format!("{root}/orders/"), "42".to_owned()),
        ("/".to_owned(), path.as_str()[1..].to_owned()),
    ] {
        let template = a.client.lock_template(&root).unwrap();
        let held = template.execute(&name, |held| async move { held.path().clone() }).await.unwrap();
        assert_eq!(held, path, "{root:?} {name:?}");
        assert_eq!(template.path(&name).unwrap(), path);
    }
}

/// MX-07: a nested execute of the same name enters again; one of another name is another lock.
pub async fn nested_execute_reenters(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (outer, inner) = (template(case, &a), &template(case, &a));
    let _ = case.path("other");
    let others = mutex(case, &b);
    let tokens = outer
        .execute(NAME, |first| async move {
            let second = inner
                .execute(NAME, |second| async move {
                    inner.execute("other", |_| async {}).await.unwrap();
                    second.fencing_token()
                })
                .await
                .unwrap();
            assert!(first.is_held(), "still held after the inner one has left");
            assert!(others.try_acquire().await.unwrap().is_none());
            (first.fencing_token(), second)
        })
        .await
        .unwrap();
    assert_eq!(tokens.0, tokens.1);
    assert_eq!(a.faults.count(Call::Create), 2);
}

/// Three levels of closures, the innermost one with a large future, fit into the 2 MiB of a test's thread.
pub async fn nested_closures_are_small(case: &Case<'_>) {
    const LARGE: usize = 16 * 1024;
    let a = case.process().await;
    let template = &template(case, &a);
    let _ = ["one", "two", "three"].map(|name| case.path(name));
    let large = |held: LockContext| async move {
        let all = [1_u8; LARGE];
        sleep(Duration::from_millis(1)).await;
        assert!(held.is_held());
        all.iter().map(|byte| usize::from(*byte)).sum::<usize>()
    };
    let one = || template.execute("one", large);
    let two = || template.execute("two", |_| async { one().await.unwrap() });
    let three = template.execute("three", |_| async { two().await.unwrap() });
    assert_eq!(three.await.unwrap(), LARGE);
}

/// MX-08: executes of one `join!` and of one `buffer_unordered` exclude each other.
pub async fn mx_08_siblings_exclude_each_other(case: &Case<'_>) {
    let a = case.process().await;
    let template = template(case, &a).with_wait(LONG, 2).unwrap();
    let inside = Inside::default();
    let visit = || async { template.execute(NAME, |_| inside.visit()).await.unwrap() };
    tokio::join!(visit(), visit(), visit());
    let visits = futures_util::stream::iter(0..10).map(|_| visit());
    assert_eq!(visits.buffer_unordered(10).count().await, 10);
    assert_eq!(inside.visits(), 13);
}

/// MX-06: executes of many tasks and sessions: a counter that is read, then written, has the correct value.
pub async fn mx_06_counter(case: &Case<'_>) {
    let processes: [_; 4] = case.processes().await;
    let (counter, each) = (Arc::new(AtomicUsize::new(0)), case.many(25, 8));
    let mut tasks = tokio::task::JoinSet::new();
    for process in &processes {
        let (template, counter) = (template(case, process).with_wait(LONG, 2).unwrap(), counter.clone());
        tasks.spawn(async move {
            for _ in 0..each {
                let counter = &counter;
                let draw = |_| async move {
                    let seen = counter.load(Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    counter.store(seen + 1, Ordering::SeqCst);
                };
                template.execute(NAME, draw).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(counter.load(Ordering::SeqCst), 4 * each);
    let _ = case.path(NAME);
}

/// A `LockContext` that outlives the closure reports that the lock is not held.
pub async fn held_outlives_the_closure(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (held, waits) = template(case, &a)
        .execute(NAME, |held| async {
            let copy = held.clone();
            held.check().unwrap();
            let waits = tokio::spawn(async move { copy.lost().await.kind() });
            tokio::task::yield_now().await;
            (held, waits)
        })
        .await
        .unwrap();
    assert_eq!(timeout(LONG, waits).await.expect("resolves").unwrap(), ErrorKind::Released);
    assert!(!held.is_held());
    assert_eq!(timeout(LONG, held.lost()).await.expect("resolves").kind(), ErrorKind::Released);
    assert_eq!(held.check().unwrap_err().kind(), ErrorKind::Released);
    free(case, &b).await;
    let guard = mutex(case, &a).acquire().await.unwrap();
    assert!(!held.is_held(), "not by the next hold either");
    assert!(held.fencing_token() < guard.fencing_token());
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// MX-11: the closure receives a request for revocation; its handle reports it until the release.
pub async fn mx_11_closure_hears_a_revocation(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let others = mutex(case, &b);
    let held = template(case, &a)
        .execute(NAME, |held| async {
            let (heard, asked) = tokio::join!(held.revocation_requested(), others.request_revocation());
            assert_eq!((heard.unwrap(), asked.unwrap()), ((), 1));
            held
        })
        .await
        .unwrap();
    assert_eq!(held.revocation_requested().await.unwrap_err().kind(), ErrorKind::Released);
    free(case, &b).await;
}

/// A task that the closure spawns does not inherit the scope. The scope can be carried over, and then keeps the lock held.
pub async fn scope_carried_over_by_spawn(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (lock, others) = (mutex(case, &a), mutex(case, &b));
    let second = template(case, &a)
        .execute(NAME, |held| async move {
            let plain = lock.clone();
            let plain = tokio::spawn(async move { plain.try_acquire().await.unwrap().is_none() });
            assert!(plain.await.unwrap(), "not inherited");
            let again = tokio::spawn(Scope::current().scope(async move { lock.acquire().await.unwrap() }));
            let again = again.await.unwrap();
            assert_eq!(again.fencing_token(), held.fencing_token());
            again
        })
        .await
        .unwrap();
    assert!(second.is_held(), "execute has left, the carried guard has not");
    assert!(others.try_acquire().await.unwrap().is_none());
    assert_eq!(second.release().await.unwrap(), Release::Released);
    free(case, &b).await;
}

/// The error of a closure and the error of the lock are merged.
pub async fn execute_fallible_has_one_error(case: &Case<'_>) {
    #[derive(Debug)]
    enum Failure {
        Lock(ErrorKind),
        Work,
    }

    impl From<Error> for Failure {
        fn from(error: Error) -> Self {
            Failure::Lock(error.kind())
        }
    }

    let [a, b] = case.processes().await;
    let template = template(case, &a).with_wait(Duration::ZERO, 1).unwrap();
    let done: Result<_, Failure> = template.execute_fallible(NAME, async |_| Ok(7)).await;
    assert!(matches!(done, Ok(7)), "{done:?}");
    let failed: Result<(), _> = template.execute_fallible(NAME, async |_| Err(Failure::Work)).await;
    assert!(matches!(failed, Err(Failure::Work)), "{failed:?}");
    let guard = mutex(case, &b).acquire().await.unwrap();
    let busy: Result<(), Failure> = template.execute_fallible(NAME, async |_| unreachable!()).await;
    assert!(matches!(busy, Err(Failure::Lock(ErrorKind::Busy))), "{busy:?}");
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// T2: execute() dropped, with a holder ahead at first and a closure that waits.
pub async fn t2_execute(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let template = a.client.lock_template(case.root()).unwrap();
    sweep("execute", async |cut| {
        let path = path(case, cut);
        let at = |process: &Process| process.client.mutex(&path).unwrap();
        let (holder, next) = (at(&b).acquire().await.unwrap(), at(&b));
        let (template, name) = (template.clone(), cut.name());
        let victim = spawn(cut, async move {
            let closure = |_| async {
                for _ in 0..3 {
                    tokio::task::yield_now().await;
                }
            };
            template.execute(&name, closure).await.unwrap();
        });
        case.until("queued or cut", async || victim.is_finished() || case.queued(&path).await == 2).await;
        let next = tokio::spawn(async move { next.acquire_timeout(LONG).await.unwrap() });
        let places = async || case.queued(&path).await;
        case.until("the next one queues", async || {
            places().await >= if victim.is_finished() { 2 } else { 3 }
        })
        .await;
        assert_eq!(holder.release().await.unwrap(), Release::Released);
        let done = victim.await.unwrap().is_some();
        assert_eq!(next.await.unwrap().release().await.unwrap(), Release::Released);
        nothing_is_left::<InterProcessMutex>(case, &path, &a, &b).await;
        done
    })
    .await;
}
