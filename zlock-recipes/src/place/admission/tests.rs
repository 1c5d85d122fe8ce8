//! The rules of admission, in paused time.

use std::future::ready;
use std::iter::from_fn;
use std::pin::Pin;

use tokio::time::advance;
use zlock_core::observer::{AcquireOutcome, LockLabels, Observer};
use zlock_core::{ErrorKind, Phase};
use zlock_mem::{MemServer, Operation};

use super::*;
use crate::Client;

const MS: Duration = Duration::from_millis(1);

/// The time that an answer takes.
const ANSWER: Duration = Duration::from_millis(10);

type Waits = Pin<Box<dyn Future<Output = Admitted>>>;

/// Begins to wait until a create is admitted. `left` is the time that the acquisition has left.
async fn create(admission: &Arc<Admission>, left: Option<Duration>) -> Waits {
    let (admission, deadline) = (admission.clone(), left.map(|left| Instant::now() + left));
    let mut waits: Waits = Box::pin(async move { admission.create(deadline).await });
    assert!(given(&mut waits).await.is_none(), "admitted without waiting");
    waits
}

/// Returns the admission if it was given.
async fn given(waits: &mut Waits) -> Option<Admitted> {
    tokio::select! {
        biased;
        admitted = waits => Some(admitted),
        () = ready(()) => None,
    }
}

/// Admits creates as long as it is possible.
fn all(admission: &Arc<Admission>) -> Vec<Admitted> {
    from_fn(|| admission.create_now(None)).collect()
}

/// Has at least this many creates answered, with as many in flight as possible.
async fn answer(admission: &Arc<Admission>, creates: usize) {
    let mut answered = 0;
    while answered < creates {
        let round = all(admission);
        advance(ANSWER).await;
        answered += round.len();
        round.into_iter().for_each(Admitted::answered);
    }
}

fn limit(admission: &Arc<Admission>) -> f64 {
    admission.0.lock().limit
}

