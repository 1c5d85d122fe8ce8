//! An election as a lock, for code that is generic over locks.

use std::future::Future;
use std::time::Duration;

use zlock_core::{Error, Result};

use super::handle::Election;
use super::leadership::Leadership;
use crate::guard::{lock_guard, sealed};
use crate::locks::lock::Lock;
use crate::locks::participants::Participant;
use crate::release::Release;

/// To acquire is to campaign, and a request for revocation asks the leader to step down.
impl Lock for Election {
    type Guard = Leadership;

    fn acquire(&self) -> impl Future<Output = Result<Leadership>> + Send {
        self.campaign()
    }

    fn acquire_timeout(&self, time: Duration) -> impl Future<Output = Result<Leadership>> + Send {
        self.campaign_timeout(time)
    }

    async fn try_acquire(&self) -> Result<Option<Leadership>> {
        Ok(self.lock.try_acquire().await?.map(Leadership::new))
    }

    fn run<F: Future + Send>(&self, future: F) -> impl Future<Output = Result<F::Output>> + Send
    where
        F::Output: Send,
    {
        self.lock.run(future)
    }

    fn is_acquired_in_this_process(&self) -> bool {
        self.lock.is_acquired_in_this_process()
    }

    fn participants(&self) -> impl Future<Output = Result<Vec<Participant>>> + Send {
        self.candidates()
    }

    async fn request_revocation(&self) -> Result<usize> {
        Ok(usize::from(self.request_step_down().await?.is_some()))
    }
}

impl sealed::Sealed for Election {}

lock_guard!(Leadership, |led| guards: std::slice::from_ref(led.guard()), runs: led.guard(), looks: led.context, resign);
