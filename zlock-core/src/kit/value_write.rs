//! The write of a value, which is the same for all stores: its attempts, and how a lost response or a drop leaves it.

use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;

use super::budget::Budget;
use super::failure::{Failure, Interrupted};
use super::receipts::{Receipt, Receipts};
use super::repeat;
use super::sessions::SessionKey;
use crate::contract::values::{GuardNode, Version, WriteOutcome};
use crate::error::{ErrorKind, Result};
use crate::nodes::node::Node;
use crate::nodes::node_id::NodeId;

/// The pause between two attempts to void an abandoned write.
const PAUSE: Duration = Duration::from_millis(100);

/// A store's part of the writes of values. [`write_value`] does the rest: the attempts and their receipts, what follows from a lost
/// response, the guard's node that the write deletes, and the voiding of a write that was dropped.
pub trait ValueStore: Send + Sync + 'static {
    /// A running operation.
    type Operation<'a>: Send;
    /// What operations need of a session.
    type Live: Send + Sync;
    /// The state of a receipt in the store, as far as known. The default is that of one that was never used.
    type Known: Default + PartialEq + Send;
    /// The reason why a request gets no usable response.
    type Failure: Failure + From<Interrupted> + Send;

    /// Returns the receipts of a session, or `None` once it is over.
    fn receipts(&self, session: SessionKey) -> Option<Arc<Receipts<Self::Known>>>;

    /// Returns the budget of an operation.
    fn budget<'o, 'a>(operation: &'o mut Self::Operation<'a>) -> &'o mut Budget<'a, Self::Live>;

    /// Returns the ID by which the session knows a guard that the write deletes. By default, that of the node.
    fn own_id(&self, guard: &GuardNode) -> Option<NodeId> {
        Some(guard.deletes.as_ref()?.id.clone())
    }

    /// Makes one attempt in the session of the receipt: sends the request that writes the value together with the receipt, and records
    /// in the budget if its outcome is unknown. However often it is sent in that session with this receipt, it takes effect at most
    /// once. Updates what is known of the receipt. `None` if the next attempt may follow at once.
    ///
    /// If the budget is ambiguous, an earlier request may have written the value. In this session, the receipt shows whether it has, so
    /// that is looked at before any outcome but [`WriteOutcome::Written`] is returned.
    ///
    /// # Errors
    /// The reason why there is no response, or why the write is refused.
    fn write(
        &self,
        write: &mut ValueWrite<'_, Self::Operation<'_>>,
        receipt: &mut Receipt<Self::Known>,
    ) -> impl Future<Output = Result<Option<WriteOutcome>, Self::Failure>> + Send;

    /// Returns the runtime on which abandoned writes are voided. `None`, the default, if the requests of a client take effect in the
    /// order in which they are sent, so that none needs to be voided.
    fn runtime(&self) -> Option<&Handle> {
        None
    }

    /// Makes one attempt at voiding an abandoned write. If it succeeds, no request that was sent with the receipt can take effect any
    /// more, and what is known of the receipt is current.
    ///
    /// # Errors
    /// The reason why there is no response.
    fn void(
        self: &Arc<Self>,
        receipt: &mut Receipt<Self::Known>,
    ) -> impl Future<Output = Result<(), Self::Failure>> + Send {
        let _ = receipt;
        ready(Ok(()))
    }
}

/// One write of a value.
#[derive(Debug)]
pub struct ValueWrite<'a, O> {
    /// The operation that writes.
    pub operation: O,
    /// The version that the value is to have; `None` if there is to be no value.
    pub expected: Option<Version>,
    /// What is written.
    pub data: &'a [u8],
    /// The node that is to exist.
    pub guard: Option<&'a GuardNode>,
}

impl<'a, O> ValueWrite<'a, O> {
    /// Returns the guard's node if the write deletes it.
    pub fn deletes(&self) -> Option<&'a Node> {
        self.guard?.deletes.as_ref()
    }
}

