//! Fences: what keeps a create from taking effect after it was given up.
//!
//! A request that nobody waits for any more may reach the store at any later time, and requests have no
//! order. So each create says "if the fence is as I know it"; who gives creates up raises the fence, and
//! from the answer on none that was sent before can take effect. A fence is one key of the session, tied
//! to its lease, and is there only once it was raised. Creates of a session that is over need none:
//! their lease is gone.
//!
//! The delete of a create that was given up says "if the fence is as I know it", too. Its name is used again once it is
//! answered, and a duplicate of it that comes late must not remove the next node of that name. It raises the fence,
//! so only one of them takes effect. To look for what a create has left raises the fence on no condition: that removes
//! nothing.
//!
//! It costs no message until a create is given up, and then one, which also takes away or brings to light
//! what the create has left. Creates behind the same fence that are under way meanwhile fail, and are
//! repeated with the new fence. A create that is refused is judged by the fence that it carried: another create may have
//! learned of a newer one meanwhile.
//!
//! A session has eight fences, and the key of a place says which one is its. One would make each abandoned create void
//! all others; one for each name would have to be kept for every name ever abandoned. A fence is never removed before
//! its session ends.

use std::sync::atomic::{AtomicI64, Ordering};

use etcd_client::{Compare, CompareOp, PutOptions, TxnOp, TxnResponse};
use zlock_core::SessionId;

use crate::key;
use crate::revision;
use crate::txn::gets;

const COUNT: usize = 8;

/// What is known of a session's fences: the revisions at which they were last raised, as far as we know; 0 if never.
#[derive(Debug, Default)]
pub(crate) struct Fences([AtomicI64; COUNT]);

/// The fence of a place.
pub(crate) struct Fence<'a> {
    raised: &'a AtomicI64,
    session: SessionId,
    key: String,
}

impl Fences {
    /// The fence of the session's place with this key.
    pub(crate) fn of(&self, prefix: &str, session: SessionId, place: &str) -> Fence<'_> {
        let number = number(place);
        Fence { raised: &self.0[number], session, key: key::fence(prefix, session, number) }
    }
}

impl Fence<'_> {
    /// The revision at which it was last raised, as far as we know.
    pub(crate) fn known(&self) -> i64 {
        self.raised.load(Ordering::Relaxed)
    }

    /// That it was last raised at this revision.
    pub(crate) fn is(&self, revision: i64) -> Compare {
        Compare::mod_revision(self.key.as_str(), CompareOp::Equal, revision)
    }

    /// Raises it.
    pub(crate) fn raise(&self) -> TxnOp {
        let lease = self.session.get().cast_signed();
        TxnOp::put(self.key.as_str(), "", Some(PutOptions::new().with_lease(lease)))
    }

    /// Takes notice of the answer to a transaction that raised it.
    pub(crate) fn raised_by(&self, answer: &TxnResponse) {
        self.saw(revision::of(answer.header()));
    }

    /// Reads it.
    pub(crate) fn get(&self) -> TxnOp {
        TxnOp::get(self.key.as_str(), None)
    }

    /// Takes notice of the answer to a transaction that read it, since it is not as it was `carried`, or something else
    /// is not as it was thought to be. Returns when it was raised; `None` if it is gone, and its lease with it.
    pub(crate) fn read(&self, carried: i64, answer: &TxnResponse) -> Option<i64> {
        let read = gets(answer).first().and_then(|get| Some(get.kvs().first()?.mod_revision())).unwrap_or(0);
        self.saw(read);
        (read != 0 || carried == 0).then_some(read)
    }

    fn saw(&self, revision: i64) {
        self.raised.fetch_max(revision, Ordering::Relaxed);
    }
}

/// FNV-1a: the same in every process, and spread evenly.
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
