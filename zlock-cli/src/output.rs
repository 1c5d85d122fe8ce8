//! Prints tables, colours, JSON and times.

use std::io::{self, IsTerminal as _, Write as _, stdout};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::exit::{self, Failure};

/// A terminal colour, by its ANSI number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    Red = 31,
    Green = 32,
    Yellow = 33,
}

/// Returns `true` if standard output is a terminal and `NO_COLOR` is not set.
fn has_colours() -> bool {
    stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Colours a text if standard output supports it.
pub(crate) fn paint(text: &str, colour: Colour) -> String {
    if has_colours() { format!("\x1b[{}m{text}\x1b[0m", colour as u8) } else { text.to_owned() }
}

/// Writes a line to standard output.
///
/// # Errors
/// Those of [`write`].
pub(crate) fn print(line: &str) -> Result<(), Failure> {
    write(format!("{line}\n").as_bytes())
}

/// Writes text to standard output.
///
/// # Errors
/// The output is lost. If only its reader is gone (`| head`), the failure has no message and the exit code 0.
pub(crate) fn write(text: &[u8]) -> Result<(), Failure> {
    let mut stdout = stdout().lock();
    stdout.write_all(text).and_then(|()| stdout.flush()).map_err(|error| lost(&error))
}

/// Returns the failure for output that cannot be written.
pub(crate) fn lost(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::new(exit::SUCCESS, ""),
        _ => Failure::failed(format!("cannot write to standard output: {error}")),
    }
}

/// Writes JSON on one line.
pub(crate) fn print_json(value: &Value) -> Result<(), Failure> {
    print(&json_text(value))
}

/// Adds bytes to a JSON object as text, and beside it in base64 if the text cannot show all of them.
pub(crate) fn with_bytes(mut object: Value, name: &str, bytes: Option<&[u8]>) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.insert(name.to_owned(), bytes.map(String::from_utf8_lossy).into());
        if let Some(bytes) = bytes.filter(|bytes| std::str::from_utf8(bytes).is_err()) {
            fields.insert(format!("{name}_base64"), STANDARD.encode(bytes).into());
        }
    }
    object
}

/// Returns JSON that is safe to show.
pub(crate) fn json_text(value: &Value) -> String {
    // serde_json escapes control characters. The others occur in strings only, and all of them have four digits.
    value.to_string().chars().fold(String::new(), |mut text, c| {
        if misleads(c) {
            text.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            text.push(c);
        }
        text
    })
}

/// Writes a table with a row of titles. The last column is not padded.
pub(crate) fn print_table<const N: usize>(titles: [&str; N], rows: &[[String; N]]) -> Result<(), Failure> {
    let titles = titles.map(str::to_owned);
    let all = || std::iter::once(&titles).chain(rows);
    let widths: [usize; N] =
        std::array::from_fn(|column| all().map(|row| row[column].chars().count()).max().unwrap_or(0));
    all().try_for_each(|row| print_row(row, widths))
}

/// Writes a row of a table with columns of these widths.
pub(crate) fn print_row<const N: usize>(row: &[String; N], widths: [usize; N]) -> Result<(), Failure> {
    let line: String = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}  ")).collect();
    print(line.trim_end())
}

/// Returns foreign text in printable form: at most 80 characters, and [`clean`].
pub(crate) fn printable(bytes: &[u8]) -> String {
    const MAX: usize = 80;

    let text = String::from_utf8_lossy(bytes);
    match text.char_indices().nth(MAX) {
        Some((end, _)) => format!("{}..", clean(&text[..end])),
        None => clean(&text),
    }
}

/// Replaces the characters that change what is shown around them.
pub(crate) fn clean(text: &str) -> String {
    let shown = |c: char| if c.is_control() || misleads(c) { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().map(shown).collect()
}

/// Returns `true` for characters that break the line or change the direction of what follows. Names may contain them.
fn misleads(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Formats a time as `2026-11-22T14:37:00Z`.
pub(crate) fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

/// Returns year, month and day for a number of days since 1970-01-01.
fn civil(mut days: u64) -> (u64, u64, u64) {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

/// Returns this machine's time of day, for display only.
#[allow(clippy::disallowed_methods, reason = "for display only; no decision depends on it")]
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}

/// Converts a duration to milliseconds.
pub(crate) fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_210_096, "2024-02-29T12:34:56Z"),
            (1_795_358_220, "2026-11-22T14:37:00Z"),
            (4_102_444_799, "2099-12-31T23:59:59Z"),
        ] {
            assert_eq!(utc(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn foreign_text_cannot_change_the_terminal() {
        assert_eq!(printable(b"a\x1b[2J\nb\xff"), "a\u{fffd}[2J\u{fffd}b\u{fffd}");
        assert_eq!(printable(&[b'x'; 100]), format!("{}..", "x".repeat(80)));
        assert_eq!(printable("a\u{202e}b\u{2028}c\u{2066}é".as_bytes()), "a\u{fffd}b\u{fffd}c\u{fffd}é");
        let name = Value::from("a\u{202e}\u{2029}\n😀");
        assert_eq!(json_text(&name), r#""a\u202e\u2029\n😀""#);
        assert_eq!(serde_json::from_str::<Value>(&json_text(&name)).unwrap(), name);
    }
}
