//! Which requests of a session are sent over which lane, and when: the decisions, without any I/O or clock.
//!
//! | rule | without it |
//! |---|---|
//! | a scope is on one lane at a time | a create whose caller has gone overtakes its delete between two lanes |
//! | a lane that was given up with requests unanswered is raised before anything about their scopes is sent | the same |
//! | a request whose caller has gone is never sent, nor sent again | a create that was busy is sent after its delete |
//! | requests of a scope are sent in the order of their arrival, and one that changes lanes holds back the later ones | a scope under constant load never leaves the patient lane |
//! | a patient request that was busy again goes behind those of other scopes | one fenced scope delays all others |

use std::collections::{BTreeMap, BTreeSet};

use crate::ledger::Wire;

/// The requests of one session, by their numbers. `S` is a scope.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lanes<S> {
    next: u64,
    /// In the order of their arrival.
    waiting: BTreeMap<u64, Request<S>>,
    fast: Lane<S>,
    patient: Lane<S>,
}

/// Whether a request fits into a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It is sent.
    Fits,
    /// It is sent later, and so are those behind it.
    Full,
    /// Its caller has gone. It is not sent.
    Gone,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Request<S> {
    scopes: BTreeSet<S>,
    /// How often it was busy.
    busy: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lane<S> {
    is_open: bool,
    in_flight: BTreeMap<u64, Request<S>>,
    /// The scopes of requests that may still take effect, because their lane was given up before they were answered.
    unsettled: BTreeSet<S>,
}

impl<S: Clone + Ord> Lane<S> {
    fn concerns(&self, scopes: &BTreeSet<S>) -> bool {
        !self.unsettled.is_disjoint(scopes)
            || self.in_flight.values().any(|request| !request.scopes.is_disjoint(scopes))
    }

    fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.unsettled.is_empty()
    }
}

impl<S> Default for Lane<S> {
    fn default() -> Self {
        Lane { is_open: false, in_flight: BTreeMap::new(), unsettled: BTreeSet::new() }
    }
}

impl<S> Default for Lanes<S> {
    fn default() -> Self {
        Lanes { next: 0, waiting: BTreeMap::new(), fast: Lane::default(), patient: Lane::default() }
    }
}

impl<S: Clone + Ord> Lanes<S> {
    fn lane(&self, wire: Wire) -> &Lane<S> {
        match wire {
            Wire::Fast => &self.fast,
            Wire::Patient => &self.patient,
        }
    }

    fn lane_mut(&mut self, wire: Wire) -> &mut Lane<S> {
        match wire {
            Wire::Fast => &mut self.fast,
            Wire::Patient => &mut self.patient,
        }
    }

    /// Adds a request that belongs to these scopes. Returns its number.
    pub fn push(&mut self, scopes: impl IntoIterator<Item = S>) -> u64 {
        self.next += 1;
        self.waiting.insert(self.next, Request { scopes: scopes.into_iter().collect(), busy: 0 });
        self.next
    }

    /// Removes the requests that wait for a lane, whose callers get a failure. Returns them.
    pub fn fail(&mut self, wire: Wire) -> Vec<u64> {
        let failed: Vec<_> = self.waiting(wire).collect();
        self.waiting.retain(|_, request| request.wire() != wire);
        failed
    }

    /// Returns the requests that wait for a lane.
    pub fn waiting(&self, wire: Wire) -> impl Iterator<Item = u64> {
        self.waiting.iter().filter(move |(_, request)| request.wire() == wire).map(|(number, _)| *number)
    }

