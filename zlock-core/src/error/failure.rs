//! The failures that operations retry: the causes of timeouts.

use std::future::Future;
use std::sync::Arc;

use crate::error::Error;
use crate::mutex::Mutex;

tokio::task_local! {
    static OBSERVED: LastFailure;
}

/// The last failure of a store's operations that has not been overcome.
///
/// An operation retries internally, so a caller that stops waiting first would not learn what failed. Instead, such a caller
/// runs the operation under [`observe`](Self::observe), and reports the last failure as the cause of its timeout.
///
/// A backend calls [`note`](Self::note), on the task that called the operation, with each failure that it retries or
/// waits out. Without an observer that costs nothing.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use std::time::Duration;
/// use zlock_core::{Error, ErrorKind, LastFailure};
///
/// let last = LastFailure::default();
/// let operation = last.observe(async {
///     LastFailure::note(|| Error::new(ErrorKind::Unavailable, "create").with_message("the disk is full"));
///     std::future::pending::<()>().await
/// });
/// assert!(tokio::time::timeout(Duration::from_millis(1), operation).await.is_err());
/// assert!(last.take().is_some_and(|cause| cause.to_string().contains("the disk is full")));
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct LastFailure(Arc<Mutex<Option<Error>>>);

impl LastFailure {
    /// Runs a future and keeps the last failure that it notes.
    pub fn observe<F: Future>(&self, future: F) -> impl Future<Output = F::Output> {
        OBSERVED.scope(self.clone(), future)
    }

    /// Returns the last failure, or `None` if there was none or it was overcome.
    #[must_use]
    pub fn get(&self) -> Option<Error> {
        self.0.lock().clone()
    }

    /// Takes the last failure, or `None` if there was none or it was overcome.
    #[must_use]
    pub fn take(&self) -> Option<Error> {
        self.0.lock().take()
    }

    /// Notes a failure for the observer of the calling code. Without one, `failure` is not called.
    pub fn note(failure: impl FnOnce() -> Error) {
        // Fails without an observer.
        let _ = OBSERVED.try_with(|last| *last.0.lock() = Some(failure()));
    }

    /// Forgets the last failure, because the operation that noted it has succeeded.
    pub fn overcome() {
        let _ = OBSERVED.try_with(LastFailure::take);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn failure(message: &str) -> Error {
        Error::new(ErrorKind::Unavailable, "test").with_message(message)
    }

    #[tokio::test]
    async fn the_last_failure_counts_until_it_is_overcome() {
        let last = LastFailure::default();
        last.observe(async {
            LastFailure::note(|| failure("one"));
            LastFailure::note(|| failure("two"));
        })
        .await;
        assert_eq!(last.take().unwrap().to_string(), "test: no server available: two");
        assert!(last.take().is_none());
        last.observe(async {
            LastFailure::note(|| failure("three"));
            LastFailure::overcome();
        })
        .await;
        assert!(last.take().is_none());
    }

    #[tokio::test]
    async fn nothing_is_made_where_nobody_observes() {
        LastFailure::note(|| unreachable!());
        LastFailure::overcome();
        let (outer, inner) = (LastFailure::default(), LastFailure::default());
        let noted = inner.observe(async { LastFailure::note(|| failure("inside")) });
        outer.observe(noted).await;
        assert!(outer.take().is_none() && inner.take().is_some());
    }
}
