//! The parts of a member's path.

/// Returns the group of a member, and its name.
pub(super) fn parts(member: &str) -> (&str, &str) {
    member.rsplit_once('/').unwrap_or(("", member))
}
