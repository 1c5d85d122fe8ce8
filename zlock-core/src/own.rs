//! A session's own nodes, and the notice that one of them is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::node::Token;

/// Tells the maker of a node that the store no longer has it although the session lives on: somebody deleted
/// it. Level-triggered, and local: looking at it costs no request.
#[derive(Clone, Debug)]
pub struct GoneNotice(Arc<Gone>);

/// What a notice looks at. A `Notify` wakes in the order of waiting; tokio's watch channel in a random one, and
/// then a seed is not the same run twice.
#[derive(Debug, Default)]
struct Gone {
    is_gone: AtomicBool,
    told: Notify,
}

impl Gone {
    fn tell(&self) {
        self.is_gone.store(true, Ordering::Release);
        self.told.notify_waiters();
    }
}

impl GoneNotice {
    /// Whether the node was reported gone.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.0.is_gone.load(Ordering::Acquire)
    }

    /// Waits until the node is reported gone; for ever if it never is.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn gone(&mut self) {
        let mut told = pin!(self.0.told.notified());
        told.as_mut().enable();
        if !self.is_gone() {
            told.await;
        }
    }
}

/// The nodes that a backend made and still answers for. A heartbeat that lists the session's nodes is
/// compared with what was known when it was *sent*, by token, leaving out nodes that were being relabelled
/// or deleted at any time since.
#[derive(Debug, Default)]
pub struct OwnNodes(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    nodes: BTreeMap<Token, Own>,
    /// Grows with each change that makes an older listing say nothing about a node.
    clock: u64,
}

#[derive(Debug)]
struct Own {
    gone: Arc<Gone>,
    /// The clock when the node was made: no other node, nor an earlier one of the same token, has it.
    made: u64,
    /// The clock when the node was made or last relabelled.
    since: u64,
    /// How many relabels are under way: one for each [`Hidden`].
    busy: u32,
}

impl Own {
    fn is_missing(&self, token: &Token, mark: u64, present: &BTreeSet<Token>) -> bool {
        self.busy == 0 && self.since <= mark && !present.contains(token)
    }
}

impl OwnNodes {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a node in: call when its create was answered.
    #[must_use = "the notice belongs into `Created`"]
    pub fn insert(&self, token: &Token) -> GoneNotice {
        let mut state = self.lock();
        state.clock += 1;
        let since = state.clock;
        let gone = Arc::<Gone>::default();
        state.nodes.insert(token.clone(), Own { gone: gone.clone(), made: since, since, busy: 0 });
        GoneNotice(gone)
    }

    /// Forgets a node: call before its delete is sent. Its notice stays silent from then on.
    pub fn remove(&self, token: &Token) {
        self.lock().nodes.remove(token);
    }

    /// Leaves a node out of every comparison until the returned guard is dropped: hold it while the node is
    /// relabelled. A node that is inserted with the same token in the meantime is not hidden.
    #[must_use = "the node is hidden only as long as this lives"]
    pub fn hide(&self, token: &Token) -> Hidden<'_> {
        let made = self.lock().nodes.get_mut(token).map(|own| {
            own.busy += 1;
            own.made
        });
        Hidden { nodes: self, token: token.clone(), made }
    }

    /// A mark to take before a listing of the session's nodes is sent. Also drops nodes whose makers have
    /// lost interest.
    #[must_use = "compare the listing with it"]
    pub fn mark(&self) -> u64 {
        let mut state = self.lock();
        state.nodes.retain(|_, own| Arc::strong_count(&own.gone) > 1);
        state.clock
    }

    /// Compares a listing that was sent after `mark`: nodes known by then that it does not have are gone.
    pub fn compare(&self, mark: u64, present: &BTreeSet<Token>) {
        self.compare_part(mark, present, |_| true);
    }

    /// Compares a listing of some of the session's nodes: only a node that `listed` accepts can be reported gone.
    pub fn compare_part(&self, mark: u64, present: &BTreeSet<Token>, listed: impl Fn(&Token) -> bool) {
        self.lock().nodes.retain(|token, own| {
            let gone = listed(token) && own.is_missing(token, mark, present);
            if gone {
                own.gone.tell();
            }
            !gone
        });
    }

    /// The nodes that [`compare`](OwnNodes::compare) would report: for a store whose listing may be behind, so
    /// that they must be looked for once more before they are [reported](OwnNodes::report_gone).
    #[must_use]
    pub fn missing(&self, mark: u64, present: &BTreeSet<Token>) -> Vec<Token> {
        let state = self.lock();
        let missing = state.nodes.iter().filter(|(token, own)| own.is_missing(token, mark, present));
        missing.map(|(token, _)| token.clone()).collect()
    }

    /// Reports one node gone: for a backend that learned it in another way.
    pub fn report_gone(&self, token: &Token) {
        if let Some(own) = self.lock().nodes.remove(token) {
            own.gone.tell();
        }
    }

    /// Forgets every node: their session is over, which is said elsewhere.
    pub fn clear(&self) {
        self.lock().nodes.clear();
    }

    /// Whether it answers for this node.
    #[must_use]
    pub fn contains(&self, token: &Token) -> bool {
        self.lock().nodes.contains_key(token)
    }

    /// The tokens of all nodes that it answers for, in order.
    #[must_use]
    pub fn tokens(&self) -> Vec<Token> {
        self.lock().nodes.keys().cloned().collect()
    }

    /// How many nodes it answers for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().nodes.len()
    }

    /// Whether it answers for none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Keeps a node out of the comparisons with the session's nodes, from [`OwnNodes::hide`] until it is dropped.
