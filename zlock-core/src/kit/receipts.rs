//! The receipts of a session's writes, and which of them are in use.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::sessions::SessionKey;
use crate::mutex::Mutex;
use crate::nodes::path::LockPath;
use crate::signal::Signal;

/// The number of writes that may be under way.
const AT_ONCE: usize = 64;

/// The receipts of one session's writes of values: what each leaves in the store beside the value, in the same transaction.
///
/// Each write under way has a receipt of its own, so that no other write of the session overwrites it. A receipt is used
/// again once the outcome of its write is known, and at most 64 are in use, so a burst of writes leaves no more of them
/// behind. `R` is the state in which the last use left a receipt; the default is that of one that was never used.
#[derive(Debug)]
pub struct Receipts<R> {
    is_per_path: bool,
    state: Mutex<State<R>>,
    /// One for each write that may be under way.
    permits: Arc<Semaphore>,
    /// Notified when an abandoned write is settled.
    settled: Signal,
}

#[derive(Debug)]
struct State<R> {
    /// `None` while a write uses the receipt.
    receipts: BTreeMap<(Option<LockPath>, u32), Option<Free<R>>>,
    /// The number of abandoned writes on each path whose receipts are in use.
    abandoned: BTreeMap<LockPath, usize>,
    next_id: u64,
}

#[derive(Debug)]
struct Free<R> {
    known: R,
    /// The ID of the write that used it last.
    since: u64,
    /// Whether that write found it in the store.
    is_reused: bool,
}

impl<R> Receipts<R> {
    /// Creates receipts that belong to one path each, where others write any path.
    #[must_use]
    pub fn per_path() -> Self {
        Receipts { is_per_path: true, ..Self::default() }
    }

    fn key(&self, path: &LockPath, number: u32) -> (Option<LockPath>, u32) {
        (self.is_per_path.then(|| path.clone()), number)
    }

    /// Waits until no abandoned write on this path can take effect any more.
    ///
    /// # Cancel safety
    /// Safe.
    pub(super) async fn settled(&self, path: &LockPath) {
        self.settled.until(|| (!self.state.lock().abandoned.contains_key(path)).then_some(())).await;
    }
}

impl<R: Default + PartialEq> Receipts<R> {
    /// Takes a receipt for a write of the value at `path`, once fewer than [`AT_ONCE`] are in use. First come, first served.
    ///
    /// # Cancel safety
    /// Safe.
    pub(super) async fn take(self: &Arc<Self>, session: SessionKey, path: &LockPath) -> Receipt<R> {
        // Writes that wait for an abandoned one on their path take no turn from others.
        self.settled(path).await;
        // The semaphore is never closed.
        let permit = self.permits.clone().acquire_owned().await.ok();
        let state = &mut *self.state.lock();
        let is_free = |number: &u32| !matches!(state.receipts.get(&self.key(path, *number)), Some(None));
        let number = (0..).find(is_free).unwrap_or(u32::MAX);
        self.receipt(state, session, number, path.clone(), permit)
    }

    /// Takes a receipt of one path that is to be removed from the store, and then [forgotten](Receipt::forget), if there are too
    /// many: more than `limit`, or more than 64 that are in use or were used only once. The one that has not been used for the
    /// longest time goes first.
    #[must_use]
    pub fn take_surplus(self: &Arc<Self>, session: SessionKey, limit: usize) -> Option<Receipt<R>> {
        let state = &mut *self.state.lock();
        let reused = state.receipts.values().flatten().filter(|free| free.is_reused).count();
        let is_surplus: fn(&Free<R>) -> bool = match state.receipts.len() {
            len if len - reused > AT_ONCE => |free| !free.is_reused,
            len if len > limit => |_| true,
            _ => return None,
        };
        let free = state.receipts.iter().filter_map(|(key, free)| Some((key, free.as_ref()?)));
        let surplus = free.filter(|(_, free)| is_surplus(free));
        let (path, number) = surplus.min_by_key(|(_, free)| free.since)?.0.clone();
        Some(self.receipt(state, session, number, path?, None))
    }

    fn receipt(
        self: &Arc<Self>,
        state: &mut State<R>,
        session: SessionKey,
        number: u32,
        path: LockPath,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Receipt<R> {
        let free = state.receipts.insert(self.key(&path, number), None).flatten();
        let known = free.map(|free| free.known).unwrap_or_default();
        let (is_reused, receipts) = (known != R::default(), self.clone());
        state.next_id += 1;
        let (id, is_abandoned, is_forgotten) = (state.next_id, false, false);
        Receipt { session, id, number, known, path, receipts, is_reused, is_abandoned, is_forgotten, permit }
    }
}

impl<R> Default for Receipts<R> {
    fn default() -> Self {
        let state = State { receipts: BTreeMap::new(), abandoned: BTreeMap::new(), next_id: 0 };
        let permits = Arc::new(Semaphore::new(AT_ONCE));
        Receipts { is_per_path: false, state: Mutex::new(state), permits, settled: Signal::default() }
    }
}

/// The receipt of one write. Dropping it makes it free again, in the state that is [`known`](Self::known).
#[derive(Debug)]
pub struct Receipt<R: Default> {
    /// The session of the write.
    pub session: SessionKey,
    /// The ID of the write, which is unique in the session.
    pub id: u64,
    /// The number among the receipts of the session, or of the session and the path, from 0.
    pub number: u32,
    /// The state in which the receipt is in the store, as far as known.
    pub known: R,
    path: LockPath,
    receipts: Arc<Receipts<R>>,
    is_reused: bool,
    is_abandoned: bool,
    is_forgotten: bool,
    /// `None` for a receipt that is to be removed.
    permit: Option<OwnedSemaphorePermit>,
}

impl<R: Default> Receipt<R> {
    /// Returns the path of the value.
    #[must_use]
    pub fn path(&self) -> &LockPath {
        &self.path
    }

