//! Decides whether a node holds the lock, and which node it waits for: a pure function of a listing.

use zlock_core::{Label, Node, NodeId, Predecessor, Queue};

/// The condition on which a node in a queue holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// No node before this one (mutex, write lock).
    Exclusive,
    /// Only readers before this one (read lock).
    Shared,
    /// The weights of all nodes up to and including this one fit into `max` (semaphore).
    Permits {
        /// The maximum number of permits.
        max: u32,
    },
    /// As `Permits`, with a maximum that may change (semaphore with a shared maximum).
    SharedPermits {
        /// The maximum number of permits. `None` if it is not known: then the holders are those that are labelled so.
        max: Option<u64>,
    },
}

/// The maximum in the label of permits whose maximum is a value that may change.
pub const SHARED_MAX: u32 = 0;

/// The state of a node in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The node holds the lock.
    Held {
        /// Whether there is a node behind it.
        followed: bool,
    },
    /// The node waits only for this one.
    WaitFor(Node),
    /// The node is the first waiter of a semaphore, and waits for any of the holders.
    WaitForAny,
    /// The node is not in the queue.
    NodeDeleted,
}

impl Discipline {
    /// Returns the discipline of a node with this label.
    #[must_use]
    pub fn of(label: Label) -> Self {
        match label {
            Label::Read => Discipline::Shared,
            Label::Permits { max: SHARED_MAX, .. } => Discipline::SharedPermits { max: None },
            Label::Permits { max, .. } => Discipline::Permits { max },
            // A label that this version does not know excludes all nodes behind it.
            _ => Discipline::Exclusive,
        }
    }
}

/// Returns the state of the node with ID `me` in a queue.
///
/// The watch-your-predecessor queue is ZooKeeper's lock recipe; the nearest-writer rule is its shared lock.
#[must_use]
pub fn judge(queue: &Queue, me: &NodeId, discipline: Discipline) -> Verdict {
    if let Discipline::SharedPermits { max } = discipline {
        return judge_shared(queue, me, max);
    }
    let predecessor = match queue.predecessor(me) {
        Predecessor::NotQueued => return Verdict::NodeDeleted,
        Predecessor::Head { followed } => return Verdict::Held { followed },
        Predecessor::Node(predecessor) => predecessor,
    };
    if discipline == Discipline::Exclusive {
        return Verdict::WaitFor(predecessor);
    }
    let Some(place) = queue.position(me) else { return Verdict::NodeDeleted };
    let before = &queue[..place];
    let held = Verdict::Held { followed: place + 1 < queue.len() };
    let Discipline::Permits { max } = discipline else {
        return match before.iter().rfind(|n| n.label != Label::Read) {
            Some(writer) => Verdict::WaitFor(writer.clone()),
            None => held,
        };
    };
    let taken = weigh(before, max);
    if taken + weight(&queue[place], max) <= u64::from(max) {
        held
    } else if taken <= u64::from(max) {
        Verdict::WaitForAny
    } else {
        Verdict::WaitFor(predecessor)
    }
}

/// The head of the queue may have to wait, too: until the maximum is raised. Holders are labelled as such before they hold. A holder
/// may be behind a node that waits, if that node was not labelled in time. It counts for that node, too.
fn judge_shared(queue: &Queue, me: &NodeId, max: Option<u64>) -> Verdict {
    let Some(place) = queue.position(me) else { return Verdict::NodeDeleted };
    let (before, node, behind) = (&queue[..place], &queue[place], &queue[place + 1..]);
    let holders_behind = behind.iter().filter(|behind| is_granted(behind));
    let holds = match max {
        Some(max) => weigh_shared(queue[..=place].iter().chain(holders_behind)) <= max,
        None => is_granted(node),
    };
    match before.last() {
        _ if holds => Verdict::Held { followed: place + 1 < queue.len() },
        Some(predecessor) if !is_granted(predecessor) => Verdict::WaitFor(predecessor.clone()),
        _ => Verdict::WaitForAny,
    }
}

/// Returns `true` if this many permits of a semaphore with a shared maximum are free behind the queue.
#[must_use]
pub fn fits(queue: &Queue, weight: u32, max: u64) -> bool {
    weigh_shared(queue.iter()).saturating_add(weight.into()) <= max
}

fn is_granted(node: &Node) -> bool {
    matches!(node.label, Label::Permits { granted: true, .. })
}

/// A node that is no permit of such a semaphore excludes all nodes behind it.
fn weigh_shared<'a>(nodes: impl Iterator<Item = &'a Node>) -> u64 {
    let weight = |node: &Node| match node.label {
        Label::Permits { weight, max: SHARED_MAX, .. } => weight.into(),
        _ => u64::MAX,
    };
    nodes.map(weight).fold(0, u64::saturating_add)
}

