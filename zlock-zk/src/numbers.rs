//! Which of the server's numbers are places in a queue, and how to make it count from 0 again.
//!
//! A server numbers a parent's children, anybody's, by a signed 32-bit counter, which begins at 0 with the parent. From
//! 3.6 on the counter stays at 2147483647: creates one at a time all get that number, creates that are in flight
//! together get 2147483647, -2147483648, -2147483647 and so on, and the next ones get the same numbers again. Servers
//! before 3.6 wrap, and give each number once.
//!
//! Numbers near the wrap, the *edge*, therefore do not show who came first, and none of them is a place of ours. That
//! excludes two holders among our nodes, at any number:
//!
//! - A parent that has a node cannot be removed, so all nodes in a queue were numbered by the same counter. As long as
//!   fewer than 2^20 creates are in flight together, a number outside the edge is given once, and to a later node than
//!   all smaller ones. The numbers of our nodes are thus in the order in which the nodes were made.
//! - A listing keeps that order, whatever nodes of others it has. `Queue::wrapping` cuts the ring of numbers at its
//!   widest gap. No node has a number between the edge and 0, a gap of 2^31 - 2^20, and two nodes of ours are at most
//!   2^31 - 2^20 - 2 apart: the cut is never between them.
//! - Nodes of others at the edge are ordered as they are listed, before or behind ours. Curator's clients judge them in
//!   their own way, and two of them may hold there, or one of them beside one of ours. Our nodes that are about to be
//!   deleted are seen the same way: whoever waits for one of them looks again when it is gone.
//!
//! Before 3.6 numbers between the edge and 0 are given, too, and are places. There the order is right as long as no node
//! stays while 2^31 - 2^21 others are made.

use std::time::Duration;

use tokio::time::Instant;
use zlock_core::kit::SessionKey;
use zlock_core::{NodeName, Sequence};
use zookeeper_client::Error;

use crate::error::Failure;
use crate::operation::Operation;

/// How many numbers on either side of the wrap are at the edge.
const EDGE: i64 = 1 << 20;
/// From this number on the parent is removed when it is found empty. It is half of what there is.
const LATE: i64 = 1 << 30;

/// What a number is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worth {
    /// A place in the queue.
    Place,
    /// A place, but there are not many left.
    Late,
    /// No place: it may be given again.
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

/// Removes the parent together with this node of ours, its only child. `false`, and nothing is changed, if that cannot
/// be done.
pub(crate) async fn start_over(
    operation: &mut Operation<'_>,
    session: SessionKey,
    node: &NodeName,
) -> Result<bool, Failure> {
    let (node, parent) = (operation.node_path(node), operation.server_path());
    let sent = operation.write(session, move |live| async move {
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

/// The wait for a parent at the edge to be removed. Nothing is created meanwhile.
#[derive(Debug)]
pub(crate) struct UsedUp {
    /// Of the parent: another one counts from 0.
    czxid: i64,
    delay: Duration,
}

impl UsedUp {
    const FIRST_DELAY: Duration = Duration::from_millis(20);
    const LONGEST_DELAY: Duration = Duration::from_secs(1);

    /// Deletes a node of ours that got a number at the edge. `None` if it was gone, and perhaps its parent with it.
    pub(crate) async fn delete_node(
        operation: &mut Operation<'_>,
        session: SessionKey,
        node: &NodeName,
    ) -> Result<Option<Self>, Failure> {
        // As long as the node is there, so is the parent that gave the number.
        let czxid = czxid_and_children(operation, session).await?.map(|(czxid, _)| czxid);
        let deleted = crate::delete::by_name(operation, session, node).await?;
        Ok(czxid.filter(|_| deleted).map(|czxid| UsedUp { czxid, delay: Self::FIRST_DELAY }))
    }

    /// Waits until the parent is gone, or another one is there; removes it when it is empty. The operation's budget
    /// begins anew with each answer, since the lock may be held for any time.
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

    async fn is_over(&self, operation: &Operation<'_>, session: SessionKey) -> Result<bool, Failure> {
        match czxid_and_children(operation, session).await? {
            Some((czxid, children)) if czxid == self.czxid => {
                if children > 0 {
                    return Ok(false);
                }
            }
            _ => return Ok(true),
        }
        let path = operation.server_path();
        match operation.ask(session, move |live| async move { live.client.delete(&path, None).await }).await {
            Ok(()) | Err(Failure::Zk(Error::NoNode)) => Ok(true),
            // Without the permission, the server removes empty containers by itself.
            Err(Failure::Zk(Error::NotEmpty | Error::NoAuth)) => Ok(false),
            Err(failure) => Err(failure),
        }
    }
}

/// What identifies the parent, and how many children it has; `None` if there is none.
async fn czxid_and_children(
    operation: &Operation<'_>,
    session: SessionKey,
) -> Result<Option<(i64, i32)>, Failure> {
    let path = operation.server_path();
    let stat = operation.ask(session, move |live| async move { live.client.check_stat(&path).await }).await?;
    Ok(stat.map(|stat| (stat.czxid, stat.num_children)))
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

    /// Whatever nodes of others there are at the edge.
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
