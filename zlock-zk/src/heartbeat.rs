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

/// One request under way. Its answer tells that the session lived when it was *sent*; the client library's own
/// pings say nothing that we can see.
pub(crate) struct Heartbeat {
    sent: Instant,
    answered: Pin<Box<dyn Future<Output = bool> + Send>>,
}

impl Heartbeat {
    /// A request that is sent at the first poll, and given up after what the library takes for silence.
    pub(crate) fn new(live: Arc<Live>, shared: Arc<Shared>, session_timeout: Duration) -> Self {
        let sent = Instant::now();
        let beat = async move { beat(&live, &shared).await };
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

/// Keeps the session alive, and finds own nodes that somebody deleted. One request lists all of them, as long as they
/// are not too many; then each heartbeat lists the next ones.
///
/// The leader has to answer, too, by the `sync`: a follower answers while its leader stands still, which ends
/// sessions when it wakes, before it hears from its followers that they were alive.
async fn beat(live: &Live, shared: &Shared) -> Result<(), Error> {
    let mark = shared.sessions.own().mark();
    shared.contents.retain(shared.sessions.own());
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