#[derive(Debug)]
pub struct Hidden<'a> {
    nodes: &'a OwnNodes,
    token: Token,
    /// Which node of this token is hidden; `None` if there was none.
    made: Option<u64>,
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        let mut state = self.nodes.lock();
        state.clock += 1;
        let since = state.clock;
        if let Some(own) = state.nodes.get_mut(&self.token)
            && self.made == Some(own.made)
        {
            own.busy -= 1;
            own.since = since;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_known_when_the_listing_was_sent_can_be_gone() {
        let own = OwnNodes::default();
        let (old, new) = (Token::new("old"), Token::new("new"));
        let old_notice = own.insert(&old);
        let mark = own.mark();
        let new_notice = own.insert(&new);
        own.compare(mark, &BTreeSet::new());
        assert!(old_notice.is_gone());
        assert!(!new_notice.is_gone());
        own.compare(own.mark(), &BTreeSet::from([new.clone()]));
        assert!(!new_notice.is_gone());
        own.compare(own.mark(), &BTreeSet::new());
        assert!(new_notice.is_gone());
    }

    #[test]
    fn a_relabel_under_way_or_since_hides_a_node() {
        let own = OwnNodes::default();
        let token = Token::new("t");
        let notice = own.insert(&token);
        let before = own.mark();
        let (hidden, also) = (own.hide(&token), own.hide(&token));
        own.compare(own.mark(), &BTreeSet::new());
        drop(hidden);
        own.compare(own.mark(), &BTreeSet::new());
        drop(also);
        own.compare(before, &BTreeSet::new());
        assert!(!notice.is_gone());
        own.compare(own.mark(), &BTreeSet::new());
        assert!(notice.is_gone());
    }

    #[test]
    fn a_node_that_is_inserted_while_an_earlier_one_of_its_token_is_hidden_is_not_hidden() {
        let own = OwnNodes::default();
        let token = Token::new("t");
        let nothing = own.hide(&token);
        let earlier = own.insert(&token);
        let hidden = own.hide(&token);
        let later = own.insert(&token);
        drop((nothing, hidden));
        own.compare(own.mark(), &BTreeSet::new());
        assert!(later.is_gone() && !earlier.is_gone());
        // And hidden in its turn.
        let again = own.insert(&token);
        let hidden = own.hide(&token);
        own.remove(&token);
        drop(hidden);
        assert!(own.is_empty() && !again.is_gone());
    }

    #[test]
    fn a_listing_of_a_part_says_nothing_of_the_rest() {
        let own = OwnNodes::default();
        let notices = ["a/1", "a/2", "b/1"].map(|token| own.insert(&Token::new(token)));
        own.compare_part(own.mark(), &BTreeSet::from([Token::new("a/1")]), |t| t.as_str().starts_with("a/"));
        assert_eq!(notices.map(|notice| notice.is_gone()), [false, true, false]);
        assert_eq!(own.tokens(), ["a/1", "b/1"].map(Token::new));
    }

    #[test]
    fn missing_nodes_are_not_reported_yet() {
        let own = OwnNodes::default();
        let (here, gone) = (Token::new("here"), Token::new("gone"));
        let notices = [own.insert(&here), own.insert(&gone)];
        let mark = own.mark();
        let _new = own.insert(&Token::new("new"));
        assert_eq!(own.missing(mark, &BTreeSet::from([here])), std::slice::from_ref(&gone));
        assert!(notices.iter().all(|notice| !notice.is_gone()));
        own.report_gone(&gone);
        assert!(notices[1].is_gone());
    }

    #[test]
    fn deleted_and_forgotten_nodes_leave_nothing() {
        let own = OwnNodes::default();
        let notice = own.insert(&Token::new("a"));
        own.remove(&Token::new("a"));
        own.compare(own.mark(), &BTreeSet::new());
        assert!(!notice.is_gone());
        drop(own.insert(&Token::new("b")));
        assert!(own.contains(&Token::new("b")));
        let _ = own.mark();
        assert!(own.is_empty());
    }
}
