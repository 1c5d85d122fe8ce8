//! Heartbeats of sessions that the store keeps for a timeout after each.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::failure::Failure;
use super::session_loop::Over;
use super::sessions::{SessionKey, Sessions};
use crate::error::ErrorKind;

/// The pause after a heartbeat without an answer. It grows with the number of rounds in which no server has answered.
const PAUSE: Duration = Duration::from_millis(50);

/// The longest such pause, as a multiple of the first.
const MOST_PAUSES: u32 = 10;

/// A store's part of a heartbeat.
pub trait Beat: Send {
    /// The reason why a heartbeat has no answer.
    type Failure: Failure + Send;

    /// Sends a heartbeat, and waits for the answer within a limit. `at_rest` is what [`Beats::send`] returned. Returns whether the
    /// session is at rest at the store, or `None` if it is over.
    fn beat(
        &mut self,
        at_rest: bool,
        sent: Instant,
    ) -> impl Future<Output = Result<Option<bool>, Self::Failure>> + Send;

    /// Completes when there is a reason to send one early, such as a connection that broke.
    fn doubted(&mut self) -> impl Future<Output = ()> + Send;

    /// Returns the number of servers that may answer.
    fn servers(&self) -> usize;
}

/// When heartbeats are due and what follows from them: the decisions, without any I/O or clock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Beats {
    /// How long the session certainly lives after a heartbeat was sent.
    life: Duration,
    /// The time between two heartbeats, and that at rest.
    interval: Duration,
    resting: Duration,
    /// Whether the create of a first node renews the session, so that no heartbeat is due at once.
    creates_renew: bool,
    due: Instant,
    sent: Instant,
    /// The time at which the last one that was answered was sent, or the first that was not at rest.
    answered: Instant,
    at_rest: bool,
    /// Whether the next one has to prove that the session lives, even if it owns nothing.
    must_prove: bool,
    /// The number of consecutive ones that were sent early.
    early: u32,
    /// The number of consecutive ones without an answer.
    failures: u32,
}

/// What follows from a heartbeat without an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unanswered {
    /// No server has answered a heartbeat: the session is suspended, unless another request was answered since the last one was sent.
    pub suspend: bool,
    /// The store was silent for as long as the session certainly lives: at rest it is over. With a deadline it ends by that.
    pub give_up: bool,
}

impl Beats {
    /// Begins the heartbeats of a session whose begin was sent at `begun`. The first one is due at once, and proves that the session
    /// lives.
    #[must_use]
    pub fn new(begun: Instant, life: Duration, interval: Duration) -> Self {
        Beats {
            life,
            interval,
            resting: interval,
            creates_renew: false,
            due: begun,
            sent: begun,
            answered: begun,
            at_rest: false,
            must_prove: true,
            early: 0,
            failures: 0,
        }
    }

    /// For a session that begins at rest, with another time between two heartbeats while it rests, and is renewed by the create of
    /// its first node.
    #[must_use]
    pub fn resting(mut self, resting: Duration) -> Self {
        (self.resting, self.creates_renew, self.at_rest, self.must_prove) = (resting, true, true, false);
        self.due = self.sent + resting;
        self
    }

    /// Returns when the next one is due.
    #[must_use]
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Returns `true` if the last one was answered and the session is at rest, so that its first node changes when the next one is due.
    #[must_use]
    pub fn at_rest(&self) -> bool {
        self.at_rest && self.failures == 0
    }

    /// Records at `now` that the session owns a node, after it was at rest. The proof of a create may not last long. A heartbeat
    /// follows even if the node is gone by then, since with very short holds a bare heartbeat would follow each of them.
    pub fn woken(&mut self, now: Instant) {
        self.at_rest = false;
        if self.creates_renew {
            self.due = now + self.interval;
        } else {
            (self.due, self.must_prove) = (now, true);
        }
    }

    /// Returns when to send the next one if there is a reason to send it early: at once, unless that happens repeatedly. A proxy may
    /// end a connection after each answer.
    #[must_use]
    pub fn early(&self) -> Instant {
        self.due.min(self.sent + self.interval.min(PAUSE * ((1 << self.early.min(16)) - 1)))
    }

    /// Records that one is sent at `now`. Returns `true` if the session is at rest and need not be proved to live. `rests` puts it at
    /// rest if it owns nothing.
    pub fn send(&mut self, now: Instant, rests: impl FnOnce() -> bool) -> bool {
        self.at_rest = !self.must_prove && rests();
        self.early = if now < self.due { self.early + 1 } else { 0 };
        self.sent = now;
        self.at_rest
    }

