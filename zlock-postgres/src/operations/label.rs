//! Labels as the database has them.

use zlock_core::Label;

/// Returns the text of a label. A label that this version does not know is written as one that excludes all other nodes.
pub(crate) fn text(label: Label) -> String {
    match label {
        Label::Write => "write".to_owned(),
        Label::Read => "read".to_owned(),
        Label::Candidate => "candidate".to_owned(),
        Label::Permits { weight, max, granted: false } => format!("permits {weight}of{max}"),
        Label::Permits { weight, max, granted: true } => format!("granted {weight}of{max}"),
        _ => "lock".to_owned(),
    }
}

/// Parses the text of a label. One that this version does not know excludes all other nodes.
pub(crate) fn parse(text: &str) -> Label {
    permits(text).unwrap_or(match text {
        "write" => Label::Write,
        "read" => Label::Read,
        "candidate" => Label::Candidate,
        _ => Label::Lock,
    })
}

fn permits(text: &str) -> Option<Label> {
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
    fn labels_are_read_as_they_were_written() {
        let permits = |granted| Label::Permits { weight: 2, max: 5, granted };
        for (label, expected) in [
            (Label::Lock, "lock"),
            (Label::Write, "write"),
            (Label::Read, "read"),
            (Label::Candidate, "candidate"),
            (permits(false), "permits 2of5"),
            (permits(true), "granted 2of5"),
        ] {
            assert_eq!(text(label), expected);
            assert_eq!(parse(expected), label);
        }
        for unknown in ["", "locks", "permits", "permits 2", "permits 2of", "permits -1of5", "barred 2of5"] {
            assert_eq!(parse(unknown), Label::Lock, "{unknown}");
        }
    }
}
