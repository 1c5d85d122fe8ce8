//! Fences, which keep a create from taking effect after it was abandoned.
//!
//! An abandoned request may reach the store at any later time, and requests have no order. So each create is
//! conditional on the known revision of the fence. To abandon creates, a client raises the fence. Once that is
//! answered, no create that was sent before can take effect. A fence is one key of the session, tied to its lease, and
//! exists only once it was raised. Creates of an ended session need no fence, because their lease no longer exists. The first
//! create with a name needs one: it may be abandoned, too, and arrive when its delete was answered.
//!
//! The delete of an abandoned create is conditional on the fence, too. Its name is reused once it is answered, and a
//! late duplicate of it must not remove the next node with that name. The delete raises the fence, so only one of the
//! duplicates takes effect. A look-up of what a create has left raises the fence unconditionally, since it removes
//! nothing.
//!
//! This costs no message until a create is abandoned, and then one, which also removes or finds the node of the create.
//! Other creates in flight behind the same fence fail, and are retried with the new fence. A refused create is judged
//! by the fence that it carried, because another create may have learned of a newer one in the meantime.
//!
//! A session has eight fences, and the key of a place determines which one applies. With a single fence, each abandoned
//! create would void all others. A fence for each name would have to be kept for every name ever abandoned. A fence is
//! never removed before its session ends.

use std::sync::atomic::{AtomicI64, Ordering};

use etcd_client::{Compare, CompareOp, KeyValue, PutOptions, TxnOp};
use zlock_core::SessionId;

use crate::keys::key;
use crate::keys::revision;
use crate::requests::txn::Answer;

const COUNT: usize = 8;

/// The known revisions at which a session's fences were last raised; 0 if never.
#[derive(Debug, Default)]
pub(crate) struct Fences([AtomicI64; COUNT]);

/// The fence that applies to a place.
pub(crate) struct Fence<'a> {
    raised: &'a AtomicI64,
    session: SessionId,
    key: String,
}

impl Fences {
    /// Returns the fence that applies to the session's place with this key.
    pub(crate) fn of(&self, prefix: &str, session: SessionId, place: &str) -> Fence<'_> {
        let number = number(place);
        Fence { raised: &self.0[number], session, key: key::fence(prefix, session, number) }
    }
}

impl Fence<'_> {
    /// Returns the revision at which it was last raised, as far as known.
    pub(crate) fn known(&self) -> i64 {
        self.raised.load(Ordering::Relaxed)
    }

    /// Returns the condition that it was last raised at this revision.
    pub(crate) fn is(&self, revision: i64) -> Compare {
        Compare::mod_revision(self.key.as_str(), CompareOp::Equal, revision)
    }

    /// Returns the operation that raises it.
    pub(crate) fn raise(&self) -> TxnOp {
        let lease = self.session.get().cast_signed();
        TxnOp::put(self.key.as_str(), "", Some(PutOptions::new().with_lease(lease)))
    }

    /// Records the response to a transaction that raised it.
    pub(crate) fn raised_by(&self, answer: &Answer) {
        self.saw(revision::of(answer.header()));
    }

    /// Returns the operation that reads it.
    pub(crate) fn get(&self) -> TxnOp {
        TxnOp::get(self.key.as_str(), None)
    }

    /// Records the response to a transaction that read it because it differs from `carried`, or because another condition
    /// failed. Returns the revision at which it was raised. `None` if it is gone, and its lease with it, or if it was raised
    /// before `carried`. Then the cluster was restored to an older state, and no request that carries a revision known from
    /// before could ever take effect.
    pub(crate) fn read(&self, carried: i64, answer: &Answer) -> Option<i64> {
        let read = answer.first().map_or(0, KeyValue::mod_revision);
        self.saw(read);
        (read >= carried).then_some(read)
    }

    fn saw(&self, revision: i64) {
        self.raised.fetch_max(revision, Ordering::Relaxed);
    }
}

/// FNV-1a, which is the same in every process and spreads evenly.
fn number(place: &str) -> usize {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = place.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    (hash >> 40) as usize % COUNT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_spread_over_the_fences() {
        let mut counts = [0; COUNT];
        for path in 0..100 {
            for n in 1..=100 {
                counts[number(&format!("/app/{path}/694d7a3c2f1b5e05.{n}"))] += 1;
            }
        }
        assert!(counts.iter().all(|count| (1000..1500).contains(count)), "{counts:?}");
    }
}
