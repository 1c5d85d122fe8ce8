//! A read that sets a watch, on a connection that has room for it.

use std::future::Future;
use std::pin::Pin;

use zlock_core::kit::SessionKey;
use zlock_core::{Consistency, ErrorKind};
use zookeeper_client::{Client, Error, OneshotWatcher};

use crate::error::{Failure, classify};
use crate::operations::operation::{Leaves, Operation};
use crate::session::{Shared, catch_up};
use crate::watches::watchers::Watched;
use crate::watches::watching::Watching;

/// A request that reads and watches.
type Reading<'a, T> = Pin<Box<dyn Future<Output = Result<(T, OneshotWatcher), Error>> + Send + 'a>>;

/// Reads with `read`, which sets a watch, on whichever connection has room for the watch.
///
/// # Cancel safety
/// If the future is dropped, the request is still answered, and its watch removed. It keeps its room until then.
pub(crate) async fn read_armed<T: Send + 'static>(
    operation: &mut Operation<'_>,
    session: SessionKey,
    watched: Watched,
    read: for<'a> fn(&'a Client, &'a str) -> Reading<'a, T>,
) -> Result<(T, Watching), Failure> {
    let shared = operation.shared;
    let reservation = shared.watchers(session)?.reserve(watched).map_err(|failure| ended(shared, failure))?;
    let client =
        shared.sessions.run_until_ended(session, operation.budget.deadline(), reservation.client()).await?;
    let client = client.map_err(|failure| ended(shared, failure))?;
    let gate = shared.gate.clone();
    let read = operation.send(session, Leaves::Watch, move |live| async move {
        let path = reservation.path();
        let (synced, read) = match &client {
            None => tokio::join!(catch_up(&live, Consistency::Seen), read(&live.client, path)),
            // Its server may be behind ours, and ours behind its answer.
            Some(client) => {
                let answers = tokio::join!(client.sync("/"), read(client, path));
                live.staleness.suspect();
                answers
            }
        };
        let (is_other, ahead) = (client.is_some(), client.is_some().then(|| live.staleness.clone()));
        let read = read.map(|(told, watcher)| (told, Watching::new(watcher, reservation, gate, ahead)));
        synced.and(read).map_err(|error| if is_other { of_other(error) } else { Failure::Zk(error) })
    });
    read.await
}

/// Returns the closing of the backend as the failure, if it is closed, since that is more informative.
fn ended(shared: &Shared, failure: Failure) -> Failure {
    match failure {
        Failure::Interrupted(_) => shared.sessions.interrupted().into(),
        failure => failure,
    }
}

/// Returns what an error on a watch connection means. The end of that connection is not the end of the session.
fn of_other(error: Error) -> Failure {
    if classify(&error).kind == ErrorKind::SessionLost {
        Failure::NotWatching(None)
    } else {
        Failure::Zk(error)
    }
}
