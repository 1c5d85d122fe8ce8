//! Checks that events happen in time: no waiter misses its turn, and no unneeded nodes remain.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use zlock::FencingToken;

use super::record::{Due, Hold};
use super::truth::{Place, recovery};
use super::world::World;
use crate::kind::Kind;

const EVERY: Duration = Duration::from_millis(250);

/// The time limit for events that should be immediate without faults.
const GRACE: Duration = Duration::from_secs(1);

/// The same on a ledger, whose clients poll once a second.
const POLLED: Duration = Duration::from_secs(4);

/// What is due, and the clients on which it depends: the own one and, at a semaphore, those in front, each of
/// which has to tell the next that it was granted; where two disagree about a maximum, the first of them,
/// which may be on its way out.
type Dues = BTreeMap<(usize, Due), BTreeSet<usize>>;

impl World {
    /// Returns how long this client has been without faults, at most since that instant, or `None` during a fault.
    pub(crate) fn calm_since(&self, client: usize, since: Instant) -> Option<Duration> {
        let state = self.lock();
        let known = state.clients.get(client)?;
        let disturbed = known.disturbed.unwrap_or(since);
        let slack = match known.disturbed {
            Some(_) => recovery(self.plan.session),
            None => Duration::ZERO,
        };
        if !known.healthy && !known.closed {
            return None;
        }
        Instant::now().checked_duration_since(since.max(disturbed) + slack)
    }

    /// Checks periodically for late events.
    pub(crate) async fn watch_lateness(self: Arc<Self>) {
        loop {
            sleep(EVERY).await;
            self.survey();
        }
    }

    pub(crate) fn survey(&self) {
        self.check();
        let queues: Vec<_> = self.paths.iter().map(|path| self.places(path)).collect();
        self.forget(&queues);
        let mut dues = Dues::new();
        for (path, places) in queues.iter().enumerate() {
            self.find_dues(path, places, &mut dues);
            self.check_herd(path, places);
        }
        let now = Instant::now();
        let grace = if self.plan.ledger.is_some() { POLLED } else { GRACE };
        let before = std::mem::take(&mut self.lock().late.0);
        let mut late = BTreeMap::new();
        for (key, depends_on) in dues {
            // A predecessor that is gone has notified the next place only now.
            let known = before.get(&key).filter(|(_, others)| *others == depends_on);
            let since = known.map_or(now, |(since, _)| *since);
            let limit = match key.1 {
                Due::Death(_) => recovery(self.plan.session),
                _ => grace,
            };
            let is_calm = |client: &usize| self.calm_since(*client, since) > Some(limit);
            if depends_on.iter().all(is_calm) {
                self.fail_late(key, since);
            }
            late.insert(key, (since, depends_on));
        }
        self.lock().late.0 = late;
    }

    fn fail_late(&self, (client, due): (usize, Due), since: Instant) {
        let (check, what) = match due {
            Due::Grant(number) => ("lost wake-up", format!("#{number} of c{client} is first")),
            Due::Removal(number) => ("orphan", format!("#{number} of c{client} is left")),
            Due::Relabel(number) => {
                ("stale label", format!("#{number} of c{client} is a reader, but is labelled as a writer"))
            }
            Due::Refusal(number, first) => (
                "mismatch not reported",
                format!("#{number} of c{client} disagrees with #{first}, which is first,"),
            ),
            Due::Death(number) => ("dead ahead", format!("#{number} of c{client} is behind the dead only")),
            Due::Leftover(path) => ("orphan", format!("c{client} keeps an unused node of {path}")),
        };
        self.fail(check, || format!("{what} for {:?}", since.elapsed()));
    }

