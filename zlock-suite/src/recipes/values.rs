//! Values and counters, on every store that has values.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use zlock_core::{ErrorKind, LockPath, SessionState};
use zlock_recipes::{CompareAndSet, Counter, CounterFormat, Freshness, Handoff, ValueView, ValueWatch};

use crate::case::LONG;
use crate::{Case, Links, Process};

const CLIENTS: usize = 20;

/// Returns the path of a value. Unlike that of a lock, it is not checked when the case is over: values stay.
fn value(case: &Case<'_>, name: &str) -> LockPath {
    case.root().join(name).unwrap()
}

fn counter(case: &Case<'_>, process: &Process) -> Counter {
    process.client.counter(value(case, "counter")).unwrap()
}

/// Adds 1 this often, and returns the result of each addition. The answers to every tenth one are lost.
async fn add(counter: &Counter, times: usize, lose: Option<(&dyn Links, &Process)>) -> Vec<i64> {
    let mut results = Vec::new();
    for n in 1..=times {
        let result = match lose.filter(|_| n % 10 == 0) {
            None => counter.add(1).await,
            Some((links, process)) => {
                links.mute(&process.connection).await;
                let heal = async {
                    sleep(Duration::from_millis(10)).await;
                    links.heal(&process.connection).await;
                };
                tokio::join!(counter.add(1), heal).0
            }
        };
        results.push(result.unwrap());
    }
    results
}

/// Lets many clients add at the same time. Each addition has a result of its own, and the last one is their number.
async fn sum_is_exact(case: &Case<'_>, times: usize, lose: bool) {
    let processes: [Process; CLIENTS] = case.processes().await;
    let links = lose.then(|| case.links());
    let adders = processes.iter().map(|process| {
        let counter = counter(case, process);
        async move { add(&counter, times, links.map(|links| (links, process))).await }
    });
    let results = futures_util::future::join_all(adders).await;
    let results: Vec<_> = results.into_iter().flatten().collect();
    let all = (CLIENTS * times) as i64;
    assert_eq!(results.iter().copied().collect::<BTreeSet<_>>(), (1..=all).collect());
    assert_eq!(results.len(), CLIENTS * times);
    assert_eq!(counter(case, &processes[0]).get().await.unwrap(), all);
}

/// Many clients add to one counter.
pub async fn sum_of_many_clients_is_exact(case: &Case<'_>) {
    sum_is_exact(case, case.many(500, 25), false).await;
}

/// Many clients add to one counter, and every tenth answer is lost.
pub async fn sum_is_exact_although_answers_are_lost(case: &Case<'_>) {
    sum_is_exact(case, case.many(500, 20), true).await;
}

