//! The savings of succession, on stores whose `delete` hands over.

use super::succession::{at, granted, release, waiter};
use crate::{Call, Case, Process, Side};

fn counts(process: &Process) -> [usize; 4] {
    [Call::Create, Call::Exists, Call::Children, Call::Delete].map(|call| process.faults.count(call))
}

/// No watch and no second listing: one create and one removal each.
pub async fn costs_two_calls(case: &Case<'_>) {
    let (a, path) = (case.process().await, case.path("lock"));
    let mut held = at(&a, &path).acquire().await.unwrap();
    let one = waiter(case, &a, &path, 2).await;
    let two = waiter(case, &a, &path, 3).await;
    for next in [one, two] {
        let before = held.fencing_token();
        release(held).await;
        held = granted(next).await;
        assert!(held.fencing_token() > before);
    }
    release(held).await;
    assert_eq!(counts(&a), [3, 0, 0, 3]);
}

/// The same when the guard is dropped.
pub async fn by_a_dropped_guard(case: &Case<'_>) {
    let (a, path) = (case.process().await, case.path("lock"));
    let held = at(&a, &path).acquire().await.unwrap();
    let next = waiter(case, &a, &path, 2).await;
    drop(held);
    release(granted(next).await).await;
    assert_eq!(counts(&a), [2, 0, 0, 2]);
}

/// The answer to the create of the first place arrives later than that of the second.
pub async fn answers_in_another_order(case: &Case<'_>) {
    let ([a, b], path) = (case.processes().await, case.path("lock"));
    for is_cancelled in [false, true] {
        let before = counts(&a);
        let held = at(&b, &path).acquire().await.unwrap();
        let gate = a.faults.hold(Call::Create, Side::After);
        let lock = at(&a, &path);
        let first = tokio::spawn(async move { lock.acquire().await });
        gate.reached().await;
        let lock = at(&a, &path);
        let second = tokio::spawn(async move { lock.acquire().await });
        case.until_queued(&path, 3).await;
        case.until("the second create is answered", async || a.faults.under_way() == 1).await;
        if is_cancelled {
            first.abort();
            release(held).await;
        } else {
            gate.open();
            case.until("the first one watches", async || a.faults.count(Call::Exists) > before[1]).await;
            release(held).await;
            release(granted(first).await).await;
        }
        release(granted(second).await).await;
        if !is_cancelled {
            assert_eq!(counts(&a), [2, 1, 1, 2]);
        }
    }
}
