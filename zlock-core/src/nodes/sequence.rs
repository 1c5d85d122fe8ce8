//! Places in a queue, and their order across ZooKeeper's wrap.

use std::fmt;

/// The number that the store gave a node: a sequence number on ZooKeeper, mem and PostgreSQL, a create revision on
/// etcd.
///
/// `Ord` compares the plain numbers. ZooKeeper's are signed 32-bit numbers, which wrap from `2147483647` to `-2147483648`
/// before version 3.6, so a queue of such nodes is ordered by [`Queue::wrapping`](crate::Queue::wrapping). Later versions
/// repeat the numbers near the wrap, and a backend must not return a place with such a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sequence(i64);

impl Sequence {
    /// Creates a sequence from its number.
    #[must_use]
    pub const fn new(number: i64) -> Self {
        Sequence(number)
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Returns a name that consists of this prefix and the sequence.
    #[must_use]
    pub fn appended_to(self, prefix: &str) -> String {
        let mut name = String::with_capacity(prefix.len() + 11);
        name.push_str(prefix);
        match u32::try_from(self.0) {
            // Much faster than `write!`, and used for each node's name.
            Ok(mut number) => {
                let mut digits = [b'0'; 10];
                for digit in digits.iter_mut().rev() {
                    *digit += (number % 10) as u8;
                    number /= 10;
                }
                name.push_str(std::str::from_utf8(&digits).unwrap_or_default());
            }
            Err(_) => name.push_str(&self.to_string()),
        }
        name
    }

    /// Splits the sequence off the end of a name. ZooKeeper writes it with `%010d` as a signed 32-bit number: ten
    /// characters including a minus sign, or eleven below -999999999.
    pub(crate) fn split(name: &str) -> Option<(&str, Sequence)> {
        if let Some(split) = Self::split_common(name) {
            return Some(split);
        }
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
        let at = name.len() - digits;
        // "lock--000000005": the second minus belongs to the number, which has nine digits and needs it for its width.
        // "lock-0000000005" has ten digits, so the minus is not part of the number.
        let start = match digits {
            9 | 10 if name[..at].ends_with("--") || (name[..at].ends_with("_-")) => at - 1,
            10 => at,
            _ => return None,
        };
        let number: i32 = name[start..].parse().ok()?;
        // Only numbers as ZooKeeper writes them: not "-0000000001" in addition to "-000000001", and not "-000000000".
        let is_canonical = start == at || number < 0 && (digits == 9 || name.as_bytes()[at] != b'0');
        is_canonical.then_some((&name[..start], Sequence(number.into())))
    }
}

impl Sequence {
    /// [`split`](Sequence::split) for nearly all names: ten digits below 2^31, preceded by neither a digit nor a minus that
    /// may belong to the number.
    fn split_common(name: &str) -> Option<(&str, Sequence)> {
        let (rest, digits) = name.as_bytes().split_last_chunk::<10>()?;
        let (mut number, mut are_digits) = (0, true);
        for digit in digits {
            let digit = digit.wrapping_sub(b'0');
            are_digits &= digit <= 9;
            number = number * 10 + i64::from(digit);
        }
        let is_common = match rest {
            [.., b'-' | b'_', b'-'] => false,
            [.., last] => !last.is_ascii_digit(),
            [] => true,
        };
        (are_digits && is_common && number <= i64::from(i32::MAX))
            .then(|| (&name[..rest.len()], Sequence(number)))
    }
}

/// Turns sorted items into the order around a ring of 2^32 numbers, which is cut where the gap between neighbours is
/// widest. If the items span less than half the ring, the widest gap is the one behind the youngest.
pub(crate) fn rotate_to_oldest<T>(items: &mut [T], key: impl Fn(&T) -> Sequence) {
    const RING: i64 = 1 << 32;
    let (Some(first), Some(last)) = (items.first(), items.last()) else { return };
    // The gap across the wrap. A wider gap between two items means that the numbers have wrapped there.
    let mut widest = key(first).get() + RING - key(last).get();
    let mut cut = 0;
    for (i, pair) in items.windows(2).enumerate() {
        let gap = key(&pair[1]).get() - key(&pair[0]).get();
        if gap > widest {
            (widest, cut) = (gap, i + 1);
        }
    }
    items.rotate_left(cut);
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:010}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_written_as_zookeeper_writes_it() {
        for (n, text) in [
            (0, "0000000000"),
            (i32::MAX, "2147483647"),
            (i32::MIN, "-2147483648"),
            (-5, "-000000005"),
            (-999_999_999, "-999999999"),
            (-1_000_000_000, "-1000000000"),
        ] {
            assert_eq!(Sequence(n.into()).to_string(), text);
            for prefix in ["lock-", "__READ__"] {
                let name = format!("{prefix}{text}");
                assert_eq!(Sequence(n.into()).appended_to(prefix), name);
                assert_eq!(Sequence::split(&name), Some((prefix, Sequence(n.into()))), "{name}");
            }
        }
    }

    #[test]
    fn other_endings_are_none() {
        for name in [
            "lock-",
            "lock-123",
            "lock-00000000001",
            "lock-4294967296",
            "lock--0000000001",
            "lock--2147483649",
        ] {
            assert_eq!(Sequence::split(name), None, "{name}");
        }
    }

    #[test]
    fn orders_across_the_wrap() {
        let order = |numbers: &[i64]| {
            let mut v: Vec<_> = numbers.iter().map(|&n| Sequence(n)).collect();
            v.sort();
            rotate_to_oldest(&mut v, |&s| s);
            v.into_iter().map(Sequence::get).collect::<Vec<_>>()
        };
        let (max, min) = (i64::from(i32::MAX), i64::from(i32::MIN));
        assert_eq!(order(&[min, max]), [max, min]);
        assert_eq!(order(&[min + 1, max - 1, min, max]), [max - 1, max, min, min + 1]);
        assert_eq!(order(&[3, -5, 0]), [-5, 0, 3]);
        assert_eq!(order(&[1, max]), [1, max]);
        assert_eq!(order(&[7]), [7]);
        assert_eq!(order(&[]), [] as [i64; 0]);
        assert_eq!(order(&[2, 2, 1]), [1, 2, 2]);
    }
}
