//! Servers whose answers come late, and many clients that connect at the same moment, on any store.

use std::future::Future;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use zlock_core::{CoordinationBackend, Result, Session, SessionState};
use zlock_testkit::{Cut, FaultProxy, Flow, limit_to, until};

pub const SECOND: Duration = Duration::from_secs(1);
pub const MINUTE: Duration = Duration::from_secs(60);

/// A small machine is too slow for two crowds at the same time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// A server on which nothing else happens, behind a proxy.
pub trait Site {
    type Backend: CoordinationBackend;

    async fn start() -> Self;

    fn proxy(&self) -> &FaultProxy;

    fn connect(&self) -> impl Future<Output = Result<Self::Backend>> + Send + 'static;

    /// Returns the number of sessions that the server has made.
    async fn made(&self) -> u64;

    /// Returns the number of sessions that the server has now.
    async fn live(&self) -> u64;
}

/// The number of clients that connect at once. `ZLOCK_CROWD` sets another one.
fn crowd() -> usize {
    std::env::var("ZLOCK_CROWD").map_or(40, |crowd| crowd.parse().unwrap())
}

/// Returns how many sessions these clients have needed so far. With answers as late as here, no session of ten seconds may
/// last: the first ones to have one are looking for another one before the last ones have theirs.
fn needed(clients: &[impl CoordinationBackend]) -> u64 {
    let needed = |session: Session| session.epoch + u64::from(session.state == SessionState::Lost);
    clients.iter().map(|client| needed(client.session_events().current())).sum()
}

/// Connects this many clients at once, and returns those that succeed.
async fn connect<S: Site>(site: &S, clients: usize) -> Vec<S::Backend> {
    let mut connecting = JoinSet::new();
    for _ in 0..clients {
        connecting.spawn(site.connect());
    }
    let mut connected = Vec::new();
    while let Some(client) = connecting.join_next().await {
        match client.unwrap() {
            Ok(client) => connected.push(client),
            Err(error) => assert!(error.to_string().contains("no session within"), "{error}"),
        }
    }
    connected
}

/// A crowd that connects to a late server is served, at a bounded number of sessions.
pub async fn is_served<S: Site>() {
    let _alone = ONE_AT_A_TIME.lock().await;
    limit_to(3 * MINUTE, async {
        let (crowd, site) = (crowd(), S::start().await);
        site.proxy().to_client(Flow::Delay(3 * SECOND));
        let (before, began) = (site.made().await, Instant::now());
        let clients = connect(&site, crowd).await;
        let (elapsed, served) = (began.elapsed(), clients.len());
        let (made, needed) = (site.made().await - before, needed(&clients));
        println!(
            "{crowd} clients at once: {served} served after {elapsed:?}, {made} sessions made for {needed}"
        );
        site.proxy().to_client(Flow::Pass);
        assert_eq!(served, crowd);
        assert!(made <= 2 * needed, "{made} sessions were made");
    })
    .await;
}

/// A crowd whose sessions ended during an outage is back soon after it, at a bounded number of sessions.
pub async fn returns_after_an_outage<S: Site>() {
    let _alone = ONE_AT_A_TIME.lock().await;
    limit_to(4 * MINUTE, async {
        let (crowd, site) = (crowd(), S::start().await);
        let clients = connect(&site, crowd).await;
        assert_eq!(clients.len(), crowd);
        site.proxy().refuse().await;
        site.proxy().cut(Cut::Reset);
        until("the server has ended all sessions", async || site.live().await == 0).await;
        let before = site.made().await;
        site.proxy().heal().await;
        site.proxy().to_client(Flow::Delay(3 * SECOND));
        let began = Instant::now();
        let mut back = vec![false; crowd];
        while began.elapsed() < 30 * SECOND && !back.iter().all(|back| *back) {
            for (back, client) in back.iter_mut().zip(&clients) {
                *back |= client.session_events().current().epoch > 1;
            }
            sleep(SECOND / 20).await;
        }
        let (elapsed, returned) = (began.elapsed(), back.iter().filter(|back| **back).count());
        let (made, needed) = (site.made().await - before, needed(&clients) - crowd as u64);
        println!(
            "{crowd} clients after an outage: {returned} back after {elapsed:?}, {made} sessions made for {needed}"
        );
        site.proxy().to_client(Flow::Pass);
        assert_eq!(returned, crowd);
        assert!(made <= 2 * needed, "{made} sessions were made");
    })
    .await;
}
