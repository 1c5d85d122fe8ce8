//! Requests in flight, which the end of their session cancels.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, MutexGuard, Weak};
use std::task::{Context, Poll};

use zlock_core::Mutex;

type Answer<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A request in flight. Its future owns the client, and with it the session. Without this type, a future that its owner keeps
/// but does not poll would keep a session alive at the server that is already over here.
pub(crate) struct Call<T>(Arc<Slot<T>>);

impl<T> Clone for Call<T> {
    fn clone(&self) -> Self {
        Call(self.0.clone())
    }
}

/// Empty once the request is answered or cancelled.
struct Slot<T>(Mutex<Option<Answer<T>>>);

impl<T> Call<T> {
    /// Returns `true` if the call was answered or cancelled.
    pub(crate) fn is_done(&self) -> bool {
        self.0.0.lock().is_none()
    }

    /// Resolves with the answer, or never if the call was cancelled.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<T> {
        let mut slot = self.0.0.lock();
        let Some(answer) = slot.as_mut() else { return Poll::Pending };
        let polled = answer.as_mut().poll(cx);
        if polled.is_ready() {
            *slot = None;
        }
        polled
    }
}

trait Cancel: Send + Sync {
    fn cancel(&self);
}

impl<T> Cancel for Slot<T> {
    fn cancel(&self) {
        let answer = self.0.lock().take();
        // Outside the mutex, because it may drop a lot.
        drop(answer);
    }
}

/// All calls of the current session.
#[derive(Default)]
pub(crate) struct InFlight(Mutex<Vec<Weak<dyn Cancel>>>);

/// All calls, locked.
pub(crate) struct Calls<'a>(MutexGuard<'a, Vec<Weak<dyn Cancel>>>);

impl InFlight {
    /// Locks the calls. [`cancel_all`](Self::cancel_all) locks them after a session's end. So a session that is found live
    /// meanwhile is one whose end cancels the calls that begin meanwhile.
    pub(crate) fn lock(&self) -> Calls<'_> {
        Calls(self.0.lock())
    }

    /// Cancels all calls. Their session must have ended before, so that no further call begins in it.
    pub(crate) fn cancel_all(&self) {
        let calls = std::mem::take(&mut *self.lock().0);
        for call in calls.iter().filter_map(Weak::upgrade) {
            call.cancel();
        }
    }
}

impl Calls<'_> {
    /// Adds a call, which is the future of its answer.
    pub(crate) fn begin<T: 'static>(&mut self, answer: impl Future<Output = T> + Send + 'static) -> Call<T> {
        let Calls(calls) = self;
        let slot = Arc::new(Slot(Mutex::new(Some(Box::pin(answer) as Answer<T>))));
        if calls.len() == calls.capacity() {
            calls.retain(|call| call.strong_count() > 0);
        }
        let call: Weak<Slot<T>> = Arc::downgrade(&slot);
        calls.push(call);
        Call(slot)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::task::Waker;

    use super::*;

    fn poll<T>(call: &Call<T>) -> Poll<T> {
        call.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn an_answered_call_lets_go_of_what_it_has() {
        let client = Arc::new(());
        let (calls, has) = (InFlight::default(), client.clone());
        let call = calls.lock().begin(async move { Arc::strong_count(&has) });
        assert_eq!(poll(&call), Poll::Ready(2));
        assert_eq!(Arc::strong_count(&client), 1);
        assert_eq!(poll(&call), Poll::Pending);
    }

    #[test]
    fn a_call_that_is_kept_and_not_polled_lets_go_when_it_is_cancelled() {
        let client = Arc::new(());
        let (calls, has) = (InFlight::default(), client.clone());
        let call = calls.lock().begin(async move {
            pending::<()>().await;
            drop(has);
        });
        assert!(poll(&call).is_pending());
        calls.cancel_all();
        assert!(poll(&call).is_pending());
        assert_eq!(Arc::strong_count(&client), 1);
    }

    #[test]
    fn calls_that_are_done_do_not_pile_up() {
        let calls = InFlight::default();
        let kept = calls.lock().begin(pending::<()>());
        for _ in 0..1000 {
            assert!(poll(&calls.lock().begin(ready(()))).is_ready());
        }
        let weaks = calls.0.lock();
        assert!(weaks.len() <= 8, "{}", weaks.len());
        drop(weaks);
        assert!(poll(&kept).is_pending());
    }
}
