//! The jobs and their storage.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

use zlock::FencingToken;

/// A record of completed jobs, in a folder that all replicas share. It stands in for a database.
///
/// The file `done` contains the fencing token of the last writer and the number of the last completed job. The file `journal`
/// has a line for the start and the end of each job.
#[derive(Clone, Debug)]
pub struct Jobs {
    folder: PathBuf,
    takes: Duration,
}

impl Jobs {
    /// Creates a record in this folder, for jobs that take this long.
    #[must_use]
    pub fn new(folder: impl AsRef<Path>, takes: Duration) -> Self {
        Jobs { folder: folder.as_ref().to_owned(), takes }
    }

    /// Returns the number of the last completed job.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn last_done(&self) -> io::Result<u64> {
        Ok(read(&mut self.open()?)?.1)
    }

    /// Runs the next job.
    ///
    /// # Errors
    /// A file cannot be read or written, or a later holder of the lock has written meanwhile (`PermissionDenied`).
    pub async fn run_next(&self, token: FencingToken) -> io::Result<()> {
        let number = self.last_done()? + 1;
        self.journal("begin", number)?;
        tokio::time::sleep(self.takes).await; // the work
        self.set_done(number, token)?;
        self.journal("end", number)
    }

    /// Records a completed job, unless a later holder of the lock has written. A database would use a transaction.
    fn set_done(&self, number: u64, token: FencingToken) -> io::Result<()> {
        let mut file = self.open()?;
        file.lock()?;
        let (newest, _) = read(&mut file)?;
        if u128::from(token) < newest {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the lock has a later holder"));
        }
        file.rewind()?;
        // The text has a fixed length, so it overwrites the old one completely, in a single write.
        file.write_all(format!("{:039} {number:020}", u128::from(token)).as_bytes())
    }

    fn open(&self) -> io::Result<File> {
        fs::create_dir_all(&self.folder)?;
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(self.folder.join("done"))
    }

    fn journal(&self, what: &str, number: u64) -> io::Result<()> {
        let mut journal = OpenOptions::new().create(true).append(true).open(self.folder.join("journal"))?;
        journal.write_all(format!("{what} {number} {}\n", process::id()).as_bytes())
    }
}

/// Returns the token and the number in the file.
fn read(file: &mut File) -> io::Result<(u128, u64)> {
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    if text.is_empty() {
        return Ok((0, 0));
    }
    let parsed =
        text.split_once(' ').and_then(|(token, done)| Some((token.parse().ok()?, done.parse().ok()?)));
    parsed.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, text))
}