    /// Records the answer to the last one. Returns the deadline that it proves, or `None` if the session is at rest.
    pub fn answered(&mut self, at_rest: bool) -> Option<Instant> {
        (self.answered, self.failures, self.must_prove, self.at_rest) = (self.sent, 0, false, at_rest);
        self.due = self.sent + if at_rest { self.resting } else { self.interval };
        (!at_rest).then(|| self.sent + self.life)
    }

    /// Records at `now` that the last one has no answer. There are this many servers that may give one.
    pub fn unanswered(&mut self, now: Instant, servers: usize) -> Unanswered {
        let servers = u32::try_from(servers.max(1)).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_add(1);
        // At rest, the silence begins with the first one that is not answered.
        if self.failures == 1 && self.at_rest {
            self.answered = self.answered.max(self.sent);
        }
        self.must_prove = !self.creates_renew;
        self.due = now + PAUSE * (self.failures / servers).clamp(1, MOST_PAUSES);
        Unanswered { suspend: self.failures >= servers, give_up: self.answered + self.life <= now }
    }
}

/// Keeps a session alive by heartbeats, and returns when it is over. `store` completes [`Beat::doubted`] only while they are answered.
///
/// A heartbeat that fails does not suspend a session that was [resumed](Sessions::resume) after the heartbeat was sent, since the store
/// has then answered another request.
///
/// # Cancel safety
/// Safe.
///
/// # Panics
/// Panics outside a tokio runtime with time enabled.
pub async fn keep_alive<T>(
    sessions: &Sessions<T>,
    session: SessionKey,
    mut beats: Beats,
    store: &mut impl Beat,
) -> Over {
    loop {
        tokio::select! {
            biased;
            () = sleep_until(beats.due()) => {}
            () = sessions.active(session), if beats.at_rest() => {
                beats.woken(Instant::now());
                continue;
            }
            () = store.doubted(), if beats.failures == 0 => tokio::select! {
                biased;
                () = sleep_until(beats.early()) => {}
                () = sessions.active(session), if beats.at_rest() => {
                    beats.woken(Instant::now());
                    continue;
                }
            },
        }
        let (sent, responses) = (Instant::now(), sessions.responses(session));
        let at_rest = beats.send(sent, || sessions.rest(session));
        match store.beat(at_rest, sent).await {
            Ok(Some(at_rest)) => {
                sessions.set_refused(session, false);
                let lives = match beats.answered(at_rest) {
                    Some(deadline) => sessions.extend(session, sent, deadline),
                    None => true,
                };
                if !lives || !sessions.resume(session) {
                    return Over::Lost;
                }
            }
            Ok(None) => return Over::Lost,
            Err(failure) => {
                sessions.set_refused(session, failure.classify().kind == ErrorKind::NotAuthorized);
                let Unanswered { suspend, give_up } = beats.unanswered(Instant::now(), store.servers());
                tracing::debug!(?failure, "no answer to a heartbeat");
                if suspend {
                    sessions.suspend_if_silent(session, responses);
                }
                if give_up {
                    sessions.give_up(session);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::sleep;

    use super::*;
    use crate::kit::Interrupted;
    use crate::nodes::node_id::NodeId;
    use crate::session::{SessionId, SessionState};

    const SECOND: Duration = Duration::from_secs(1);

    fn beats() -> Beats {
        Beats::new(Instant::now(), 9 * SECOND, 3 * SECOND)
    }

    /// Returns how many heartbeats are sent in a minute if their connection breaks this long after each answer.
    async fn sent_in_a_minute(lasts: Duration) -> u32 {
        let (began, mut sent) = (Instant::now(), 0);
        let mut beats = Beats::new(began, 30 * SECOND, 10 * SECOND);
        while began.elapsed() < 60 * SECOND {
            beats.send(Instant::now(), || false);
            beats.answered(false);
            sent += 1;
            sleep(lasts).await;
            sleep_until(beats.early()).await;
        }
        sent
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_breaks_after_each_answer_costs_little() {
        assert_eq!(sent_in_a_minute(Duration::from_millis(1)).await, 27);
        assert_eq!(sent_in_a_minute(9 * SECOND).await, 7);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_breaks_is_made_again_at_once() {
        let mut beats = beats();
        beats.send(Instant::now(), || false);
        beats.answered(false);
        sleep(SECOND).await;
        assert!(beats.early() <= Instant::now());
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_suspended_when_no_server_has_answered_and_given_up_after_its_life() {
        let mut beats = beats();
        let now = Instant::now();
        assert!(!beats.send(now, || true), "the first one proves that the session lives");
        assert_eq!(beats.answered(false), Some(now + 9 * SECOND));
        assert!(beats.send(now + 3 * SECOND, || true));
        let unanswered = |beats: &mut Beats, seconds| beats.unanswered(now + seconds * SECOND, 2);
        assert_eq!(unanswered(&mut beats, 4), Unanswered { suspend: false, give_up: false });
        assert!(!beats.send(now + 4 * SECOND, || true), "after a failure, the next one proves it, too");
        assert_eq!(unanswered(&mut beats, 5), Unanswered { suspend: true, give_up: false });
        assert_eq!(unanswered(&mut beats, 12), Unanswered { suspend: true, give_up: true });
        beats.send(now + 12 * SECOND, || true);
        assert_eq!(beats.answered(false), Some(now + 21 * SECOND));
        beats.send(now + 13 * SECOND, || true);
        assert_eq!(unanswered(&mut beats, 14), Unanswered::default());
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_node_is_followed_by_a_heartbeat_unless_its_create_renews_the_session() {
        let (now, mut etcd) = (Instant::now(), beats());
        etcd.send(now, || true);
        etcd.answered(true);
        assert!(etcd.at_rest());
        etcd.woken(now + SECOND);
        assert_eq!(etcd.due(), now + SECOND);
        assert!(!etcd.send(now + SECOND, || true), "even if the node is gone by then");
        let mut ledger = beats().resting(200 * SECOND);
        assert!(ledger.at_rest());
        assert_eq!(ledger.due(), now + 200 * SECOND);
        ledger.woken(now + SECOND);
        assert_eq!(ledger.due(), now + 4 * SECOND);
    }

    /// Breaks at once after each answer, which comes at once.
    struct Broken;

    impl Beat for Broken {
        type Failure = Interrupted;

        async fn beat(&mut self, at_rest: bool, _: Instant) -> Result<Option<bool>, Interrupted> {
            Ok(Some(at_rest))
        }

        async fn doubted(&mut self) {}

        fn servers(&self) -> usize {
            1
        }
    }

    /// Answers no heartbeat.
    struct Silent;

    impl Beat for Silent {
        type Failure = Interrupted;

        async fn beat(&mut self, _: bool, _: Instant) -> Result<Option<bool>, Interrupted> {
            sleep(SECOND).await;
            Err(Interrupted::TimedOut)
        }

        async fn doubted(&mut self) {
            pending().await
        }

        fn servers(&self) -> usize {
            1
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_heartbeat_that_fails_after_another_request_was_answered_suspends_nothing() {
        let sessions = Sessions::<()>::new("refused");
        let (key, _) = sessions.begin(SessionId::new(1), Instant::now() + 9 * SECOND, |_| ()).unwrap();
        let uses = async {
            let state = || sessions.session().state;
            sleep(SECOND / 2).await;
            assert!(sessions.resume(key));
            sleep(SECOND).await;
            assert_eq!(state(), SessionState::Connected, "the first one has failed");
            sleep(SECOND).await;
            assert_eq!(state(), SessionState::Suspended, "nothing was answered since the second one");
        };
        let mut silent = Silent;
        tokio::select! {
            biased;
            over = keep_alive(&sessions, key, beats(), &mut silent) => panic!("{over:?}"),
            () = uses => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_node_after_many_breaks_keeps_its_session() {
        let sessions = Sessions::<()>::new("refused");
        let (key, _) = sessions.begin(SessionId::new(1), Instant::now() + 9 * SECOND, |_| ()).unwrap();
        sessions.rest(key);
        let mut broken = Broken;
        let keeps = keep_alive(&sessions, key, beats().resting(200 * SECOND), &mut broken);
        let uses = async {
            // Far into the pauses between heartbeats whose connection breaks.
            sleep(60 * SECOND).await;
            let sent = Instant::now();
            sessions.insert_own(key, &NodeId::new("a"), sent + 9 * SECOND).unwrap();
            sleep(20 * SECOND).await;
            assert!(sessions.is_live(key));
        };
        tokio::select! {
            biased;
            over = keeps => panic!("{over:?}"),
            () = uses => {}
        }
    }
}
