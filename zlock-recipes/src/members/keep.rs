//! Keeps a member registered: again in each new session, and when an operator has deleted its node.

use std::pin::pin;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use tokio::sync::watch;
use zlock_core::kit::FailureLog;
use zlock_core::observer::MemberState;
use zlock_core::{
    CoordinationBackend, Error, ErrorKind, Flag, Job, Joined, LockPath, Mutex, Registration, Result,
    SessionEvents, SessionId,
};

use super::reports::MemberReports;
use crate::client::inner::ClientInner;
use crate::client::joined::JoinedId;
use crate::place::granted::lost;
use crate::place::pauses::PAUSES;

/// A member that is to be registered for as long as its owner wants.
#[derive(Debug)]
pub(super) struct Keep {
    pub(super) member: LockPath,
    pub(super) payload: Vec<u8>,
    pub(super) session: SessionEvents,
    pub(super) state: watch::Sender<State>,
    pub(super) reports: MemberReports,
    pub(super) client: Weak<ClientInner>,
    /// Raised when the owner wants no more.
    pub(super) leaving: Flag,
    /// Raised when nothing is registered from then on.
    pub(super) stopped: Flag,
    /// Dropped when the node is gone.
    pub(super) id: Mutex<Option<JoinedId>>,
}

#[derive(Clone, Debug)]
pub(super) enum State {
    Registered(Registration),
    /// To be registered again.
    Missing,
    Ended(Error),
}

impl Keep {
    pub(super) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    pub(super) fn set(&self, state: State) {
        let registered = matches!(state, State::Registered(_));
        self.state.send_replace(state);
        self.reports.show(Some(if registered { MemberState::Registered } else { MemberState::Missing }));
    }

    /// Waits until the membership has ended for good.
    pub(super) async fn ended(&self) -> Error {
        let mut state = self.state.subscribe();
        tokio::select! {
            biased;
            _ = state.wait_for(|state| matches!(state, State::Ended(_))) => {}
            // The backend ends its jobs.
            () = self.session.closed() => {}
        }
        if let State::Ended(error) = self.state() { error } else { closed(self) }
    }

    /// Begins to leave: nothing is registered from now on, except by what is under way.
    pub(super) fn leave(&self) {
        if let Some(id) = &*self.id.lock() {
            id.mark_leaving();
        }
        self.leaving.raise();
    }

    /// Records that nothing keeps the member any more.
    pub(super) fn stop(&self) {
        self.stopped.raise();
    }

    /// Removes the node once nothing is registered any more.
    pub(super) async fn remove(&self, groups: &dyn CoordinationBackend) -> Result<()> {
        self.stopped.raised().await;
        groups.leave(&self.member).await
    }

    /// Makes the ID free: the node is gone.
    pub(super) fn free(&self) {
        let id = self.id.lock().take();
        drop(id);
    }
}

/// Registers the member. Waits for an earlier session of this client to end, which may still own it.
///
/// `own` has the sessions in which it was registered or may have been.
pub(super) async fn register(
    groups: &dyn CoordinationBackend,
    keep: &Keep,
    replaces: bool,
    own: &mut Vec<SessionId>,
) -> Result<Registration> {
    let mut pauses = PAUSES.start();
    loop {
        match record_sessions(keep, own, groups.join(&keep.member, &keep.payload, replaces)).await? {
            Joined::Joined(registration) => return Ok(registration),
            Joined::Taken(Some(owner)) if own.contains(&owner) && owner != keep.session.current().id => {
                pauses.sleep().await;
            }
            Joined::Taken(owner) => {
                let message = match owner {
                    Some(owner) => format!("the session {owner} is a member with this ID"),
                    None => "a node that belongs to no session has this name".to_owned(),
                };
                return Err(Error::new(ErrorKind::Taken, "join")
                    .with_path(&keep.member)
                    .with_message(message));
            }
            _ => return Err(Error::new(ErrorKind::Unexpected, "join").with_path(&keep.member)),
        }
    }
}

