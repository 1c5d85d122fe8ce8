//! Text, or a file that is read whenever its text is needed.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The maximum length in bytes, which is more than any password or certificate chain needs.
const MAX_LEN: u64 = 1 << 20;

/// A secret or a certificate: the text itself, or a file that is read for each new connection.
///
/// Options take `impl Into<TextOrFile>`: a string is the text, and a [`Path`] or a [`PathBuf`] is a file.
///
/// # Examples
/// ```
/// use std::path::Path;
/// use zlock::TextOrFile;
///
/// let given = TextOrFile::from("secret");
/// let file = TextOrFile::from(Path::new("/run/secrets/zlock"));
/// assert_eq!(format!("{given:?} {file:?}"), "*** \"/run/secrets/zlock\"");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct TextOrFile(Source);

#[derive(Clone, PartialEq, Eq)]
enum Source {
    Text(String),
    File(PathBuf),
}

impl TextOrFile {
    /// Returns the path of the file, or `None` for a text.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match &self.0 {
            Source::Text(_) => None,
            Source::File(file) => Some(file),
        }
    }

    /// Returns `what`, followed by the path if it is a file. For messages about invalid contents.
    #[must_use]
    pub fn describe(&self, what: &str) -> String {
        match &self.0 {
            Source::Text(_) => what.to_owned(),
            Source::File(file) => format!("{what} in {}", file.display()),
        }
    }

    /// Returns the text, reading the file if it is one.
    ///
    /// # Errors
    /// The path of the file, and why it cannot be read.
    pub fn read(&self) -> Result<String, String> {
        match &self.0 {
            Source::Text(text) => Ok(text.clone()),
            Source::File(file) => read(file).map_err(|why| format!("{}: {why}", file.display())),
        }
    }

    /// Returns the text. Trailing line endings of a file are ignored, since editors and `echo` add one.
    ///
    /// # Errors
    /// Those of [`read`](Self::read), and for a file that is empty.
    pub fn read_secret(&self) -> Result<String, String> {
        let mut text = self.read()?;
        if let Source::File(file) = &self.0 {
            text.truncate(text.trim_end_matches(['\r', '\n']).len());
            if text.is_empty() {
                return Err(format!("{}: the file is empty", file.display()));
            }
        }
        Ok(text)
    }
}

fn read(file: &Path) -> Result<String, String> {
    let mut text = Vec::new();
    let opened = File::open(file).map_err(|e| e.to_string())?;
    opened.take(MAX_LEN + 1).read_to_end(&mut text).map_err(|e| e.to_string())?;
    if text.len() as u64 > MAX_LEN {
        return Err(format!("is longer than {MAX_LEN} bytes"));
    }
    // The library's error would reveal the text.
    String::from_utf8(text).map_err(|_| "is not UTF-8".into())
}

impl From<String> for TextOrFile {
    fn from(text: String) -> Self {
        TextOrFile(Source::Text(text))
    }
}

impl From<&str> for TextOrFile {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<&String> for TextOrFile {
    fn from(text: &String) -> Self {
        text.clone().into()
    }
}

impl From<PathBuf> for TextOrFile {
    fn from(file: PathBuf) -> Self {
        TextOrFile(Source::File(file))
    }
}

impl From<&Path> for TextOrFile {
    fn from(file: &Path) -> Self {
        file.to_owned().into()
    }
}

/// Shows a file's name, but never a text.
impl fmt::Debug for TextOrFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Text(_) => f.write_str("***"),
            Source::File(file) => file.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        let text = TextOrFile::from(&*file);
        assert!(text.read().unwrap_err().starts_with(&format!("{}: ", file.display())));
        for (written, secret) in [("one\n", "one"), ("two \r\n\n", "two "), ("three", "three")] {
            std::fs::write(&file, written).unwrap();
            assert_eq!((&*text.read().unwrap(), &*text.read_secret().unwrap()), (written, secret));
        }
        for (bad, why) in [
            (b"\n".to_vec(), "the file is empty"),
            (b"SECRET\xff".to_vec(), "is not UTF-8"),
            (vec![b'x'; 2_000_000], "is longer than 1048576 bytes"),
        ] {
            std::fs::write(&file, bad).unwrap();
            let error = text.read_secret().unwrap_err();
            assert_eq!(error, format!("{}: {why}", file.display()));
        }
    }

    #[test]
    fn a_message_names_the_file_and_no_text() {
        assert_eq!(TextOrFile::from("SECRET").describe("the key"), "the key");
        assert_eq!(TextOrFile::from(Path::new("/run/key")).describe("the key"), "the key in /run/key");
    }

    #[test]
    fn a_text_is_as_it_was_given() {
        assert_eq!(TextOrFile::from("a\n").read_secret().unwrap(), "a\n");
    }
}