#[tokio::test(start_paused = true)]
async fn first_come_first_served() {
    let admission = Arc::new(Admission::default());
    let mut held = all(&admission);
    assert_eq!(held.len(), AT_FIRST as usize);
    let (mut first, mut second) = (create(&admission, None).await, create(&admission, None).await);
    held.pop();
    assert!(admission.create_now(None).is_none(), "nobody overtakes");
    assert!(given(&mut second).await.is_none());
    assert!(given(&mut first).await.is_some());
    assert!(given(&mut second).await.is_some(), "the first one has ended");
    // Even room that comes free by the time that passes is for the first that waits.
    held.extend(all(&admission));
    let mut third = create(&admission, None).await;
    advance(3 * SILENT).await;
    assert!(admission.create_now(None).is_none());
    assert!(given(&mut third).await.is_some());
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn the_room_of_a_cancelled_waiter_is_passed_on() {
    let admission = Arc::new(Admission::default());
    let mut held = all(&admission);
    let (cancelled, first) = (create(&admission, None).await, create(&admission, None).await);
    let mut second = create(&admission, None).await;
    drop(cancelled);
    held.pop();
    // It was given, but not yet received.
    drop(first);
    assert!(given(&mut second).await.is_some());
    drop(held);
    let state = admission.0.lock();
    assert_eq!((state.creates.count(), state.waiting.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn clean_ups_come_first_and_wait_for_no_create() {
    let admission = Arc::new(Admission::default());
    let held = all(&admission);
    let mut waits = create(&admission, None).await;
    let mut clean_ups = Vec::new();
    for _ in 0..held.len() {
        let mut clean_up: Waits = Box::pin({
            let admission = admission.clone();
            async move { admission.clean_up().await }
        });
        clean_ups.push(given(&mut clean_up).await.expect("creates keep no clean-up waiting"));
    }
    let mut last: Waits = Box::pin({
        let admission = admission.clone();
        async move { admission.clean_up().await }
    });
    assert!(given(&mut last).await.is_none());
    drop(held);
    assert!(given(&mut waits).await.is_none(), "a create began while a clean-up waits");
    clean_ups.pop();
    let _last = given(&mut last).await.expect("a clean-up has ended");
    assert!(given(&mut waits).await.is_none(), "a create began beside as many clean-ups as the limit");
    clean_ups.clear();
    assert!(given(&mut waits).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_create_counts_until_its_node_is_gone() {
    let admission = Arc::new(Admission::default());
    let mut held = all(&admission);
    let mut abandoned = held.pop().unwrap();
    abandoned.abandon();
    // Long after a create in flight would no longer count.
    drop(held);
    advance(10 * SILENT).await;
    let held = all(&admission);
    assert_eq!(held.len(), limit(&admission) as usize - 1);
    let mut waits = create(&admission, None).await;
    assert!(!abandoned.is_stuck());
    advance(STUCK - 10 * SILENT).await;
    assert!(abandoned.is_stuck());
    drop(abandoned);
    assert!(given(&mut waits).await.is_some());
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_create_that_is_silent_for_long_keeps_no_other_waiting() {
    let admission = Arc::new(Admission::default());
    let held = all(&admission);
    let waits = create(&admission, None).await;
    let began = Instant::now();
    // Without any event but the time that passes.
    let admitted = timeout(10 * SILENT, waits).await.expect("room");
    assert!(began.elapsed() >= SILENT && began.elapsed() <= 3 * SILENT, "{:?}", began.elapsed());
    drop(admitted);
    // Their ends are not counted twice.
    drop(held);
    assert_eq!(admission.0.lock().creates.count(), 0);
    assert_eq!(all(&admission).len(), AT_FIRST as usize);
}

#[tokio::test(start_paused = true)]
async fn no_create_begins_in_vain() {
    let admission = Arc::new(Admission::default());
    answer(&admission, 1).await;
    let soon = Some(Instant::now() + ANSWER - MS);
    // The only one in flight measures again.
    let only = admission.create_now(soon).unwrap();
    assert!(admission.create_now(soon).is_none());
    assert!(admission.create_now(Some(Instant::now() + ANSWER)).is_some());
    // Who has waited needs a reserve.
    let mut held = all(&admission);
    let (mut late, mut later) =
        (create(&admission, Some(ANSWER)).await, create(&admission, Some(ANSWER + MS)).await);
    let mut in_time = create(&admission, Some(2 * ANSWER)).await;
    held.pop();
    assert!(given(&mut late).await.is_none());
    let admitted = given(&mut in_time).await.expect("the one that has enough time left");
    held.push(admitted);
    // When it could be answered after all, the one with the most time left comes first.
    drop((held, only));
    assert!(given(&mut late).await.is_none());
    let admitted = given(&mut later).await.expect("nothing else is in flight");
    assert!(given(&mut late).await.is_none(), "that one measures");
    drop(admitted);
    assert!(given(&mut late).await.is_some());
}

#[derive(Debug, Default)]
struct Ends(Mutex<Vec<AcquireOutcome>>);

impl Observer for Ends {
    fn acquisition_ended(&self, _: LockLabels<'_>, outcome: AcquireOutcome, _: Duration) {
        self.0.lock().push(outcome);
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_to_be_admitted_sends_nothing_and_learns_why() {
    let (server, ends) = (MemServer::new(), Arc::new(Ends::default()));
    let client = Client::new(server.connect());
    client.observe(ends.clone()).unwrap();
    let mutex = client.mutex("/app/orders").unwrap();
    let _held = all(&client.inner().admission);
    let error = mutex.acquire_timeout(2 * ANSWER).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Queueing));
    assert!(error.to_string().contains("more creates wait to be admitted"), "{error}");
    assert_eq!((server.requests(Operation::Create), client.pending_cleanups()), (0, 0));
    let waiter = tokio::spawn(async move { mutex.acquire().await.map(drop) });
    advance(ANSWER).await;
    client.close().await.unwrap();
    assert_eq!(waiter.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(*ends.0.lock(), [AcquireOutcome::Timeout, AcquireOutcome::Error]);
}