    /// Marks the write as abandoned: [`Receipts::settled`] waits for the receipt to be dropped, which must happen only when
    /// the write can no longer take effect.
    pub(super) fn abandon(&mut self) {
        (self.is_abandoned, self.permit) = (true, None);
        *self.receipts.state.lock().abandoned.entry(self.path.clone()).or_default() += 1;
    }

    /// Frees the receipt as one that was never used.
    pub fn forget(mut self) {
        self.is_forgotten = true;
    }
}

impl<R: Default> Drop for Receipt<R> {
    fn drop(&mut self) {
        let state = &mut *self.receipts.state.lock();
        let key = self.receipts.key(&self.path, self.number);
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

#[cfg(test)]
mod tests {
    use tokio::task::{JoinSet, yield_now};

    use super::*;
    use crate::session::SessionId;

    fn path(path: &str) -> LockPath {
        LockPath::new(path).unwrap()
    }

    const SESSION: SessionKey = SessionKey { epoch: 1, id: SessionId::new(7) };

    #[tokio::test]
    async fn a_receipt_is_used_by_one_write_at_a_time() {
        let receipts = Arc::new(Receipts::<i32>::per_path());
        let mut one = receipts.take(SESSION, &path("/a")).await;
        let two = receipts.take(SESSION, &path("/a")).await;
        let other = receipts.take(SESSION, &path("/b")).await;
        assert_eq!((one.number, two.number, other.number), (0, 1, 0));
        assert_eq!((one.id, two.id, other.id), (1, 2, 3));
        one.known = 7;
        drop(one);
        let again = receipts.take(SESSION, &path("/a")).await;
        assert_eq!((again.number, again.known, again.id), (0, 7, 4));
        let of_any_path = Arc::new(Receipts::<i32>::default());
        let one = of_any_path.take(SESSION, &path("/a")).await;
        let two = of_any_path.take(SESSION, &path("/b")).await;
        assert_eq!((one.number, two.number), (0, 1));
    }

    fn numbered(number: u32) -> LockPath {
        path(&format!("/{number}"))
    }

    /// Makes a write that leaves the receipt in the store. Returns its number.
    async fn write(receipts: &Arc<Receipts<i32>>, path: u32) -> u32 {
        let mut receipt = receipts.take(SESSION, &numbered(path)).await;
        receipt.known = 7;
        receipt.number
    }

    /// Removes the surplus. Returns its paths.
    fn remove(receipts: &Arc<Receipts<i32>>, limit: usize) -> Vec<LockPath> {
        let surplus = std::iter::from_fn(|| {
            let surplus = receipts.take_surplus(SESSION, limit)?;
            let path = surplus.path().clone();
            surplus.forget();
            Some(path)
        });
        surplus.collect()
    }

    #[tokio::test]
    async fn a_burst_of_writes_takes_turns_at_few_receipts() {
        let receipts = Arc::<Receipts<()>>::default();
        let mut writes = JoinSet::new();
        for _ in 0..2000 {
            let receipts = receipts.clone();
            writes.spawn(async move {
                let receipt = receipts.take(SESSION, &path("/a")).await;
                yield_now().await;
                receipt.number
            });
        }
        assert_eq!(writes.join_all().await.into_iter().max(), Some(63));
    }

    #[tokio::test]
    async fn receipts_that_are_used_again_outlast_those_of_a_burst() {
        let (receipts, at_once) = (Arc::new(Receipts::per_path()), AT_ONCE as u32);
        // Twice each, as jobs do that begin and end.
        for path in (0..100).flat_map(|path| [path, path]) {
            assert_eq!(write(&receipts, path).await, 0);
        }
        assert_eq!(remove(&receipts, 1000), []);
        for path in 1000..1000 + 2 * at_once {
            write(&receipts, path).await;
        }
        let oldest: Vec<_> = (1000..1000 + at_once).map(numbered).collect();
        assert_eq!(remove(&receipts, 1000), oldest, "of those that were used once");
        assert_eq!(remove(&receipts, 98 + AT_ONCE), [numbered(0), numbered(1)], "of all");
        let in_use = receipts.take(SESSION, &numbered(1)).await;
        assert_eq!(remove(&receipts, 1000), [numbered(1000 + at_once)]);
        drop(in_use);
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_writes_are_waited_for() {
        let receipts = Arc::new(Receipts::<()>::default());
        let (a, b) = (path("/a"), path("/b"));
        let mut abandoned = receipts.take(SESSION, &a).await;
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
