//! Requests that only the leader may handle: `POST /orders`.
//!
//! The other replicas answer at once where the leader is, also while no store answers: a handler never waits for the store.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use tokio::sync::watch;
use zlock::{Election, Freshness, LeaderContext, LiveLeader};

type Answer = (StatusCode, [(HeaderName, String); 1], String);

/// The part of a replica in the election.
#[derive(Clone, Debug)]
pub(crate) struct Leading {
    /// The address of this replica.
    own: String,
    /// Who leads, as this replica has last seen it.
    leader: LiveLeader,
    /// The term of this replica, while it leads.
    term: Arc<watch::Sender<Option<LeaderContext>>>,
}

impl Leading {
    pub(crate) fn new(election: &Election, own: String) -> Self {
        Leading { own, leader: election.view(), term: Arc::default() }
    }

    /// Campaigns until the client is shut down.
    pub(crate) async fn lead(self, election: Election) {
        let work = |leader: LeaderContext| {
            println!("leads in term {}", leader.term());
            self.term.send_replace(Some(leader.clone()));
            // Until somebody asks it to step down, or the client shuts down.
            async move { leader.step_down_requested().await }
        };
        if let Err(error) = election.lead(work).await {
            eprintln!("this replica does not campaign any more: {error}");
        }
    }

    fn answer(&self) -> Answer {
        if let Some(term) = self.term.borrow().as_ref().filter(|term| term.is_held()) {
            // A real handler sends the term to the storage, which refuses an older one.
            let text = format!("accepted in term {}", term.term());
            return (StatusCode::OK, [(header::CACHE_CONTROL, "no-store".into())], text);
        }
        let view = self.leader.now();
        let address = view.leader.map(|leader| String::from_utf8_lossy(&leader.value).into_owned());
        let later = [(header::RETRY_AFTER, "1".into())];
        match (address, view.freshness) {
            // Its term has just begun, or has just ended.
            (Some(address), _) if address == self.own => {
                (StatusCode::SERVICE_UNAVAILABLE, later, "the leader changes".into())
            }
            (Some(address), Freshness::Fresh) => {
                let location = [(header::LOCATION, format!("http://{address}/orders"))];
                (StatusCode::TEMPORARY_REDIRECT, location, format!("the leader is {address}"))
            }
            (Some(address), _) => (
                StatusCode::SERVICE_UNAVAILABLE,
                later,
                format!("the leader was {address}; that is in doubt"),
            ),
            (None, _) => (StatusCode::SERVICE_UNAVAILABLE, later, "nobody leads".into()),
        }
    }
}

/// `POST /orders`.
pub(crate) async fn orders(State(leading): State<Leading>) -> Answer {
    leading.answer()
}
