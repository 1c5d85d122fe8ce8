//! Proof that a leader has renewed a lease.

use etcd_client::ResponseHeader;
use tokio::time::Instant;

/// The member that answered, and its term at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answerer {
    member: u64,
    pub(crate) term: u64,
}

impl Answerer {
    pub(crate) fn of(header: Option<&ResponseHeader>) -> Self {
        let (member, term) = header.map_or((0, 0), |header| (header.member_id(), header.raft_term()));
        Answerer { member, term }
    }
}

/// An answered keep-alive, on which a create may rely.
///
/// A keep-alive alone proves nothing, and a put renews no lease. But suppose that the create was sent after the keep-alive
/// was answered, and that the same member answers it, in the term that it had when the cluster was asked before the
/// keep-alive. Then that term's leader led during the whole time in between, because the create needed its agreement and a
/// term has one leader. So the lease was renewed by that leader, and not by one that had been replaced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renewal {
    pub(crate) sent: Instant,
    pub(crate) by: Answerer,
}

impl Renewal {
    /// Returns `true` if the answer to a write that was sent after it confirms it.
    pub(crate) fn is_confirmed_by(&self, header: Option<&ResponseHeader>) -> bool {
        self.by == Answerer::of(header)
    }
}
