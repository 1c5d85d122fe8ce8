//! Leading again and again, until shutdown.

use std::fmt;
use std::future::Future;
use std::panic::resume_unwind;

use tokio::time::Instant;
use zlock_core::kit::FailureLog;
use zlock_core::{Error, ErrorKind, Result, Retry};

use super::handle::Election;
use super::leadership::{LeaderContext, Leadership};
use super::then::Then;
use crate::guard::Guard;
use crate::panics::caught;
use crate::place::pauses::{LONGEST, PAUSES};

impl Election {
    /// Sets what [`lead`](Self::lead) does after its closure has returned `Ok`. Defaults to [`Then::CampaignAgain`].
    ///
    /// # Examples
    /// See [`lead`](Self::lead).
    #[must_use]
    pub fn after_work(mut self, then: Then) -> Self {
        self.ends.work = then;
        self
    }

    /// Sets what [`lead`](Self::lead) does after its closure has returned `Err`. Defaults to [`Then::CampaignAgain`], which
    /// logs the error.
    ///
    /// # Examples
    /// See [`lead`](Self::lead).
    #[must_use]
    pub fn after_failure(mut self, then: Then) -> Self {
        self.ends.failure = then;
        self
    }

    /// Sets what [`lead`](Self::lead) does after its closure has panicked. Defaults to [`Then::Return`].
    ///
    /// # Examples
    /// See [`lead`](Self::lead).
    #[must_use]
    pub fn after_panic(mut self, then: Then) -> Self {
        self.ends.panic = then;
        self
    }

    /// Campaigns, runs the closure's future while this candidate leads, and campaigns again after each loss, until the client
    /// [shuts down](crate::Client::shutdown). Then it returns `None`. The end is logged with its reason.
    ///
    /// If the leadership is lost, the future is cancelled at its current await point. Otherwise the candidate's node stays
    /// until the future has ended, so no other candidate leads before. A future that should end when the client shuts down, or
    /// when somebody asks, waits for [`LeaderContext::step_down_requested`] beside its work. What follows when it ends by itself
    /// is set by [`after_work`](Self::after_work), [`after_failure`](Self::after_failure) and
    /// [`after_panic`](Self::after_panic).
    ///
    /// # Errors
    /// - The closure's error, with [`Then::Return`] after a failure.
    /// - [`Closed`](ErrorKind::Closed), [`NotAuthorized`](ErrorKind::NotAuthorized),
    ///   [`InvalidArgument`](ErrorKind::InvalidArgument), [`Unexpected`](ErrorKind::Unexpected) of a campaign. After any
    ///   other error, it campaigns again.
    ///
    /// # Cancel safety
    /// Dropping the future drops the closure's future, and withdraws the candidacy or resigns in the background.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled, and if the closure does, unless
    /// [`after_panic`](Self::after_panic) says otherwise.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> zlock::Result<()> {
    /// # let client = zlock::connect("mem://").await?;
    /// use zlock::Then;
    ///
    /// let election = client.election("/app/leader")?.with_value("10.0.0.7:80")?;
    /// let led = election
    ///     .after_work(Then::Return)
    ///     .lead(|leader| async move {
    ///         leader.proclaim("10.0.0.7:80 ready").await?;
    ///         Ok::<_, zlock::Error>(leader.term())
    ///     })
    ///     .await?;
    /// assert!(led.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lead<F, Fut, T, E>(&self, mut work: F) -> Result<Option<T>, E>
    where
        F: FnMut(LeaderContext) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: From<Error> + fmt::Debug,
    {
        let mut leading = Leading::new(self);
        while let Some(led) = leading.next_term().await? {
            let context = led.context();
            // Also known if the leadership is lost in the same poll.
            let mut panic = None;
            let closure = async {
                let ended = caught(Box::pin(async { work(context).await })).await;
                ended.map_err(|cause| panic = Some(cause)).ok()
            };
            let ended = led.guard().run_boxed(Box::pin(closure)).await;
            let ended = match (ended, panic) {
                (_, Some(panic)) => Err(panic),
                (Ok(Some(result)), None) => Ok(result),
                (Ok(None), None) => continue,
                (Err(loss), None) => {
                    Guard::from(led).release_or_log().await;
                    if leading.ends_by(loss)? {
                        break;
                    }
                    continue;
                }
            };
            Guard::from(led).release_or_log().await;
            if let Some(result) = leading.after(ended).await {
                return result.map(Some);
            }
        }
        Ok(None)
    }
}

