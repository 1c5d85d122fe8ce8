//! Reports the state of a session to its observer.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::observer::Observer;
use crate::session::events::SessionEvents;
use crate::session::{Session, SessionState};

/// Reports each change of the session's state, and the slack between two renewals. Never completes. Until an observer is set,
/// it does nothing and reads no clock.
///
/// This runs as part of the backend's own task. When that task ends, the session's last state is reported.
pub(crate) async fn report(events: SessionEvents) -> Infallible {
    let observer = events.observer().wait().await;
    let mut reporter = Reporter { events, observer, reported: None };
    loop {
        let published = reporter.events.published.clone();
        let changed = published.changed.notified();
        let session = reporter.events.current();
        reporter.changed(session);
        let slack = session.slack();
        // Before the first session, nothing can be lost.
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

/// Returns the time until the next report of the slack, which is shorter when less slack is left.
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
            // After `Closed`, no lock can be lost: clear the slack, so that it causes no alert.
            if matches!(session.state, SessionState::Closed(_)) {
                self.observer.session_slack(None);
            }
        }
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        // A runtime that shuts down may drop this without a clock.
        let session = self.events.last_seen();
        self.changed(session);
    }
}
