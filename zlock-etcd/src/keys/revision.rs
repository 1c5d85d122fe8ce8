//! What answers and events show of the cluster's history, and whether it has gone back.
//!
//! A snapshot that is put back under live clients brings back nodes that were deleted, and takes away nodes that were created.
//! A lease that is in the snapshot lives on, as long as its session keeps it alive. So the session ends, which removes all that
//! the lease has, and every guard reports its loss.
//!
//! | what shows it | why |
//! |---|---|
//! | an answer with another cluster's ID | restoring a snapshot makes a new cluster, whose ID mostly differs |
//! | a linearizable answer with a revision below the newest one that was known when its request was sent | revisions only grow; answers overtake each other, and a member's own reads may be behind |
//! | a place of the session that this client has deleted or never made (`lease.rs`) | other clients may have written before this one asks, and a restore may raise the revision |

use std::future::Future;
use std::sync::Arc;

use etcd_client::{
    Error, GetResponse, LeaseGrantResponse, LeaseRevokeResponse, LeaseTimeToLiveResponse, ResponseHeader,
    TxnResponse,
};
use tokio::sync::watch;

use crate::error::Failure;

/// Returns the revision of an answer; 0 if it has none.
pub(crate) fn of(header: Option<&ResponseHeader>) -> i64 {
    header.map_or(0, ResponseHeader::revision)
}

/// The answer to a request.
pub(crate) trait Reply {
    fn header(&self) -> Option<&ResponseHeader>;
}

macro_rules! replies {
    ($($reply:ty),*) => {
        $(impl Reply for $reply {
            fn header(&self) -> Option<&ResponseHeader> {
                self.header()
            }
        })*
    };
}

replies!(GetResponse, TxnResponse, LeaseGrantResponse, LeaseRevokeResponse, LeaseTimeToLiveResponse);

/// The history of the cluster, as far as a backend has seen it. Every answer passes through [`check`](Self::check).
#[derive(Clone, Debug, Default)]
pub(crate) struct History(Arc<watch::Sender<Known>>);

/// What is known of the history at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// The ID of the cluster; 0 before the first answer.
    cluster: u64,
    /// The newest revision.
    pub(crate) revision: i64,
    /// How often the history has gone back.
    gone_back: u32,
}

impl History {
    pub(crate) fn now(&self) -> Known {
        *self.0.borrow()
    }

    /// Records the revision of an event, on a stream that was opened when this was known. Call it before the event is passed on.
    pub(crate) fn saw(&self, since: Known, revision: i64) {
        self.0.send_if_modified(|now| {
            if now.gone_back == since.gone_back {
                now.revision = now.revision.max(revision);
            }
            false
        });
    }

    /// Sends a request, and compares its answer with what was known before. `is_linearizable` says whether the answer shows
    /// everything that was written before.
    ///
    /// # Cancel safety
    /// As safe as the request.
    pub(crate) async fn check<T: Reply>(
        &self,
        is_linearizable: bool,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Failure> {
        let known = self.now();
        let reply = request.await?;
        if let Some(header) = reply.header() {
            self.compare(known, header.cluster_id(), header.revision(), is_linearizable)?;
        }
        Ok(reply)
    }

    fn compare(
        &self,
        known: Known,
        cluster: u64,
        revision: i64,
        is_linearizable: bool,
    ) -> Result<(), Failure> {
        let (mut agrees, mut is_news) = (true, false);
        self.0.send_if_modified(|now| {
            agrees = now.gone_back == known.gone_back;
            let is_other = now.cluster != 0 && cluster != now.cluster;
            if !agrees {
                // Another answer has shown it since the request was sent.
                return false;
            }
            if is_other || is_linearizable && revision < known.revision {
                *now = Known { cluster, revision, gone_back: now.gone_back + 1 };
                (agrees, is_news) = (false, true);
                return true;
            }
            (now.cluster, now.revision) = (cluster, now.revision.max(revision));
            false
        });
        if is_news {
            tracing::error!(
                before = ?known, cluster, revision,
                "the cluster was restored to an older state, or its members disagree: the session ends"
            );
        }
        if agrees { Ok(()) } else { Err(Failure::Restored) }
    }

    /// Records that the session has a key which this client has deleted or never made.
    pub(crate) fn shows_unknown(&self, key: &str) {
        tracing::error!(
            key,
            "the cluster was restored to an older state: the session has a place that this client does not know, and ends"
        );
        self.0.send_modify(|now| now.gone_back += 1);
    }

    /// Waits until the history has gone back since this was known.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn gone_back(&self, since: Known) {
        // Fails only if the sender is gone, but it lives as long as `self`.
        let _ = self.0.subscribe().wait_for(|now| now.gone_back != since.gone_back).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Reply for () {
        fn header(&self) -> Option<&ResponseHeader> {
            None
        }
    }

    const ID: u64 = 7;

    /// Each case has what was known when the request was sent, and the answer.
    #[test]
    fn only_an_answer_that_must_be_newer_shows_that_history_went_back() {
        for (sent_at, cluster, revision, is_linearizable, agrees) in [
            (10, ID, 10, true, true),
            // Another answer has overtaken it.
            (5, ID, 5, true, true),
            (5, ID, 4, true, false),
            // A member that is behind.
            (10, ID, 4, false, true),
            (10, ID + 1, 11, true, false),
            (10, ID + 1, 11, false, false),
        ] {
            let history = History::default();
            history.compare(history.now(), ID, sent_at, true).unwrap();
            let known = history.now();
            history.compare(history.now(), ID, 10, true).unwrap();
            let compared = history.compare(known, cluster, revision, is_linearizable).is_ok();
            assert_eq!(compared, agrees, "{sent_at} {cluster} {revision} {is_linearizable}");
            assert_eq!(history.now().gone_back == known.gone_back, agrees);
            let now = if agrees { (ID, 10) } else { (cluster, revision) };
            assert_eq!((history.now().cluster, history.now().revision), now);
        }
    }

    #[test]
    fn what_was_sent_or_opened_before_history_went_back_shows_nothing_of_the_new_one() {
        let history = History::default();
        history.compare(history.now(), ID, 10, true).unwrap();
        let before = history.now();
        history.compare(before, ID, 4, true).unwrap_err();
        let after = history.now();
        history.compare(before, ID, 5, true).unwrap_err();
        history.compare(before, ID, 12, true).unwrap_err();
        history.saw(before, 11);
        assert_eq!(history.now(), after);
        history.saw(after, 6);
        history.compare(after, ID, 5, true).unwrap();
        assert_eq!(history.now().revision, 6);
    }
}