/// A sum that does not fit is an error, and the number stays.
pub async fn overflow_is_an_error_and_changes_nothing(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    for (format, most) in [(CounterFormat::Long, i64::MAX), (CounterFormat::Int, i32::MAX.into())] {
        let path = value(case, &format!("{format:?}"));
        let counters = [&a, &b].map(|process| process.client.counter(&path).unwrap().with_format(format));
        assert_eq!(counters[0].add(most).await.unwrap(), most);
        for counter in &counters {
            let error = counter.add(1).await.unwrap_err();
            assert_eq!((error.kind(), error.is_ambiguous()), (ErrorKind::InvalidArgument, false), "{error}");
            assert_eq!(counter.reserve(1).await.unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
        // A range ends with the number after its last one.
        assert_eq!(counters[1].add(-2).await.unwrap(), most - 2);
        match counters[1].reserve(2).await {
            Ok(range) => assert!(range == (most - 1..most + 1) && format == CounterFormat::Int),
            Err(error) => {
                assert!(
                    error.kind() == ErrorKind::InvalidArgument && format == CounterFormat::Long,
                    "{error}"
                );
                assert_eq!(counters[1].add(2).await.unwrap(), most);
            }
        }
        // What the first one remembers is out of date, so it looks again before it refuses.
        assert_eq!(counters[1].add(-5).await.unwrap(), most - 5);
        assert_eq!(counters[0].add(5).await.unwrap(), most);
        assert_eq!(counters[1].get().await.unwrap(), most);
    }
}

/// An update is made of the current number, whatever this client has seen last.
pub async fn number_is_updated_from_the_current_one(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = value(case, "counter");
    let [a, b] =
        [&a, &b].map(|process| process.client.counter(&path).unwrap().with_format(CounterFormat::Int));
    assert_eq!(a.update(|now| (now == 1).then_some(2)).await.unwrap(), 0, "there is no number");
    assert_eq!(a.update(|_| Some(7)).await.unwrap(), 7);
    assert_eq!(b.add(1).await.unwrap(), 8);
    // The first one has seen 7.
    assert_eq!(a.update(|now| (now == 7).then_some(0)).await.unwrap(), 8, "nothing was written");
    assert_eq!(b.add(1).await.unwrap(), 9);
    // It has seen 8.
    assert_eq!(a.update(|now| (now == 9).then_some(10)).await.unwrap(), 10, "the number was read again");
    let error = b.update(|now| Some(now + i64::from(i32::MAX))).await.unwrap_err();
    assert_eq!((error.kind(), error.is_ambiguous()), (ErrorKind::InvalidArgument, false), "{error}");
    assert_eq!(b.get().await.unwrap(), 10);
}

/// No two calls get the same number, whether they reserve or add.
pub async fn reserved_numbers_are_unique(case: &Case<'_>) {
    let processes: [Process; 5] = case.processes().await;
    let reservers = processes.iter().map(|process| {
        let counter = counter(case, process);
        async move {
            let mut ranges = Vec::new();
            for n in 1..=10 {
                ranges.push(counter.reserve(n).await.unwrap());
                let added = counter.add(1).await.unwrap();
                ranges.push(added..added + 1);
            }
            ranges
        }
    });
    let ranges = futures_util::future::join_all(reservers).await;
    let numbers: Vec<_> = ranges.into_iter().flatten().flatten().collect();
    assert_eq!(numbers.len(), 5 * 65);
    assert_eq!(numbers.into_iter().collect::<BTreeSet<_>>(), (1..=5 * 65).collect());
}

/// Each update is made of the value before it, also by tasks of one client.
pub async fn updates_are_not_lost(case: &Case<'_>) {
    let (processes, path): ([Process; 3], _) = (case.processes().await, value(case, "log"));
    let mut writers = JoinSet::new();
    for n in 0..9_u8 {
        let log = processes[usize::from(n) % 3].client.shared_value(&path).unwrap();
        writers.spawn(async move {
            let after = log.update(|now| Some([now.unwrap_or_default(), &[n]].concat())).await.unwrap();
            assert!(after.unwrap().data.contains(&n));
        });
    }
    while let Some(written) = writers.join_next().await {
        written.unwrap();
    }
    let log = processes[0].client.shared_value(&path).unwrap();
    let mut data = log.get().await.unwrap().unwrap().data;
    data.sort_unstable();
    assert_eq!(data, (0..9).collect::<Vec<_>>());
    let unchanged = log.update(|_| None).await.unwrap();
    assert_eq!(unchanged, log.get().await.unwrap());
}

/// An operator deletes the node of a lock. A write under it is refused although the holder has not noticed.
pub async fn write_under_a_lock_that_was_deleted_is_refused(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (lock, path) = (case.path("lock"), value(case, "value"));
    let guard = a.client.mutex(&lock).unwrap().acquire().await.unwrap();
    let value = a.client.shared_value(&path).unwrap();
    value.write_under(&guard, b"one").await.unwrap();
    let version = value.write_under(&guard, b"two").await.unwrap();
    case.store.remove(&lock, guard.node().as_str()).await;
    let next = b.client.mutex(&lock).unwrap().acquire().await.unwrap();
    let error = value.write_under(&guard, b"late").await.unwrap_err();
    assert!(error.is_lock_lost(), "{error}");
    assert!(!guard.is_held(), "the holder has learned it");
    let error = value.compare_and_set_under(&guard, Some(version), b"late").await.unwrap_err();
    assert!(error.is_lock_lost(), "{error}");
    assert_eq!(value.get().await.unwrap().unwrap().data, b"two");
    b.client.shared_value(&path).unwrap().write_under(&next, b"three").await.unwrap();
    assert_eq!(value.get().await.unwrap().unwrap().data, b"three");
    drop(guard);
    next.release().await.unwrap();
}

/// A view that outlives its guard writes nothing.
pub async fn write_under_a_released_lock_is_refused(case: &Case<'_>) {
    let a = case.process().await;
    let guard = a.client.mutex(case.path("lock")).unwrap().acquire().await.unwrap();
    let (context, value) = ((*guard).clone(), a.client.shared_value(value(case, "value")).unwrap());
    guard.release().await.unwrap();
    let error = value.write_under(&context, b"late").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Released, "{error}");
    assert_eq!(value.get().await.unwrap(), None);
}

/// With hand-off, the node does not show whose turn it is. The store could not refuse the write of a former holder, so the client does.
pub async fn write_under_a_lock_with_handoff_is_refused(case: &Case<'_>) {
    let a = case.process().await;
    let mutex = a.client.mutex(case.path("lock")).unwrap().with_handoff(Handoff::within(LONG));
    let (guard, value) =
        (mutex.acquire().await.unwrap(), a.client.shared_value(value(case, "value")).unwrap());
    let version = value.compare_and_set_under(&guard, None, b"late").await.map(drop);
    for refused in [version, value.write_under(&guard, b"late").await.map(drop)] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains("hand-off"), "{error}");
    }
    assert_eq!(value.get().await.unwrap(), None);
    guard.release().await.unwrap();
}

