//! What a key's value says: the label, and the data that the user gave.
//!
//! ```text
//! zlock1 <label>\n<data>
//! ```
//!
//! One line that an operator can read, then the data as it is. A value that does not begin so is somebody
//! else's: a mutex, whose value is its data.

use etcd_client::{Compare, CompareOp};
use zlock_core::Label;

const MARK: &[u8] = b"zlock1 ";

/// A value, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Value<'a> {
    pub(crate) label: Label,
    pub(crate) data: &'a [u8],
}

/// Whether a value is one that we write.
pub(crate) fn is_ours(bytes: &[u8]) -> bool {
    bytes.starts_with(MARK)
}

/// Reads a value. A label that this version does not know keeps everybody out.
pub(crate) fn read(bytes: &[u8]) -> Value<'_> {
    let Some(rest) = bytes.strip_prefix(MARK) else { return Value { label: Label::Lock, data: bytes } };
    let end = rest.iter().position(|&b| b == b'\n');
    let (text, data) = end.map_or((rest, &[][..]), |at| (&rest[..at], &rest[at + 1..]));
    let label = std::str::from_utf8(text).ok().and_then(label).unwrap_or(Label::Lock);
    Value { label, data }
}

/// What stands before the data: the line with its end, or nothing.
pub(crate) fn line(bytes: &[u8]) -> &[u8] {
    bytes.strip_suffix(read(bytes).data).unwrap_or(bytes)
}

/// The value of a node with this label and data.
pub(crate) fn write(label: Label, data: &[u8]) -> Vec<u8> {
    [&head(label), &b"\n"[..], data].concat()
}

/// That the value of a key is ours and has this label, whatever the data: it is behind the line without its end,
/// and before the line with an end that is one more.
pub(crate) fn has_label(key: &str, label: Label) -> [Compare; 2] {
    let (from, to) = (head(label), [&head(label), &b"\x0b"[..]].concat());
    [Compare::value(key, CompareOp::Greater, from), Compare::value(key, CompareOp::Less, to)]
}

/// The line without its end.
fn head(label: Label) -> Vec<u8> {
    let label = match label {
        Label::Write => "write".to_owned(),
        Label::Read => "read".to_owned(),
        Label::Permits { weight, max, granted: false } => format!("permits {weight}of{max}"),
        Label::Permits { weight, max, granted: true } => format!("granted {weight}of{max}"),
        // A label that this version does not know is written as one that keeps everybody out.
        _ => "lock".to_owned(),
    };
    [MARK, label.as_bytes()].concat()
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

    #[test]
    fn what_is_written_reads_back() {
        for label in [
            Label::Lock,
            Label::Write,
            Label::Read,
            Label::Permits { weight: 3, max: 10, granted: false },
            Label::Permits { weight: 1, max: u32::MAX, granted: true },
        ] {
            for data in [&b""[..], b"host 7", b"\n\nzlock1 read\n", &[0, 255]] {
                let value = write(label, data);
                assert_eq!(read(&value), Value { label, data });
                assert_eq!([line(&value), data].concat(), value);
            }
        }
        assert_eq!(
            write(Label::Permits { weight: 2, max: 5, granted: false }, b"x"),
            b"zlock1 permits 2of5\nx"
        );
    }

    #[test]
    fn anything_else_is_a_mutex() {
        for (bytes, data) in [
            (&b""[..], &b""[..]),
            (b"anything", b"anything"),
            (b"zlock2 read\nx", b"zlock2 read\nx"),
            (b"zlock1 novelty\nx", b"x"),
            (b"zlock1 permits 1\nx", b"x"),
            (b"zlock1 lock", b""),
        ] {
            assert_eq!(read(bytes), Value { label: Label::Lock, data }, "{bytes:?}");
            assert_eq!([line(bytes), data].concat(), bytes, "{bytes:?}");
        }
    }
}
