//! Reports a session to its observer.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::observer::Observer;
use crate::session::{Session, SessionState};
use crate::session_events::SessionEvents;

/// Reports each change of the session's state, and the slack between two renewals, for ever. Reads no clock and does nothing
/// until there is an observer.
///
/// It is a part of the backend's own task. When that ends, the state it leaves behind is reported.
pub(crate) async fn report(events: SessionEvents) -> Infallible {
    let observer = events.observer().wait().await;
    let mut reporter = Reporter { events, observer, reported: None };
    loop {
        let changed = reporter.events.clone();
        let mut changed = pin!(changed.notified());
        changed.as_mut().enable();
        let session = reporter.events.current();
        reporter.changed(session);
        let slack = session.slack();
        // Before the first session there is nothing to lose.
        if session.epoch > 0 && !matches!(session.state, SessionState::Closed(_)) {
            reporter.observer.session_slack(slack);
        }
        match slack {
            Some(slack) if session.is_live() => {
                tokio::select! {
                    biased;
                    () = changed => {}
                    () = sleep(interval(slack)) => {}
                }
            }
            _ => changed.await,
        }
    }
}

/// The time until the slack is reported again: the less is left, the shorter.
fn interval(slack: Duration) -> Duration {
    (slack / 4).clamp(Duration::from_millis(20), Duration::from_secs(1))
}

struct Reporter {
    events: SessionEvents,
    observer: Arc<dyn Observer>,
    reported: Option<(u64, SessionState)>,
}

impl Reporter {
    fn changed(&mut self, session: Session) {
        let now = Some((session.epoch, session.state));
        if self.reported != now {
            self.reported = now;
            self.observer.session_changed(session);
            // Nothing is left to be lost, and that is no warning.
            if matches!(session.state, SessionState::Closed(_)) {
                self.observer.session_slack(None);
            }
        }
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        // A runtime that ends may drop it where there is no clock.
        let session = self.events.last_seen();
        self.changed(session);
    }
}
