//! The requests that keep a session alive.
//!
//! They also find own nodes that are gone: those on the page that a heartbeat lists.

use std::collections::BTreeSet;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::time::{Instant, timeout};
use zlock_core::{Consistency, NodeId, NodeName};
use zookeeper_client::{Client, Error, MultiWriteError};

use crate::session::pages::pages;
use crate::session::{ANY_VERSION, Live, Shared, catch_up, own_id};

/// Whose answer a heartbeat needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beat {
    /// That of the leader: a `sync`. A follower answers even while its leader is stopped. Such a leader ends sessions when it
    /// continues, before its followers report that the sessions were alive. This also applies while the session owns no node:
    /// otherwise the first create after that would rely on an answer of a follower alone.
    Proof,
    /// That of a majority: a transaction that checks an own node. A leader that was replaced answers a `sync`.
    Write,
}

/// One of this many heartbeats also searches for own nodes that other clients deleted. The writes find that of one node.
const SEARCH: u32 = 6;

/// One of this many heartbeats of a session that owns nodes is a write, unless the session writes anyway. The deadline does
/// not suffer: it counts from an earlier moment anyway, because of the followers' reports.
const WRITE: u32 = 4;

/// The time between heartbeats. The client library sends a ping whenever nothing was sent for 3/8 of its connection timeout.
/// That is somewhat longer, so there are none.
pub(crate) fn interval(session_timeout: Duration) -> Duration {
    session_timeout * 7 / 80
}

/// Returns the longest time between two writes of a session that owns nodes, as long as no heartbeat is late.
pub(crate) fn unwritten(session_timeout: Duration) -> Duration {
    interval(session_timeout) * (WRITE - 1)
}

impl Beat {
    /// Returns which heartbeat a session needs whose last write was sent at this instant.
    fn choose(owns_nodes: bool, written: Instant, interval: Duration) -> Self {
        if owns_nodes && written.elapsed() > interval * (WRITE - 1) + interval / 2 {
            Beat::Write
        } else {
            Beat::Proof
        }
    }
}

/// A request in flight. Its answer proves that the session was live when the request was *sent*. The answers to the client
/// library's own pings are not visible to us.
pub(crate) struct Heartbeat {
    sent: Instant,
    beat: Beat,
    answered: Pin<Box<dyn Future<Output = bool> + Send>>,
}

impl Heartbeat {
    /// Creates a request that is sent at the first poll, and abandoned after the time that the library takes for silence.
    pub(crate) fn new(live: Arc<Live>, shared: Arc<Shared>, session_timeout: Duration, number: u32) -> Self {
        let (owns_nodes, written) = (!shared.sessions.own().is_empty(), live.touches.lock().written());
        let beat = Beat::choose(owns_nodes, written, interval(session_timeout));
        let searches = owns_nodes && number % SEARCH == SEARCH - 1;
        let sent = Instant::now();
        let request = async move {
            if searches {
                return search(&live, &shared, beat).await;
            }
            ask(&live, &shared, beat).await
        };
        let answered =
            async move { timeout(session_timeout * 2 / 5, request).await.is_ok_and(|r| r.is_ok()) };
        Heartbeat { sent, beat, answered: Box::pin(answered) }
    }

