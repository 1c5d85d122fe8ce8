//! Readers hold together, writers alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::{JoinHandle, JoinSet, yield_now};
use tokio::time::sleep;
use zlock_core::ErrorKind;
use zlock_recipes::{Guard, InterProcessMutex, ReadWriteLock, Release, WriteGuard};

use crate::case::LONG;
use crate::{Call, Case, Process};

const SHORT: Duration = Duration::from_millis(200);

fn lock(case: &Case<'_>, process: &Process) -> ReadWriteLock {
    process.client.read_write_lock(case.path("lock")).unwrap()
}

/// Waits for the lock in a task, as the n-th in the queue.
async fn reader(case: &Case<'_>, process: &Process, n: usize) -> JoinHandle<Guard> {
    let read = lock(case, process).read();
    let waiting = tokio::spawn(async move { read.acquire().await.unwrap() });
    case.until_queued(&case.path("lock"), n).await;
    waiting
}

async fn writer(case: &Case<'_>, process: &Process, n: usize) -> JoinHandle<WriteGuard> {
    let write = lock(case, process).write();
    let waiting = tokio::spawn(async move { write.acquire().await.unwrap() });
    case.until_queued(&case.path("lock"), n).await;
    waiting
}

async fn release(guard: Guard) {
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

async fn finished<T>(task: JoinHandle<T>) -> T {
    tokio::time::timeout(LONG, task).await.expect("it comes in").unwrap()
}

/// RW-01: twenty readers hold together, eight writers wait, and the participants show it.
pub async fn rw_01_readers_together(case: &Case<'_>) {
    let processes: [_; 4] = case.processes().await;
    let mut readers = Vec::new();
    for i in 0..20 {
        readers.push(lock(case, &processes[i % 4]).read().acquire().await.unwrap());
    }
    let mut writers = Vec::new();
    for i in 0..8 {
        writers.push(writer(case, &processes[i % 4], 21 + i).await);
    }
    let told = lock(case, &processes[0]).participants().await.unwrap();
    let holders: Vec<_> = told.iter().map(|p| p.is_holder).collect();
    assert_eq!(holders, [vec![true; 20], vec![false; 8]].concat());
    assert!(lock(case, &processes[1]).read().try_acquire().await.unwrap().is_none(), "behind the writers");
    for reader in readers {
        assert!(writers.iter().all(|writer| !writer.is_finished()));
        release(reader).await;
    }
    for writer in writers {
        release(finished(writer).await.into()).await;
    }
}

/// RW-02: writing inside a reader's scope is refused at once, whatever the call; nothing is sent, nothing left.
pub async fn rw_02_upgrade_refused(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let path = case.path("lock");
    let (mine, other) = (lock(case, &a), lock(case, &a));
    let guard = mine.read().acquire().await.unwrap();
    let calls = a.faults.total();
    let refusals = guard
        .scope(async {
            let again = mine.read().acquire().await.unwrap();
            again
                .scope(async {
                    [
                        mine.write().acquire().await.map(drop),
                        mine.write().acquire_timeout(LONG).await.map(drop),
                        other.write().acquire_timeout(Duration::ZERO).await.map(drop),
                        other.write().try_acquire().await.map(drop),
                    ]
                })
                .await
        })
        .await;
    for refusal in refusals {
        let error = refusal.unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::UpgradeRefused, Some(path.as_str())));
        assert!(!error.is_retryable());
    }
    assert_eq!((a.faults.total(), case.queued(&path).await), (calls, 1));
    assert!(guard.is_held() && !mine.write().is_acquired_in_this_process());
    let beside = lock(case, &b).read().try_acquire().await.unwrap().unwrap();
    release(beside).await;
    release(guard).await;
    release(mine.write().acquire().await.unwrap().into()).await;
}

/// RW-03: while one client holds for writing, timed acquires and single attempts of another fail, for reading and for
/// writing.
pub async fn rw_03_a_writer_is_alone(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (mine, others) = (lock(case, &a), lock(case, &b));
    let guard = mine.write().acquire().await.unwrap();
    for error in [
        others.read().acquire_timeout(SHORT).await.map(drop).unwrap_err(),
        others.write().acquire_timeout(SHORT).await.map(drop).unwrap_err(),
        // Outside the writer's scope, like a sibling branch.
        mine.read().acquire_timeout(SHORT).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Busy);
    }
    assert!(others.read().try_acquire().await.unwrap().is_none());
    assert!(others.write().try_acquire().await.unwrap().is_none());
    case.until_queued(&case.path("lock"), 1).await;
    release(guard.into()).await;
    release(others.read().acquire_timeout(SHORT).await.unwrap()).await;
}