/// Returns the nodes of a queue that hold the lock, in order. The queue may be that of any kind of lock. Without a node, there
/// is no holder.
///
/// For programs that read queues themselves. [`participants`](crate::LockHandle::participants) also reads the data of each node.
pub fn holders(queue: &Queue) -> impl Iterator<Item = &Node> {
    let holds =
        |node: &&Node| matches!(judge(queue, &node.id, Discipline::of(node.label)), Verdict::Held { .. });
    queue.iter().filter(holds)
}

/// Returns `true` if a node with this label would hold at once if it were appended to the queue.
#[must_use]
pub fn would_hold(queue: &Queue, label: Label) -> bool {
    match Discipline::of(label) {
        Discipline::Exclusive => queue.is_empty(),
        Discipline::Shared => queue.iter().all(|n| n.label == Label::Read),
        Discipline::Permits { max } => {
            let mine = if let Label::Permits { weight, .. } = label { weight.into() } else { 0 };
            weigh(queue, max) + mine <= u64::from(max)
        }
        // Only with the maximum, as `fits` does.
        Discipline::SharedPermits { .. } => false,
    }
}

/// Returns the maximum of the queue's semaphore if it differs from that of `label`. The first node's maximum counts:
/// later requests with another one are rejected.
#[must_use]
pub fn other_max(queue: &Queue, label: Label) -> Option<u32> {
    let max_of = |label| if let Label::Permits { max, .. } = label { Some(max) } else { None };
    let mine = max_of(label)?;
    queue.iter().find_map(|n| max_of(n.label)).filter(|max| *max != mine)
}

fn weigh(nodes: &[Node], max: u32) -> u64 {
    nodes.iter().map(|n| weight(n, max)).sum()
}

