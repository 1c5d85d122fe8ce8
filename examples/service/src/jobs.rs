//! The jobs, and the storage that they write to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

use zlock::FencingToken;

/// The jobs that were done, in a folder that all replicas share: a stand-in for a database.
///
/// `done` has the fencing token of the last writer and the number of the last job that is done. `journal` has a line for each
/// begin and end.
#[derive(Clone, Debug)]
pub struct Jobs {
    folder: PathBuf,
    takes: Duration,
}

impl Jobs {
    /// Jobs that are recorded in this folder and take this long.
    #[must_use]
    pub fn new(folder: impl AsRef<Path>, takes: Duration) -> Self {
        Jobs { folder: folder.as_ref().to_owned(), takes }
    }

    /// The number of the last job that is done.
    ///
    /// # Errors
    /// Those of the file.
    pub fn last_done(&self) -> io::Result<u64> {
        Ok(read(&mut self.open()?)?.1)
    }

    /// Does the next job.
    ///
    /// # Errors
    /// Those of the files; `PermissionDenied` if a later holder of the lock has written meanwhile.
    pub async fn run_next(&self, token: FencingToken) -> io::Result<()> {
        let number = self.last_done()? + 1;
        self.journal("begin", number)?;
        tokio::time::sleep(self.takes).await; // the work
        self.set_done(number, token)?;
        self.journal("end", number)
    }

    /// Records that a job is done, unless a later holder of the lock has written: a database would do it in a transaction.
    fn set_done(&self, number: u64, token: FencingToken) -> io::Result<()> {
        let mut file = self.open()?;
        file.lock()?;
        let (newest, _) = read(&mut file)?;
        if u128::from(token) < newest {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the lock has a later holder"));
        }
        file.rewind()?;
        // Of one length, so that nothing of the old text is left, and written at once.
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

/// The token and the number in the file.
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