    /// Takes requests to be sent over an open lane now, in this order, and asks of each whether it fits. Over the patient lane, one at a
    /// time. Also returns those that are not sent because their callers have gone.
    pub fn take(&mut self, wire: Wire, mut fits: impl FnMut(u64) -> Fit) -> (Vec<u64>, Vec<u64>) {
        let (mut taken, mut gone) = (Vec::new(), Vec::new());
        let (lane, other) = match wire {
            Wire::Fast => (&self.fast, &self.patient),
            Wire::Patient => (&self.patient, &self.fast),
        };
        if !lane.is_open || wire == Wire::Patient && !lane.in_flight.is_empty() {
            return (taken, gone);
        }
        let (mut held, mut least_busy) = (BTreeSet::new(), None::<(u32, u64)>);
        for (number, request) in &self.waiting {
            let is_ready = request.wire() == wire
                && held.is_disjoint(&request.scopes)
                && !other.concerns(&request.scopes);
            match if is_ready { fits(*number) } else { Fit::Full } {
                Fit::Gone => {
                    gone.push(*number);
                    continue;
                }
                // Later ones of its scopes follow it in the same batch.
                Fit::Fits if wire == Wire::Fast => {
                    taken.push(*number);
                    continue;
                }
                Fit::Fits => {
                    let this = (request.busy, *number);
                    least_busy = Some(least_busy.map_or(this, |least| least.min(this)));
                }
                Fit::Full if is_ready => break,
                Fit::Full => {}
            }
            held.extend(request.scopes.iter().cloned());
        }
        taken.extend(least_busy.map(|(_, number)| number));
        gone.iter().for_each(|number| {
            self.waiting.remove(number);
        });
        for number in &taken {
            if let Some(request) = self.waiting.remove(number) {
                self.lane_mut(wire).in_flight.insert(*number, request);
            }
        }
        (taken, gone)
    }

    /// Records that a request was answered. A busy one had no effect, and waits for the patient lane if `is_repeated`.
    pub fn answered(&mut self, wire: Wire, number: u64, is_repeated: bool) {
        if let Some(mut request) = self.lane_mut(wire).in_flight.remove(&number)
            && is_repeated
        {
            request.busy += 1;
            self.waiting.insert(number, request);
        }
    }

    /// Records that a request had no effect and will be sent again over the same lane.
    pub fn returned(&mut self, wire: Wire, number: u64) {
        if let Some(request) = self.lane_mut(wire).in_flight.remove(&number) {
            self.waiting.insert(number, request);
        }
    }

    /// Records that a lane is given up. Returns its requests that were not answered: they may still take effect.
    pub fn given_up(&mut self, wire: Wire) -> Vec<u64> {
        let lane = self.lane_mut(wire);
        lane.is_open = false;
        let unanswered = std::mem::take(&mut lane.in_flight);
        for request in unanswered.values() {
            lane.unsettled.extend(request.scopes.iter().cloned());
        }
        unanswered.into_keys().collect()
    }

    /// Records that the raise of a lane was answered, so that nothing that was sent over it before can take effect any more.
    pub fn raised(&mut self, wire: Wire) {
        let lane = self.lane_mut(wire);
        (lane.is_open, lane.unsettled) = (true, BTreeSet::new());
    }

    /// Returns `true` if a lane has to be opened.
    pub fn needs(&self, wire: Wire) -> bool {
        let lane = self.lane(wire);
        !lane.is_open && (!lane.unsettled.is_empty() || self.waiting(wire).next().is_some())
    }

    /// Returns `true` if a lane is open and has nothing in flight.
    pub fn rests(&self, wire: Wire) -> bool {
        self.lane(wire).is_open && self.lane(wire).in_flight.is_empty()
    }

    /// Returns `true` if a request about this scope waits, is in flight or is unsettled.
    pub fn concerns(&self, scope: &S) -> bool {
        let scopes = BTreeSet::from([scope.clone()]);
        self.fast.concerns(&scopes)
            || self.patient.concerns(&scopes)
            || self.waiting.values().any(|request| request.scopes.contains(scope))
    }

    /// Returns `true` if nothing waits, is in flight or is unsettled.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.fast.is_idle() && self.patient.is_idle()
    }
}

