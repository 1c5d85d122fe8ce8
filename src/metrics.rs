//! Metrics of a client for the crate [`metrics`](https://docs.rs/metrics), whose exporters serve Prometheus, OpenTelemetry and
//! others.
//!
//! | metric | kind | unit | labels beside `store` |
//! |---|---|---|---|
//! | `zlock.lock.wait.duration` | histogram | seconds | `kind`, `name`, `outcome` |
//! | `zlock.lock.waiting` | gauge | acquisitions | `kind`, `name` |
//! | `zlock.lock.hold.duration` | histogram | seconds | `kind`, `name` |
//! | `zlock.lock.held` | gauge | locks | `kind`, `name` |
//! | `zlock.lock.losses` | counter | locks | `kind`, `name`, `reason` |
//! | `zlock.election.term` | gauge | number of the last term of this client | `name` |
//! | `zlock.election.wins` | counter | terms of this client | `name` |
//! | `zlock.job.runs` | counter | runs of this client | `name`, `outcome` |
//! | `zlock.job.lateness` | histogram | seconds | `name` |
//! | `zlock.job.skipped` | counter | ticks | `name` |
//! | `zlock.job.last.success` | gauge | seconds since 1970 | `name` |
//! | `zlock.job.period` | gauge | seconds | `name` |
//! | `zlock.member.state` | gauge | memberships of this client | `name`, `state` |
//! | `zlock.session.state` | gauge | 1 for the current state, 0 for all others | `state` |
//! | `zlock.session.slack` | gauge | seconds | |
//! | `zlock.session.life` | gauge | seconds | |
//! | `zlock.session.renewal.duration` | histogram | seconds | |
//! | `zlock.store.request.duration` | histogram | seconds | `operation`, `error.type` |
//!
//! The guide's page on metrics explains each metric and suggests alerts. The names follow the conventions of OpenTelemetry.
//! Exporters for Prometheus replace dots with underscores. With recommended naming they also append the unit and `_total`:
//! `zlock_lock_wait_duration_seconds`, `zlock_lock_losses_total`.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use tokio::time::Instant;
use zlock_core::observer::{AcquireOutcome, JobOutcome, LockLabels, MemberState, Observer, RequestOutcome};
use zlock_core::{CloseReason, ErrorKind, FencingToken, Mutex, Session, SessionState};

/// Upper bounds of histogram buckets in seconds, for exporters that need them. They range from a request to a fast store to a
/// wait of minutes.
pub const BUCKETS: [f64; 18] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0,
    300.0,
];

/// How long a small slack stays visible: for half of this time at least, which is longer than the interval between scrapes.
const WINDOW: Duration = Duration::from_secs(60);

/// The values of the label `state`.
const STATES: [&str; 5] = ["connected", "suspended", "lost", "closed", "not_authorized"];

/// The values of the label `state` of memberships.
const MEMBER_STATES: [MemberState; 2] = [MemberState::Registered, MemberState::Missing];

/// The values of the label `outcome` of jobs.
const JOB_OUTCOMES: [JobOutcome; 3] = [JobOutcome::Done, JobOutcome::Failed, JobOutcome::Lost];

/// Records the measurements of a client with the global or local recorder of the crate [`metrics`](https://docs.rs/metrics).
///
/// Every metric has the label `store`, the name passed to [`new`](Self::new). Use one observer for each client, with different
/// names, because the gauges of the session describe a single client.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock::Result<()> {
/// # if cfg!(not(feature = "mem")) { return Ok(()); }
/// use std::sync::Arc;
///
/// use zlock::metrics::MetricsObserver;
///
/// // Install a recorder first, such as that of metrics-exporter-prometheus.
/// let client = zlock::connect("mem://").await?;
/// client.observe(Arc::new(MetricsObserver::new("mem")))?;
/// client.mutex("/app/orders/42")?.with_metric_name("orders").acquire().await?.release().await?;
/// # Ok(())
/// # }
/// ```
pub struct MetricsObserver {
    store: Arc<str>,
    slack: Mutex<Least>,
}

impl MetricsObserver {
    /// Creates an observer for a client. `store` is the value of the label `store`, such as `etcd` or `locks-eu`. Describes all
    /// metrics to the recorder.
    ///
    /// # Examples
    /// ```
    /// use zlock::metrics::MetricsObserver;
    ///
    /// let observer = MetricsObserver::new("locks-eu");
    /// # let _ = observer;
    /// ```
    #[must_use]
    pub fn new(store: impl Into<Arc<str>>) -> Self {
        describe();
        MetricsObserver { store: store.into(), slack: Mutex::default() }
    }

    fn store(&self) -> Arc<str> {
        self.store.clone()
    }
}

impl fmt::Debug for MetricsObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsObserver").field("store", &self.store).finish_non_exhaustive()
    }
}

