//! The value of a key: the label, the node's ID, and the user's data.
//!
//! ```text
//! zlock1 <label>\nid <node ID>\n<data>
//! ```
//!
//! Lines that an operator can read, followed by the unchanged data. A value that does not begin like this is the data of a
//! candidate of an election, as Go's `Election` writes it, or, if it is empty, of another program's mutex. Data of a candidate that
//! would be read as something else is written with lines, too.

use etcd_client::{Compare, CompareOp};
use zlock_core::kit::is_uuid;
use zlock_core::{Label, Node, NodeId, REVOKE};

const MARK: &[u8] = b"zlock1 ";
const ID: &[u8] = b"id ";

/// A parsed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Value<'a> {
    pub(crate) label: Label,
    /// `None` if the value does not contain it: the node is then identified by its name.
    pub(crate) id: Option<&'a str>,
    pub(crate) data: &'a [u8],
}

/// Parses the value of a node. A label that this version does not know excludes all other nodes.
pub(crate) fn read(bytes: &[u8]) -> Value<'_> {
    let Some(rest) = bytes.strip_prefix(MARK) else {
        return Value {
            label: if is_mutex(bytes) { Label::Lock } else { Label::Candidate },
            id: None,
            data: bytes,
        };
    };
    let (text, rest) = split_line(rest);
    // Text that is not UTF-8 is not known either.
    let label = Label::parse(std::str::from_utf8(text).unwrap_or_default());
    let (line, data) = split_line(rest);
    if let Some(id) = line.strip_prefix(ID).and_then(|id| std::str::from_utf8(id).ok())
        && is_uuid(id)
    {
        return Value { label, id: Some(id), data };
    }
    Value { label, id: None, data: rest }
}

/// Mutexes of Go's client, of `etcdctl` and of the lock service are empty, unless they were asked to release.
fn is_mutex(bytes: &[u8]) -> bool {
    bytes.is_empty() || bytes == REVOKE
}

fn split_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|&b| b == b'\n');
    end.map_or((bytes, &[]), |at| (&bytes[..at], &bytes[at + 1..]))
}

/// Returns the part before the data of a node: complete lines, or nothing.
pub(crate) fn lines(bytes: &[u8]) -> &[u8] {
    bytes.strip_suffix(read(bytes).data).unwrap_or(bytes)
}

/// Returns the value of a node. That of a candidate is its data, unless that reads as the value of a mutex, or as one with lines.
pub(crate) fn of(node_id: Option<&NodeId>, label: Label, data: &[u8]) -> Vec<u8> {
    match label {
        Label::Candidate if !is_mutex(data) && !data.starts_with(MARK) => data.to_owned(),
        label => [&head(node_id, label), data].concat(),
    }
}

/// Returns the ID to write into the value of a node. `None` for a node of another program, whose ID is its name.
pub(crate) fn id_of(node: &Node) -> Option<&NodeId> {
    (node.id.as_str() != node.name.as_str()).then_some(&node.id)
}

/// Returns the part before the data in the value of a node with this label and this ID.
pub(crate) fn head(node_id: Option<&NodeId>, label: Label) -> Vec<u8> {
    let head = [MARK, label.to_string().as_bytes(), b"\n"].concat();
    match node_id {
        Some(node_id) => [&head, ID, node_id.as_str().as_bytes(), b"\n"].concat(),
        None => head,
    }
}

/// The condition that the value of a key begins with this head, whatever the data. In the order of values, it is after the
/// head without its last byte, a line feed, and before the head with that byte incremented.
pub(crate) fn has_head(key: &str, head: &[u8]) -> [Compare; 2] {
    let from = &head[..head.len() - 1];
    let to = [from, b"\x0b"].concat();
    [Compare::value(key, CompareOp::Greater, from), Compare::value(key, CompareOp::Less, to)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "0123abcd-4567-89ab-cdef-0123456789ab";

    #[test]
    fn what_is_written_reads_back() {
        for label in [
            Label::Lock,
            Label::Write,
            Label::Read,
            Label::Candidate,
            Label::Permits { weight: 3, max: 10, granted: false },
            Label::Permits { weight: 1, max: u32::MAX, granted: true },
        ] {
            let like_an_id = format!("id {UUID}\nmore");
            for data in [&b""[..], b"host 7", b"\n\nzlock1 read\n", &[0, 255], like_an_id.as_bytes()] {
                let value = [&head(Some(&NodeId::new(UUID)), label), data].concat();
                assert_eq!(read(&value), Value { label, id: Some(UUID), data });
                assert_eq!([lines(&value), data].concat(), value);
            }
        }
        let permits = Label::Permits { weight: 2, max: 5, granted: false };
        assert_eq!(head(None, permits), b"zlock1 permits 2of5\n");
        let id = NodeId::new(UUID);
        assert_eq!(head(Some(&id), Label::Read), format!("zlock1 read\nid {UUID}\n").as_bytes());
    }

    #[test]
    fn an_unknown_label_is_a_mutex() {
        for (bytes, data) in [
            (&b""[..], &b""[..]),
            (REVOKE, REVOKE),
            (b"zlock1 novelty\nx", b"x"),
            (b"zlock1 permits 1\nx", b"x"),
            (b"zlock1 lock", b""),
            (b"zlock1 lock\nid 7\nx", b"id 7\nx"),
        ] {
            let value = Value { label: Label::Lock, id: None, data };
            assert_eq!(read(bytes), value, "{bytes:?}");
            assert_eq!([lines(bytes), data].concat(), bytes, "{bytes:?}");
        }
    }

    #[test]
    fn any_other_value_is_that_of_a_candidate() {
        for data in [&b"anything"[..], b"zlock2 read\nx"] {
            let value = Value { label: Label::Candidate, id: None, data };
            assert_eq!(read(data), value, "{data:?}");
            assert_eq!(lines(data), b"", "{data:?}");
            assert_eq!(of(Some(&NodeId::new(UUID)), Label::Candidate, data), data);
        }
    }

    #[test]
    fn a_candidate_whose_data_reads_as_something_else_has_lines() {
        for data in [&b""[..], REVOKE, b"zlock1 read\nx"] {
            let value = of(Some(&NodeId::new(UUID)), Label::Candidate, data);
            assert_eq!(read(&value), Value { label: Label::Candidate, id: Some(UUID), data }, "{data:?}");
        }
    }
}
