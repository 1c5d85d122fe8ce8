//! Writes the history of a client process.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::clock::{Clock, now};
use crate::history::{Event, Ns, What};

/// Writes one line for each event at once, so that the history survives if the process is killed.
#[derive(Debug)]
pub(crate) struct Record {
    file: Mutex<File>,
    ops: AtomicU64,
    pub(crate) clock: Clock,
}

impl Record {
    pub(crate) fn create(path: &Path) -> std::io::Result<Self> {
        Ok(Record { file: Mutex::new(File::create_new(path)?), ops: AtomicU64::new(0), clock: Clock::new() })
    }

    /// Returns a number for a new acquisition.
    pub(crate) fn op(&self) -> u64 {
        self.ops.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Writes an event that happens now.
    pub(crate) fn write(&self, what: What) {
        self.write_at(now(), what);
    }

    pub(crate) fn write_at(&self, at: Ns, what: What) {
        let line = format!("{}\n", Event { at, what });
        self.file
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write_all(line.as_bytes())
            .expect("a line for the history");
    }
}
