//! Looking at the leader, once or for as long as needed.

use std::sync::Arc;

use zlock_core::{Error, ErrorKind, FencingToken, LockPath, Result, Watch};

use crate::client::inner::ClientInner;
use crate::place::granted::no_token;
use crate::place::pauses::PAUSES;
use crate::view::{Follower, Freshness, Source};

/// The leader of an election.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// The value that the leader has proclaimed last.
    pub value: Vec<u8>,
    /// The number of its term, which is larger than those of all terms before.
    pub term: FencingToken,
}

/// The leader as a [`LeaderWatch`] sees it.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderView {
    /// The leader, or `None` if nobody leads.
    pub leader: Option<Leader>,
    /// Whether the leader may have changed unnoticed.
    pub freshness: Freshness,
}

/// A view of an election's leader that follows its changes. Created by [`Election::observe`](crate::Election::observe).
///
/// It shows the latest leader and may skip earlier ones, but never goes back to an earlier term. It survives reconnections and
/// new sessions. Each change costs one read of the queue and one of the leader's value, which is one request on etcd. A
/// candidate that joins behind the leader costs nothing.
///
/// If a store is restored to an older state, its terms begin again with smaller numbers. The view then stays stale.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> zlock::Result<()> {
/// # let client = zlock::connect("mem://").await?;
/// use zlock::Freshness;
///
/// let election = client.election("/app/leader")?.with_value("10.0.0.7:80")?;
/// let mut leaders = election.observe();
/// assert_eq!(leaders.changed().await?.leader, None);
/// let led = election.campaign().await?;
/// let view = leaders.changed().await?;
/// assert_eq!(view.freshness, Freshness::Fresh);
/// assert_eq!(view.leader.unwrap().value, b"10.0.0.7:80");
/// # led.resign().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LeaderWatch(Follower<Heads>);

impl LeaderWatch {
    pub(super) fn new(client: &Arc<ClientInner>, path: &LockPath) -> Self {
        let heads = Heads { client: client.clone(), path: path.clone(), newest: None };
        LeaderWatch(Follower::new(heads, client.session.clone()))
    }

    /// Waits until the view differs from the one that was returned last, and returns it. The first call returns the current
    /// leader, or `None` at once if nobody leads. The view changes with the leader, its value, and its [`Freshness`].
    ///
    /// Nothing is followed between two calls, so a view that was returned long ago may be out of date.
    ///
    /// # Errors
    /// [`Closed`](ErrorKind::Closed), [`NotAuthorized`](ErrorKind::NotAuthorized), [`Unexpected`](ErrorKind::Unexpected). While
    /// no server answers, the view is stale, which is not an error.
    ///
    /// # Cancel safety
    /// Safe: a view that was not returned is returned by the next call.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    ///
    /// # Examples
    /// See [`LeaderWatch`].
    pub async fn changed(&mut self) -> Result<LeaderView> {
        let (leader, freshness) = self.0.changed().await?;
        Ok(LeaderView { leader, freshness })
    }
}

/// The head of an election's queue, and the newest term that it had.
#[derive(Debug)]
struct Heads {
    client: Arc<ClientInner>,
    path: LockPath,
    newest: Option<FencingToken>,
}

impl Source for Heads {
    type Seen = Option<Leader>;

    async fn read(&mut self) -> Result<(Option<Leader>, Watch)> {
        let (head, watch) = self.client.backend().head_with_watch(&self.path).await?;
        let leader = head.map(|head| Leader { value: head.data, term: head.fencing_token });
        let term = leader.as_ref().map(|leader| leader.term);
        if term.is_some_and(|term| Some(term) < self.newest) {
            let message = "the server shows a leader of an earlier term";
            return Err(Error::new(ErrorKind::Unavailable, "observe")
                .with_path(&self.path)
                .with_message(message));
        }
        self.newest = self.newest.max(term);
        Ok((leader, watch))
    }
}

/// Reads the leader without a watch.
pub(super) async fn leader(client: &ClientInner, path: &LockPath) -> Result<Option<Leader>> {
    let backend = client.backend();
    let (mut pauses, mut rounds) = (PAUSES.start(), 0_u32);
    loop {
        // A store whose servers contradict each other may list a head that another request does not find.
        if rounds > 1 {
            pauses.sleep().await;
        }
        rounds += 1;
        let queue = backend.children(path, None).await?;
        let Some(head) = queue.first() else { return Ok(None) };
        // A head that was deleted since the listing has a successor, or nobody leads.
        let Some(data) = backend.data(path, head).await? else { continue };
        let term = head.fencing_token.or(data.fencing_token).ok_or_else(|| no_token("leader", path))?;
        return Ok(Some(Leader { value: data.data, term }));
    }
}

#[cfg(test)]
mod tests {
    use zlock_mem::MemServer;

    use super::*;
    use crate::{Client, Leadership};

    const PATH: &str = "/app/leader";

    async fn leads(client: &Client) -> Leadership {
        client.election(PATH).unwrap().campaign().await.unwrap()
    }

    /// A second store stands for the first one as it was earlier.
    #[tokio::test(start_paused = true)]
    async fn an_earlier_term_is_refused() {
        let [client, restored] = [(); 2].map(|()| Client::new(MemServer::new().connect()));
        let path = LockPath::new(PATH).unwrap();
        let mut heads = Heads { client: client.inner().clone(), path, newest: None };
        for _ in 0..2 {
            leads(&client).await.resign().await.unwrap();
        }
        let newest = leads(&client).await;
        assert_eq!(heads.read().await.unwrap().0.unwrap().term, newest.term());
        heads.client = restored.inner().clone();
        // Also after a look at which nobody led.
        for _ in 0..2 {
            let earlier = leads(&restored).await;
            assert!(earlier.term() < newest.term());
            assert_eq!(heads.read().await.unwrap_err().kind(), ErrorKind::Unavailable);
            earlier.resign().await.unwrap();
            assert_eq!(heads.read().await.unwrap().0, None);
        }
        let same = leads(&restored).await;
        assert_eq!(heads.read().await.unwrap().0.unwrap().term, newest.term());
        same.resign().await.unwrap();
        newest.resign().await.unwrap();
    }
}