/// Waits for a join, which may outlast a session, and records each one in which it may be sent.
async fn record_sessions<T>(keep: &Keep, own: &mut Vec<SessionId>, join: impl Future<Output = T>) -> T {
    let (mut session, mut join) = (keep.session.clone(), pin!(join));
    loop {
        let now = session.current().id;
        if !own.contains(&now) {
            own.push(now);
        }
        tokio::select! {
            biased;
            joined = &mut join => return joined,
            _ = session.changed() => {}
        }
    }
}

/// Keeps a member registered until it leaves, or another client has its ID.
#[derive(Debug)]
pub(super) struct KeepJob(pub(super) Arc<Keep>);

#[async_trait]
impl Job for KeepJob {
    async fn run(&self, backend: &dyn CoordinationBackend) {
        let keep = &*self.0;
        tokio::select! {
            biased;
            () = keep.leaving.raised() => {}
            () = keep.session.closed() => keep.set(State::Ended(closed(keep))),
            error = kept(backend, keep) => {
                let may_be_registered = error.is_ambiguous();
                if may_be_registered {
                    // Before the owner learns of the end: a join with the ID waits for the removal.
                    keep.leave();
                }
                keep.set(State::Ended(error));
                keep.stop();
                if may_be_registered {
                    remove_until_gone(backend, keep).await;
                }
            }
        }
        keep.stop();
        if matches!(keep.state(), State::Ended(_)) {
            keep.free();
        }
    }
}

fn closed(keep: &Keep) -> Error {
    Error::new(ErrorKind::Closed, "join").with_path(&keep.member)
}

/// Registers the member again and again. Returns the error that ends that, which is ambiguous if the node may be there.
async fn kept(groups: &dyn CoordinationBackend, keep: &Keep) -> Error {
    let (mut own, mut pauses, mut in_doubt) = (Vec::new(), PAUSES.start(), false);
    loop {
        if let State::Registered(registration) = keep.state() {
            own = vec![registration.session];
            lost(&keep.session, registration.epoch, &registration.deletion).await;
            tracing::warn!(member = %keep.member, "a member is no longer registered, and joins again");
            keep.set(State::Missing);
        }
        match register(groups, keep, false, &mut own).await {
            Ok(registration) => {
                keep.set(State::Registered(registration));
                (pauses, in_doubt) = (PAUSES.start(), false);
            }
            Err(error)
                if !matches!(
                    error.kind(),
                    ErrorKind::Unavailable | ErrorKind::Settling | ErrorKind::SessionLost
                ) =>
            {
                // An ID that is taken shows that nothing was left.
                return if in_doubt && error.kind() != ErrorKind::Taken { error.ambiguous() } else { error };
            }
            Err(error) => {
                in_doubt |= error.is_ambiguous();
                tracing::debug!(member = %keep.member, %error, "a member is not registered yet");
                pauses.sleep().await;
            }
        }
    }
}

/// Removes the node of a member that was dropped, or whose join was given up.
#[derive(Debug)]
pub(super) struct LeaveJob(pub(super) Arc<Keep>);

#[async_trait]
impl Job for LeaveJob {
    async fn run(&self, backend: &dyn CoordinationBackend) {
        self.0.stopped.raised().await;
        // If the membership has ended by itself, the job that kept it removes the node.
        if !matches!(self.0.state(), State::Ended(_)) {
            remove_until_gone(backend, &self.0).await;
            self.0.free();
        }
    }
}

/// Removes the node, when nothing is registered any more. Retries until it succeeds or the epoch is over. In both cases no node is
/// left. Gives up if the store refuses it and no handle of the client is left, so that the session can end.
async fn remove_until_gone(backend: &dyn CoordinationBackend, keep: &Keep) {
    // The last one in which the member may have been registered.
    let (mut session, epoch) = (keep.session.clone(), keep.session.epoch());
    let removed = async {
        let (mut pauses, mut log) = (PAUSES.start(), FailureLog::default());
        while let Err(error) = keep.remove(backend).await {
            if keep.client.strong_count() == 0 && !error.is_retryable() {
                tracing::warn!(member = %keep.member, %error, "a member could not be removed");
                return;
            }
            if log.record(&error) {
                tracing::warn!(member = %keep.member, %error, "a member could not be removed yet");
            }
            pauses.sleep().await;
        }
    };
    tokio::select! {
        biased;
        _ = session.ended(epoch) => {}
        () = removed => {}
    }
}