fn describe() {
    for (name, text) in [
        ("zlock.lock.wait.duration", "Time from the start of an acquisition to its end"),
        ("zlock.lock.hold.duration", "Time from the grant of a lock to its release or loss"),
        ("zlock.job.lateness", "Time from the tick of a job to its claim"),
        ("zlock.session.renewal.duration", "Time until the store responded to a renewal of the session"),
        ("zlock.store.request.duration", "Duration of an operation on the store, including retries"),
    ] {
        describe_histogram!(name, Unit::Seconds, text);
    }
    for (name, text) in [
        ("zlock.lock.waiting", "Acquisitions in progress"),
        ("zlock.lock.held", "Locks that are held"),
        ("zlock.election.term", "Number of the last term that this client won"),
        ("zlock.member.state", "Memberships of this client in each state"),
        ("zlock.session.state", "1 for the current state of the session, 0 for all others"),
    ] {
        describe_gauge!(name, text);
    }
    for (name, text) in [
        ("zlock.lock.losses", "Held locks that were lost"),
        ("zlock.election.wins", "Terms that this client won"),
        ("zlock.job.runs", "Runs of jobs by this client"),
        ("zlock.job.skipped", "Ticks of jobs that were missed and not run"),
    ] {
        describe_counter!(name, text);
    }
    for (name, text) in [
        ("zlock.job.last.success", "Last tick whose run ended without an error, on any machine, since 1970"),
        ("zlock.job.period", "Longest time between two ticks of a job"),
        ("zlock.session.slack", "Minimum time left until the session's deadline, within the last minute"),
        ("zlock.session.life", "Time from the last renewal of the session to its deadline"),
    ] {
        describe_gauge!(name, Unit::Seconds, text);
    }
}

/// Records a metric with the labels `store`, `kind` and `name` of a lock, and others.
macro_rules! of_lock {
    ($metric:ident, $name:literal, $this:ident, $lock:ident $(, $label:literal => $value:expr)*) => {
        $metric!($name, "store" => $this.store(), "kind" => $lock.kind, "name" => $lock.name.to_owned() $(, $label => $value)*)
    };
}

impl Observer for MetricsObserver {
    fn acquisition_started(&self, lock: LockLabels<'_>) {
        of_lock!(gauge, "zlock.lock.waiting", self, lock).increment(1.0);
    }

    fn acquisition_ended(&self, lock: LockLabels<'_>, outcome: AcquireOutcome, waited: Duration) {
        of_lock!(gauge, "zlock.lock.waiting", self, lock).decrement(1.0);
        of_lock!(histogram, "zlock.lock.wait.duration", self, lock, "outcome" => outcome.as_str())
            .record(waited);
    }

    fn hold_started(&self, lock: LockLabels<'_>) {
        of_lock!(gauge, "zlock.lock.held", self, lock).increment(1.0);
        // A counter that first appears with a loss would show no increase.
        for reason in [ErrorKind::SessionLost, ErrorKind::NodeDeleted, ErrorKind::NotAuthorized] {
            of_lock!(counter, "zlock.lock.losses", self, lock, "reason" => reason.as_str()).increment(0);
        }
    }

    fn hold_ended(&self, lock: LockLabels<'_>, held: Duration) {
        of_lock!(gauge, "zlock.lock.held", self, lock).decrement(1.0);
        of_lock!(histogram, "zlock.lock.hold.duration", self, lock).record(held);
    }

    fn lock_lost(&self, lock: LockLabels<'_>, reason: ErrorKind) {
        of_lock!(counter, "zlock.lock.losses", self, lock, "reason" => reason.as_str()).increment(1);
    }

    fn term_started(&self, election: LockLabels<'_>, term: FencingToken) {
        let name = election.name.to_owned();
        // Exact up to 2^53, as every gauge.
        let term = term.number() as f64;
        gauge!("zlock.election.term", "store" => self.store(), "name" => name.clone()).set(term);
        counter!("zlock.election.wins", "store" => self.store(), "name" => name).increment(1);
    }

    fn session_changed(&self, session: Session) {
        let present = match session.state {
            SessionState::Connected => "connected",
            SessionState::Suspended => "suspended",
            // The client does not try again, so this is not the end that the user asked for.
            SessionState::Closed(CloseReason::AuthFailed) => "not_authorized",
            SessionState::Closed(_) => "closed",
            _ => "lost",
        };
        for state in STATES {
            let value = if state == present { 1.0 } else { 0.0 };
            gauge!("zlock.session.state", "store" => self.store(), "state" => state).set(value);
        }
    }

