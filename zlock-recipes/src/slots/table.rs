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

    /// Gives the node the smallest number below `n` whose node is not in the queue. `None` if there is none.
    pub(super) fn take(&mut self, node_id: &NodeId, queue: &Queue, n: u32) -> Option<u32> {
        let there: BTreeSet<_> = queue.iter().map(|node| &node.id).collect();
        self.0.retain(|_, of| of != node_id && there.contains(of));
        let free = (0..n).find(|number| !self.0.contains_key(number))?;
        self.0.insert(free, node_id.clone());
        Some(free)
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
        for (before, there, taken, after) in [
            ("", "x", Some(0), "0 x\n"),
            ("0 a\n1 b\n", "abx", Some(2), "0 a\n1 b\n2 x\n"),
            ("0 a\n1 b\n2 c\n", "acx", Some(1), "0 a\n1 x\n2 c\n"),
            ("0 a\n1 b\n2 c\n", "x", Some(0), "0 x\n"),
            // Written by an attempt whose answer was lost.
            ("0 a\n1 x\n", "ax", Some(1), "0 a\n1 x\n"),
            ("0 a\n1 b\n2 c\n", "abcx", None, "0 a\n1 b\n2 c\n"),
        ] {
            let mut table = Table::parse(Some(before.as_bytes()), &path).unwrap();
            assert_eq!(table.text(), before);
            assert_eq!(table.take(&NodeId::new("x"), &queue(there), 3), taken, "{before:?} {there}");
            assert_eq!(table.text(), after, "{before:?} {there}");
        }
        for data in [&b"x a\n"[..], b"1\n", &[255]] {
            assert_eq!(Table::parse(Some(data), &path).unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
        assert_eq!(Table::parse(None, &path).unwrap(), Table::default());
    }
}