impl<S> Request<S> {
    fn wire(&self) -> Wire {
        if self.busy == 0 { Wire::Fast } else { Wire::Patient }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(lanes: &mut Lanes<u8>, wire: Wire) -> Vec<u64> {
        lanes.take(wire, |_| Fit::Fits).0
    }

    fn open() -> Lanes<u8> {
        let mut lanes = Lanes::default();
        lanes.raised(Wire::Fast);
        lanes.raised(Wire::Patient);
        lanes
    }

    #[test]
    fn requests_of_a_scope_are_sent_in_order_over_one_lane() {
        let mut lanes = open();
        let (one, two, other) = (lanes.push([1]), lanes.push([1]), lanes.push([2]));
        assert_eq!(all(&mut lanes, Wire::Fast), [one, two, other]);
        lanes.answered(Wire::Fast, one, true);
        assert_eq!(all(&mut lanes, Wire::Patient), [], "the second is in flight on the fast lane");
        let three = lanes.push([1]);
        assert_eq!(all(&mut lanes, Wire::Fast), [], "the busy one holds it back");
        lanes.answered(Wire::Fast, two, false);
        assert_eq!(all(&mut lanes, Wire::Patient), [one]);
        assert_eq!(all(&mut lanes, Wire::Fast), [], "the scope is on the patient lane");
        let both = lanes.push([2, 1]);
        lanes.answered(Wire::Patient, one, false);
        assert_eq!(all(&mut lanes, Wire::Fast), [three, both]);
    }

    #[test]
    fn a_busy_scope_does_not_delay_others() {
        let mut lanes = open();
        let (fenced, other) = (lanes.push([1]), lanes.push([2]));
        all(&mut lanes, Wire::Fast);
        lanes.answered(Wire::Fast, fenced, true);
        lanes.answered(Wire::Fast, other, true);
        assert_eq!(all(&mut lanes, Wire::Patient), [fenced]);
        assert_eq!(all(&mut lanes, Wire::Patient), [], "one at a time");
        lanes.answered(Wire::Patient, fenced, true);
        assert_eq!(all(&mut lanes, Wire::Patient), [other]);
        lanes.answered(Wire::Patient, other, false);
        assert_eq!(all(&mut lanes, Wire::Patient), [fenced]);
    }

    #[test]
    fn a_lane_that_was_given_up_settles_before_its_scopes_are_touched() {
        let mut lanes = open();
        let one = lanes.push([1]);
        all(&mut lanes, Wire::Fast);
        lanes.answered(Wire::Fast, one, true);
        assert_eq!(all(&mut lanes, Wire::Patient), [one]);
        assert_eq!(lanes.given_up(Wire::Patient), [one]);
        let (same, other) = (lanes.push([1]), lanes.push([2]));
        assert!(lanes.needs(Wire::Patient) && lanes.concerns(&1) && !lanes.is_idle());
        assert_eq!(all(&mut lanes, Wire::Fast), [other]);
        lanes.raised(Wire::Patient);
        assert_eq!(all(&mut lanes, Wire::Fast), [same]);
        assert_eq!(lanes.given_up(Wire::Fast), [same, other]);
        let next = lanes.push([1]);
        assert_eq!(all(&mut lanes, Wire::Fast), []);
        assert!(lanes.needs(Wire::Fast));
        lanes.raised(Wire::Fast);
        assert_eq!(all(&mut lanes, Wire::Fast), [next]);
        lanes.answered(Wire::Fast, next, false);
        assert!(lanes.is_idle() && lanes.rests(Wire::Fast));
    }

    #[test]
    fn a_request_whose_caller_has_gone_is_not_sent_again() {
        let mut lanes = open();
        let one = lanes.push([1]);
        all(&mut lanes, Wire::Fast);
        lanes.answered(Wire::Fast, one, true);
        assert_eq!(lanes.take(Wire::Patient, |_| Fit::Gone), (vec![], vec![one]));
        assert!(lanes.is_idle());
    }

    #[test]
    fn a_batch_ends_at_the_first_that_does_not_fit() {
        let mut lanes = open();
        let (one, two) = (lanes.push([1]), lanes.push([2]));
        let fits = |number| if number == one { Fit::Fits } else { Fit::Full };
        assert_eq!(lanes.take(Wire::Fast, fits).0, [one]);
        lanes.returned(Wire::Fast, one);
        assert_eq!(all(&mut lanes, Wire::Fast), [one, two], "in the order of arrival");
    }
}
