//! Checks that the system has room for what zlock needs. The libraries below it panic without.

use std::io;
use std::sync::mpsc::channel;
use std::thread;

use rustix::io::dup;
use rustix::stdio::stdin;

use crate::exit::Failure;

/// The number of files that a process of zlock may open.
const FILES: usize = 32;

/// The number of threads that a process of zlock may start.
const THREADS: usize = 4;

/// Checks that files can be opened.
///
/// # Errors
/// Fails with exit code 125.
pub(crate) fn files() -> Result<(), Failure> {
    let opened: Result<Vec<_>, _> = (0..FILES).map(|_| dup(stdin())).collect();
    opened.map(drop).map_err(|error| refused(FILES, "files", &error.into(), "ulimit -n"))
}

/// Checks that threads can be started.
///
/// # Errors
/// Fails with exit code 125.
pub(crate) fn threads() -> Result<(), Failure> {
    let mut ends = Vec::new();
    let mut wait = || {
        let (end, ended) = channel::<()>();
        ends.push(end);
        thread::Builder::new().spawn(move || ended.recv().is_err())
    };
    let started: Vec<_> = (0..THREADS).map(|_| wait()).collect();
    // Nothing was ever sent: the channels close, and the threads end.
    drop(ends);
    for thread in started {
        // A thread that does nothing does not panic.
        let _ = thread.map_err(|error| refused(THREADS, "threads", &error, "ulimit -u"))?.join();
    }
    Ok(())
}

fn refused(count: usize, what: &str, error: &io::Error, limit: &str) -> Failure {
    Failure::failed(format!("zlock needs {count} {what}: {error}; check the limit ({limit})"))
}