/// Waits until the view shows this data, and checks that it shows nothing that was written before what it has shown.
async fn until_shown(case: &Case<'_>, watch: &mut ValueWatch, data: &[u8], newest: &mut u8) -> ValueView {
    let shown = async {
        loop {
            let view = watch.changed().await.unwrap();
            if let Some(&[number]) = view.value.as_ref().map(|value| &*value.data) {
                assert!(number >= *newest, "{number} after {newest}");
                *newest = number;
            }
            if view.freshness == Freshness::Fresh
                && view.value.as_ref().is_some_and(|value| value.data == data)
            {
                return view;
            }
        }
    };
    let limit = 3 * case.store.session_timeout() + Duration::from_secs(10);
    timeout(limit, shown).await.unwrap_or_else(|_| panic!("{data:?} is not shown"))
}

/// A view goes on when another program deletes the value and creates it again, and in the next session. The old version is a
/// conflict.
pub async fn watch_survives_recreation_and_a_new_session(case: &Case<'_>) {
    let ([a, b], path, mut newest) = (case.processes().await, value(case, "value"), 0);
    let (writer, watched) = (a.client.shared_value(&path).unwrap(), b.client.shared_value(&path).unwrap());
    let mut watch = watched.watch();
    let first = watch.changed().await.unwrap();
    assert_eq!(first, ValueView { value: None, freshness: Freshness::Fresh });
    writer.compare_and_set(None, [1]).await.unwrap();
    let one = until_shown(case, &mut watch, &[1], &mut newest).await.value.unwrap();
    case.store.remove(case.root(), "value").await;
    case.store.put(case.root(), "value").await;
    let outcome = writer.compare_and_set(Some(one.version), [7]).await.unwrap();
    let CompareAndSet::Conflict(Some(now)) = outcome else { panic!("{outcome:?}") };
    until_shown(case, &mut watch, &now.data, &mut newest).await;
    writer.compare_and_set(Some(now.version), [2]).await.unwrap();
    until_shown(case, &mut watch, &[2], &mut newest).await;
    case.store.expire(&b.connection).await;
    writer.update(|_| Some([3].into())).await.unwrap();
    until_shown(case, &mut watch, &[3], &mut newest).await;
    case.until_session(&b, 2, SessionState::Connected).await;
    writer.update(|_| Some([4].into())).await.unwrap();
    until_shown(case, &mut watch, &[4], &mut newest).await;
}

/// A view is stale from when the connection is in doubt until it is up to date again.
pub async fn watch_is_stale_while_the_link_is_cut(case: &Case<'_>) {
    let ([a, b], path, mut newest) = (case.processes().await, value(case, "value"), 0);
    let (writer, watched) = (a.client.shared_value(&path).unwrap(), b.client.shared_value(&path).unwrap());
    writer.compare_and_set(None, [1]).await.unwrap();
    let mut watch = watched.watch();
    until_shown(case, &mut watch, &[1], &mut newest).await;
    case.links().cut(&b.connection).await;
    case.until_session(&b, 1, SessionState::Suspended).await;
    let stale = watch.changed().await.unwrap();
    assert!(matches!(stale.freshness, Freshness::StaleSince(_)), "{stale:?}");
    assert_eq!(stale.value.unwrap().data, [1]);
    writer.update(|_| Some([2].into())).await.unwrap();
    case.links().heal(&b.connection).await;
    until_shown(case, &mut watch, &[2], &mut newest).await;
}
