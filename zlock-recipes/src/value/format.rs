//! How the number of a counter is stored.

use zlock_core::{Error, ErrorKind, LockPath, Result};

/// How the number of a [`Counter`](crate::Counter) is stored. All clients of a counter must use the same format.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CounterFormat {
    /// Eight bytes, the most significant one first, as Curator's `DistributedAtomicLong`.
    #[default]
    Long,
    /// Four bytes, the most significant one first, as Curator's `SharedCount`. The number has 32 bits.
    Int,
    /// Decimal digits, which the stores' own tools show as they are.
    Text,
}

impl CounterFormat {
    /// Parses data. A missing or an empty value is 0.
    pub(crate) fn parse(self, data: &[u8], path: &LockPath) -> Result<i64> {
        let number = match self {
            _ if data.is_empty() => Some(0),
            CounterFormat::Long => data.try_into().ok().map(i64::from_be_bytes),
            CounterFormat::Int => data.try_into().ok().map(|data| i32::from_be_bytes(data).into()),
            CounterFormat::Text => {
                std::str::from_utf8(data).ok().and_then(|text| text.trim_ascii_end().parse().ok())
            }
        };
        number.ok_or_else(|| {
            let message = format!("the value of {} bytes is not a number in the format {self:?}", data.len());
            Error::new(ErrorKind::InvalidArgument, "counter").with_path(path).with_message(message)
        })
    }

    /// Returns the data of a number. `None` if the format has no room for it.
    pub(crate) fn write(self, number: i64) -> Option<Vec<u8>> {
        match self {
            CounterFormat::Long => Some(number.to_be_bytes().into()),
            CounterFormat::Int => i32::try_from(number).ok().map(|number| number.to_be_bytes().into()),
            CounterFormat::Text => Some(number.to_string().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CounterFormat::{Int, Long, Text};
    use super::*;

    #[test]
    fn numbers_are_read_as_they_are_written() {
        let path = LockPath::new("/count").unwrap();
        for (format, number, data) in [
            (Long, 1, &[0, 0, 0, 0, 0, 0, 0, 1][..]),
            (Long, i64::MIN, &[0x80, 0, 0, 0, 0, 0, 0, 0]),
            (Int, -2, &[0xff, 0xff, 0xff, 0xfe]),
            (Text, -17, b"-17"),
        ] {
            assert_eq!(format.write(number).as_deref(), Some(data), "{format:?} {number}");
            assert_eq!(format.parse(data, &path).unwrap(), number, "{format:?} {number}");
            assert_eq!(format.parse(b"", &path).unwrap(), 0);
        }
        assert_eq!(Text.parse(b"42\n", &path).unwrap(), 42);
        assert_eq!(Int.write(1 << 31), None);
        for (format, data) in
            [(Long, &b"1234567"[..]), (Int, b"12345678"), (Text, b"x"), (Text, b"9999999999999999999")]
        {
            assert_eq!(format.parse(data, &path).unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
    }
}
