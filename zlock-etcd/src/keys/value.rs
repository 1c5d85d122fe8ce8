//! The value of a key: the label, the node's ID, and the user's data.
//!
//! ```text
//! zlock1 <label>\nid <node ID>\n<data>
//! ```
//!
//! Lines that an operator can read, followed by the unchanged data. A value that does not begin like this is the data of a
//! candidate of an election, or, if it is empty, of another program's mutex. Earlier versions named the key after the node's ID,
//! and wrote no line for it.

use etcd_client::{Compare, CompareOp};
use zlock_core::{Label, NodeId, REVOKE};

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

/// Returns `true` if a value was written by zlock.
pub(crate) fn is_ours(bytes: &[u8]) -> bool {
    bytes.starts_with(MARK)
}

/// Returns `true` if a node's name, or the ID in a value, is an ID that a client gave to a node.
pub(crate) fn is_uuid(text: &str) -> bool {
    let is_in_place = |(at, b): (usize, u8)| match at {
        8 | 13 | 18 | 23 => b == b'-',
        _ => b.is_ascii_hexdigit(),
    };
    text.len() == 36 && text.bytes().enumerate().all(is_in_place)
}

/// Parses the value of a node with this name. A label that this version does not know excludes all other nodes.
pub(crate) fn read<'a>(name: &str, bytes: &'a [u8]) -> Value<'a> {
    let Some(rest) = bytes.strip_prefix(MARK) else {
        // Mutexes of Go's client, of `etcdctl` and of the lock service are empty, unless they were asked to release.
        let is_mutex = bytes.is_empty() || bytes == REVOKE;
        return Value { label: if is_mutex { Label::Lock } else { Label::Candidate }, id: None, data: bytes };
    };
    let (text, rest) = split_line(rest);
    let label = std::str::from_utf8(text).ok().and_then(label).unwrap_or(Label::Lock);
    // The data of a node that is named by its ID may begin with anything.
    if !is_uuid(name)
        && let (line, data) = split_line(rest)
        && let Some(id) = line.strip_prefix(ID).and_then(|id| std::str::from_utf8(id).ok())
        && is_uuid(id)
    {
        return Value { label, id: Some(id), data };
    }
    Value { label, id: None, data: rest }
}

fn split_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|&b| b == b'\n');
    end.map_or((bytes, &[]), |at| (&bytes[..at], &bytes[at + 1..]))
}

/// Returns the part before the data of a node with this name: complete lines, or nothing.
pub(crate) fn lines<'a>(name: &str, bytes: &'a [u8]) -> &'a [u8] {
    bytes.strip_suffix(read(name, bytes).data).unwrap_or(bytes)
}

/// Returns the value of a node. That of a candidate is its data, as Go's `Election` writes it.
pub(crate) fn of(node_id: &NodeId, label: Label, data: &[u8]) -> Vec<u8> {
    match label {
        Label::Candidate => data.to_owned(),
        label => [&head(Some(node_id), label), data].concat(),
    }
}

/// Returns the part before the data in the value of a node with this label, and with this ID unless that is its name.
pub(crate) fn head(node_id: Option<&NodeId>, label: Label) -> Vec<u8> {
    let label = match label {
        Label::Write => "write".to_owned(),
        Label::Read => "read".to_owned(),
        Label::Permits { weight, max, granted: false } => format!("permits {weight}of{max}"),
        Label::Permits { weight, max, granted: true } => format!("granted {weight}of{max}"),
        // A label that this version does not know is written as one that excludes all other nodes.
        _ => "lock".to_owned(),
    };
    let head = [MARK, label.as_bytes(), b"\n"].concat();
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

fn label(text: &str) -> Option<Label> {
    match text {
        "lock" => return Some(Label::Lock),
        "write" => return Some(Label::Write),
        "read" => return Some(Label::Read),
        _ => {}
    }
    let (kind, permits) = text.split_once(' ')?;
    let (weight, max) = permits.split_once("of")?;
    let granted = match kind {
        "permits" => false,
        "granted" => true,
        _ => return None,
    };
    Some(Label::Permits { weight: weight.parse().ok()?, max: max.parse().ok()?, granted })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "694d7a3c2f1b5e05.1";
    const UUID: &str = "0123abcd-4567-89ab-cdef-0123456789ab";

    #[test]
    fn the_ids_of_nodes_are_uuids() {
        for text in
            [UUID, NAME, "", "0123abcd-4567-89ab-cdef-0123456789a", "0123abcd04567-89ab-cdef-0123456789ab"]
        {
            assert_eq!(is_uuid(text), NodeId::new(text).is_uuid(), "{text}");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        for label in [
            Label::Lock,
            Label::Write,
            Label::Read,
            Label::Permits { weight: 3, max: 10, granted: false },
            Label::Permits { weight: 1, max: u32::MAX, granted: true },
        ] {
            let like_an_id = format!("id {UUID}\nmore");
            for data in [&b""[..], b"host 7", b"\n\nzlock1 read\n", &[0, 255], like_an_id.as_bytes()] {
                for (name, id) in [(NAME, Some(UUID)), (UUID, None)] {
                    let value = [&head(id.map(NodeId::new).as_ref(), label), data].concat();
                    assert_eq!(read(name, &value), Value { label, id, data });
                    assert_eq!([lines(name, &value), data].concat(), value);
                }
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
            assert_eq!(read(NAME, bytes), value, "{bytes:?}");
            assert_eq!([lines(NAME, bytes), data].concat(), bytes, "{bytes:?}");
        }
    }

    #[test]
    fn any_other_value_is_that_of_a_candidate() {
        for data in [&b"anything"[..], b"zlock2 read\nx"] {
            let value = Value { label: Label::Candidate, id: None, data };
            assert_eq!(read(NAME, data), value, "{data:?}");
            assert_eq!(lines(NAME, data), b"", "{data:?}");
        }
    }
}