/// The current readers and writers.
#[derive(Default)]
struct Witness {
    readers: AtomicUsize,
    writers: AtomicUsize,
    most_readers: AtomicUsize,
}

impl Witness {
    async fn read(&self) {
        let readers = self.readers.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_readers.fetch_max(readers, Ordering::SeqCst);
        self.stay(|| self.writers.load(Ordering::SeqCst) == 0).await;
        self.readers.fetch_sub(1, Ordering::SeqCst);
    }

    async fn write(&self) {
        self.writers.fetch_add(1, Ordering::SeqCst);
        self.stay(|| (self.writers.load(Ordering::SeqCst), self.readers.load(Ordering::SeqCst)) == (1, 0))
            .await;
        self.writers.fetch_sub(1, Ordering::SeqCst);
    }

    async fn stay(&self, is_right: impl Fn() -> bool) {
        for _ in 0..5 {
            assert!(is_right(), "a writer is not alone");
            yield_now().await;
        }
        sleep(Duration::from_millis(1)).await;
        assert!(is_right(), "a writer is not alone");
    }
}

/// RW-06: eight sessions, many rounds, one in ten for writing: never a reader beside a writer, never two writers. Readers do
/// overlap. Some writers downgrade.
pub async fn rw_06_never_beside_a_writer(case: &Case<'_>) {
    let processes: [_; 8] = case.processes().await;
    let (witness, mut tasks) = (Arc::<Witness>::default(), JoinSet::new());
    for (i, process) in processes.iter().enumerate() {
        let (lock, witness, rounds) = (lock(case, process), witness.clone(), case.many(100, 20));
        tasks.spawn(async move {
            for round in 0..rounds {
                let guard = if (round + i) % 10 == 0 {
                    let guard = lock.write().acquire().await.unwrap();
                    witness.write().await;
                    if round % 20 < 10 {
                        release(guard.into()).await;
                        continue;
                    }
                    guard.downgrade().await.unwrap()
                } else {
                    lock.read().acquire().await.unwrap()
                };
                witness.read().await;
                assert!(guard.is_held());
                release(guard).await;
            }
        });
    }
    tasks.join_all().await;
    assert!(witness.most_readers.load(Ordering::SeqCst) > 1, "readers overlap");
}

/// RW-07: node data is as given, for both kinds or for one.
pub async fn rw_07_node_data(case: &Case<'_>) {
    let a = case.process().await;
    let both = lock(case, &a).with_node_data("both").unwrap();
    let read = both.read();
    let one = both.read().with_node_data("one").unwrap();
    let guards = [read.acquire().await.unwrap(), one.acquire().await.unwrap()];
    let data: Vec<_> = both.participants().await.unwrap().into_iter().map(|p| p.data).collect();
    assert_eq!(data, [b"both".to_vec(), b"one".to_vec()]);
    for guard in guards {
        release(guard).await;
    }
    let write = both.write().with_node_data("write").unwrap();
    let guard = write.acquire().await.unwrap();
    assert_eq!(write.participants().await.unwrap()[0].data, b"write");
    // The data survives a change of the label.
    let guard = guard.downgrade().await.unwrap();
    assert_eq!(one.participants().await.unwrap()[0].data, b"write");
    release(guard).await;
    let too_large = lock(case, &a).with_node_data(vec![0; zlock_core::MAX_DATA + 1]).unwrap_err();
    assert_eq!(too_large.kind(), ErrorKind::InvalidArgument);
}

/// T42: W1 holds, R and W2 wait: W1 releases, R is granted, then W2.
pub async fn t42_writer_reader_writer(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let first = lock(case, &a).write().acquire().await.unwrap();
    let reader = reader(case, &b, 2).await;
    let second = writer(case, &c, 3).await;
    release(first.into()).await;
    let reader = finished(reader).await;
    sleep(SHORT).await;
    assert!(!second.is_finished() && reader.is_held());
    release(reader).await;
    release(finished(second).await.into()).await;
}

/// First come, first served, also between the kinds: R1, W1 and R2 wait behind W0, and are granted in that order. Each token is
/// larger than all before.
pub async fn order_between_kinds(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let w0 = lock(case, &a).write().acquire().await.unwrap();
    let first = w0.fencing_token();
    let r1 = reader(case, &b, 2).await;
    let w1 = writer(case, &c, 3).await;
    let r2 = reader(case, &a, 4).await;
    release(w0.into()).await;
    let r1 = finished(r1).await;
    assert!(!w1.is_finished());
    let mut tokens = vec![first, r1.fencing_token()];
    release(r1).await;
    let w1 = finished(w1).await;
    tokens.push(w1.fencing_token());
    release(w1.into()).await;
    let r2 = finished(r2).await;
    tokens.push(r2.fencing_token());
    release(r2).await;
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
}

