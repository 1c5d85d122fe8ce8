//! A connection that several callers wait for.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use futures_util::FutureExt as _;
use futures_util::future::{AbortHandle, Abortable, BoxFuture, Shared as SharedFuture};
use tokio::time::Instant;
use zlock_core::{Mutex, SessionId};

use crate::ledger::{Calm, Fault};

/// What opens a connection.
type Work<C> = Arc<Mutex<Option<BoxFuture<'static, Result<C, Fault>>>>>;

/// A connection that is being opened, or is open. The callers that wait for it drive it, so that a caller that is not polled keeps nobody else
/// waiting.
pub(crate) struct Opening<C> {
    pub(crate) opened: SharedFuture<BoxFuture<'static, Result<Arc<C>, Fault>>>,
    /// What opens it, until it is open or given up.
    work: Work<C>,
    given_up: AbortHandle,
}

/// The current connection.
pub(crate) struct Connected<C> {
    pub(crate) opening: Option<Arc<Opening<C>>>,
    /// The session whose hints it receives.
    pub(crate) hints: Option<SessionId>,
    pub(crate) used: Option<Instant>,
    /// How often it was asked for.
    pub(crate) uses: u64,
}

impl<C> Default for Connected<C> {
    fn default() -> Self {
        Connected { opening: None, hints: None, used: None, uses: 0 }
    }
}

impl<C: Calm> Opening<C> {
    pub(crate) fn new(work: impl Future<Output = Result<C, Fault>> + Send + 'static) -> Self {
        let work = Arc::new(Mutex::new(Some(work.boxed())));
        let (worker, (given_up, registration)) = (work.clone(), AbortHandle::new_pair());
        let opens = poll_fn(move |cx| match &mut *worker.lock() {
            Some(work) => work.poll_unpin(cx),
            None => Poll::Ready(Err(given_up_fault())),
        });
        let opens = Abortable::new(opens, registration)
            .map(|opened| opened.map_err(|_| given_up_fault())?.map(Arc::new));
        Opening { opened: opens.boxed().shared(), work, given_up }
    }

    pub(crate) fn is(&self, calm: &Arc<C>) -> bool {
        matches!(self.opened.peek(), Some(Ok(opened)) if Arc::ptr_eq(opened, calm))
    }

    /// Closes it at once, also if there are callers that still have it and are not polled: the store may limit the number of
    /// connections.
    pub(crate) fn close(&self) {
        let work = self.work.lock().take();
        drop(work);
        self.given_up.abort();
        if let Some(Ok(calm)) = self.opened.peek() {
            calm.close();
        }
    }
}

fn given_up_fault() -> Fault {
    Fault::NotSent("the connection was given up".into())
}