/// Makes attempts at [`Values::write_value`](crate::Values::write_value) until there is an outcome.
///
/// # Errors
/// Those of `write_value`.
///
/// # Cancel safety
/// A write of unknown outcome is [voided](ValueStore::void) in the background. Until then, later operations on the path wait.
///
/// # Panics
/// Panics outside a tokio runtime with time enabled, if it has to wait.
pub fn write_value<'a, S: ValueStore>(
    store: &'a Arc<S>,
    mut operation: S::Operation<'a>,
    expected: Option<Version>,
    data: &'a [u8],
    guard: Option<&'a GuardNode>,
) -> Pin<Box<dyn Future<Output = Result<WriteOutcome>> + Send + 'a>> {
    // The compiler does not see that the future of an `async fn` with such an operation is `Send` (rust-lang/rust#100013).
    Box::pin(async move {
        S::budget(&mut operation).check_size(data)?;
        let (own, own_id) =
            (S::budget(&mut operation).sessions().own(), guard.and_then(|guard| store.own_id(guard)));
        let _hidden = own_id.as_ref().map(|own_id| own.hide(own_id));
        let (mut receipt, mut attempts) = (WriteReceipt::new(store.clone()), WriteAttempts::default());
        let mut write = ValueWrite { operation, expected, data, guard };
        let conclusive = repeat!(S::budget(&mut write.operation), |session| async {
            loop {
                let (receipt, unknown) = receipt.begin(S::budget(&mut write.operation), session).await?;
                if !attempts.begin(session, expected, S::budget(&mut write.operation).ambiguous) {
                    return Ok::<_, S::Failure>(None);
                }
                let outcome = unknown.send(store.write(&mut write, receipt)).await?;
                S::budget(&mut write.operation).ambiguous = attempts.is_past_unknown();
                let Some(outcome) = outcome else { continue };
                if let WriteOutcome::Written(_) = outcome {
                    unknown.took_effect();
                    own_id.iter().for_each(|own_id| own.remove(own_id));
                }
                return Ok(attempts.is_conclusive(&outcome).then_some(outcome));
            }
        });
        // Without an outcome, that of an attempt in an earlier session stays unknown.
        conclusive?.ok_or_else(|| S::budget(&mut write.operation).refuse(ErrorKind::SessionLost))
    })
}

/// Waits until no abandoned write on the operation's path can take effect any more. A read of a value begins with it.
///
/// # Errors
/// [`Interrupted::TimedOut`] at the deadline of the operation; the reason why there is no such session any more.
///
/// # Cancel safety
/// Safe.
///
/// # Panics
/// Panics outside a tokio runtime with time enabled.
pub async fn settled<S: ValueStore>(
    store: &S,
    budget: &Budget<'_, S::Live>,
    session: SessionKey,
) -> Result<(), S::Failure> {
    let receipts = store.receipts(session).ok_or_else(|| budget.sessions().interrupted())?;
    let settled = receipts.settled(budget.path());
    Ok(budget.sessions().run_until_ended(session, budget.deadline(), settled).await?)
}

/// The receipt of one operation, in the session of its last attempt.
///
/// If a request that was sent with it may still take effect when this is dropped, the write is voided. Until then, later operations on
/// the path wait.
#[derive(Debug)]
pub struct WriteReceipt<S: ValueStore> {
    store: Arc<S>,
    receipt: Option<Receipt<S::Known>>,
    unknown: Unknown,
}

/// Whether a request that was sent with a receipt may still take effect.
#[derive(Debug, Default)]
pub struct Unknown(bool);

impl Unknown {
    /// Sends a request with the receipt. If it is answered, only earlier ones may still take effect.
    ///
    /// # Errors
    /// Those of the request.
    ///
    /// # Cancel safety
    /// The request may still take effect, which is recorded.
    pub async fn send<A, F: Failure>(&mut self, request: impl Future<Output = Result<A, F>>) -> Result<A, F> {
        let was_unknown = std::mem::replace(&mut self.0, true);
        let answer = request.await;
        self.0 = was_unknown || answer.as_ref().is_err_and(|failure| failure.classify().ambiguous);
        answer
    }

    /// Records that a request with the receipt has taken effect, so that no other one can. A refusal does not show that: an earlier
    /// request may still arrive, and find what it was to find.
    pub fn took_effect(&mut self) {
        self.0 = false;
    }
}

impl<S: ValueStore> WriteReceipt<S> {
    /// Creates the receipt of an operation that has sent nothing yet.
    #[must_use]
    pub fn new(store: Arc<S>) -> Self {
        WriteReceipt { store, receipt: None, unknown: Unknown::default() }
    }

    /// Returns a receipt of this session for a request that is sent next. Waits for one, and until no abandoned write on the path can
    /// take effect.
    ///
    /// # Errors
    /// Those of [`settled`].
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled.
    pub async fn begin(
        &mut self,
        budget: &Budget<'_, S::Live>,
        session: SessionKey,
    ) -> Result<(&mut Receipt<S::Known>, &mut Unknown), S::Failure> {
        let receipt = match self.receipt.take().filter(|receipt| receipt.session == session) {
            Some(receipt) => receipt,
            None => {
                // What was sent in an earlier session cannot take effect once the next one has begun.
                self.unknown = Unknown::default();
                let receipts = self.store.receipts(session).ok_or_else(|| budget.sessions().interrupted())?;
                let taken = receipts.take(session, budget.path());
                budget.sessions().run_until_ended(session, budget.deadline(), taken).await?
            }
        };
        let receipt = self.receipt.insert(receipt);
        settled(&*self.store, budget, session).await?;
        Ok((receipt, &mut self.unknown))
    }
}