/// A writer's token is larger than that of each reader in front of it, in whichever order these have left.
pub async fn a_writer_has_a_larger_token_than_all_readers_before(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let mut readers = Vec::new();
    for process in [&a, &b, &a] {
        readers.push(lock(case, process).read().acquire().await.unwrap());
    }
    let largest = readers.iter().map(|reader| reader.fencing_token()).max().unwrap();
    let write = writer(case, &c, 4).await;
    for reader in readers {
        assert!(!write.is_finished());
        release(reader).await;
    }
    let write = finished(write).await;
    assert!(write.fencing_token() > largest, "{:?} after {largest:?}", write.fencing_token());
    release(write.into()).await;
}

/// Readers behind a writer are granted together when it releases, and also when it gives up while readers hold.
pub async fn a_writer_that_goes_lets_all_readers_in(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let holder = lock(case, &a).read().acquire().await.unwrap();
    let write = lock(case, &b).write();
    let impatient = tokio::spawn(async move { write.acquire().await.map(drop) });
    case.until_queued(&case.path("lock"), 2).await;
    let waiting = [reader(case, &c, 3).await, reader(case, &a, 4).await, reader(case, &c, 5).await];
    case.until_waiting(&c, 2).await;
    assert!(waiting.iter().all(|reader| !reader.is_finished()));
    impatient.abort();
    let mut guards = Vec::new();
    for reader in waiting {
        guards.push(finished(reader).await);
    }
    assert!(holder.is_held() && guards.iter().all(|guard| guard.is_held()));
    release(holder).await;
    for guard in guards {
        release(guard).await;
    }
}

/// Readers behind two writers wake once, not once for each writer: one listing each.
pub async fn readers_behind_two_writers_wake_once(case: &Case<'_>) {
    let [a, b, c] = case.processes().await;
    let first = lock(case, &a).write().acquire().await.unwrap();
    let second = writer(case, &b, 2).await;
    let readers = [reader(case, &c, 3).await, reader(case, &c, 4).await, reader(case, &c, 5).await];
    case.until_waiting(&c, 3).await;
    release(first.into()).await;
    let second = finished(second).await;
    sleep(SHORT).await;
    assert_eq!(c.faults.count(Call::Children), 0, "nobody was woken by the first writer");
    release(second.into()).await;
    for reader in readers {
        release(finished(reader).await).await;
    }
    assert_eq!((c.faults.count(Call::Exists), c.faults.count(Call::Children)), (3, 3));
}

/// A context of a reader inside a writer ends with that reader, not with the writer.
pub async fn an_inner_reader_that_goes_first(case: &Case<'_>) {
    let a = case.process().await;
    let mine = lock(case, &a);
    let write = mine.write().acquire().await.unwrap();
    for by_drop in [false, true] {
        let read = write.scope(async { mine.read().acquire().await.unwrap() }).await;
        let (held, for_loss, for_request) = (read.context(), read.context(), read.context());
        let waits = tokio::spawn(async move { for_loss.lost().await.kind() });
        let asked = tokio::spawn(async move { for_request.revocation_requested().await.unwrap_err().kind() });
        sleep(SHORT).await;
        assert!(held.is_held() && !waits.is_finished() && !asked.is_finished());
        if by_drop {
            drop(read);
        } else {
            assert_eq!(read.release().await.unwrap(), Release::StillHeld);
        }
        assert!(!held.is_held() && write.is_held());
        assert_eq!(finished(waits).await, ErrorKind::Released);
        assert_eq!(finished(asked).await, ErrorKind::Released);
    }
    release(write.into()).await;
}

