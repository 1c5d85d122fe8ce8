//! Requests for a lease, from servers that may answer late.

use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, LeaseGrantOptions};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use zlock_core::kit::Failure as _;

use crate::connection::connect::{By, Endpoints};
use crate::error::Failure;
use crate::session::Shared;
use crate::session::lease::{GrantedLease, revoke, seconds};

/// The pause between two attempts at a revocation.
const PAUSE: Duration = Duration::from_secs(1);

/// A request that fails sooner was not sent: its connection was refused.
const SENT: Duration = Duration::from_millis(100);

/// The largest number of requests that are remembered because a connection broke.
const MAX_BROKEN: usize = 4;

/// The requests for one lease. The first answer counts, whichever request it is to: no request is given up, because the
/// server would make its lease all the same. When this is dropped, all other leases are revoked as soon as they are made.
pub(crate) struct LeaseRequests {
    endpoints: Arc<Endpoints>,
    runtime: Handle,
    ttl: Duration,
    /// How long an answer is waited for.
    limit: Duration,
    asked: JoinSet<Asked>,
    /// The leases that may have been made by requests without an answer.
    broken: Vec<i64>,
}

struct Asked {
    id: i64,
    took: Duration,
    granted: Result<GrantedLease, Failure>,
}

impl LeaseRequests {
    pub(crate) fn new(shared: &Shared) -> Self {
        let (endpoints, runtime) = (shared.endpoints.clone(), shared.runtime.clone());
        let (ttl, limit) = (shared.options.kit.session_timeout, shared.options.kit.connect_timeout);
        LeaseRequests { endpoints, runtime, ttl, limit, asked: JoinSet::new(), broken: Vec::new() }
    }

    /// Sends one more request, and waits for its answer, or for that to an earlier one. After `patience`, the next server is
    /// the current one.
    ///
    /// # Cancel safety
    /// The request goes on. A later attempt may get its answer.
    pub(crate) async fn attempt(&mut self, patience: Duration) -> Result<GrantedLease, Failure> {
        let endpoints = self.endpoints.clone();
        let number = endpoints.current().number;
        let id = self.ask();
        let answer = timeout(patience, async {
            while let Some(asked) = self.asked.join_next().await {
                let Ok(asked) = asked else { continue };
                match asked.granted {
                    // It was answered so late that its end cannot be excluded.
                    Ok(granted) if granted.sent + granted.life() <= Instant::now() => {
                        self.broken.push(asked.id);
                        if asked.id == id {
                            return Err(Failure::Silent);
                        }
                    }
                    Ok(granted) => return Ok(granted),
                    Err(failure) => {
                        if asked.took >= SENT && failure.classify().ambiguous {
                            self.broken.push(asked.id);
                        }
                        // There may be one that was sent before and is answered later.
                        if asked.id == id {
                            return Err(failure);
                        }
                    }
                }
            }
            Err(Failure::Silent)
        });
        answer.await.unwrap_or_else(|_| {
            endpoints.failed(number);
            Err(Failure::Silent)
        })
    }

    /// Sends a request. Its lease has an ID of our choice, so that it can be revoked even if there is no answer.
    fn ask(&mut self) -> i64 {
        // As long as the IDs that servers choose.
        let id = fastrand::i64(1 << 62..=i64::MAX);
        let (endpoints, limit) = (self.endpoints.clone(), self.limit);
        let ttl = self.ttl.as_secs().cast_signed();
        let ask = move |client: Arc<Client>| async move {
            client.lease_client().grant(ttl, Some(LeaseGrantOptions::new().with_id(id))).await
        };
        let asked = async move {
            let sent = Instant::now();
            let known = endpoints.history().now();
            let granted = endpoints.ask(By::Cluster, limit, ask).await;
            let granted = granted.map(|answer| GrantedLease { id, ttl: seconds(answer.ttl()), sent, known });
            Asked { id, took: sent.elapsed(), granted }
        };
        self.asked.spawn_on(asked, &self.runtime);
        let surplus = self.broken.len().saturating_sub(MAX_BROKEN);
        self.broken.drain(..surplus);
        id
    }
}

impl Drop for LeaseRequests {
    fn drop(&mut self) {
        let (mut asked, broken) = (take(&mut self.asked), take(&mut self.broken));
        if asked.is_empty() && broken.is_empty() {
            return;
        }
        let (endpoints, ttl, limit) = (self.endpoints.clone(), self.ttl, self.limit);
        self.runtime.spawn(async move {
            for id in broken {
                end(&endpoints, id, ttl, limit).await;
            }
            while let Some(asked) = asked.join_next().await {
                if let Ok(Asked { id, granted, .. }) = asked
                    && granted.map_or_else(|failure| failure.classify().ambiguous, |_| true)
                {
                    end(&endpoints, id, ttl, limit).await;
                }
            }
        });
    }
}

/// Ends a lease as soon as the server can be reached, or leaves it to its TTL.
async fn end(endpoints: &Arc<Endpoints>, id: i64, ttl: Duration, limit: Duration) {
    let revoked = timeout(ttl, async {
        while let Err(failure) = revoke(endpoints, id, limit).await {
            tracing::debug!(?failure, id, "an abandoned lease is not revoked yet");
            sleep(PAUSE).await;
        }
    });
    // By now it has expired.
    let _ = revoked.await;
}
