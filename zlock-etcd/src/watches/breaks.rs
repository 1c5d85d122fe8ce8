//! The pauses between streams of watches that break in quick succession.
//!
//! A proxy may end each stream right after it was opened. All its watches fire then, and the waiters read again and open
//! the next stream. Without a pause, that would be a busy loop of requests and connections.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use zlock_core::{Mutex, Retry, RetryPolicy};

/// The shortest pause.
const PAUSE: Duration = Duration::from_millis(50);

/// The longest pause. A stream that breaks later than this after it could be opened costs none.
const LONGEST: Duration = Duration::from_secs(1);

/// The recent breaks of a backend's streams.
#[derive(Debug)]
pub(crate) struct Breaks {
    /// The pauses from the second break on.
    pauses: RetryPolicy,
    last: Mutex<Option<Break>>,
}

#[derive(Debug)]
struct Break {
    at: Instant,
    /// The time from which the next stream may be opened.
    next: Instant,
    retry: Retry,
}

impl Breaks {
    /// The longest pause is a quarter of the time of an operation, which may have to wait for three of them.
    pub(crate) fn new(operation_timeout: Duration) -> Self {
        let longest = LONGEST.min(operation_timeout / 4);
        Breaks { pauses: RetryPolicy::bounded_exponential(PAUSE, longest, u32::MAX), last: Mutex::new(None) }
    }

    /// Waits until the next stream may be opened: at once, unless several have broken in quick succession.
    pub(crate) async fn pause(&self) {
        let next = self.last.lock().as_ref().map(|last| last.next);
        if let Some(next) = next {
            sleep_until(next).await;
        }
    }

    /// Records that a stream has broken which was opened at this time.
    pub(crate) fn record(&self, opened: Instant) {
        let (now, mut last) = (Instant::now(), self.last.lock());
        match &mut *last {
            // Streams that break together count once.
            Some(last) if opened <= last.at => {}
            Some(last) if now < last.next + LONGEST => {
                last.at = now;
                last.next = now + last.retry.next_delay().unwrap_or(LONGEST);
            }
            _ => *last = Some(Break { at: now, next: now, retry: self.pauses.start() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Returns how many streams are opened in a minute if each breaks after this time.
    async fn opened_in_a_minute(life: Duration) -> u32 {
        let (began, breaks, mut opened) = (Instant::now(), Breaks::new(Duration::from_secs(15)), 0);
        while began.elapsed() < Duration::from_secs(60) {
            breaks.pause().await;
            let now = Instant::now();
            opened += 1;
            sleep(life).await;
            breaks.record(now);
        }
        opened
    }

    #[tokio::test(start_paused = true)]
    async fn streams_that_break_at_once_cost_little() {
        let opened = opened_in_a_minute(MS).await;
        assert!((60..200).contains(&opened), "{opened}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_has_lived_costs_no_pause() {
        assert_eq!(opened_in_a_minute(LONGEST).await, 60);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_break_costs_no_pause() {
        let (breaks, opened) = (Breaks::new(Duration::from_secs(15)), Instant::now());
        sleep(MS).await;
        // Two streams on the same connection.
        breaks.record(opened);
        breaks.record(opened);
        breaks.pause().await;
        assert_eq!(opened.elapsed(), MS);
        breaks.record(Instant::now() + MS);
        breaks.pause().await;
        assert!(opened.elapsed() >= PAUSE);
    }

    #[tokio::test(start_paused = true)]
    async fn no_pause_uses_up_the_time_of_an_operation() {
        let breaks = Breaks::new(80 * MS);
        for _ in 0..100 {
            let opened = Instant::now();
            sleep(MS).await;
            breaks.record(opened);
            breaks.pause().await;
            assert!(opened.elapsed() <= 21 * MS, "{:?}", opened.elapsed());
        }
    }
}
