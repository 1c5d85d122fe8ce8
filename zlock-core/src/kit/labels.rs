//! Labels as text, for stores whose nodes do not say their label by their name.

use crate::nodes::label::Label;

/// Returns the text of a label: one line, which never changes between versions.
#[must_use]
pub fn label_text(label: Label) -> String {
    match label {
        Label::Lock => "lock".to_owned(),
        Label::Write => "write".to_owned(),
        Label::Read => "read".to_owned(),
        Label::Candidate => "candidate".to_owned(),
        Label::Permits { weight, max, granted: false } => format!("permits {weight}of{max}"),
        Label::Permits { weight, max, granted: true } => format!("granted {weight}of{max}"),
    }
}

/// Parses the text of a label. `None` for one that this version does not know, which counts as a [`Label::Lock`]: that excludes all
/// other nodes.
#[must_use]
pub fn parse_label(text: &str) -> Option<Label> {
    match text {
        "lock" => return Some(Label::Lock),
        "write" => return Some(Label::Write),
        "read" => return Some(Label::Read),
        "candidate" => return Some(Label::Candidate),
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
            assert_eq!(label_text(label), expected);
            assert_eq!(parse_label(expected), Some(label));
        }
        for unknown in ["", "locks", "permits", "permits 2", "permits 2of", "permits -1of5", "barred 2of5"] {
            assert_eq!(parse_label(unknown), None, "{unknown}");
        }
    }
}
