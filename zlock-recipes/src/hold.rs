//! A lock that is held: what all guards of it share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;
use zlock_core::{Error, ErrorKind, FencingToken, GoneNotice, LockPath, Node, Session, SessionState, Target};

use crate::client::ClientInner;
use crate::queue::Standing;

/// What a grant rests on.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) node: Node,
    pub(crate) epoch: u64,
    pub(crate) fencing_token: FencingToken,
    pub(crate) gone: GoneNotice,
}

/// One grant, and how many guards stand on it. The last guard out releases it.
#[derive(Debug)]
pub(crate) struct Hold {
    client: Arc<ClientInner>,
    path: LockPath,
    granted: Granted,
    entries: AtomicUsize,
    released: Notify,
}

impl Hold {
    /// A hold with one entry.
    pub(crate) fn new(client: Arc<ClientInner>, path: LockPath, granted: Granted) -> Arc<Self> {
        let (entries, released) = (AtomicUsize::new(1), Notify::new());
        let hold = Arc::new(Hold { client, path, granted, entries, released });
        hold.client.register(&hold);
        hold
    }

    pub(crate) fn path(&self) -> &LockPath {
        &self.path
    }

    pub(crate) fn client(&self) -> &Arc<ClientInner> {
        &self.client
    }

    pub(crate) fn fencing_token(&self) -> FencingToken {
        self.granted.fencing_token
    }

    pub(crate) fn target(&self) -> Target {
        Target::Node(self.granted.node.clone())
    }

    /// One more entry; `false` when the last one has left already.
    pub(crate) fn enter(&self) -> bool {
        let one_more = |n| if n == 0 { None } else { Some(n + 1) };
        self.entries.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_ok()
    }

    /// One entry less; `true` when it was the last.
    pub(crate) fn leave(&self) -> bool {
        let last = self.entries.fetch_sub(1, Ordering::AcqRel) == 1;
        if last {
            self.client.unregister(self);
            self.released.notify_waiters();
        }
        last
    }

    fn is_entered(&self) -> bool {
        self.entries.load(Ordering::Acquire) > 0
    }

    /// How the node stands, whether or not anybody stands on the hold. Local.
    pub(crate) fn standing(&self) -> Standing {
        standing(self.client.session.current(), self.granted.epoch, &self.granted.gone)
    }

    /// Own epoch live, deadline not passed, node not reported gone. Local.
    pub(crate) fn is_held(&self) -> bool {
        self.is_entered() && self.standing() == Standing::Good
    }

    /// Hands the node over to the reaper.
    pub(crate) fn remove_in_background(&self) {
        self.client.reaper.remove(self.path.clone(), self.target(), self.granted.epoch);
    }

    /// Waits until the lock is not held any more, and says why.
    pub(crate) async fn lost(&self) -> Error {
        let mut session = self.client.session.clone();
        let mut gone = self.granted.gone.clone();
        let mut released = std::pin::pin!(self.released.notified());
        released.as_mut().enable();
        if self.is_entered() {
            tokio::select! {
                biased;
                _ = session.over(self.granted.epoch) => {}
                () = gone.gone() => {}
                () = released => {}
            }
        }
        let standing = self.standing();
        let error = loss(standing, "lock", &self.path);
        if standing == Standing::Good { error.with_message("released") } else { error }
    }
}

/// How a node of `epoch` stands.
pub(crate) fn standing(session: Session, epoch: u64, gone: &GoneNotice) -> Standing {
    match session.state {
        SessionState::Closed(_) => Standing::Closed,
        _ if session.epoch != epoch || !session.is_live() => Standing::SessionLost,
        _ if gone.is_gone() => Standing::Removed,
        _ => Standing::Good,
    }
}

/// The error of a standing that is not good.
pub(crate) fn loss(standing: Standing, operation: &'static str, path: &LockPath) -> Error {
    let kind = match standing {
        Standing::Closed => ErrorKind::Closed,
        Standing::Removed => ErrorKind::NodeRemoved,
        Standing::Good | Standing::SessionLost => ErrorKind::SessionLost,
    };
    Error::new(kind, operation).with_path(path)
}
