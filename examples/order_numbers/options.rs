//! What the command line says.

use std::path::PathBuf;
use std::time::Duration;

use super::{Run, WORKERS};

pub(crate) const USAGE: &str = "\
Ten workers draw order numbers: first without a lock (there are duplicates), then with one (there are none).

Usage: cargo run [--features zk|etcd] --example order_numbers -- [OPTIONS]

  --url URL        the store: mem:// (default), zk://host:port (needs --features zk)
                   or etcd://host:port (needs --features etcd)
  --processes N    N processes of ten workers each, on one file; needs a store that is not mem://
  --hold-ms MS     how long a worker takes from reading to writing (default 20)
  --help           this text

From --hold-ms 100 on, each process says when it holds the lock. So with --processes 4 --hold-ms 1000 there
is time to kill one that holds it with `kill -9 PID`: the others go on when its session has timed out (5 s,
unless the URL has a session_timeout).

Exit code: 0 the numbers drawn with the lock are unique and in order; 1 they are not; 2 it could not run.";

const MEM_AND_PROCESSES: &str = "mem:// lives inside one process: \
    --processes needs a server that all of them reach, such as --url zk://host:port or etcd://host:port";

#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    pub(crate) url: String,
    /// 0: in this process.
    pub(crate) processes: u32,
    pub(crate) hold: Duration,
    /// Set in a process that was started by another: the run to make, and the file to write to.
    pub(crate) child: Option<(Run, PathBuf)>,
}

impl Options {
    /// `None` is a request for help.
    pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Option<Self>, String> {
        let (mut url, mut processes, mut hold, mut child) = (String::from("mem://"), 0, 20, None);
        let mut args = args.into_iter();
        while let Some(name) = args.next() {
            let mut value = || args.next().ok_or(format!("{name} needs a value"));
            match name.as_str() {
                "--url" => url = value()?,
                "--processes" => processes = number(&name, &value()?, 1..=64)?,
                "--hold-ms" => hold = number(&name, &value()?, 1..=60_000)?,
                "--child" => {
                    let run = if value()? == "locked" { Run::WithLock } else { Run::WithoutLock };
                    child = Some((run, PathBuf::from(value()?)));
                }
                "--help" | "-h" => return Ok(None),
                _ => return Err(format!("unknown argument {name:?}")),
            }
        }
        if processes > 0 && url.starts_with("mem:") {
            return Err(MEM_AND_PROCESSES.into());
        }
        let hold = Duration::from_millis(hold.into());
        Ok(Some(Options { url: with_short_session(url), processes, hold, child }))
    }

    pub(crate) fn to_args(&self) -> [String; 6] {
        let (processes, hold) = (self.processes.to_string(), self.hold.as_millis().to_string());
        ["--url".into(), self.url.clone(), "--processes".into(), processes, "--hold-ms".into(), hold]
    }

    /// Enough for all to draw one after the other, and for sessions that have to time out.
    pub(crate) fn longest_wait(&self) -> Duration {
        self.hold * WORKERS * self.processes.max(1) + Duration::from_secs(60)
    }
}

/// A killed process keeps the lock until its session times out: with a short one the others wait less.
fn with_short_session(url: String) -> String {
    // Nobody kills a part of a process.
    let is_mem = url.starts_with("mem:");
    if is_mem || ["session_timeout=", "ttl="].iter().any(|name| url.contains(name)) {
        return url;
    }
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}session_timeout=5s")
}

fn number(name: &str, value: &str, range: std::ops::RangeInclusive<u32>) -> Result<u32, String> {
    let parsed = value.parse().ok().filter(|n| range.contains(n));
    parsed.ok_or(format!("{name} {value}: expected {} to {}", range.start(), range.end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &str) -> Result<Option<Options>, String> {
        Options::parse(args.split_whitespace().map(String::from))
    }

    #[test]
    fn bad_arguments_are_refused() {
        for (args, part) in [
            ("--url", "--url needs a value"),
            ("--processes 0", "--processes 0: expected 1 to 64"),
            ("--hold-ms x", "--hold-ms x: expected 1 to 60000"),
            ("--processes 2", "mem:// lives inside one process"),
            ("--frob", "unknown argument \"--frob\""),
        ] {
            let e = parse(args).unwrap_err();
            assert!(e.contains(part), "{args}: {e}");
        }
        assert_eq!(parse("--url zk://h?a=1").unwrap().unwrap().url, "zk://h?a=1&session_timeout=5s");
        assert_eq!(parse("--url etcd://h").unwrap().unwrap().url, "etcd://h?session_timeout=5s");
        assert_eq!(parse("--url etcd://h?ttl=9s").unwrap().unwrap().url, "etcd://h?ttl=9s");
        assert_eq!(parse("--help").unwrap(), None);
    }
}
