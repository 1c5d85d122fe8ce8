//! The oracle: checks the invariants of holders.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use zlock::{FencingToken, LockContext};

use super::record::Hold;
use super::truth::Place;
use super::world::World;
use crate::kind::Kind;

impl World {
    /// Records a lock that was granted in this poll.
    pub(crate) fn granted(&self, client: usize, path: usize, kind: Kind, held: LockContext) {
        let token = held.fencing_token();
        let number = token.number();
        self.note(|| format!("c{client} HOLDS {} {kind:?} #{token}", self.paths[path]));
        if !held.is_held() {
            self.fail("granted and not held", || format!("#{token} on {}", self.paths[path]));
        }
        let places = self.places(&self.paths[path]);
        let known = {
            let mut state = self.lock();
            state.counts.grants += 1;
            state.holds.granted.insert(number);
            state.holds.by_token.contains_key(&token)
        };
        if known {
            self.fail("two grants", || format!("#{token} was granted twice"));
        }
        match places.iter().position(|p| p.number == number) {
            Some(at) => self.check_order(path, kind, &places, at, token),
            None if self.was_just_taken(number, client) || self.was_ended(number) => {}
            // A later holder of a node knows as much about it as the first one.
            None if token.turn() > 0 => self.check_untold(number, client),
            None => self.fail("granted without a node", || format!("#{number} on {}", self.paths[path])),
        }
        let hold = Hold { path, client, kind, held, becoming: false, lost: false, left: None };
        let before = self.lock().holds.by_token.insert(token, hold);
        // Not under the lock: the last handle of a client ends its session.
        drop(before);
        self.check();
    }

    /// Checks that no earlier node excludes the grant, and that the fencing token does not decrease.
    fn check_order(&self, path: usize, kind: Kind, places: &[Place], at: usize, token: FencingToken) {
        // One whose deletion a crash has undone may be in front of a grant of before.
        let ghosts = self.lock().past.ghosts.clone();
        let in_front = || places[..at].iter().filter(|p| !ghosts.contains(&p.number));
        if !kind.fits(in_front().map(|p| p.kind)) {
            let names: Vec<_> = in_front().map(|p| p.name.as_str()).collect();
            self.fail("order", || format!("#{token} was granted behind {names:?}"));
        }
        let mut state = self.lock();
        let highest = state.holds.highest.entry(path).or_default();
        let others = highest.iter().filter(|(other, _)| !kind.shares_with(**other));
        let before = others.map(|(_, token)| *token).max();
        let own = highest.entry(kind).or_insert(token);
        *own = token.max(*own);
        drop(state);
        if let Some(before) = before.filter(|before| token <= *before) {
            self.fail("fencing", || format!("#{token} was granted after #{before}"));
        }
    }

    /// Records the start of a downgrade. The write lock ends once the store may have the request.
    pub(crate) fn downgrades(&self, token: FencingToken) {
        self.note(|| format!("#{token} becomes a reader"));
        self.change(token, |hold| hold.becoming = true);
    }

    /// Records a completed downgrade.
    pub(crate) fn downgraded(&self, token: FencingToken, held: LockContext) {
        self.note(|| format!("#{token} is a reader"));
        self.change(token, |hold| {
            (hold.kind, hold.held, hold.becoming) = (Kind::Read, held, false);
        });
        self.check();
    }

    /// Records the start or end of a wait for a revocation request.
    pub(crate) fn listen(&self, tokens: &[FencingToken], starts: bool) {
        let listening = &mut self.lock().holds.listening;
        for number in tokens.iter().map(|token| token.number()) {
            let _ = if starts { listening.insert(number) } else { listening.remove(&number) };
        }
    }

    fn change(&self, token: FencingToken, change: impl FnOnce(&mut Hold)) {
        let mut hold = self.lock().holds.by_token.get(&token).cloned();
        if let Some(hold) = &mut hold {
            change(hold);
            let before = self.lock().holds.by_token.insert(token, hold.clone());
            // Not under the lock: the last handle of a client ends its session.
            drop(before);
        }
    }

    /// Returns `true` if an operator deleted the node so recently that the grant may be based on an older state.
    fn was_just_taken(&self, number: u64, client: usize) -> bool {
        let state = self.lock();
        let Some(taken) = state.holds.taken.get(&number).copied() else { return false };
        let under_way = 2 * Duration::from_millis(self.plan.delay.max(self.plan.latency));
        if self.plan.ledger.is_some() {
            // A create is granted once a heartbeat shows that the session lives, which may be sent only then.
            let has_some = state.clients[client].together > 0;
            drop(state);
            return has_some || self.calm_since(client, taken).is_none_or(|calm| calm <= 2 * under_way);
        }
        let known = &state.clients[client];
        let is_calm = known.healthy && known.disturbed.is_none_or(|disturbed| disturbed < taken);
        // Of several locks it had some before it says so.
        !is_calm || known.together > 0 || taken.elapsed() <= under_way
    }

    /// Records a release, or the end of the holder. The node must be removed from now on.
    pub(crate) fn record_end(&self, tokens: &[FencingToken]) {
        self.note(|| format!("{tokens:?} left"));
        let mut state = self.lock();
        for token in tokens {
            if let Some(hold) = state.holds.by_token.get_mut(token) {
                hold.left.get_or_insert(Instant::now());
            }
        }
    }

