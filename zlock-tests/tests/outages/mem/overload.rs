//! A client with more tasks than its store can serve. In paused time, the figures are the same in each run.

use std::time::Duration;

use tokio::task::JoinSet;
use zlock::Client;
use zlock::mem::{MemServer, Operation};
use zlock_suite::overload::{Counted, Ending, overload};

/// The time that the server takes for each request. A lock that is acquired and released takes three.
const SERVICE_TIME: Duration = Duration::from_micros(100);

const LATENCY: Duration = Duration::from_millis(1);

async fn run(tasks: usize, ending: Ending) -> Counted {
    let server = MemServer::new();
    let backend = server.connect();
    backend.link().delay(LATENCY, LATENCY);
    backend.link().slow_down(SERVICE_TIME);
    let counted = overload(&Client::new(backend), tasks, ending, 5000).await;
    counted.check();
    counted
}

/// Checks that many tasks are granted at least seven tenths of what a few are granted.
async fn levels_off(ending: Ending) {
    let few = run(50, ending).await;
    for tasks in [200, 1000] {
        let many = run(tasks, ending).await;
        assert!(few.elapsed * 10 >= many.elapsed * 7, "{few:?}, {many:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn levels_off_when_guards_are_released() {
    levels_off(Ending::Release).await;
}

#[tokio::test(start_paused = true)]
async fn levels_off_when_guards_are_dropped() {
    levels_off(Ending::Drop).await;
}

#[tokio::test(start_paused = true)]
async fn repeats_itself() {
    let (one, two) = (run(200, Ending::Drop).await, run(200, Ending::Drop).await);
    assert_eq!((one.late, one.elapsed), (two.late, two.elapsed));
}

/// The size of a listing grows with the queue, so listings in proportion to the tasks would cost the square of their number.
#[tokio::test(start_paused = true)]
async fn a_crowd_on_one_lock_lists_the_queue_rarely() {
    const TASKS: u64 = 5000;
    let server = MemServer::new();
    let mutex = Client::new(server.connect()).mutex("/crowd").unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let mutex = mutex.clone();
        tasks.spawn(async move { mutex.run(async {}).await.unwrap() });
    }
    tasks.join_all().await;
    let counts = server.request_counts();
    assert!(server.requests(Operation::List) < TASKS / 10, "{counts:?}");
}