/// A candidate that campaigns again and again.
#[derive(Debug)]
pub(crate) struct Leading<'a> {
    election: &'a Election,
    /// The pauses before campaigns that need one.
    pauses: Retry,
    log: FailureLog,
    /// When the current term began.
    began: Instant,
}

impl<'a> Leading<'a> {
    pub(crate) fn new(election: &'a Election) -> Self {
        Leading { election, pauses: PAUSES.start(), log: FailureLog::default(), began: Instant::now() }
    }

    /// Campaigns until this candidate leads. Returns `None` once the client shuts down.
    pub(crate) async fn next_term(&mut self) -> Result<Option<Leadership>> {
        loop {
            match self.election.campaign().await {
                Ok(led) => {
                    (self.began, self.log) = (Instant::now(), FailureLog::default());
                    return Ok(Some(led));
                }
                Err(error) => {
                    if self.ends_by(error)? {
                        return Ok(None);
                    }
                    self.wait().await;
                }
            }
        }
    }

    /// Decides what follows the end of a term's work, after the candidate has resigned. Returns the result that ends it all,
    /// or continues a panic, or pauses before the next campaign.
    pub(crate) async fn after<T, E: fmt::Debug>(
        &mut self,
        ended: std::thread::Result<Result<T, E>>,
    ) -> Option<Result<T, E>> {
        if self.then(&ended) == Then::Return {
            self.log_end(&"its work has ended");
            return Some(ended.unwrap_or_else(|panic| resume_unwind(panic)));
        }
        if self.began.elapsed() >= LONGEST {
            self.pauses = PAUSES.start();
        }
        self.wait().await;
        None
    }

    fn then<T, E: fmt::Debug>(&self, ended: &std::thread::Result<Result<T, E>>) -> Then {
        let (path, ends) = (self.election.path(), self.election.ends);
        match ended {
            Ok(Ok(_)) => ends.work,
            Ok(Err(error)) => {
                tracing::warn!(%path, ?error, "the leader's work failed");
                ends.failure
            }
            Err(_) => {
                tracing::error!(%path, "the leader's work panicked");
                ends.panic
            }
        }
    }

    /// Returns `true` if a campaign or a term that ended with this error was the last one, since the client shuts down. Fails if
    /// it is the last one for another reason.
    pub(crate) fn ends_by(&mut self, error: Error) -> Result<bool> {
        let shuts_down = match error.kind() {
            ErrorKind::ShuttingDown => true,
            ErrorKind::Closed => self.election.client.inner().shutdown.begun.is_raised(),
            ErrorKind::SessionLost
            | ErrorKind::NodeDeleted
            | ErrorKind::HeldTooLong
            | ErrorKind::Unavailable
            | ErrorKind::Settling
            | ErrorKind::Timeout(_) => {
                if self.log.record(&error) {
                    tracing::info!(path = %self.election.path(), %error, "campaigning again");
                }
                return Ok(false);
            }
            _ => false,
        };
        self.log_end(&error);
        if shuts_down { Ok(true) } else { Err(error) }
    }

    fn log_end(&self, reason: &dyn fmt::Display) {
        tracing::info!(path = %self.election.path(), %reason, "a candidate does not campaign again");
    }

    /// Waits before the next campaign, unless the client shuts down.
    async fn wait(&mut self) {
        tokio::select! {
            biased;
            () = self.election.client.inner().shutdown.begun.raised() => {}
            _ = self.pauses.sleep() => {}
        }
    }
}
