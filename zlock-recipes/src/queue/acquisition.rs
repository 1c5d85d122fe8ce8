//! An acquisition as a pure state machine, which takes events and returns the next request or the result.

use zlock_core::{Node, NodeId, Queue};

use super::judge::{Discipline, Verdict, judge};

/// The status of the session and the own node at this moment. Determined without I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The node's session is the live one, and the node was not reported as deleted.
    Live,
    /// The node's session is over.
    SessionLost,
    /// The client is closed.
    Closed,
    /// The store refuses the credentials, or a permission that the session needs.
    NotAuthorized,
    /// Another client deleted the node.
    NodeDeleted,
}

/// What has happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A listing arrived that was requested after the last wake-up.
    Listed(Queue),
    /// The store proved without a listing that the own node was alone in its queue when it was created. Only the first event
    /// can be this one. On ZooKeeper, the proof is a number and a pin.
    Alone,
    /// The watch on the node to wait for is armed, or the end of that node will be reported in another way.
    Armed,
    /// The node to wait for was deleted or relabelled, so there is nothing to watch.
    NotArmed,
    /// A listing as in `Listed` arrived, with a watch on the whole queue.
    ListedAndArmed(Queue),
    /// A watch fired, or the session or the own node changed.
    Woken,
    /// The node right before the own one, by a listing or by the numbers of both, held the lock exclusively, and the store
    /// has confirmed that it was removed while the own one was there.
    Succeeded,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask for the queue.
    List,
    /// Arm a watch on this node, as it was listed.
    Arm(Node),
    /// Ask for the queue, and arm a watch on all of it.
    ListAndArm,
    /// Wait until a watch fires, or the session or the own node changes.
    Wait,
    /// The lock is held.
    Granted {
        /// Notify the node behind by relabelling the own one (semaphore only).
        promote: bool,
    },
    /// The lock will never be held. The reason is not [`Status::Live`].
    Ended(Status),
}

/// The wait for one place in a queue. It begins with what the create shows of the queue, or with a promise of the place before.
///
/// Rules: only a listing, [`Alone`](Event::Alone) and [`Succeeded`](Event::Succeeded) grant. Every grant is checked against the
/// status at that moment. A watch is armed on a node as it was listed. "The ways to a grant" in ARCHITECTURE.md has the
/// conditions of each, and the fourth way, which passes a held lock on without an acquisition.
#[derive(Clone, Debug)]
pub struct Acquisition {
    me: NodeId,
    discipline: Discipline,
}

impl Acquisition {
    /// Creates an acquisition of the node with this ID.
    #[must_use]
    pub fn new(me: NodeId, discipline: Discipline) -> Self {
        Acquisition { me, discipline }
    }

    /// Takes an event and the current status, and returns the next step.
    #[must_use]
    pub fn next(&self, event: Event, status: Status) -> Step {
        if status != Status::Live {
            return Step::Ended(status);
        }
        match event {
            Event::Woken | Event::NotArmed => Step::List,
            Event::Armed => Step::Wait,
            // No node is behind that one could promote.
            Event::Alone | Event::Succeeded => Step::Granted { promote: false },
            Event::Listed(queue) => self.judge(&queue, Step::ListAndArm),
            Event::ListedAndArmed(queue) => self.judge(&queue, Step::Wait),
        }
    }

    fn judge(&self, queue: &Queue, first_in_line: Step) -> Step {
        match judge(queue, &self.me, self.discipline) {
            Verdict::Held { followed } => {
                Step::Granted { promote: followed && matches!(self.discipline, Discipline::Permits { .. }) }
            }
            Verdict::WaitFor(node) => Step::Arm(node),
            Verdict::WaitForAny => first_in_line,
            Verdict::NodeDeleted => Step::Ended(Status::NodeDeleted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: &[&str] = &["lock-0000000002"];
    const BEHIND: &[&str] = &["lock-0000000001", "lock-0000000002"];

    fn me() -> Acquisition {
        Acquisition::new(NodeId::new("lock-0000000002"), Discipline::Exclusive)
    }

    fn queue(names: &[&str]) -> Queue {
        Queue::of_names(names)
    }

    #[test]
    fn waits_for_its_predecessor_and_lists_again_before_the_grant() {
        let me = me();
        let good = Status::Live;
        let predecessor = queue(BEHIND)[0].clone();
        assert_eq!(me.next(Event::Listed(queue(BEHIND)), good), Step::Arm(predecessor));
        assert_eq!(me.next(Event::Armed, good), Step::Wait);
        assert_eq!(me.next(Event::Woken, good), Step::List);
        assert_eq!(me.next(Event::Listed(queue(ALONE)), good), Step::Granted { promote: false });
    }

    #[test]
    fn a_node_that_is_proved_to_be_alone_needs_no_listing() {
        assert_eq!(me().next(Event::Alone, Status::Live), Step::Granted { promote: false });
    }

    #[test]
    fn a_node_that_cannot_be_watched_means_another_listing() {
        assert_eq!(me().next(Event::NotArmed, Status::Live), Step::List);
    }

    #[test]
    fn nothing_is_granted_unless_the_standing_is_good() {
        for status in [Status::SessionLost, Status::Closed, Status::NotAuthorized, Status::NodeDeleted] {
            assert_eq!(me().next(Event::Listed(queue(ALONE)), status), Step::Ended(status));
            assert_eq!(me().next(Event::Alone, status), Step::Ended(status));
            assert_eq!(me().next(Event::Woken, status), Step::Ended(status));
        }
        assert_eq!(me().next(Event::Listed(queue(&[])), Status::Live), Step::Ended(Status::NodeDeleted));
    }

    #[test]
    fn first_in_line_at_a_semaphore_watches_the_queue_and_promotes() {
        let node_id = |n: u32| format!("{n:08}-0000-0000-0000-000000000000");
        let name = |n: u32, w: u32| format!("_c_{}-__PERM__{w}of3__{n:010}", node_id(n));
        let me = Acquisition::new(NodeId::new(node_id(2)), Discipline::Permits { max: 3 });
        let blocked = queue(&[&name(1, 2), &name(2, 2), &name(3, 1)]);
        assert_eq!(me.next(Event::Listed(blocked.clone()), Status::Live), Step::ListAndArm);
        assert_eq!(me.next(Event::ListedAndArmed(blocked), Status::Live), Step::Wait);
        let free = queue(&[&name(2, 2), &name(3, 1)]);
        assert_eq!(me.next(Event::Listed(free), Status::Live), Step::Granted { promote: true });
        let last = queue(&[&name(2, 2)]);
        assert_eq!(me.next(Event::Listed(last), Status::Live), Step::Granted { promote: false });
    }
}
