//! Which failures of an outage are logged.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::time::Duration;

use tokio::time::Instant;

/// The time between two lines for failures whose causes were logged before.
const PAUSE: Duration = Duration::from_secs(60);

/// The number of causes that are remembered.
const MOST: usize = 16;

/// Decides which failures of one outage are logged: the first one, each with a new cause, and otherwise one a minute.
///
/// What is attempted until it succeeds has one of these, and replaces it with a new one after each success.
#[derive(Debug, Default)]
pub struct FailureLog {
    causes: BTreeSet<String>,
    last: Option<Instant>,
}

impl FailureLog {
    /// Records a failure. Returns `true` if it is to be logged.
    pub fn record(&mut self, failure: impl Display) -> bool {
        if self.causes.len() == MOST {
            self.causes.clear();
        }
        let is_new = self.causes.insert(failure.to_string());
        let is_due = is_new || self.last.is_none_or(|last| last.elapsed() >= PAUSE);
        if is_due {
            self.last = Some(Instant::now());
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_failure_each_new_cause_and_one_a_minute() {
        let (mut log, mut logged) = (FailureLog::default(), Vec::new());
        for second in 0..200 {
            // Two hosts take turns, and after a while they fail in another way.
            let cause = if second < 70 { ["refused", "silent"][second % 2] } else { "no quorum" };
            if log.record(cause) {
                logged.push(second);
            }
            advance(Duration::from_secs(1)).await;
        }
        assert_eq!(logged, [0, 1, 61, 70, 130, 190]);
    }

    #[test]
    fn few_causes_are_remembered() {
        let mut log = FailureLog::default();
        assert!((0..100).all(|number| log.record(number)));
        assert!(log.causes.len() <= MOST);
    }
}
