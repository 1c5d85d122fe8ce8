//! What notifications say.

use zlock_ledger::tables::kind_number;
use zlock_ledger::{Kind, Scope};

/// Returns what a notification says of an entry, if that is short enough.
pub(super) fn payload(scope: &Scope, key: &str) -> String {
    if scope.path.len() + key.len() >= 3900 {
        return String::new();
    }
    let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("{} {} {}", kind_number(scope.kind), hex(&scope.path), hex(key))
}

/// Returns the entry that a notification is about. `None` stands for any.
pub(super) fn parse_payload(payload: &str) -> Option<(Scope, String)> {
    let mut parts = payload.split(' ');
    let kind = match parts.next()? {
        "0" => Kind::Queue,
        "1" => Kind::Group,
        "2" => Kind::Value,
        _ => return None,
    };
    let path = unhex(parts.next()?)?.into();
    Some((Scope { kind, path }, unhex(parts.next()?)?))
}

fn unhex(text: &str) -> Option<String> {
    let byte = |at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    String::from_utf8((0..text.len()).step_by(2).map(byte).collect::<Option<_>>()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_names_what_it_is_about() {
        for (kind, path, key) in
            [(Kind::Queue, "/a", "id"), (Kind::Group, "/é b", "ü"), (Kind::Value, "/a/b", "")]
        {
            let scope = Scope { kind, path: path.into() };
            assert_eq!(parse_payload(&payload(&scope, key)), Some((scope, key.to_owned())));
        }
        let long = Scope { kind: Kind::Queue, path: "x".repeat(4000).into() };
        assert_eq!(payload(&long, "id"), "");
        for other in ["", "0", "0 61", "3 61 61", "0 6 61", "0 zz 61", "0 ff 61"] {
            assert_eq!(parse_payload(other), None, "{other}");
        }
    }
}