    fn find_dues(&self, path: usize, places: &[Place], dues: &mut Dues) {
        let mut waiting: BTreeMap<usize, u64> = BTreeMap::new();
        let mut in_front = BTreeSet::new();
        let first = places.iter().find_map(|place| Some((place, place.kind.max()?)));
        let of_first = first.and_then(|(place, _)| self.client_of(place.session?));
        // A dead waiter for a permit does not tell the next one that its turn has come.
        let (mut living, mut is_behind_dead) = (Vec::new(), false);
        for place in places {
            let Some(client) = place.session.and_then(|session| self.client_of(session)) else { continue };
            let is_dead = self.is_dead(place);
            is_behind_dead |= is_dead;
            let is_next = place.kind.fits(living.iter().copied());
            if !is_dead {
                living.push(place.kind);
            }
            if self.is_orphaned(place) {
                continue;
            }
            let state = self.lock();
            let alone = BTreeSet::from([client]);
            let mut due = |due, depends_on: &BTreeSet<_>| dues.insert((client, due), depends_on.clone());
            in_front.insert(client);
            match state.holds.latest(place.number).map(|(_, hold)| hold) {
                // Of several locks it may have this one, which another user of the client has left to it.
                Some(_) if state.clients[client].has_some(path) => {}
                Some(hold) if hold.left.is_some() || hold.lost => {
                    due(Due::Removal(place.number), &alone);
                }
                Some(hold) if hold.kind != place.kind => {
                    due(Due::Relabel(place.number), &alone);
                }
                Some(_) => {}
                None => {
                    let waiters = waiting.entry(client).or_default();
                    *waiters += 1;
                    if *waiters > state.clients[client].acquiring.get(&path).copied().unwrap_or_default() {
                        due(Due::Leftover(path), &alone);
                    }
                    // On a ledger, requests take effect after they arrive, so not every head of the queue is seen.
                    if let (Some((first, right)), Some(other)) = (first, of_first)
                        && self.plan.ledger.is_none()
                        && place.kind.max().is_some_and(|max| max != right)
                        && !state.firsts.agreed(place.number)
                    {
                        due(Due::Refusal(place.number, first.number), &BTreeSet::from([client, other]));
                    }
                    let is_behind_untold = state.holds.has_untold(client, path);
                    if place.entitled && state.clients[client].together == 0 && !is_behind_untold {
                        let tells = matches!(place.kind, Kind::Permits { .. });
                        if tells && is_behind_dead {
                            due(Due::Death(place.number), &alone);
                        } else {
                            due(Due::Grant(place.number), if tells { &in_front } else { &alone });
                        }
                    } else if is_next && !is_dead && state.clients[client].together == 0 && !is_behind_untold
                    {
                        due(Due::Death(place.number), &alone);
                    }
                }
            }
        }
    }

    /// Checks that a release wakes one waiter. Only the node right behind an exclusive holder watches its node, and the holder
    /// itself while it waits for revocation. Clients that have not noticed that an operator deleted their node may watch too.
    fn check_herd(&self, path: usize, places: &[Place]) {
        if places.iter().any(|p| !p.kind.is_exclusive()) {
            return;
        }
        for place in places {
            let state = self.lock();
            let listens = state.holds.listening.contains(&place.number);
            let allowed = 1 + usize::from(listens) + state.holds.taken.len();
            drop(state);
            let observers = self.observers(path);
            let watches = self.store.watches_on(&self.paths[path], &place.name);
            if watches > allowed + observers {
                self.fail("herd", || format!("{watches} watch #{}", place.number));
            }
        }
    }

    /// Forgets holds that were released and whose node is removed.
    fn forget(&self, queues: &[Vec<Place>]) {
        let there: BTreeSet<u64> = queues.iter().flatten().map(|place| place.number).collect();
        let gone: Vec<_> = {
            let mut state = self.lock();
            let is_gone = |token: &FencingToken, hold: &mut Hold| {
                hold.left.is_some() && !there.contains(&token.number())
            };
            state.holds.by_token.extract_if(.., is_gone).collect()
        };
        // Not under the lock: the last handle of a client ends its session.
        drop(gone);
    }
}
