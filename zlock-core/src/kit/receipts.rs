//! The receipts of writes whose responses may be lost.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::sessions::SessionKey;
use crate::contract::values::{Version, WriteOutcome};
use crate::nodes::path::LockPath;
use crate::signal::Signal;

/// The receipts of one session's writes of values: what each leaves in the store beside the value, in the same transaction.
///
/// Each write under way has a receipt of its own, so that no other write of the session overwrites it. A receipt is used
/// again once the outcome of its write is known, and at most [`AT_ONCE`](Self::AT_ONCE) are in use, so a burst of writes
/// leaves no more of them behind. `K` is what a receipt belongs to, such as a path, and `R` the state in which the last use
/// left it.
pub struct Receipts<K, R> {
    state: Mutex<State<K, R>>,
    /// One for each write that may be under way.
    permits: Arc<Semaphore>,
    /// Notified when an abandoned write is settled.
    settled: Signal,
}

struct State<K, R> {
    /// `None` while a write uses the receipt.
    receipts: BTreeMap<(K, u32), Option<Free<R>>>,
    /// The number of abandoned writes on each path whose receipts are in use.
    abandoned: BTreeMap<LockPath, usize>,
    next_id: u64,
}

struct Free<R> {
    known: R,
    /// The ID of the write that used it last.
    since: u64,
    /// Whether that write found it in the store.
    is_reused: bool,
}

impl<K, R> Receipts<K, R> {
    /// The number of writes that may be under way.
    pub const AT_ONCE: usize = 64;
}

impl<K: Ord + Clone, R: Default + PartialEq> Receipts<K, R> {
    /// Takes a receipt for a write of the value at `path`, once fewer than [`AT_ONCE`](Self::AT_ONCE) are in use. First come,
    /// first served.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn take(self: &Arc<Self>, key: &K, path: &LockPath) -> Receipt<K, R> {
        // Writes that wait for an abandoned one on their path take no turn from others.
        self.settled(path).await;
        // The semaphore is never closed.
        let permit = self.permits.clone().acquire_owned().await.ok();
        let state = &mut *self.lock();
        let number = (0..).find(|n| !matches!(state.receipts.get(&(key.clone(), *n)), Some(None)));
        let number = number.unwrap_or(u32::MAX);
        let free = state.receipts.insert((key.clone(), number), None).flatten();
        let known = free.map(|free| free.known).unwrap_or_default();
        self.receipt(state, key.clone(), number, path, known, permit)
    }

    /// Takes a receipt that is to be removed from the store, and then [forgotten](Receipt::forget), if there are too many: more
    /// than `limit`, or more than [`AT_ONCE`](Self::AT_ONCE) that are in use or were used only once. The one that has not been
    /// used for the longest time goes first.
    #[must_use]
    pub fn take_surplus(self: &Arc<Self>, limit: usize, path: &LockPath) -> Option<Receipt<K, R>> {
        let state = &mut *self.lock();
        let reused = state.receipts.values().flatten().filter(|free| free.is_reused).count();
        let is_surplus: fn(&Free<R>) -> bool = match state.receipts.len() {
            len if len - reused > Self::AT_ONCE => |free| !free.is_reused,
            len if len > limit => |_| true,
            _ => return None,
        };
        let free = state.receipts.iter().filter_map(|(key, free)| Some((key, free.as_ref()?)));
        let surplus = free.filter(|(_, free)| is_surplus(free));
        let (key, number) = surplus.min_by_key(|(_, free)| free.since)?.0.clone();
        let known = state.receipts.get_mut(&(key.clone(), number))?.take()?.known;
        Some(self.receipt(state, key, number, path, known, None))
    }

    fn receipt(
        self: &Arc<Self>,
        state: &mut State<K, R>,
        key: K,
        number: u32,
        path: &LockPath,
        known: R,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Receipt<K, R> {
        state.next_id += 1;
        let is_reused = known != R::default();
        Receipt {
            id: state.next_id,
            number,
            known,
            key,
            path: path.clone(),
            receipts: self.clone(),
            is_reused,
            is_abandoned: false,
            is_forgotten: false,
            permit,
        }
    }

    /// Waits until no abandoned write on this path can take effect any more.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn settled(&self, path: &LockPath) {
        self.settled.until(|| (!self.lock().abandoned.contains_key(path)).then_some(())).await;
    }
}

