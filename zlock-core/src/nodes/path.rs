//! Paths of locks, validated once.

use std::fmt;
use std::sync::Arc;

use crate::error::excerpt::Excerpt;
use crate::error::{Error, ErrorKind, Result};
use crate::nodes::name::NodeName;

/// The path of a lock: absolute, separated by `/`, with at least one segment (`/app/orders`).
///
/// The rules are ZooKeeper's, on every store, so that a lock can move from one to another: no empty segment, no `.` or
/// `..`, no control character and none of the code points that ZooKeeper refuses. In addition, a segment may not look like
/// a place in a queue (`lock-0000000001`), because the lock above would treat it as a holder.
///
/// Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockPath(Arc<str>);

impl LockPath {
    /// The maximum length of a path, in bytes. It is far below what the stores accept in one request.
    pub const MAX_BYTES: usize = 4096;

    /// Parses a path.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidPath`], with the offending part in the message.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// use zlock::LockPath;
    ///
    /// assert_eq!(LockPath::new("/app/orders")?.as_str(), "/app/orders");
    /// assert!(LockPath::new("app/orders").is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(path: impl AsRef<str>) -> Result<Self> {
        let path = path.as_ref();
        let bad = |why: String| {
            Err(Error::new(ErrorKind::InvalidPath, "path")
                .with_path(format_args!("{:?}", Excerpt::of(path)))
                .with_message(why))
        };
        let Some(relative) = path.strip_prefix('/') else {
            return bad("must start with '/'".into());
        };
        if relative.is_empty() {
            return bad("the root cannot be a lock".into());
        }
        if path.len() > Self::MAX_BYTES {
            return bad(format!("{} bytes long; the limit is {}", path.len(), Self::MAX_BYTES));
        }
        for (i, segment) in relative.split('/').enumerate() {
            if let Err(why) = check_segment(segment) {
                return bad(format!("segment {} {why}", i + 1));
            }
        }
        Ok(LockPath(path.into()))
    }

    /// Returns the path of `name` below this one. The name may have several segments.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidPath`], with the offending part in the message.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// use zlock::LockPath;
    ///
    /// let orders = LockPath::new("/app/orders")?;
    /// assert_eq!(orders.join("42")?.as_str(), "/app/orders/42");
    /// # Ok(())
    /// # }
    /// ```
    pub fn join(&self, name: &str) -> Result<Self> {
        LockPath::new(format!("{self}/{name}"))
    }

    /// Returns the path as text. It never ends in a slash.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// assert_eq!(zlock::LockPath::new("/app/orders")?.as_str(), "/app/orders");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the path without its last segment, and `None` for a path of one segment.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> zlock::Result<()> {
    /// use zlock::LockPath;
    ///
    /// let path = LockPath::new("/app/orders")?;
    /// assert_eq!(path.parent(), Some(LockPath::new("/app")?));
    /// assert_eq!(LockPath::new("/app")?.parent(), None);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn parent(&self) -> Option<LockPath> {
        match self.0.rfind('/') {
            Some(i) if i > 0 => Some(LockPath(self.0[..i].into())),
            _ => None,
        }
    }
}

fn check_segment(segment: &str) -> Result<(), String> {
    match segment {
        "" => return Err("is empty".into()),
        "." | ".." => return Err(format!("is {segment:?}: relative paths are not accepted")),
        _ => {}
    }
    let shown = Excerpt::of(segment);
    if let Some((at, c)) = segment.char_indices().find(|&(_, c)| !is_allowed(c)) {
        return Err(format!("({shown:?}) has the character {c:?} at byte {at}"));
    }
    if NodeName::parse(segment).is_some() {
        return Err(format!("({shown:?}) looks like a place in a lock's queue"));
    }
    Ok(())
}

/// Accepts a character unless ZooKeeper's `PathUtils` refuses it: control characters, the private use area, specials, and
/// everything that takes two characters in Java.
fn is_allowed(c: char) -> bool {
    !matches!(c, '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

impl fmt::Display for LockPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LockPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl AsRef<str> for LockPath {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl TryFrom<&str> for LockPath {
    type Error = Error;

    fn try_from(path: &str) -> Result<Self> {
        LockPath::new(path)
    }
}

impl std::str::FromStr for LockPath {
    type Err = Error;

    fn from_str(path: &str) -> Result<Self> {
        LockPath::new(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_what_zookeeper_takes() {
        for ok in
            ["/a", "/a/b/c", "/a b", "/...", "/订单/锁", "/a.b", "/lock-", "/lock-1", "/-lock-0000000001"]
        {
            assert_eq!(LockPath::new(ok).unwrap().as_str(), ok);
        }
    }

    #[test]
    fn refuses_and_says_where() {
        for (bad, part) in [
            ("", "must start with '/'"),
            ("a/b", "must start with '/'"),
            ("/", "the root cannot be a lock"),
            ("//a", "segment 1 is empty"),
            ("/a//b", "segment 2 is empty"),
            ("/a/", "segment 2 is empty"),
            ("/a/./b", "segment 2 is \".\""),
            ("/a/..", "segment 2 is \"..\""),
            ("/a\0b", "'\\0' at byte 1"),
            ("/ab\u{7f}", "at byte 2"),
            ("/a/\u{fff0}", "segment 2"),
            ("/a/\u{e000}", "segment 2"),
            ("/a/\u{1f512}", "segment 2"),
            ("/a/lock-0000000001", "looks like a place in a lock's queue"),
        ] {
            let e = LockPath::new(bad).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidPath, "{bad:?}");
            assert!(e.to_string().contains(part), "{bad:?}: {e}");
            assert!(e.to_string().contains(&format!("{bad:?}")), "{bad:?}: {e}");
        }
        assert!(
            LockPath::new(format!("/{}", "x".repeat(5000))).unwrap_err().to_string().contains("5001 bytes")
        );
    }

    #[test]
    fn errors_stay_short() {
        let long = "x".repeat(10_000_000);
        for bad in [
            format!("/{long}"),
            long.clone(),
            format!("/{long}\u{7f}"),
            format!("/{}/lock-0000000001", "é".repeat(5_000_000)),
            "\u{1}".repeat(10_000_000),
        ] {
            let e = LockPath::new(&bad).unwrap_err();
            assert!(format!("{e} {e:?}").len() < 10_000, "{} bytes", e.to_string().len());
            assert!(e.to_string().contains(&format!("... ({} bytes)", bad.len())), "{e}");
        }
        // A path that is short enough is shown in full.
        let e = LockPath::new(format!("/{}\u{7f}", "x".repeat(1000))).unwrap_err();
        assert!(e.to_string().contains("... (1001 bytes)) has the character '\\u{7f}' at byte 1000"), "{e}");
    }

    #[test]
    fn joins_and_goes_up() {
        let p = LockPath::new("/a").unwrap();
        assert_eq!(p.join("b/c").unwrap().as_str(), "/a/b/c");
        assert_eq!(p.join("b").unwrap().parent(), Some(p.clone()));
        assert_eq!(p.parent(), None);
        assert!(p.join("").is_err() && p.join("/b").is_err());
    }
}