impl<S: ValueStore> Drop for WriteReceipt<S> {
    fn drop(&mut self) {
        let Some(mut receipt) = self.receipt.take().filter(|_| self.unknown.0) else { return };
        let Some(runtime) = self.store.runtime() else { return };
        receipt.abandon();
        runtime.spawn(void(self.store.clone(), receipt));
    }
}

/// Voids an abandoned write: makes attempts until one succeeds, or the session is over.
async fn void<S: ValueStore>(store: Arc<S>, mut receipt: Receipt<S::Known>) {
    while store.receipts(receipt.session).is_some() {
        match store.void(&mut receipt).await {
            Ok(()) => return,
            Err(failure) => {
                let path = receipt.path();
                tracing::debug!(%path, ?failure, "an abandoned write is not void yet");
            }
        }
        sleep(PAUSE).await;
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
    use std::collections::VecDeque;
    use std::future::pending;
    use std::sync::Mutex;

    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::kit::{Options, Sessions};
    use crate::nodes::name::NodeName;
    use crate::nodes::path::LockPath;
    use crate::session::SessionId;
    use crate::{FencingToken, Label, Sequence};

    type Answer = Result<Option<WriteOutcome>, Interrupted>;

    const SECOND: Duration = Duration::from_secs(1);
    const LOST: Answer = Err(Interrupted::Disconnected);
    const WRITTEN: Answer = Ok(Some(WriteOutcome::Written(Version::new(7, 7))));

    /// A store that gives these answers, and then none.
    struct Scripted {
        sessions: Sessions<Arc<Receipts<()>>>,
        options: Options,
        runtime: Handle,
        answers: Mutex<VecDeque<Answer>>,
        sent: Mutex<Vec<SessionId>>,
        /// How many requests that void a write fail, and how many are sent.
        voids: Mutex<(u32, u32)>,
    }

    impl Scripted {
        fn new(answers: impl IntoIterator<Item = Answer>) -> (Arc<Self>, SessionKey) {
            let store = Scripted {
                sessions: Sessions::new("refused"),
                options: Options::new(["host"]),
                runtime: Handle::current(),
                answers: Mutex::new(answers.into_iter().collect()),
                sent: Mutex::default(),
                voids: Mutex::new((3, 0)),
            };
            let session = store.begin(7);
            (Arc::new(store), session)
        }

        fn begin(&self, id: u64) -> SessionKey {
            let deadline = Instant::now() + 100 * SECOND;
            self.sessions.begin(SessionId::new(id), deadline, |_| Arc::default()).unwrap().0
        }

        async fn write(self: &Arc<Self>, guard: Option<&GuardNode>) -> Result<WriteOutcome> {
            let path = path();
            let budget = Budget::new(&self.sessions, &self.options, "write", &path);
            write_value(self, budget, Some(Version::new(7, 6)), b"", guard).await
        }

        /// Returns how long a later operation waits.
        async fn settled(&self, session: SessionKey) -> Result<Duration, Interrupted> {
            let (path, began) = (path(), Instant::now());
            let budget = Budget::new(&self.sessions, &self.options, "read", &path);
            settled(self, &budget, session).await.map(|()| began.elapsed())
        }
    }

    impl ValueStore for Scripted {
        type Operation<'a> = Budget<'a, Arc<Receipts<()>>>;
        type Live = Arc<Receipts<()>>;
        type Known = ();
        type Failure = Interrupted;

        fn receipts(&self, session: SessionKey) -> Option<Arc<Receipts<()>>> {
            Some((*self.sessions.get(session)?).clone())
        }

        fn budget<'o, 'a>(budget: &'o mut Self::Operation<'a>) -> &'o mut Budget<'a, Self::Live> {
            budget
        }

        async fn write(
            &self,
            write: &mut ValueWrite<'_, Self::Operation<'_>>,
            receipt: &mut Receipt<()>,
        ) -> Answer {
            self.sent.lock().unwrap().push(receipt.session.id);
            let answer = self.answers.lock().unwrap().pop_front();
            let until = write.operation.deadline();
            let answer = match answer {
                Some(answer) => answer,
                None => {
                    let none = self.sessions.run_until_ended(receipt.session, until, pending::<Answer>());
                    none.await.and_then(|answer| answer)
                }
            };
            write.operation.record(answer)
        }

        fn runtime(&self) -> Option<&Handle> {
            Some(&self.runtime)
        }

        async fn void(self: &Arc<Self>, _: &mut Receipt<()>) -> Result<(), Interrupted> {
            let (fail, sent) = &mut *self.voids.lock().unwrap();
            *sent += 1;
            if *sent > *fail { Ok(()) } else { Err(Interrupted::Disconnected) }
        }
    }

    fn path() -> LockPath {
        LockPath::new("/value").unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn an_answered_write_is_not_voided() {
        let conflict = || Ok(Some(WriteOutcome::Conflict(None)));
        for answers in [vec![WRITTEN], vec![conflict()], vec![LOST, WRITTEN], vec![Ok(None), conflict()]] {
            let (store, session) = Scripted::new(answers.clone());
            assert_eq!(Ok(Some(store.write(None).await.unwrap())), *answers.last().unwrap());
            assert_eq!(store.settled(session).await, Ok(Duration::ZERO));
            assert_eq!(store.voids.lock().unwrap().1, 0, "{answers:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn later_operations_wait_until_a_write_of_unknown_outcome_is_void() {
        let refused = || Ok(Some(WriteOutcome::Conflict(None)));
        // Dropped while it waits for an answer, given up, or refused although an earlier request may still arrive.
        for answers in [vec![], vec![Err(Interrupted::TimedOut)], vec![LOST, refused()]] {
            let (store, session) = Scripted::new(answers.clone());
            let _ = timeout(SECOND, store.write(None)).await;
            assert_eq!(store.settled(session).await, Ok(3 * PAUSE), "{answers:?}");
            assert_eq!(store.voids.lock().unwrap().1, 4);
            store.answers.lock().unwrap().push_back(WRITTEN);
            assert!(store.write(None).await.is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_is_not_voided_once_its_session_is_over() {
        let (store, session) = Scripted::new([]);
        store.voids.lock().unwrap().0 = u32::MAX;
        let _ = timeout(SECOND, store.write(None)).await;
        let (waits, ()) = tokio::join!(store.settled(session), async {
            sleep(SECOND).await;
            store.sessions.end(session);
        });
        assert_eq!(waits, Err(Interrupted::SessionLost));
        let sent = store.voids.lock().unwrap().1;
        sleep(10 * SECOND).await;
        assert_eq!(store.voids.lock().unwrap().1, sent);
        assert!(Arc::strong_count(&store) == 1, "nothing is left in the background");
    }

    #[tokio::test(start_paused = true)]
    async fn a_conflict_in_the_next_session_may_be_with_an_attempt_in_the_first() {
        for (answer, is_known) in [(Ok(Some(WriteOutcome::Conflict(None))), false), (WRITTEN, true)] {
            let (store, session) = Scripted::new([]);
            let (outcome, ()) = tokio::join!(store.write(None), async {
                sleep(SECOND).await;
                store.answers.lock().unwrap().push_back(answer);
                store.sessions.end(session);
                store.begin(8);
            });
            assert_eq!(*store.sent.lock().unwrap(), [SessionId::new(7), SessionId::new(8)]);
            assert_eq!(outcome.is_ok(), is_known);
            assert!(outcome.is_ok() || outcome.unwrap_err().is_ambiguous());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_guard_that_is_deleted_is_hidden_and_then_forgotten() {
        let (store, _) = Scripted::new([]);
        let (own, id) = (store.sessions.own(), NodeId::new("a"));
        let notice = own.insert(&id);
        let (token, name) = (FencingToken::new(1), NodeName::new("a"));
        let node = Node::new(name.clone(), id, Label::Lock, Sequence::new(1));
        let guard = GuardNode::new(LockPath::new("/lock").unwrap(), name, token).and_delete(node);
        let (outcome, ()) = tokio::join!(timeout(SECOND, store.write(Some(&guard))), async {
            sleep(SECOND / 2).await;
            own.compare(own.mark(), &Default::default());
        });
        assert!(outcome.is_err() && !notice.is_deleted(), "hidden");
        assert!(own.contains(&NodeId::new("a")), "the caller deletes it");
        store.answers.lock().unwrap().push_back(WRITTEN);
        assert!(store.write(Some(&guard)).await.is_ok());
        assert!(!own.contains(&NodeId::new("a")) && !notice.is_deleted(), "forgotten");
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
}