impl<K, R> Receipts<K, R> {
    fn lock(&self) -> MutexGuard<'_, State<K, R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, R> Default for Receipts<K, R> {
    fn default() -> Self {
        let state = State { receipts: BTreeMap::new(), abandoned: BTreeMap::new(), next_id: 0 };
        let permits = Arc::new(Semaphore::new(Self::AT_ONCE));
        Receipts { state: Mutex::new(state), permits, settled: Signal::default() }
    }
}

impl<K, R> fmt::Debug for Receipts<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipts").finish_non_exhaustive()
    }
}

/// The receipt of one write. Dropping it makes it free again, in the state that is [`known`](Self::known).
pub struct Receipt<K: Ord + Clone, R: Default + PartialEq> {
    /// The ID of the write, which is unique in the session.
    pub id: u64,
    /// The number among the receipts of its key, from 0.
    pub number: u32,
    /// The state in which the receipt is in the store, as far as known.
    pub known: R,
    key: K,
    path: LockPath,
    receipts: Arc<Receipts<K, R>>,
    is_reused: bool,
    is_abandoned: bool,
    is_forgotten: bool,
    /// `None` for a receipt that is to be removed.
    permit: Option<OwnedSemaphorePermit>,
}

impl<K: Ord + Clone, R: Default + PartialEq> Receipt<K, R> {
    /// Returns what the receipt belongs to.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Returns the path of the value.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        &self.path
    }

    /// Marks the write as abandoned: [`Receipts::settled`] waits for the receipt to be dropped, which must happen only when
    /// the write can no longer take effect.
    pub fn abandon(&mut self) {
        if !std::mem::replace(&mut self.is_abandoned, true) {
            *self.receipts.lock().abandoned.entry(self.path.clone()).or_default() += 1;
            self.permit = None;
        }
    }

    /// Frees the receipt as one that was never used.
    pub fn forget(mut self) {
        self.is_forgotten = true;
    }
}

impl<K: Ord + Clone, R: Default + PartialEq> Drop for Receipt<K, R> {
    fn drop(&mut self) {
        let state = &mut *self.receipts.lock();
        let key = (self.key.clone(), self.number);
        if self.is_forgotten {
            state.receipts.remove(&key);
        } else {
            let known = std::mem::take(&mut self.known);
            state.receipts.insert(key, Some(Free { known, since: self.id, is_reused: self.is_reused }));
        }
        if self.is_abandoned {
            if let Some(count) = state.abandoned.get_mut(&self.path) {
                *count -= 1;
            }
            state.abandoned.retain(|_, count| *count > 0);
            self.receipts.settled.notify();
        }
    }
}

impl<K: Ord + Clone, R: Default + PartialEq> fmt::Debug for Receipt<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt")
            .field("id", &self.id)
            .field("number", &self.number)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// The sessions in which a write was attempted. A receipt shows the outcome of attempts in its own session only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WriteAttempts {
    session: Option<SessionKey>,
    is_past_unknown: bool,
}

impl WriteAttempts {
    /// Begins an attempt in this session. `expected` is the version that the write expects, and `ambiguous` tells whether the
    /// outcome of an earlier attempt is unknown.
    ///
    /// Returns `false` if the attempt must not be made, and the outcome of the write stays unknown: an attempt in an earlier
    /// session may have created the value, and nothing shows that if another program has deleted it. Any other version does
    /// not come back once a write has changed it.
    #[must_use]
    pub fn begin(&mut self, session: SessionKey, expected: Option<Version>, ambiguous: bool) -> bool {
        self.is_past_unknown |= ambiguous && self.session.is_some_and(|last| last != session);
        self.session = Some(session);
        expected.is_some() || !self.is_past_unknown
    }

    /// Returns `true` if the outcome of an attempt in an earlier session is unknown.
    #[must_use]
    pub fn is_past_unknown(&self) -> bool {
        self.is_past_unknown
    }