/// A node that is no permit of this semaphore, such as a mutex on its path or permits of another maximum, excludes all nodes
/// behind it. Permits of another maximum are rejected later, but may be granted first if the head of the queue used the same
/// maximum when they were created.
fn weight(node: &Node, max: u32) -> u64 {
    match node.label {
        Label::Permits { weight, max: of, .. } if of == max => weight.into(),
        _ => u64::from(max) + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue of nodes named 0, 1, 2, ...: W exclusive, R shared, 1-9 permits of 10.
    fn queue(kinds: &str) -> Queue {
        let label = |c| match c {
            'W' => Label::Lock,
            'R' => Label::Read,
            _ => Label::Permits { weight: c.to_digit(10).unwrap(), max: 10, granted: false },
        };
        Queue::linear(
            kinds
                .chars()
                .enumerate()
                .map(|(i, c)| {
                    let (id, sequence) = (NodeId::new(i.to_string()), zlock_core::Sequence::new(i as i64));
                    let name = zlock_core::NodeName::of(&id, label(c), sequence);
                    Node::new(name, id, label(c), sequence)
                })
                .collect(),
        )
    }

    /// `H` held and last, `h` held and followed, `-` first in line, a digit: waits for that node.
    fn verdicts(kinds: &str) -> String {
        let queue = queue(kinds);
        queue
            .iter()
            .map(|n| match judge(&queue, &n.id, Discipline::of(n.label)) {
                Verdict::Held { followed: false } => "H".into(),
                Verdict::Held { followed: true } => "h".into(),
                Verdict::WaitForAny => "-".into(),
                Verdict::WaitFor(n) => n.id.to_string(),
                Verdict::NodeDeleted => unreachable!(),
            })
            .collect()
    }

    #[test]
    fn table() {
        for (kinds, expected) in [
            ("", ""),
            ("W", "H"),
            ("WWW", "h01"),
            ("RRR", "hhH"),
            ("RRW", "hh1"),
            ("WRR", "h00"),
            ("RWRWR", "h0123"),
            ("WWRR", "h011"),
            ("5", "H"),
            ("55", "hH"),
            ("552", "hh-"),
            ("5522", "hh-2"),
            ("37", "hH"),
            ("66", "h-"),
            ("661", "h-1"),
            ("91", "hH"),
            ("W1", "h0"),
            ("RW", "h0"),
        ] {
            assert_eq!(verdicts(kinds), expected, "{kinds}");
        }
    }

    #[test]
    fn readers_wait_for_the_nearest_writer() {
        assert_eq!(verdicts("WWRRR"), "h0111");
        assert_eq!(verdicts("RWRR"), "h011");
    }

    /// Not all of them have noticed yet that they disagree.
    #[test]
    fn permits_of_another_maximum_keep_everybody_behind_them_out() {
        let names = [(1, 3), (1, 5), (1, 3), (1, 5)].iter().zip(1..);
        let queue = Queue::of_names(names.map(|((n, max), at)| {
            format!("_c_0000000{at}-0000-0000-0000-000000000000-__PERM__{n}of{max}__{at:010}")
        }));
        let verdict = |at: usize| judge(&queue, &queue[at].id, Discipline::of(queue[at].label));
        assert_eq!(verdict(0), Verdict::Held { followed: true });
        for at in 1..4 {
            assert_eq!(verdict(at), Verdict::WaitFor(queue[at - 1].clone()), "{at}");
            assert!(!would_hold(&Queue::linear(queue[..at].to_vec()), queue[at].label), "{at}");
        }
    }

    #[test]
    fn holders_in_order() {
        for (kinds, expected) in [("", 0), ("WW", 1), ("RRWR", 2), ("55", 2), ("661", 1), ("3331", 4)] {
            let queue = queue(kinds);
            assert!(holders(&queue).eq(queue.iter().take(expected)), "{kinds}");
        }
    }

    /// `HELD` and `PERM` nodes of a semaphore with a shared maximum, by their weights: negative ones wait.
    fn shared(weights: &[i64]) -> Queue {
        let name = |(&weight, at): (&i64, usize)| {
            let (marker, n) = (if weight < 0 { "__PERM__" } else { "__HELD__" }, weight.abs());
            format!("_c_0000000{at}-0000-0000-0000-000000000000-{marker}{n}of0__{at:010}")
        };
        Queue::of_names(weights.iter().zip(1..).map(name))
    }

    #[test]
    fn a_shared_maximum_counts_as_it_is_known() {
        for (weights, max, expected) in [
            (&[-1][..], 1, "H"),
            // The head waits, too.
            (&[-1], 0, "-"),
            (&[-3, -1], 2, "-1"),
            (&[2, -1], 3, "hH"),
            (&[2, -2, -1], 3, "h-2"),
            // More hold than there are permits by now. The first waiter waits for any of them.
            (&[1, 1, 1, 1, -1, -1], 2, "2222-5"),
            // Holders behind a waiter count for it, and other waiters do not.
            (&[-1, 1], 1, "-1"),
            (&[-1, -1, 1], 2, "h12"),
            (&[1, -1], 2, "hH"),
        ] {
            let queue = shared(weights);
            let verdict = |node: &Node| judge(&queue, &node.id, Discipline::SharedPermits { max: Some(max) });
            let verdicts: String = queue
                .iter()
                .map(|node| match verdict(node) {
                    Verdict::Held { followed: false } => "H".to_owned(),
                    Verdict::Held { followed: true } => "h".to_owned(),
                    Verdict::WaitForAny if is_granted(node) => "2".to_owned(),
                    Verdict::WaitForAny => "-".to_owned(),
                    Verdict::WaitFor(before) => (queue.position(&before.id).unwrap() + 1).to_string(),
                    Verdict::NodeDeleted => unreachable!(),
                })
                .collect();
            assert_eq!(verdicts, expected, "{weights:?} of {max}");
        }
        let over = shared(&[1, 1, 1, -1]);
        assert_eq!(holders(&over).count(), 3);
        assert!(fits(&over, 1, 5) && !fits(&over, 2, 5));
        let fixed = Label::Permits { weight: 1, max: 5, granted: false };
        let mine = Label::Permits { weight: 1, max: SHARED_MAX, granted: false };
        assert_eq!((other_max(&over, fixed), other_max(&over, mine)), (Some(SHARED_MAX), None));
        assert!(!fits(&queue("W"), 1, u64::MAX - 1));
    }

    #[test]
    fn a_stranger_is_missing() {
        assert_eq!(judge(&queue("WW"), &NodeId::new("x"), Discipline::Exclusive), Verdict::NodeDeleted);
    }

    #[test]
    fn order_and_not_number_decides_across_the_wrap() {
        let queue = Queue::of_names(["lock--2147483648", "lock-2147483647"]);
        let (old, young) = (NodeId::new("lock-2147483647"), NodeId::new("lock--2147483648"));
        assert_eq!(judge(&queue, &old, Discipline::Exclusive), Verdict::Held { followed: true });
        assert_eq!(judge(&queue, &young, Discipline::Exclusive), Verdict::WaitFor(queue[0].clone()));
    }

    #[test]
    fn would_hold_agrees_with_judge_on_the_appended_node() {
        for before in ["", "W", "R", "RR", "RW", "5", "55", "91", "9W"] {
            for last in ["W", "R", "1", "5", "6"] {
                let whole = queue(&format!("{before}{last}"));
                let me = whole.last().unwrap();
                let held = matches!(judge(&whole, &me.id, Discipline::of(me.label)), Verdict::Held { .. });
                assert_eq!(would_hold(&queue(before), me.label), held, "{before}+{last}");
            }
        }
    }
}
