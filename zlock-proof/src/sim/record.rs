//! What the oracle remembers of a run.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;
use zlock::job::{JobContext, Tick};
use zlock::{FencingToken, LeaderView, LockContext};

use crate::kind::Kind;

/// A granted lock whose node exists, as far as its holder knows.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) path: usize,
    pub(crate) client: usize,
    pub(crate) kind: Kind,
    pub(crate) held: LockContext,
    /// `true` during a downgrade, which ends the write lock.
    pub(crate) becoming: bool,
    /// `true` once the guard has reported that the lock is not held.
    pub(crate) lost: bool,
    /// When the holder released it.
    pub(crate) left: Option<Instant>,
}

/// All holds, by fencing token.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    pub(crate) by_token: BTreeMap<FencingToken, Hold>,
    /// The nodes that an operator deleted, and when.
    pub(crate) taken: BTreeMap<u64, Instant>,
    /// The holders that wait for a request for revocation, each with a watch on its own node.
    pub(crate) listening: BTreeSet<u64>,
    /// The highest granted fencing token, by path and kind.
    pub(crate) highest: BTreeMap<usize, BTreeMap<Kind, FencingToken>>,
    /// The nodes that were ever granted.
    pub(crate) granted: BTreeSet<u64>,
}

impl Holds {
    /// Returns `true` if the client believes that it holds the lock with a node that an operator deleted. It notices with its
    /// next heartbeat. Until then, its waiters behind this node do not notice either.
    pub(crate) fn has_untold(&self, client: usize, path: usize) -> bool {
        self.by_token.iter().any(|(token, hold)| {
            let is_there = (hold.client, hold.path) == (client, path) && hold.left.is_none() && !hold.lost;
            is_there && self.taken.contains_key(&token.number())
        })
    }

    /// Returns the latest hold of the node with this number.
    pub(crate) fn latest(&self, number: u64) -> Option<(FencingToken, &Hold)> {
        let token = FencingToken::new(number);
        self.by_token.range(token..=token.with_turn(u32::MAX)).next_back().map(|(token, hold)| (*token, hold))
    }
}

/// What restarts of a ledger have undone, and which open transactions of users protect nodes.
#[derive(Debug, Default)]
pub(crate) struct Past {
    /// When the last change took place that ends all sessions.
    pub(crate) lossy: Option<Instant>,
    /// The nodes whose sessions it ended, and when. Their holders may not know yet.
    pub(crate) over: BTreeMap<u64, Instant>,
    /// The nodes whose deletion was undone.
    pub(crate) ghosts: BTreeSet<u64>,
    /// The open transactions, by their numbers.
    pub(crate) fences: BTreeMap<u64, Fence>,
    /// How many transactions there were.
    pub(crate) transactions: u64,
}

/// A user's open transaction that protects a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fence {
    pub(crate) path: usize,
    pub(crate) number: u64,
    pub(crate) kind: Kind,
}

/// The history of the heads of the queue.
#[derive(Debug, Default)]
pub(crate) struct Firsts {
    /// The maxima of heads of the queue by path, and when each was last seen.
    pub(crate) last: BTreeMap<(usize, u32), Instant>,
    /// The nodes that have seen their own maximum at the head. They may stay, whatever the head is later.
    pub(crate) agreed: BTreeSet<u64>,
}

impl Firsts {
    /// Returns `true` if the head has had the maximum of this node at some time since the node was created.
    pub(crate) fn agreed(&self, number: u64) -> bool {
        self.agreed.contains(&number)
    }
}

/// An event that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// The node is entitled to the lock, but its client was not notified.
    Grant(u64),
    /// The node's holder has released or lost the lock, but the node still exists.
    Removal(u64),
    /// The holder has been downgraded, but the store still has a writer.
    Relabel(u64),
    /// The node has always disagreed with the head of the queue about the maximum, but its client got no error.
    Refusal(u64, u64),
    /// The client has more nodes on this path than it needs.
    Leftover(usize),
    /// The node would be entitled to the lock without those in front whose sessions are over or whose clients are dead.
    Death(u64),
}

/// The due events, and since when each depends on these clients.
#[derive(Debug, Default)]
pub(crate) struct Late(pub(crate) BTreeMap<(usize, Due), (Instant, BTreeSet<usize>)>);

/// What clients share beside locks: a counter, values that holders write, and views of an election.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// The results of all additions of 1 that were reported.
    pub(crate) sums: BTreeSet<i64>,
    /// The number of additions that may have taken effect, or not.
    pub(crate) unknown: i64,
    /// `true` if the store has lost some.
    pub(crate) is_lost: bool,
    /// The latest value that a holder of each path wrote.
    pub(crate) fenced: BTreeMap<usize, Vec<u8>>,
    /// The latest view of each process's observer.
    pub(crate) views: BTreeMap<u64, LeaderView>,
}

/// What is known of the job.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    /// The attempts that began, by tick.
    pub(crate) begun: BTreeMap<Tick, u32>,
    /// The ticks that the record has shown as done.
    pub(crate) done: BTreeSet<Tick>,
    /// The attempts under way, by fencing token, and their clients.
    pub(crate) running: BTreeMap<FencingToken, (usize, JobContext)>,
    pub(crate) highest: Option<FencingToken>,
    /// The record and the numbers of the nodes in the queue, right before the last request.
    pub(crate) record: Option<Seen>,
    pub(crate) queue: BTreeSet<u64>,
}

/// A record, without what may be noted in it by others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) tick: Tick,
    pub(crate) state: String,
    pub(crate) attempt: u32,
    pub(crate) token: u64,
}

impl Seen {
    pub(crate) fn of(data: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(data).ok()?;
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        Some(Seen {
            tick: field("tick")?.parse().ok()?,
            state: field("state")?.to_owned(),
            attempt: field("attempt")?.parse().ok()?,
            token: field("token")?.parse().ok()?,
        })
    }
}
