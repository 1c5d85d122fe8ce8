//! A read that sets a watch, on a connection that has room for it.

use std::future::Future;
use std::pin::Pin;

use zlock_core::ErrorKind;
use zlock_core::kit::SessionKey;
use zookeeper_client::{Client, Error, OneshotWatcher};

use crate::error::{Failure, classify};
use crate::operation::Operation;
use crate::session::{Freshness, Shared, catch_up};
use crate::watchers::Watched;
use crate::watching::Watching;

/// A request that reads and watches.
type Reading<'a, T> = Pin<Box<dyn Future<Output = Result<(T, OneshotWatcher), Error>> + Send + 'a>>;

/// Reads with `read`, which sets a watch, on whichever connection has room for the watch.
///
/// # Cancel safety
/// If the future is dropped, the request is still answered, and its watch removed. It keeps its room until then.
pub(crate) async fn read_armed<T: Send + 'static>(
    operation: &Operation<'_>,
    session: SessionKey,
    watched: Watched,
    read: for<'a> fn(&'a Client, &'a str) -> Reading<'a, T>,
) -> Result<(T, Watching), Failure> {
    let shared = operation.shared;
    let reservation = shared.watchers(session)?.reserve(watched).map_err(|failure| ended(shared, failure))?;
    let client =
        shared.sessions.run_until_ended(session, operation.budget.deadline(), reservation.client()).await?;
    let client = client.map_err(|failure| ended(shared, failure))?;
    let (is_other, gate) = (client.is_some(), shared.gate.clone());
    let until = operation.budget.deadline();
    let call = shared.begin(session, until, move |live| async move {
        let path = reservation.path();
        let (synced, read) = match &client {
            None => tokio::join!(catch_up(&live, Freshness::Told), read(&live.client, path)),
            // Its server may be behind ours, and ours behind its answer.
            Some(client) => {
                let answers = tokio::join!(client.sync("/"), read(client, path));
                live.staleness.suspect();
                answers
            }
        };
        let ahead = client.is_some().then(|| live.staleness.clone());
        let read = read.map(|(told, watcher)| (told, Watching::new(watcher, reservation, gate, ahead)));
        synced.and(read)
    });
    let answer = call.await?.seen_through().answer(until).await?;
    answer
        .map_err(|error| if is_other { to_failure(shared, error) } else { shared.to_failure(session, error) })
}

/// Returns the closing of the backend as the failure, if it is closed, since that is more informative.
fn ended(shared: &Shared, failure: Failure) -> Failure {
    match failure {
        Failure::Interrupted(_) => shared.sessions.interrupted().into(),
        failure => failure,
    }
}

/// Turns an error on a watch connection into a failure. The end of that connection is not the end of the session.
fn to_failure(shared: &Shared, error: Error) -> Failure {
    if let Some(closed) = shared.sessions.closed() {
        return closed.into();
    }
    if classify(&error).kind == ErrorKind::SessionLost {
        Failure::NotWatching(None)
    } else {
        Failure::Zk(error)
    }
}
