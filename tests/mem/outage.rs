//! An outage that the session outlives: what it costs the server does not depend on how often was tried meanwhile.

use std::time::Duration;

use zlock::Client;
use zlock::mem::{MemLink, MemOptions, MemServer};
use zlock_recipes::suite::outage::{Outage, outage, paths};

/// For each node and each grant. A node in a queue takes five: create, list, watch, list again, delete. The watch of one
/// that is given up is removed.
const REQUESTS: usize = 6;

async fn requests_after(how: Outage, break_link: impl FnOnce(&MemLink)) {
    let server = MemServer::new();
    // Silence is noticed after two thirds of a session.
    let options = MemOptions::default().with_session_timeout(Duration::from_secs(12));
    let options = options.with_margin(Duration::from_millis(100));
    let client = Client::new(server.connect_with(options));
    let link = server.link_of(client.session_events().current().id).unwrap();
    link.delay(Duration::from_millis(1), Duration::from_millis(1));
    let requests = async || server.request_counts().values().sum();
    let counted = outage(&client, how, async || break_link(&link), async || link.heal(), requests).await;
    for path in paths() {
        assert!(server.names(&path).is_empty());
    }
    counted.check(REQUESTS);
}

#[tokio::test(start_paused = true)]
async fn a_link_that_is_cut() {
    requests_after(Outage::Cut, MemLink::suspend).await;
}

#[tokio::test(start_paused = true)]
async fn a_link_that_falls_silent() {
    requests_after(Outage::Mute, MemLink::cut).await;
}

#[tokio::test(start_paused = true)]
async fn a_link_on_which_no_answers_come() {
    requests_after(Outage::Mute, MemLink::mute).await;
}
