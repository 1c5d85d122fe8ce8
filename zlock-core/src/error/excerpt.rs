//! Excerpts of refused input for error messages, which must not become arbitrarily long.

use std::fmt;

/// The maximum number of characters of an input that an error shows.
const MAX_CHARS: usize = 200;

/// An input as shown by an error: its first 200 characters, and its length if it is longer.
///
/// `{}` shows it unchanged, `{:?}` in quotes and with escapes.
///
/// # Examples
/// ```
/// use zlock_core::Excerpt;
///
/// assert_eq!(format!("{:?}", Excerpt::of("/app")), "\"/app\"");
/// let long = Excerpt::of(&"x".repeat(10_000_000)).to_string();
/// assert!(long.starts_with("xxx") && long.ends_with("... (10000000 bytes)"));
/// ```
#[derive(Clone, Copy)]
pub struct Excerpt<'a> {
    shown: &'a str,
    /// In bytes, of the whole input.
    len: usize,
}

impl<'a> Excerpt<'a> {
    /// Creates the excerpt of this input.
    #[must_use]
    pub fn of(input: &'a str) -> Self {
        let end = input.char_indices().nth(MAX_CHARS).map_or(input.len(), |(at, _)| at);
        Excerpt { shown: &input[..end], len: input.len() }
    }

    fn rest(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.shown.len() == self.len { Ok(()) } else { write!(f, "... ({} bytes)", self.len) }
    }
}

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.shown)?;
        self.rest(f)
    }
}

impl fmt::Debug for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.shown, f)?;
        self.rest(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_between_characters() {
        for (input, shown) in [
            (String::new(), "\"\"".to_owned()),
            ("é".repeat(MAX_CHARS), format!("\"{}\"", "é".repeat(MAX_CHARS))),
            ("é".repeat(MAX_CHARS + 1), format!("\"{}\"... (402 bytes)", "é".repeat(MAX_CHARS))),
        ] {
            assert_eq!(format!("{:?}", Excerpt::of(&input)), shown);
        }
    }
}