    /// Checks a completed release: the node is removed, or another user of the client has it, as a waiter or a later holder.
    pub(crate) fn released(&self, path: usize, client: usize, handoff: bool, token: FencingToken) {
        let number = token.number();
        let has_user = {
            let state = self.lock();
            if state.past.ghosts.contains(&number) {
                return;
            }
            let waits = state.clients[client].acquiring.get(&path).is_some_and(|waiting| *waiting > 0);
            waits || state.holds.latest(number).is_some_and(|(latest, _)| latest > token)
        };
        if handoff && has_user {
            return;
        }
        if self.places(&self.paths[path]).iter().any(|p| p.number == number) {
            self.fail("release", || format!("#{number} is released, but its node still exists"));
        }
    }

    /// Records that an operator deletes these nodes. Returns what was recorded before, in case that fails.
    pub(crate) fn take(&self, numbers: &[u64]) -> BTreeMap<u64, Instant> {
        let now = Instant::now();
        let taken = &mut self.lock().holds.taken;
        let before = taken.clone();
        taken.extend(numbers.iter().map(|number| (*number, now)));
        before
    }

    /// Checks every guard that reports that it is held at this moment.
    pub(crate) fn check(&self) {
        self.check_fenced();
        let holds: Vec<(FencingToken, Hold)> = {
            let state = self.lock();
            let present = state.holds.by_token.iter().filter(|(_, hold)| hold.left.is_none());
            present.map(|(token, hold)| (*token, hold.clone())).collect()
        };
        let mut certain: BTreeMap<usize, Vec<(FencingToken, Kind)>> = BTreeMap::new();
        let mut places: BTreeMap<usize, Vec<Place>> = BTreeMap::new();
        for (token, hold) in &holds {
            let number = token.number();
            let is_held = hold.held.is_held();
            if is_held && hold.lost {
                self.fail("held after a loss", || format!("#{token} was lost, and is held again"));
            }
            if !is_held {
                self.note_loss(*token);
                continue;
            }
            let places = places.entry(hold.path).or_insert_with(|| self.places(&self.paths[hold.path]));
            // One whose session a loss of commits has ended does not know yet.
            let may_hold = places.iter().any(|p| p.number == number) || self.was_ended(number);
            if may_hold && !self.is_taken(number) {
                certain.entry(hold.path).or_default().push((*token, hold.kind));
            } else {
                self.check_untold(number, hold.client);
            }
        }
        self.check_fences(&certain);
        for holders in certain.values() {
            for (i, (token, kind)) in holders.iter().enumerate() {
                let (mut beside, behind) = (holders[..i].to_vec(), &holders[i + 1..]);
                beside.extend_from_slice(behind);
                if !kind.fits(beside.iter().map(|(_, kind)| *kind)) {
                    self.fail("exclusion", || format!("#{token} {kind:?} is held beside {beside:?}"));
                }
            }
        }
    }

    /// Returns `true` if an operator deleted the node, also if that was undone.
    fn is_taken(&self, number: u64) -> bool {
        self.lock().holds.taken.contains_key(&number)
    }

    /// Returns `true` if the store has lost the session of a node so recently that the holder need not know yet.
    fn was_ended(&self, number: u64) -> bool {
        self.lock().past.over(number).is_some_and(|at| at.elapsed() <= self.plan.session)
    }

    /// Checks that nobody holds a lock beside an open transaction of a user that was fenced with another node.
    fn check_fences(&self, certain: &BTreeMap<usize, Vec<(FencingToken, Kind)>>) {
        let fences: Vec<_> = self.lock().past.fences.values().copied().collect();
        for fence in fences {
            let mut others = certain.get(&fence.path).into_iter().flatten();
            let excluded = |(token, kind): &&(FencingToken, Kind)| {
                token.number() != fence.number && !kind.fits([fence.kind])
            };
            if let Some((token, kind)) = others.find(excluded) {
                self.fail("fence", || format!("#{token} {kind:?} is held beside a transaction of {fence:?}"));
            }
        }
    }

    fn note_loss(&self, token: FencingToken) {
        if let Some(hold) = self.lock().holds.by_token.get_mut(&token) {
            hold.lost |= !hold.becoming;
        }
    }

    /// Checks a holder without a node. The only excuse is that an operator deleted the node and the holder could not notice
    /// yet, which ends with the first heartbeat.
    fn check_untold(&self, number: u64, client: usize) {
        let taken = self.lock().holds.taken.get(&number).copied();
        let Some(taken) = taken else {
            let check = match self.lock().past.over(number) {
                Some(_) => "held after the deadline",
                None => "held without a node",
            };
            self.fail(check, || format!("#{number}"));
            return;
        };
        let heartbeat = self.plan.session / 3 + Duration::from_secs(1);
        if self.calm_since(client, taken).is_some_and(|calm| calm > heartbeat) {
            self.fail("loss noticed too late", || format!("#{number} was deleted {:?} ago", taken.elapsed()));
        }
    }
}
