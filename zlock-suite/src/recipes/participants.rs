//! The holders and waiters of a lock.

use zlock_core::Label;
use zlock_recipes::{Client, InterProcessMutex, Participant, Release};

use crate::case::LONG;
use crate::{Call, Case, Process, Side};

/// Two processes that write their names into their nodes.
async fn named_processes(case: &Case<'_>) -> [Process; 2] {
    let named = async |name| case.process_with(|builder| builder.with_node_data(name).unwrap()).await;
    [named("a").await, named("b").await]
}

/// Returns the data, whether it holds, and whether it is ours, the head of the queue first.
fn view(participants: &[Participant]) -> Vec<(&str, bool, bool)> {
    participants.iter().map(|p| (std::str::from_utf8(&p.data).unwrap(), p.is_holder, p.is_ours)).collect()
}

fn labels(participants: &[Participant]) -> Vec<Label> {
    participants.iter().map(|p| p.label).collect()
}

/// Nothing relies on a name: two clients that have the same one exclude each other, and each knows which node is its own.
pub async fn two_clients_with_one_name(case: &Case<'_>) {
    let named = async || case.process_with(|builder| builder.with_node_data("one").unwrap()).await;
    let (a, b, path) = (named().await, named().await, case.path("lock"));
    let [mine, others] = [&a, &b].map(|process| case.lock::<InterProcessMutex>(process, "lock"));
    let guard = mine.acquire().await.unwrap();
    let waiting = tokio::spawn({
        let others = others.clone();
        async move { others.acquire().await.unwrap() }
    });
    case.until_queued(&path, 2).await;
    assert_eq!(view(&mine.participants().await.unwrap()), [("one", true, true), ("one", false, false)]);
    assert_eq!(view(&others.participants().await.unwrap()), [("one", true, false), ("one", false, true)]);
    assert!(guard.is_held() && !waiting.is_finished());
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    let theirs = waiting.await.unwrap();
    assert!(mine.try_acquire().await.unwrap().is_none());
    assert_eq!(theirs.release().await.unwrap(), Release::Released);
}

/// A mutex: one holds, the others wait, in order; each with the data of its creator.
pub async fn of_a_mutex(case: &Case<'_>) {
    let [a, b] = named_processes(case).await;
    let path = case.path("lock");
    let (mine, others): (InterProcessMutex, InterProcessMutex) =
        (case.lock::<InterProcessMutex>(&a, "lock"), case.lock::<InterProcessMutex>(&b, "lock"));
    let special = mine.clone().with_node_data("special").unwrap();
    let guard = mine.acquire().await.unwrap();
    let mut waiting = Vec::new();
    for (places, lock) in [(2, others.clone()), (3, special), (4, others.clone())] {
        waiting.push(tokio::spawn(async move { lock.acquire().await.unwrap() }));
        case.until_queued(&path, places).await;
    }
    let seen = mine.participants().await.unwrap();
    let expected = [("a", true, true), ("b", false, false), ("special", false, true), ("b", false, false)];
    assert_eq!(view(&seen), expected);
    assert_eq!(labels(&seen), [Label::Lock; 4]);
    assert!(seen.is_sorted_by_key(|p| p.created), "{seen:?}");
    assert!(!seen.iter().any(Participant::is_revocation_requested));
    // Another client of the same session looks the same to the store.
    let twin = Client::new(a.connection.backend.clone());
    let twins = twin.mutex(&path).unwrap().participants().await.unwrap();
    assert_eq!(twins, seen);

    assert_eq!(others.request_revocation().await.unwrap(), 1);
    let seen = others.participants().await.unwrap();
    let asked: Vec<_> = seen.iter().map(Participant::is_revocation_requested).collect();
    assert_eq!(asked, [true, false, false, false]);
    assert_eq!(view(&seen)[1..], [("b", false, true), ("special", false, false), ("b", false, true)]);
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    for waiter in waiting {
        assert_eq!(waiter.await.unwrap().release().await.unwrap(), Release::Released);
    }
}

