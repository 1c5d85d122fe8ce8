//! Decides which of the server's numbers are places in a queue, and makes a parent count from 0 again.
//!
//! A server numbers the children of a parent, whichever client creates them, with a signed 32-bit counter that begins at 0
//! with the parent. From 3.6 on, the counter stays at 2147483647. Creates one at a time all get that number. Creates that are
//! in flight together get 2147483647, -2147483648, -2147483647 and so on, and the next ones get the same numbers again.
//! Servers before 3.6 wrap, and assign each number once.
//!
//! Numbers near the wrap, the *edge*, therefore do not show which node came first, and none of them is a place for us. That
//! rules out two holders among our nodes, at any number:
//!
//! - A parent that has a node cannot be removed, so all nodes in a queue were numbered by the same counter. As long as fewer
//!   than 2^20 creates are in flight together, a number outside the edge is assigned once, and to a later node than all
//!   smaller numbers. The numbers of our nodes are thus in the order in which the nodes were created.
//! - A listing keeps that order, whatever nodes of other clients it contains. `Queue::wrapping` cuts the ring of numbers at
//!   its widest gap. No node has a number between the edge and 0, a gap of 2^31 - 2^20, and two nodes of ours are at most
//!   2^31 - 2^20 - 2 apart: the cut is never between them.
//! - Nodes of other clients at the edge are ordered as they are listed, before or behind ours. Curator's clients judge them
//!   in their own way: two of them may hold the lock there, or one of them together with one of ours. Our nodes that are
//!   about to be deleted are seen the same way: a client that waits for one of them lists the queue again when it is gone.
//!
//! Before 3.6, numbers between the edge and 0 are assigned, too, and are places. Their order is correct as long as no node
//! stays while 2^31 - 2^21 others are created.

use std::time::Duration;

use tokio::time::Instant;
use zlock_core::kit::SessionKey;
use zlock_core::{NodeName, Sequence};
use zookeeper_client::Error;

use crate::error::Failure;
use crate::operations::operation::{Leaves, Operation};

/// The number of numbers on either side of the wrap that are at the edge.
const EDGE: i64 = 1 << 20;
/// From this number on, the parent is removed when it is found empty. It is half of the range.
const LATE: i64 = 1 << 30;

/// The use of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worth {
    /// A place in the queue.
    Place,
    /// A place, but there are not many left.
    Late,
    /// Not a place, because it may be assigned again.
    Nothing,
}

impl Worth {
    pub(crate) const fn of(sequence: Sequence) -> Self {
        const FIRST: i64 = i32::MIN as i64 + EDGE;
        const LAST: i64 = i32::MAX as i64 - EDGE;
        match sequence.get() {
            ..=FIRST | LAST.. => Worth::Nothing,
            0..LATE => Worth::Place,
            _ => Worth::Late,
        }
    }
}

