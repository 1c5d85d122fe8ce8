//! What is found by the poll alone.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use zlock_ledger::mem::{MemStore, Settings};

use super::{SECOND, client_of};

/// Without hints, a change is found by the next poll. Its period does not depend on the session timeout, or on when the last change was.
#[tokio::test(start_paused = true)]
async fn a_change_is_found_within_a_second() {
    for timeout in [2, 10, 30].map(Duration::from_secs) {
        let store = MemStore::new(Settings { hints: false, ..Settings::default() });
        let (watcher, _one) = client_of(&store, timeout).await;
        let (writer, _other) = client_of(&store, timeout).await;
        let value = writer.shared_value("/app/price").unwrap();
        let mut watch = watcher.shared_value("/app/price").unwrap().watch();
        for number in 0..30_u32 {
            sleep(number * Duration::from_millis(337)).await;
            let written = number.to_string().into_bytes();
            value.update(|_| Some(written.clone())).await.unwrap();
            let began = Instant::now();
            while watch.changed().await.unwrap().value.is_none_or(|value| value.data != written) {}
            let took = began.elapsed();
            assert!(took <= SECOND + SECOND / 10, "{timeout:?}: found after {took:?}");
        }
    }
}