    fn session_slack(&self, slack: Option<Duration>) {
        let least = |slack| {
            let mut least = self.slack.lock();
            least.of(Instant::now(), slack).as_secs_f64()
        };
        // A rest does not clear the minimum: otherwise, it would hide a dip right before it.
        let least = slack.map_or(f64::NAN, least);
        gauge!("zlock.session.slack", "store" => self.store()).set(least);
    }

    fn session_renewed(&self, duration: Duration, life: Duration) {
        histogram!("zlock.session.renewal.duration", "store" => self.store()).record(duration);
        gauge!("zlock.session.life", "store" => self.store()).set(life);
    }

    fn job_ended(&self, name: &str, outcome: JobOutcome, late: Duration) {
        let name = name.to_owned();
        counter!("zlock.job.runs", "store" => self.store(), "name" => name.clone(), "outcome" => outcome.as_str())
            .increment(1);
        histogram!("zlock.job.lateness", "store" => self.store(), "name" => name).record(late);
    }

    fn job_skipped(&self, name: &str, ticks: u64) {
        counter!("zlock.job.skipped", "store" => self.store(), "name" => name.to_owned()).increment(ticks);
    }

    fn job_last_done(&self, name: &str, tick: SystemTime, period: Duration) {
        let name = name.to_owned();
        let since = tick.duration_since(UNIX_EPOCH).unwrap_or_default();
        gauge!("zlock.job.last.success", "store" => self.store(), "name" => name.clone()).set(since);
        gauge!("zlock.job.period", "store" => self.store(), "name" => name.clone()).set(period);
        // A counter that first appears with a failure would show no increase.
        for outcome in JOB_OUTCOMES {
            counter!("zlock.job.runs", "store" => self.store(), "name" => name.clone(), "outcome" => outcome.as_str())
                .increment(0);
        }
        counter!("zlock.job.skipped", "store" => self.store(), "name" => name).increment(0);
    }

    fn member_changed(&self, group: &str, before: Option<MemberState>, now: Option<MemberState>) {
        for state in MEMBER_STATES {
            let of = |other: Option<MemberState>| f64::from(u8::from(other == Some(state)));
            gauge!("zlock.member.state", "store" => self.store(), "name" => group.to_owned(), "state" => state.as_str())
                .increment(of(now) - of(before));
        }
    }

    fn request_ended(&self, operation: &'static str, duration: Duration, outcome: RequestOutcome) {
        let error = match outcome {
            RequestOutcome::Failed(kind) => kind.as_str(),
            RequestOutcome::Cancelled => "cancelled",
            _ => "",
        };
        histogram!("zlock.store.request.duration", "store" => self.store(), "operation" => operation, "error.type" => error)
            .record(duration);
    }
}

/// The minimum of the values in the last half to whole window.
#[derive(Debug, Default)]
struct Least {
    /// When `new` was started.
    since: Option<Instant>,
    new: Option<Duration>,
    old: Option<Duration>,
}

impl Least {
    /// Adds a value and returns the minimum.
    fn of(&mut self, now: Instant, value: Duration) -> Duration {
        let age = self.since.map(|since| now.saturating_duration_since(since));
        if age.is_none_or(|age| age >= WINDOW / 2) {
            self.old = self.new.take().filter(|_| age.is_some_and(|age| age < WINDOW));
            self.since = Some(now);
        }
        let new = self.new.map_or(value, |new| new.min(value));
        self.new = Some(new);
        self.old.map_or(new, |old| old.min(new))
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;
    use tokio::time::advance;

    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_slack_is_shown_for_longer_than_a_scrape_takes() {
        let (began, mut least) = (Instant::now(), Least::default());
        assert_eq!(least.of(began, seconds(5)), seconds(5));
        assert_eq!(least.of(began + seconds(29), seconds(1)), seconds(1));
        // With a renewal each second, the dip is visible for at least half a minute.
        for second in 30..=59 {
            assert_eq!(least.of(began + seconds(second), seconds(6)), seconds(1), "{second}");
        }
        assert_eq!(least.of(began + seconds(61), seconds(6)), seconds(6));
        // Values older than the window do not count, even after a long gap.
        assert_eq!(least.of(began + seconds(300), seconds(7)), seconds(7));
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_slack_is_shown_again_after_a_rest() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let (metrics, observer) = (recorder.handle(), MetricsObserver::new("test"));
        let shown = |slack| {
            ::metrics::with_local_recorder(&recorder, || observer.session_slack(slack));
            let text = metrics.render();
            let line = text.lines().find(|line| line.starts_with("zlock_session_slack{")).unwrap();
            line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()
        };
        assert_eq!(shown(Some(seconds(1))), 1.0);
        assert!(shown(None).is_nan());
        advance(seconds(10)).await;
        assert_eq!(shown(Some(seconds(6))), 1.0);
        assert!(shown(None).is_nan());
        advance(seconds(120)).await;
        assert_eq!(shown(Some(seconds(6))), 6.0);
    }
}