/// A read/write lock: all readers in front hold; the kind of each is reported.
pub async fn of_a_read_write_lock(case: &Case<'_>) {
    let [a, b] = named_processes(case).await;
    let path = case.path("lock");
    let lock = |process: &Process| process.client.read_write_lock(&path).unwrap();
    let (one, two) = (lock(&a).read().acquire().await.unwrap(), lock(&b).read().acquire().await.unwrap());
    let (write, read) = (lock(&b).write(), lock(&a).read());
    let writer = tokio::spawn(async move { write.acquire_timeout(LONG).await.unwrap() });
    case.until_queued(&path, 3).await;
    let reader = tokio::spawn(async move { read.acquire_timeout(LONG).await.unwrap() });
    case.until_queued(&path, 4).await;
    let seen = lock(&a).participants().await.unwrap();
    assert_eq!(view(&seen), [("a", true, true), ("b", true, false), ("b", false, false), ("a", false, true)]);
    assert_eq!(labels(&seen), [Label::Read, Label::Read, Label::Write, Label::Read]);
    assert_eq!(lock(&a).write().participants().await.unwrap(), seen);
    for guard in [one, two] {
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
    let reading = writer.await.unwrap().downgrade().await.unwrap();
    let seen = lock(&a).read().participants().await.unwrap();
    assert_eq!(view(&seen), [("b", true, false), ("a", true, true)]);
    assert_eq!(labels(&seen), [Label::Read, Label::Read]);
    assert_eq!(reading.release().await.unwrap(), Release::Released);
    assert_eq!(reader.await.unwrap().release().await.unwrap(), Release::Released);
}

/// A semaphore: the holders, and the permits that each waiter asks for.
pub async fn of_a_semaphore(case: &Case<'_>) {
    let [a, b] = named_processes(case).await;
    let path = case.path("permits");
    let permits = |process: &Process| process.client.semaphore(&path, 5).unwrap();
    let holders = [permits(&a).acquire(1).await.unwrap(), permits(&b).acquire(3).await.unwrap()];
    let waits = permits(&a);
    let waiter = tokio::spawn(async move { waits.acquire_timeout(2, LONG).await.unwrap() });
    case.until_queued(&path, 3).await;
    let seen = permits(&b).participants().await.unwrap();
    assert_eq!(view(&seen), [("a", true, false), ("b", true, true), ("a", false, false)]);
    let weights = seen.iter().map(|p| match p.label {
        Label::Permits { weight, max, .. } => (weight, max),
        other => panic!("{other:?}"),
    });
    assert_eq!(weights.collect::<Vec<_>>(), [(1, 5), (3, 5), (2, 5)]);
    for guard in holders {
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
    assert_eq!(waiter.await.unwrap().release().await.unwrap(), Release::Released);
}

/// A participant that leaves between the listing and the read of its data is left out.
pub async fn who_has_left_is_left_out(case: &Case<'_>) {
    let [a, b] = named_processes(case).await;
    let path = case.path("lock");
    let (mine, others): (InterProcessMutex, InterProcessMutex) =
        (case.lock::<InterProcessMutex>(&a, "lock"), case.lock::<InterProcessMutex>(&b, "lock"));
    let guard = mine.acquire().await.unwrap();
    let waits = others.clone();
    let waiter = tokio::spawn(async move { waits.acquire_timeout(LONG).await.unwrap() });
    case.until_queued(&path, 2).await;
    let gate = a.faults.hold(Call::Data, Side::Before);
    let look = {
        let mine = mine.clone();
        tokio::spawn(async move { mine.participants().await.unwrap() })
    };
    gate.reached().await;
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    gate.open();
    // At the time of the listing, the other one was waiting.
    assert_eq!(view(&look.await.unwrap()), [("b", false, false)]);
    assert_eq!(waiter.await.unwrap().release().await.unwrap(), Release::Released);
}