    /// Returns `true` if the outcome of the last attempt is that of the whole write. A conflict may be due to an attempt in
    /// an earlier session, and a missing guard may have existed for it.
    #[must_use]
    pub fn is_conclusive(&self, outcome: &WriteOutcome) -> bool {
        matches!(outcome, WriteOutcome::Written(_)) || !self.is_past_unknown
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::{JoinSet, yield_now};

    use super::*;
    use crate::session::SessionId;

    fn path(path: &str) -> LockPath {
        LockPath::new(path).unwrap()
    }

    #[tokio::test]
    async fn a_receipt_is_used_by_one_write_at_a_time() {
        let receipts = Arc::new(Receipts::<u8, i32>::default());
        let mut one = receipts.take(&1, &path("/a")).await;
        let two = receipts.take(&1, &path("/a")).await;
        let other = receipts.take(&2, &path("/b")).await;
        assert_eq!((one.number, two.number, other.number), (0, 1, 0));
        assert_eq!((one.id, two.id, other.id), (1, 2, 3));
        one.known = 7;
        drop(one);
        let again = receipts.take(&1, &path("/a")).await;
        assert_eq!((again.number, again.known, again.id), (0, 7, 4));
    }

    #[test]
    fn a_value_is_not_created_in_a_second_session_while_the_first_may_have_created_it() {
        let session = |id| SessionKey { epoch: id, id: SessionId::new(id) };
        for (expected, is_begun) in [(None, false), (Some(Version::new(7, 7)), true)] {
            let mut attempts = WriteAttempts::default();
            assert!(attempts.begin(session(1), expected, false));
            assert!(attempts.begin(session(1), expected, true));
            assert!(attempts.begin(session(2), expected, false));
            assert_eq!(attempts.begin(session(3), expected, true), is_begun);
        }
    }

    /// Makes a write that leaves the receipt in the store. Returns its number.
    async fn write(receipts: &Arc<Receipts<u32, i32>>, key: u32) -> u32 {
        let mut receipt = receipts.take(&key, &path("/a")).await;
        receipt.known = 7;
        receipt.number
    }

    /// Removes the surplus. Returns its keys.
    fn remove(receipts: &Arc<Receipts<u32, i32>>, limit: usize) -> Vec<u32> {
        let surplus = std::iter::from_fn(|| {
            let surplus = receipts.take_surplus(limit, &path("/a"))?;
            let key = *surplus.key();
            surplus.forget();
            Some(key)
        });
        surplus.collect()
    }

    #[tokio::test]
    async fn a_burst_of_writes_takes_turns_at_few_receipts() {
        let receipts = Arc::<Receipts<(), ()>>::default();
        let mut writes = JoinSet::new();
        for _ in 0..2000 {
            let receipts = receipts.clone();
            writes.spawn(async move {
                let receipt = receipts.take(&(), &path("/a")).await;
                yield_now().await;
                receipt.number
            });
        }
        assert_eq!(writes.join_all().await.into_iter().max(), Some(63));
    }

    #[tokio::test]
    async fn receipts_that_are_used_again_outlast_those_of_a_burst() {
        const AT_ONCE: u32 = Receipts::<u32, i32>::AT_ONCE as u32;
        let receipts = Arc::new(Receipts::default());
        // Twice each, as jobs do that begin and end.
        for key in (0..100).flat_map(|key| [key, key]) {
            assert_eq!(write(&receipts, key).await, 0);
        }
        assert_eq!(remove(&receipts, 1000), []);
        for key in 1000..1000 + 2 * AT_ONCE {
            write(&receipts, key).await;
        }
        let oldest: Vec<_> = (1000..1000 + AT_ONCE).collect();
        assert_eq!(remove(&receipts, 1000), oldest, "of those that were used once");
        assert_eq!(remove(&receipts, 98 + AT_ONCE as usize), [0, 1], "of all");
        let in_use = receipts.take(&1, &path("/a")).await;
        assert_eq!(remove(&receipts, 1000), [1000 + AT_ONCE]);
        drop(in_use);
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_writes_are_waited_for() {
        let receipts = Arc::new(Receipts::<u8, ()>::default());
        let (a, b) = (path("/a"), path("/b"));
        let mut abandoned = receipts.take(&1, &a).await;
        receipts.settled(&a).await;
        abandoned.abandon();
        receipts.settled(&b).await;
        let settle = async {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            drop(abandoned);
        };
        let began = tokio::time::Instant::now();
        tokio::join!(receipts.settled(&a), settle);
        assert_eq!(began.elapsed().as_secs(), 1);
    }
}
