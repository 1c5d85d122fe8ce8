//! ZooKeeper's four-letter words.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(2);

/// Sends a word and returns the response, or `None` without one within two seconds.
pub(super) fn ask(addr: SocketAddr, word: &str) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&addr, TIMEOUT).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    stream.write_all(word.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Returns the value of a line `key=value` or `key: value`.
pub(super) fn field<'a>(answer: &'a str, key: &str) -> Option<&'a str> {
    let rest = answer.lines().find_map(|line| line.strip_prefix(key))?;
    rest.strip_prefix('=').or_else(|| rest.strip_prefix(": "))
}

/// Returns the numbers of `mntr`, without the prefix `zk_` of their names.
pub(super) fn numbers(mntr: &str) -> BTreeMap<String, f64> {
    let line = |line: &str| {
        let (name, value) = line.split_once('\t')?;
        Some((name.strip_prefix("zk_")?.to_owned(), value.trim().parse().ok()?))
    };
    mntr.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        assert_eq!(field("clientPort=1\ndataDir=/a/version-2\n", "dataDir"), Some("/a/version-2"));
        assert_eq!(field("Zxid: 0x1\nMode: leader\n", "Mode"), Some("leader"));
        assert_eq!(field("Mode: leader\n", "Zxid"), None);
        let numbers = numbers("zk_version\t3.8.0\nzk_watch_count\t3\nzk_avg_latency\t0.5\n");
        assert_eq!(numbers, [("watch_count".to_owned(), 3.0), ("avg_latency".to_owned(), 0.5)].into());
    }
}
