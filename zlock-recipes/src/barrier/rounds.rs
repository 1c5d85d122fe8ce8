//! The rounds of a barrier: a pure function of what was opened and of the members in the queue.
//!
//! ```text
//! zlock barrier 7                the number of rounds that have opened
//! 7 <node ID> <node ID> ..       the members of a round, as far as they have not left
//! ```

use std::collections::BTreeSet;

use zlock_core::{Error, ErrorKind, Label, LockPath, Node, NodeId, Result};

const MARK: &str = "zlock barrier ";

/// What is known of the rounds that have opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rounds {
    pub(super) opened: u64,
    /// The members that had not left when the last round opened.
    present: Vec<Round>,
}

/// A round that has opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Round {
    pub(super) number: u64,
    pub(super) members: Vec<NodeId>,
}

impl Rounds {
    pub(super) fn parse(data: &[u8], path: &LockPath) -> Result<Self> {
        let parsed = std::str::from_utf8(data).ok().and_then(Self::of_text);
        parsed.ok_or_else(|| {
            let message = format!("the value of {} bytes is not the rounds of a barrier", data.len());
            Error::new(ErrorKind::InvalidArgument, "barrier").with_path(path).with_message(message)
        })
    }

    fn of_text(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        // Any number of further rounds can be opened.
        let opened =
            lines.next()?.strip_prefix(MARK)?.parse().ok().filter(|opened| *opened < u64::MAX / 2)?;
        let mut rounds = Rounds { opened, ..Rounds::default() };
        for line in lines {
            let mut words = line.split(' ');
            let (first, ids) = (words.next()?, words.map(NodeId::new).collect());
            rounds.present.push(Round { number: first.parse().ok()?, members: ids });
        }
        Some(rounds)
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("{MARK}{}\n", self.opened);
        for Round { number, members } in &self.present {
            text.push_str(&number.to_string());
            members.iter().for_each(|id| text.extend([" ", id.as_str()]));
            text.push('\n');
        }
        text
    }

    /// Returns the round that the node was counted in. A node that was counted stays in its round while it exists.
    pub(super) fn of(&self, node_id: &NodeId) -> Option<&Round> {
        self.present.iter().find(|round| round.members.contains(node_id))
    }

    /// Returns the rounds after those that the waiting members of the queue are enough for have opened. `None` if they are too
    /// few. Each round has `n` members, in the order of the queue.
    pub(super) fn open(&self, queue: &[Node], n: u32) -> Option<Rounds> {
        let passed: BTreeSet<_> = self.present.iter().flat_map(|round| &round.members).collect();
        let is_waiting = |node: &&Node| node.label == label(n) && !passed.contains(&node.id);
        let waiting: Vec<_> = queue.iter().filter(is_waiting).map(|node| node.id.clone()).collect();
        let whole = waiting.chunks_exact(n as usize);
        if whole.len() == 0 {
            return None;
        }
        let mut next = self.without_gone(queue);
        for members in whole {
            next.opened += 1;
            next.present.push(Round { number: next.opened, members: members.to_vec() });
        }
        Some(next)
    }

    /// Forgets the nodes that no longer exist, which cannot be counted any more.
    fn without_gone(&self, queue: &[Node]) -> Rounds {
        let there: BTreeSet<_> = queue.iter().map(|node| &node.id).collect();
        let mut next = self.clone();
        next.present.iter_mut().for_each(|round| round.members.retain(|id| there.contains(id)));
        next.present.retain(|round| !round.members.is_empty());
        next
    }
}

/// Returns the label of a waiting member's node. It says how many members a round has, so that clients that disagree notice. A
/// member that has given up waiting has the label of granted permits.
pub(super) fn label(n: u32) -> Label {
    Label::Permits { weight: 1, max: n, granted: false }
}

#[cfg(test)]
mod tests {
    use zlock_core::{NodeName, Sequence};

    use super::*;

    /// A queue of members, by one letter each.
    fn queue(ids: &str) -> Vec<Node> {
        let node = |(at, id): (usize, char)| {
            let (id, sequence) = (NodeId::new(id.to_string()), Sequence::new(at as i64));
            Node::new(NodeName::of(&id, label(2), sequence), id, label(2), sequence)
        };
        ids.chars().enumerate().map(node).collect()
    }

    fn read(text: &str) -> Rounds {
        Rounds::parse(text.as_bytes(), &LockPath::new("/barrier").unwrap()).unwrap()
    }

    #[test]
    fn a_round_opens_for_members_that_are_all_there() {
        for (before, there, after) in [
            ("0\n", "", None),
            ("0\n", "a", None),
            ("0\n", "ab", Some("1\n1 a b\n")),
            ("0\n", "abc", Some("1\n1 a b\n")),
            ("0\n", "abcde", Some("2\n1 a b\n2 c d\n")),
            // A slow leaver is counted once, and its round is kept as long as it is there.
            ("1\n1 a b\n", "bc", None),
            ("1\n1 a b\n", "bcd", Some("2\n1 b\n2 c d\n")),
            ("1\n1 a b\n", "cd", Some("2\n2 c d\n")),
        ] {
            let (mark, before) = (MARK, read(&format!("{MARK}{before}")));
            let opened = before.open(&queue(there), 2).map(|next| next.text());
            assert_eq!(opened, after.map(|after| format!("{mark}{after}")), "{before:?} {there}");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let opened = Rounds::default().open(&queue("abcd"), 2).unwrap();
        let left = opened.without_gone(&queue("bcde"));
        assert_eq!(left.text(), "zlock barrier 2\n1 b\n2 c d\n");
        for rounds in [Rounds::default(), opened, left] {
            assert_eq!(read(&rounds.text()), rounds);
        }
        const TOO_MANY: &[u8] = b"zlock barrier 18446744073709551615\n";
        let path = LockPath::new("/barrier").unwrap();
        for data in [&b""[..], b"7", b"zlock barrier x\n", b"zlock barrier 1\nx a\n", &[255], TOO_MANY] {
            let error = Rounds::parse(data, &path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{data:?}");
        }
    }

    #[test]
    fn nodes_of_another_kind_and_those_of_members_that_gave_up_are_not_counted() {
        for label in [Label::Lock, label(3), Label::Permits { weight: 1, max: 2, granted: true }] {
            let mut mixed = queue("abc");
            mixed[1].label = label;
            assert_eq!(Rounds::default().open(&mixed[..2], 2), None, "{label:?}");
            let opened = Rounds::default().open(&mixed, 2).unwrap();
            assert_eq!(opened.text(), "zlock barrier 1\n1 a c\n", "{label:?}");
        }
    }
}