/// Entering again: in a writer's scope for both, in a reader's for reading, also while a writer waits; without a
/// request; the last guard releases; `is_acquired_in_this_process` is correct for each kind.
pub async fn entering_again(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let mine = lock(case, &a);
    let truth = || {
        let [read, write] =
            [mine.read().is_acquired_in_this_process(), mine.write().is_acquired_in_this_process()];
        (read, write)
    };
    assert_eq!(truth(), (false, false));
    let guard = mine.write().acquire().await.unwrap();
    assert_eq!(truth(), (false, true));
    let waiting = writer(case, &b, 2).await;
    let calls = a.faults.total();
    let (read, write) = guard
        .scope(async {
            let read = lock(case, &a).read().try_acquire().await.unwrap().unwrap();
            // Inside the inner reader, the writer's scope still applies.
            let write = read.scope(async { mine.write().acquire().await.unwrap() }).await;
            (read, write)
        })
        .await;
    assert_eq!(truth(), (true, true));
    let third = write.reenter().unwrap();
    assert_eq!(read.fencing_token(), guard.fencing_token());
    assert_eq!(guard.release().await.unwrap(), Release::StillHeld);
    assert_eq!(third.release().await.unwrap(), Release::StillHeld);
    assert_eq!(read.release().await.unwrap(), Release::StillHeld);
    assert_eq!(truth(), (false, true));
    assert_eq!((a.faults.total(), case.queued(&case.path("lock")).await), (calls, 2));
    release(write.into()).await;
    release(finished(waiting).await.into()).await;

    let guard = mine.read().acquire().await.unwrap();
    let waiting = writer(case, &b, 2).await;
    let calls = a.faults.total();
    let again = guard.scope(async { mine.read().acquire_timeout(SHORT).await.unwrap() }).await;
    assert_eq!(a.faults.total(), calls, "no request");
    assert_eq!(truth(), (true, false));
    assert!(mine.read().try_acquire().await.unwrap().is_none(), "not outside the scope: a writer waits");
    assert_eq!(guard.release().await.unwrap(), Release::StillHeld);
    assert!(again.is_held() && !waiting.is_finished());
    release(again).await;
    assert_eq!(truth(), (false, false));
    release(finished(waiting).await.into()).await;
}

/// T18: entering again after the loss of the session is an error, for both kinds in both scopes; nothing is sent.
pub async fn t18_no_reentry_after_the_loss(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (mine, others) = (lock(case, &a), b.client.read_write_lock(case.path("other")).unwrap());
    let write = mine.write().acquire().await.unwrap();
    let read = others.read().acquire().await.unwrap();
    let inner = write.scope(async { mine.read().acquire().await.unwrap() }).await;
    case.store.expire(&a.connection).await;
    case.store.expire(&b.connection).await;
    assert_eq!(write.lost().await.kind(), ErrorKind::SessionLost);
    assert_eq!(read.lost().await.kind(), ErrorKind::SessionLost);
    let calls = (a.faults.total(), b.faults.total());
    let tries = [
        write.scope(async { mine.write().acquire().await.map(drop) }).await,
        write.scope(async { mine.read().try_acquire().await.map(drop) }).await,
        inner.scope(async { mine.read().acquire_timeout(LONG).await.map(drop) }).await,
        write.reenter().map(drop),
        inner.reenter().map(drop),
        read.scope(async { others.read().acquire().await.map(drop) }).await,
        read.scope(async { others.write().acquire().await.map(drop) }).await,
    ];
    assert!(tries.into_iter().all(|e| e.unwrap_err().kind() == ErrorKind::SessionLost));
    assert_eq!((a.faults.total(), b.faults.total()), calls);
    assert!(!mine.write().is_acquired_in_this_process() && !mine.read().is_acquired_in_this_process());
    case.until_session(&a, 2, zlock_core::SessionState::Connected).await;
    assert_eq!(write.release().await.unwrap(), Release::StillHeld);
    assert_eq!(inner.release().await.unwrap(), Release::AlreadyLost);
    assert_eq!(read.release().await.unwrap(), Release::AlreadyLost);
    assert_eq!((a.faults.total(), b.faults.total()), calls);
}

/// A mutex on the path of a read/write lock keeps readers and writers out, and they keep it out.
pub async fn a_mutex_on_the_same_path(case: &Case<'_>) {
    let [a, b] = case.processes().await;
    let (rw, mutex) = (lock(case, &a), case.lock::<InterProcessMutex>(&b, "lock"));
    let guard = mutex.acquire().await.unwrap();
    assert!(rw.read().try_acquire().await.unwrap().is_none());
    assert!(rw.write().acquire_timeout(SHORT).await.unwrap_err().is_timeout());
    let waiting = reader(case, &a, 2).await;
    release(guard).await;
    let guard = finished(waiting).await;
    assert!(mutex.try_acquire().await.unwrap().is_none());
    assert!(mutex.acquire_timeout(SHORT).await.unwrap_err().is_timeout());
    release(guard).await;
    release(mutex.acquire().await.unwrap()).await;
}