/// Removes the parent together with this node of ours, its only child. Returns `false` and changes nothing if that is not
/// possible.
pub(crate) async fn start_over(
    operation: &mut Operation<'_>,
    session: SessionKey,
    node: &NodeName,
) -> Result<bool, Failure> {
    let (node, parent) = (operation.node_path(node), operation.server_path());
    let sent = operation.send(session, Leaves::Change, move |live| async move {
        let mut transaction = live.client.new_multi_writer();
        transaction.add_delete(&node, None)?;
        transaction.add_delete(&parent, None)?;
        transaction.commit().await.map_err(Error::from)
    });
    match sent.await {
        Ok(_) => Ok(true),
        Err(Failure::Zk(Error::NotEmpty | Error::NoAuth | Error::NoNode)) => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// The wait for a parent at the edge to be removed. Nothing is created during the wait.
#[derive(Debug)]
pub(crate) struct UsedUp {
    /// Identifies the parent: a parent that is created later counts from 0.
    czxid: i64,
    delay: Duration,
}

impl UsedUp {
    const FIRST_DELAY: Duration = Duration::from_millis(20);
    const LONGEST_DELAY: Duration = Duration::from_secs(1);

    /// Deletes a node of ours that got a number at the edge. `None` if the node was gone, and perhaps its parent with it.
    pub(crate) async fn delete_node(
        operation: &mut Operation<'_>,
        session: SessionKey,
        node: &NodeName,
    ) -> Result<Option<Self>, Failure> {
        // While the node exists, so does the parent that assigned the number.
        let czxid = operation.stat(session, operation.server_path()).await?.map(|stat| stat.czxid);
        let deleted = crate::operations::delete::by_name(operation, session, node).await?;
        Ok(czxid.filter(|_| deleted).map(|czxid| UsedUp { czxid, delay: Self::FIRST_DELAY }))
    }

    /// Waits until the parent is gone or was replaced, and removes it when it is empty. Each answer restarts the operation's
    /// budget, because the lock may be held for any time.
    pub(crate) async fn wait(
        &mut self,
        operation: &mut Operation<'_>,
        session: SessionKey,
    ) -> Result<(), Failure> {
        while !self.is_over(operation, session).await? {
            operation.shared.sessions.sleep_until(Instant::now() + self.delay).await?;
            operation.budget.restart();
            self.delay = Self::LONGEST_DELAY.min(self.delay * 2);
        }
        operation.budget.restart();
        Ok(())
    }

    async fn is_over(&self, operation: &mut Operation<'_>, session: SessionKey) -> Result<bool, Failure> {
        match operation.stat(session, operation.server_path()).await? {
            Some(stat) if stat.czxid == self.czxid => {
                if stat.num_children > 0 {
                    return Ok(false);
                }
            }
            _ => return Ok(true),
        }
        let path = operation.server_path();
        let deleted = operation
            .send(session, Leaves::Nothing, move |live| async move { live.client.delete(&path, None).await });
        match deleted.await {
            Ok(()) | Err(Failure::Zk(Error::NoNode)) => Ok(true),
            // Without the permission, the server removes empty containers by itself.
            Err(Failure::Zk(Error::NotEmpty | Error::NoAuth)) => Ok(false),
            Err(failure) => Err(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_near_the_wrap_are_no_places() {
        let (max, min) = (i64::from(i32::MAX), i64::from(i32::MIN));
        for (number, worth) in [
            (0, Worth::Place),
            ((1 << 30) - 1, Worth::Place),
            (1 << 30, Worth::Late),
            (max - (1 << 20) - 1, Worth::Late),
            (max - (1 << 20), Worth::Nothing),
            (max, Worth::Nothing),
            (min, Worth::Nothing),
            (min + (1 << 20), Worth::Nothing),
            (min + (1 << 20) + 1, Worth::Late),
            (-1, Worth::Late),
        ] {
            assert_eq!(Worth::of(Sequence::new(number)), worth, "{number}");
        }
    }

    /// Whatever nodes of other clients are at the edge.
    #[test]
    fn the_order_of_our_nodes_is_that_of_their_numbers() {
        let (max, min) = (i64::from(i32::MAX), i64::from(i32::MIN));
        let last = max - EDGE - 1;
        assert_eq!(Worth::of(Sequence::new(last)), Worth::Late);
        let others = [max - EDGE, max - 1, max, min, min + 1, min + EDGE];
        for which in 0..1 << others.len() {
            for ours in [[0, 1], [0, last], [0, LATE], [LATE, last], [last - 1, last]] {
                let there = others.iter().enumerate().filter(|(i, _)| which & (1 << i) != 0);
                let numbers = there.map(|(_, number)| number).chain(&ours);
                let queue = zlock_core::Queue::of_names(numbers.map(|n| format!("lock-{n:010}")));
                let place = |n: i64| queue.iter().position(|node| node.sequence.get() == n).unwrap();
                assert!(place(ours[0]) < place(ours[1]), "{queue:?}");
            }
        }
    }
}
