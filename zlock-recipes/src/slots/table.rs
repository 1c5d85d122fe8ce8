//! Which node has which number: a line `<number> <node ID>` for each.

use std::collections::{BTreeMap, BTreeSet};

use zlock_core::{Error, ErrorKind, LockPath, NodeId, Queue, Result};

/// The numbers in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table(BTreeMap<u32, NodeId>);

impl Table {
    /// Parses the value. A missing one has no entries.
    pub(super) fn parse(data: Option<&[u8]>, path: &LockPath) -> Result<Self> {
        let Some(data) = data else { return Ok(Table::default()) };
        let entry = |line: &str| {
            let (number, node_id) = line.split_once(' ')?;
            Some((number.parse().ok()?, NodeId::new(node_id)))
        };
        let table = std::str::from_utf8(data).ok().and_then(|text| text.lines().map(entry).collect());
        table.map(Table).ok_or_else(|| {
            let message = format!("the value of {} bytes is not a table of slots", data.len());
            Error::new(ErrorKind::InvalidArgument, "slots").with_path(path).with_message(message)
        })
    }

    pub(super) fn text(&self) -> String {
        self.0.iter().map(|(number, node_id)| format!("{number} {}\n", node_id.as_str())).collect()
    }

    /// Returns the number that the node has.
    pub(super) fn of(&self, node_id: &NodeId) -> Option<u32> {
        self.0.iter().find(|(_, of)| *of == node_id).map(|(number, _)| *number)
    }

    /// Forgets the nodes that are not in the queue. Then gives the smallest free numbers below `n` to the nodes without one, in the order
    /// of the queue: as many as have a permit.
    pub(super) fn fill(&mut self, queue: &Queue, n: u32) {
        let there: BTreeSet<_> = queue.iter().map(|node| &node.id).collect();
        self.0.retain(|_, of| there.contains(of));
        let have: BTreeSet<_> = self.0.values().cloned().collect();
        let free: Vec<_> = (0..n).filter(|number| !self.0.contains_key(number)).collect();
        let without = queue.iter().map(|node| &node.id).filter(|id| !have.contains(*id));
        self.0.extend(free.into_iter().zip(without.cloned()));
    }
}

#[cfg(test)]
mod tests {
    use zlock_core::{Label, Node, NodeName, Sequence};

    use super::*;

    fn queue(ids: &str) -> Queue {
        let label = Label::Permits { weight: 1, max: 3, granted: false };
        let node = |(at, id): (usize, char)| {
            let (id, sequence) = (NodeId::new(id.to_string()), Sequence::new(at as i64));
            Node::new(NodeName::of(&id, label, sequence), id, label, sequence)
        };
        Queue::linear(ids.chars().enumerate().map(node).collect())
    }

    #[test]
    fn a_number_is_free_when_its_node_is_gone() {
        let path = LockPath::new("/slots").unwrap();
        for (before, there, after) in [
            ("", "x", "0 x\n"),
            ("0 a\n1 b\n", "abx", "0 a\n1 b\n2 x\n"),
            ("0 a\n1 b\n2 c\n", "acx", "0 a\n1 x\n2 c\n"),
            ("0 a\n1 b\n2 c\n", "x", "0 x\n"),
            ("0 a\n1 x\n", "ax", "0 a\n1 x\n"),
            // All that have a permit get a number, but those behind them, which wait for one, do not.
            ("1 b\n", "bxa", "0 x\n1 b\n2 a\n"),
            ("0 a\n", "aybxz", "0 a\n1 y\n2 b\n"),
            ("0 a\n1 b\n2 c\n", "abcx", "0 a\n1 b\n2 c\n"),
        ] {
            let mut table = Table::parse(Some(before.as_bytes()), &path).unwrap();
            assert_eq!(table.text(), before);
            table.fill(&queue(there), 3);
            assert_eq!(table.text(), after, "{before:?} {there}");
            let number = after.lines().find_map(|line| line.strip_suffix(" x")?.parse().ok());
            assert_eq!(table.of(&NodeId::new("x")), number, "{before:?} {there}");
        }
        for data in [&b"x a\n"[..], b"1\n", &[255]] {
            assert_eq!(Table::parse(Some(data), &path).unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
        assert_eq!(Table::parse(None, &path).unwrap(), Table::default());
    }
}