    /// Drops the heartbeat, whose connection is gone, after a last look at what was answered: a server that cannot list nodes
    /// says so and closes the connection at once.
    pub(crate) fn abandon(heartbeat: &mut Option<Heartbeat>) {
        if let Some(mut heartbeat) = heartbeat.take() {
            let _ = heartbeat.answered.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
    }

    /// Returns the time at which the heartbeat was sent, and which one it was, or `None` if it was not answered. Waits forever if there
    /// is none.
    pub(crate) async fn answer(heartbeat: &mut Option<Heartbeat>) -> Option<(Instant, Beat)> {
        match heartbeat {
            None => pending().await,
            Some(heartbeat) => heartbeat.answered.as_mut().await.then_some((heartbeat.sent, heartbeat.beat)),
        }
    }
}

/// Sends the request of a heartbeat.
async fn ask(live: &Live, shared: &Shared, beat: Beat) -> Result<(), Error> {
    match beat {
        Beat::Proof => catch_up(live, Consistency::Latest).await,
        Beat::Write => write(live, shared).await,
    }
}

/// Has a majority check that an own node exists, and reports one that does not.
async fn write(live: &Live, shared: &Shared) -> Result<(), Error> {
    let own = shared.sessions.own();
    let mark = own.mark();
    shared.names.retain(own);
    let id = live.next_to_check(&own.node_ids());
    live.was_checked.store(true, Ordering::Relaxed);
    // The node that each server has, while the name of a node is not known.
    let path = id.as_ref().and_then(|id| path_of(id, &shared.names.get(id)?));
    if !check(&live.client, path.as_deref().unwrap_or("/")).await? {
        own.compare_part(mark, &BTreeSet::new(), |own| id.as_ref() == Some(own));
    }
    Ok(())
}

/// Writes nothing, with the consent of a majority. Returns `false` if there is no node with this path.
pub(crate) async fn check(client: &Client, path: &str) -> Result<bool, Error> {
    let mut transaction = client.new_multi_writer();
    transaction.add_check_version(path, ANY_VERSION)?;
    match transaction.commit().await {
        Ok(_) => Ok(true),
        Err(MultiWriteError::OperationFailed { source: Error::NoNode, .. }) => Ok(false),
        // A majority agrees that this client may not read it.
        Err(MultiWriteError::OperationFailed { source: Error::NoAuth, .. }) => Ok(true),
        Err(error) => Err(Error::from(error)),
    }
}

/// Finds own nodes that other clients deleted. One request lists all of them unless there are too many. Then each search
/// lists the next ones. A single node is found by the writes, unless another session may own a node of its name by now.
async fn search(live: &Live, shared: &Shared, beat: Beat) -> Result<(), Error> {
    let mark = shared.sessions.own().mark();
    shared.contents.retain(shared.sessions.own());
    let ids = shared.sessions.own().node_ids();
    let is_place = |id| shared.names.get(id).is_some_and(|name| NodeName::parse(name.as_str()).is_some());
    let is_found_by_writes = ids.len() <= 1 && ids.iter().all(is_place);
    if is_found_by_writes || !live.can_list() {
        // A session that writes anyway needs no heartbeat that writes, and would never check its nodes.
        let beat = if live.was_checked.swap(false, Ordering::Relaxed) { beat } else { Beat::Write };
        return ask(live, shared, beat).await;
    }
    let (pages, end) = pages(&ids, live.listed_up_to.lock().clone().as_ref());
    let listed = async {
        let listings: Vec<_> = pages.iter().map(|page| live.client.list_ephemerals(page.prefix())).collect();
        let mut present = BTreeSet::new();
        for listing in listings {
            present.extend(listing.await?.iter().filter_map(|path| id_of(path)));
        }
        Ok(present)
    };
    // The order of the first polls is the order on the wire. So the server has caught up when it lists.
    let (asked, listed) = tokio::join!(biased; ask(live, shared, beat), listed);
    let present = match listed {
        Ok(present) => present,
        // Servers before 3.6 do not have the request. They answer it before the other one, and close the connection.
        Err(Error::Unimplemented) => {
            live.cannot_list();
            return asked;
        }
        Err(error) => return Err(error),
    };
    asked?;
    shared.sessions.own().compare_part(mark, &present, |id| pages.iter().any(|page| page.lists(id)));
    *live.listed_up_to.lock() = end;
    Ok(())
}

/// Returns the path at the server of the own node with this [`own_id`] and name.
fn path_of(id: &NodeId, name: &NodeName) -> Option<String> {
    let (parent, _) = id.as_str().rsplit_once('/')?;
    Some([parent, "/", name.as_str()].concat())
}

/// Returns the ID by which the session knows the node with this path at the server: that of a member of a group is the path.
fn id_of(path: &str) -> Option<NodeId> {
    let (parent, name) = path.rsplit_once('/')?;
    Some(NodeName::parse(name).map_or_else(|| NodeId::new(path), |parsed| own_id(parent, &parsed.id)))
}
