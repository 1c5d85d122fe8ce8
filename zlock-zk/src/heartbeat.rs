//! The requests that keep a session alive.

use std::collections::BTreeSet;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::time::{Instant, timeout};
use zlock_core::{NodeId, NodeName};
use zookeeper_client::{Client, Error};

use crate::pages::pages;
use crate::session::{Freshness, Live, Shared, catch_up, own_id};

/// The purpose of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beat {
    /// The leader must answer, too. A follower answers even while its leader is paused. Such a leader ends sessions when it
    /// resumes, before its followers report that the sessions were alive. This also applies while the session owns no node:
    /// otherwise the first create after that would rely on an answer of a follower alone.
    Proof,
    /// The same, and a search for own nodes that other clients deleted.
    Search,
}

/// One of this many heartbeats also searches.
const SEARCH: u32 = 3;

impl Beat {
    /// Returns the kind of a session's heartbeat with this number.
    pub(crate) fn numbered(number: u32) -> Self {
        if number % SEARCH == SEARCH - 1 { Beat::Search } else { Beat::Proof }
    }
}

/// The time between heartbeats. The client library sends a ping whenever nothing was sent for about a fourteenth of the
/// session timeout. With this interval, it does so once between two heartbeats; with a longer one, it would more often.
pub(crate) fn interval(session_timeout: Duration) -> Duration {
    session_timeout * 7 / 40
}

/// A request in flight. Its answer proves that the session was live when the request was *sent*. The answers to the client
/// library's own pings are not visible to us.
pub(crate) struct Heartbeat {
    sent: Instant,
    answered: Pin<Box<dyn Future<Output = bool> + Send>>,
}

impl Heartbeat {
    /// Creates a request that is sent at the first poll, and abandoned after the time that the library takes for silence.
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

    /// Drops the heartbeat, whose connection is gone, after a last look at what was answered: a server that cannot list nodes
    /// says so and closes the connection at once.
    pub(crate) fn abandon(heartbeat: &mut Option<Heartbeat>) {
        if let Some(mut heartbeat) = heartbeat.take() {
            let _ = heartbeat.answered.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
    }

    /// Returns the time at which the heartbeat was sent, or `None` if it was not answered. Waits forever if there is none.
    pub(crate) async fn answer(heartbeat: &mut Option<Heartbeat>) -> Option<Instant> {
        match heartbeat {
            None => pending().await,
            Some(heartbeat) => heartbeat.answered.as_mut().await.then_some(heartbeat.sent),
        }
    }
}

/// Finds own nodes that other clients deleted. One request lists all of them unless there are too many. Then each search
/// lists the next ones.
async fn search(live: &Live, shared: &Shared) -> Result<(), Error> {
    let mark = shared.sessions.own().mark();
    shared.contents.retain(shared.sessions.own());
    if shared.sessions.own().is_empty() || !live.can_list() {
        return catch_up(live, Freshness::Latest).await;
    }
    let (pages, end) = pages(&shared.sessions.own().node_ids(), live.listed_up_to().as_ref());
    let synced = catch_up(live, Freshness::Latest);
    // Sent together with the `sync`: the order of the calls is the order on the wire.
    let listings: Vec<_> = pages.iter().map(|page| live.client.list_ephemerals(page.prefix())).collect();
    let mut present = BTreeSet::new();
    for listing in listings {
        match listing.await {
            Ok(paths) => present.extend(paths.iter().filter_map(|path| id_of(path))),
            // Servers before 3.6 do not have the request. They answer it before the `sync`, and close the connection.
            Err(Error::Unimplemented) => {
                live.cannot_list();
                return synced.await;
            }
            Err(error) => return Err(error),
        }
    }
    synced.await?;
    shared.sessions.own().compare_part(mark, &present, |id| pages.iter().any(|page| page.lists(id)));
    live.set_listed_up_to(end);
    Ok(())
}

/// The cheapest request whose answer is visible to us.
pub(crate) async fn ping(client: &Client) -> Result<(), Error> {
    match client.check_stat("/").await {
        // Newer servers check permissions here. A refusal is an answer as well.
        Ok(_) | Err(Error::NoAuth) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns the [`own_id`] of the node with this path at the server, if the name is one that zlock creates.
fn id_of(path: &str) -> Option<NodeId> {
    let (parent, name) = path.rsplit_once('/')?;
    Some(own_id(parent, &NodeName::parse(name)?.id))
}
