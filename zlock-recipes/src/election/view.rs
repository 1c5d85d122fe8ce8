//! The leader as it was seen last, without a request.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use zlock_core::{Error, Result};

use crate::election::observe::{LeaderView, LeaderWatch};
use crate::view::Freshness;

/// The current leader, for code that must not wait for the store, such as the handler of a request. Created by
/// [`Election::view`](crate::Election::view).
///
/// A task follows the leader as [`LeaderWatch`] does, and [`now`](Self::now) returns what it has seen last. During an outage, that is the last
/// leader, and how long ago the connection was last known to work. Clones share the task, which ends when the last of them is dropped.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock::Result<()> {
/// # let client = zlock::connect("mem://").await?;
/// use zlock::Freshness;
///
/// let election = client.election("/app/leader")?.with_value("10.0.0.7:80")?;
/// let mut live = election.view();
/// let led = election.campaign().await?;
/// while live.now().leader.is_none() {
///     live.changed().await?;
/// }
/// let view = live.now(); // no request
/// assert_eq!((&*view.leader.unwrap().value, view.freshness), (&b"10.0.0.7:80"[..], Freshness::Fresh));
/// # led.resign().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LiveLeader {
    seen: watch::Receiver<Seen>,
    _follower: Arc<Follower>,
}

#[derive(Debug)]
struct Seen {
    view: LeaderView,
    /// Why nothing is followed any more.
    end: Option<Error>,
}

#[derive(Debug)]
struct Follower(AbortHandle);

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl LiveLeader {
    pub(super) fn new(mut leaders: LeaderWatch) -> Self {
        let unknown = LeaderView { leader: None, freshness: Freshness::StaleSince(Instant::now()) };
        let (sender, seen) = watch::channel(Seen { view: unknown, end: None });
        let follower = tokio::spawn(async move {
            loop {
                match leaders.changed().await {
                    Ok(view) => sender.send_replace(Seen { view, end: None }),
                    Err(error) => break sender.send_modify(|seen| seen.end(error)),
                };
            }
        });
        LiveLeader { seen, _follower: Arc::new(Follower(follower.abort_handle())) }
    }

    /// Returns the leader as it was seen last. Sends nothing and never waits. Before the first answer of the store, and after
    /// [`changed`](Self::changed) has failed, the view is [stale](Freshness::StaleSince).
    #[must_use]
    pub fn now(&self) -> LeaderView {
        self.seen.borrow().view.clone()
    }

    /// Waits until the view differs from the one that this call has returned last, and returns it. A clone begins with the one at which it
    /// was cloned. The view changes with the leader, its value, and its [`Freshness`].
    ///
    /// # Errors
    /// Those of [`LeaderWatch::changed`]. Nothing is followed from then on.
    ///
    /// # Cancel safety
    /// Safe: a view that was not returned is returned by the next call.
    pub async fn changed(&mut self) -> Result<LeaderView> {
        // The task sends the reason before it ends, unless the runtime has ended it.
        let ended = self.seen.changed().await.is_err();
        let seen = self.seen.borrow_and_update();
        match &seen.end {
            Some(error) => Err(error.clone()),
            None if ended => Err(Error::new(zlock_core::ErrorKind::Closed, "view")),
            None => Ok(seen.view.clone()),
        }
    }
}

impl Seen {
    fn end(&mut self, error: Error) {
        if self.view.freshness == Freshness::Fresh {
            self.view.freshness = Freshness::StaleSince(Instant::now());
        }
        self.end = Some(error);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;
    use zlock_core::ErrorKind;
    use zlock_mem::MemServer;

    use crate::Client;
    use crate::view::Freshness;

    #[tokio::test(start_paused = true)]
    async fn a_view_waits_for_nothing() {
        let server = MemServer::new();
        let backend = server.connect();
        let link = backend.link();
        let (follower, other) = (Client::new(backend), Client::new(server.connect()));
        let mut live = follower.election("/leader").unwrap().view();
        assert!(matches!(live.now().freshness, Freshness::StaleSince(_)), "nothing is known yet");
        assert_eq!(live.changed().await.unwrap().freshness, Freshness::Fresh);

        let election = other.election("/leader").unwrap();
        let first = election.campaign().await.unwrap();
        let leader = live.changed().await.unwrap().leader.unwrap();
        assert_eq!(leader.term, first.term());

        // The store is gone: the last leader is still shown, and that it may be another one.
        link.cut();
        let view = live.changed().await.unwrap();
        assert_eq!(view.leader.as_ref(), Some(&leader));
        assert!(matches!(view.freshness, Freshness::StaleSince(_)), "{view:?}");
        first.resign().await.unwrap();
        let second = election.campaign().await.unwrap();
        assert_eq!(live.now(), view);
        let limit = Duration::from_millis(10);
        let error = follower.election("/leader").unwrap().leader_timeout(limit).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout(zlock_core::Phase::Connecting), "{error}");
        link.heal();
        let mut view = live.now();
        while view.leader.as_ref().map(|leader| leader.term) != Some(second.term()) {
            view = live.changed().await.unwrap();
            assert!(view.leader.as_ref().is_none_or(|shown| shown.term >= leader.term));
        }

        follower.close().await.unwrap();
        let mut clone = live.clone();
        for live in [&mut live, &mut clone] {
            let error = loop {
                match live.changed().await {
                    Ok(_) => {}
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), ErrorKind::Closed);
        }
        assert!(matches!(live.now().freshness, Freshness::StaleSince(_)));
        let again = timeout(Duration::from_secs(1), live.changed()).await.unwrap();
        assert_eq!(again.unwrap_err().kind(), ErrorKind::Closed);
    }
}
