//! Releases a hold at the store, and leaves to the background what the store does not confirm.

pub(crate) mod reaper;
pub(crate) mod revocation;

use std::sync::Arc;

use tokio::time::timeout;
use zlock_core::{
    Consistency, CoordinationBackend, Deletion, Error, ErrorKind, GuardNode, LastFailure, LockPath, Result,
    SessionState, Target, Version, WriteOutcome,
};

use crate::hold::Hold;
use crate::place::cohort::{Ended, Turn};
use crate::place::pauses::{Pauses, connected};
use crate::place::succession::remove;
use crate::queue::Status;

/// The outcome of a release.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Release {
    /// The server has removed the node: the lock is free. With a [`Handoff`](crate::Handoff), also returned if another waiter
    /// of this client has the lock, or if the client is about to give it up.
    Released,
    /// Other guards of the same hold exist.
    StillHeld,
    /// The lock had been lost before, with its session or because its node was deleted. Another client may hold it.
    AlreadyLost,
    /// The server did not confirm the release. The backend keeps trying in the background until the server does, or
    /// until the session ends and the node with it.
    Pending,
}

/// Removes the node of a hold without guards.
pub(crate) async fn release(hold: &Arc<Hold>) -> Result<Release> {
    let unless_lost = |release| if hold.status() == Status::Live { release } else { Release::AlreadyLost };
    if hold.end_turn(Turn::pass_on) == Ended::PassedOn {
        return Ok(unless_lost(Release::Released));
    }
    let mut rest = Rest { hold, to_background: Hold::remove_in_background, done: false };
    if hold.status() != Status::Live {
        return Ok(Release::AlreadyLost);
    }
    let (client, target) = (hold.client(), hold.target());
    let next = hold.handle().and_then(|handle| handle.next());
    let last = LastFailure::default();
    let removal = last.observe(remove(client.backend(), hold.path(), &target, next));
    let deleted = tokio::select! {
        biased;
        () = not_connected(hold) => return Ok(unless_lost(Release::Pending)),
        deleted = timeout(client.response_timeout, removal) => deleted,
    };
    match deleted {
        Err(_) => Ok(pending(hold, last.get())),
        Ok(Ok(deletion)) => {
            rest.done = true;
            match deletion {
                Deletion::AlreadyDeleted => Ok(Release::AlreadyLost),
                _ => Ok(unless_lost(Release::Released)),
            }
        }
        Ok(Err(e)) => match e.kind() {
            ErrorKind::Closed | ErrorKind::SessionLost => Ok(Release::AlreadyLost),
            ErrorKind::Unavailable => Ok(pending(hold, Some(e))),
            _ => Err(e),
        },
    }
}

/// Logs why the store has not confirmed a release, if that is known.
fn pending(hold: &Hold, cause: Option<Error>) -> Release {
    if let Some(error) = cause {
        tracing::warn!(path = %hold.path(), %error, "the store has not confirmed the release yet");
    }
    Release::Pending
}

/// Writes a value, and in the same transaction removes the node of a hold without guards, if it is one that shares no node. While the
/// session lives, a write without an answer is repeated, and one that the store refuses for now is repeated once. Unless that
/// succeeds, the background removes the node.
pub(crate) async fn release_with_write(
    hold: &Arc<Hold>,
    is_last: bool,
    (values, path): (&dyn CoordinationBackend, &LockPath),
    expected: Version,
    data: &[u8],
) -> Result<()> {
    let mut rest = Rest { hold, to_background: Hold::remove_in_background, done: !is_last };
    hold.check("release")?;
    let Target::Node(node) = hold.target() else { return Ok(()) };
    let guard = GuardNode::new(hold.path().clone(), node.name.clone(), hold.fencing_token());
    // A node that is shared with waiters of this client stays: their turn follows.
    let deletes = is_last && !hold.shares_node();
    let guard = if deletes { guard.and_delete(node) } else { guard };
    let session = &hold.client().session;
    let (mut pauses, mut is_unsure, mut is_refused) = (Pauses::default(), false, false);
    let refused = loop {
        connected(session).await;
        match values.write_value(path, Some(expected), data, Some(&guard)).await {
            Ok(WriteOutcome::Written(_)) => break false,
            Ok(_) => break true,
            Err(error) => {
                is_unsure |= error.is_ambiguous();
                // A store that can be read has refused the write: a fence of the holder protects the node, for example. The second
                // time, the holder may be waiting for itself.
                let is_answered =
                    !error.is_ambiguous() && values.value(path, Consistency::Seen).await.is_ok();
                if is_answered && is_refused {
                    return Err(if is_unsure { error.ambiguous() } else { error });
                }
                is_refused = is_answered;
                pauses.after(error, hold.path(), session).await?;
            }
        }
    };
    if refused && !(is_unsure && is_written(hold, (values, path), data).await?) {
        hold.check("release")?;
        let message = "another client has taken the lock, or has written the value";
        let gone = Error::new(ErrorKind::NodeDeleted, "release").with_path(hold.path());
        return Err(gone.with_message(message));
    }
    // If the write was found by its bytes alone, they may be another program's.
    rest.done |= deletes && !refused;
    Ok(())
}

/// Returns `true` if the value is what was to be written: an attempt whose answer was lost has written it. Read again while the
/// session lives, unless there is an answer.
async fn is_written(
    hold: &Hold,
    (values, path): (&dyn CoordinationBackend, &LockPath),
    data: &[u8],
) -> Result<bool> {
    let (session, mut pauses) = (&hold.client().session, Pauses::default());
    loop {
        connected(session).await;
        match values.value(path, Consistency::Latest).await {
            Ok(value) => return Ok(value.is_some_and(|value| value.data == data)),
            // It is unknown whether the value was written.
            Err(error) => pauses.after(error.ambiguous(), hold.path(), session).await?,
        }
    }
}

/// Gives the node the label that the hold counts as. Fails only if the hold is lost; after any other failure, the background
/// keeps trying.
pub(crate) async fn relabel(hold: &Arc<Hold>) -> Result<()> {
    hold.check("downgrade")?;
    let mut rest = Rest { hold, to_background: Hold::relabel_in_background, done: false };
    if let Some((node, label)) = hold.pending_relabel() {
        let client = hold.client();
        tokio::select! {
            biased;
            () = not_connected(hold) => {}
            answer = timeout(client.response_timeout, client.backend().relabel(hold.path(), &node, label)) => {
                if let Ok(result) = answer {
                    hold.relabelled(&result);
                    rest.done = result.is_ok();
                }
            }
        }
    }
    hold.check("downgrade")
}

async fn not_connected(hold: &Hold) {
    hold.client().session.clone().until(|session| session.state != SessionState::Connected).await;
}

/// The remaining work, which goes to the background unless it is done.
struct Rest<'a> {
    hold: &'a Arc<Hold>,
    to_background: fn(&Arc<Hold>),
    done: bool,
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        if !self.done {
            (self.to_background)(self.hold);
        }
    }
}
