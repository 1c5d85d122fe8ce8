//! Server versions that locks should not depend on; see "Which servers to trust" in the guide.

/// A version's numbers.
#[cfg(any(feature = "zk", feature = "etcd", test))]
type Version = (u32, u32, u32);

/// The first version of PostgreSQL that has what the schema uses, as the server has it in numbers.
#[cfg(feature = "postgres")]
const POSTGRES: u32 = 130_000;

/// Returns advice about this version of PostgreSQL, if zlock cannot use it.
#[cfg(feature = "postgres")]
pub(super) fn postgres(version: u32) -> Option<&'static str> {
    (version < POSTGRES).then_some("zlock needs PostgreSQL 13 or later")
}

/// Parses a version such as `3.8.0` at the beginning of a text, and ignores the rest.
#[cfg(any(feature = "zk", feature = "etcd", test))]
pub(super) fn parse(text: &str) -> Option<Version> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// The first version of ZooKeeper with containers. Without them no lock can be acquired.
#[cfg(feature = "zk")]
pub(super) const CONTAINERS: Version = (3, 5, 3);

/// Returns advice about this version of ZooKeeper, if it has a known problem.
#[cfg(feature = "zk")]
pub(super) fn zookeeper(version: Version) -> Option<&'static str> {
    match version {
        _ if version < CONTAINERS => Some("zlock needs ZooKeeper 3.5.3; use 3.9.4 or later"),
        (3, 8, ..=6) | (3, 9, ..=3) => {
            Some("in an ensemble, servers of this version can disagree about nodes; use 3.9.4 or later")
        }
        (3, ..=5, _) => {
            Some("with servers before 3.6, holders notice a removed node late; use 3.9.4 or later")
        }
        _ => None,
    }
}

/// Returns advice about this version of etcd, if it has a known problem.
#[cfg(feature = "etcd")]
pub(super) fn etcd(version: Version) -> Option<&'static str> {
    match version {
        (3, 5, ..=5) => Some("members of this version can lose committed data; use 3.5.6 or later"),
        (3, 4, ..=21) | (3, ..=3, _) => Some("use 3.4.22 or later, or 3.5.6 or later"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_judged() {
        assert_eq!(parse("3.8.0-1+deb12u1"), Some((3, 8, 0)));
        assert_eq!(parse("3.5"), None);
        assert_eq!(parse(""), None);
        #[cfg(feature = "postgres")]
        for (version, is_good) in [(150_018, true), (130_000, true), (120_022, false), (90_624, false)] {
            assert_eq!(postgres(version).is_none(), is_good, "{version}");
        }
        #[cfg(feature = "zk")]
        for (version, is_good) in
            [((3, 8, 0), false), ((3, 9, 3), false), ((3, 9, 4), true), ((3, 5, 9), false)]
        {
            assert_eq!(zookeeper(version).is_none(), is_good, "{version:?}");
        }
        #[cfg(feature = "etcd")]
        for (version, is_good) in
            [((3, 4, 23), true), ((3, 4, 21), false), ((3, 5, 1), false), ((3, 6, 0), true)]
        {
            assert_eq!(etcd(version).is_none(), is_good, "{version:?}");
        }
    }
}
