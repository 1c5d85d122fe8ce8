//! The requests that a session lives by.

use std::collections::BTreeSet;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use zlock_core::{NodeId, NodeName};
use zookeeper_client::{Client, Error};

use crate::pages::pages;
use crate::session::{Freshness, Live, Shared, catch_up, own_id};

/// What a heartbeat is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beat {
    /// The leader has to answer, too. A follower answers while its leader stands still, which ends sessions when it wakes,
    /// before it hears from its followers that they were alive. So also while the session owns no node: the first create
    /// after that would rest on what a follower alone has answered.
    Proof,
    /// The same, and a search for own nodes that were deleted by others.
    Search,
}

/// How many heartbeats prove that the session lives, for each that also searches.
const SEARCH: u32 = 3;

impl Beat {
    /// The kind of a session's heartbeat of this number.
    pub(crate) fn numbered(number: u32) -> Self {
        if number % SEARCH == SEARCH - 1 { Beat::Search } else { Beat::Proof }
    }
}

/// The time between heartbeats. The client library pings whenever nothing was sent for a fourteenth of the session timeout or
/// so. After a heartbeat it does so once before the next; with a slower heartbeat it would more often than that.
pub(crate) fn interval(session_timeout: Duration) -> Duration {
    session_timeout * 7 / 40
}

/// One request under way. Its answer tells that the session lived when it was *sent*; the client library's own
/// pings say nothing that we can see.
pub(crate) struct Heartbeat {
    sent: Instant,
    answered: Pin<Box<dyn Future<Output = bool> + Send>>,
}

impl Heartbeat {
    /// A request that is sent at the first poll, and given up after what the library takes for silence.
    pub(crate) fn new(live: Arc<Live>, shared: Arc<Shared>, session_timeout: Duration, kind: Beat) -> Self {
        let sent = Instant::now();
        let beat = async move {
            match kind {
                Beat::Proof => catch_up(&live, Freshness::Latest).await,
                Beat::Search => search(&live, &shared).await,
            }
        };
        let answered = async move { timeout(session_timeout * 2 / 5, beat).await.is_ok_and(|r| r.is_ok()) };
        Heartbeat { sent, answered: Box::pin(answered) }
    }

    /// When the heartbeat was sent, once it is answered; `None` when it was not. Waits for ever if there is none.
    pub(crate) async fn answer(heartbeat: &mut Option<Heartbeat>) -> Option<Instant> {
        match heartbeat {
            None => pending().await,
            Some(heartbeat) => heartbeat.answered.as_mut().await.then_some(heartbeat.sent),
        }
    }
}

/// Finds own nodes that were deleted by others. One request lists all of them, as long as they are not too many; then
/// each search lists the next ones.
async fn search(live: &Live, shared: &Shared) -> Result<(), Error> {
    let mark = shared.sessions.own().mark();
    shared.contents.retain(shared.sessions.own());
    if shared.sessions.own().is_empty() {
        return catch_up(live, Freshness::Latest).await;
    }
    let (pages, end) = pages(&shared.sessions.own().node_ids(), live.listed_up_to().as_ref());
    let synced = catch_up(live, Freshness::Latest);
    // Sent with the `sync`: the order of calls is the order on the wire.
    let listings: Vec<_> = pages.iter().map(|page| live.client.list_ephemerals(page.prefix())).collect();
    synced.await?;
    let mut present = BTreeSet::new();
    for listing in listings {
        match listing.await {
            Ok(paths) => present.extend(paths.iter().filter_map(|path| id_of(path))),
            // Servers before 3.6: an answer, if no list.
            Err(Error::Unimplemented) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    shared.sessions.own().compare_part(mark, &present, |id| pages.iter().any(|page| page.lists(id)));
    live.set_listed_up_to(end);
    Ok(())
}

/// The cheapest question whose answer we see.
pub(crate) async fn ping(client: &Client) -> Result<(), Error> {
    match client.check_stat("/").await {
        // Newer servers check permissions here: an answer all the same.
        Ok(_) | Err(Error::NoAuth) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The [`own_id`] of the node with this path at the server, if it has a name of ours.
fn id_of(path: &str) -> Option<NodeId> {
    let (parent, name) = path.rsplit_once('/')?;
    Some(own_id(parent, &NodeName::parse(name)?.id))
}
